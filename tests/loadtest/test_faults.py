"""Each fault as a real mitmproxy makes it, seen from both of its sides."""

import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from loadtest.errors import UnavailableError
from loadtest.faults.plan import BREAKS, PlanError
from loadtest.faults.proxy import FaultProxy, find_program
from loadtest.peers.process import free_port, run_process
from tests.helpers.gateway import LocalGateway, make_gateway_config
from tests.helpers.rawhttp import Client, Connection, EventStream, Response, wait_until
from tests.helpers.require import need
from tests.helpers.scripted_origin import Answer, Gate, ScriptedOrigin

BODY = bytes(range(256)) * 64
PATH = "/v1/stream/a"
HEADERS = {"Content-Type": "text/plain", "Stream-Next-Offset": "0000000000000000_0000000000016384"}


@pytest.fixture(scope="module")
def origin() -> Iterator[ScriptedOrigin]:
    with ScriptedOrigin() as origin:
        yield origin


@pytest.fixture(scope="module")
def proxy(origin: ScriptedOrigin, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultProxy]:
    try:
        find_program("mitmdump")
    except UnavailableError as error:
        need(False, str(error))
    proxy = FaultProxy(origin.url, free_port(), tmp_path_factory.mktemp("faults"))
    proxy.set_plan({})
    with run_process(proxy.start(), proxy.folder / "mitmdump.log"):
        yield proxy


class Rig:
    """The proxy with one kind of fault for every request."""

    def __init__(self, proxy: FaultProxy, origin: ScriptedOrigin) -> None:
        self.proxy, self.origin = proxy, origin
        self.port = proxy.port
        self._before = len(proxy.injected()), len(origin.requests)
        origin.on("GET", PATH, Answer(200, HEADERS, BODY))
        origin.on("POST", PATH, Answer(204, HEADERS))
        self.plan()

    def plan(self, **faults: Any) -> None:
        self.proxy.set_plan({"seed": 1, "place": "test", "faults": faults})

    def read(self) -> Response:
        with Client(self.port) as client:
            return client.read("a")

    def cut(self) -> bytes:
        """What came before the connection ended amid an answer."""
        with Connection(self.port) as connection:
            connection.send(b"GET /v1/stream/a HTTP/1.1\r\nHost: a\r\n\r\n")
            return connection.wait_closed()

    @property
    def injected(self) -> list[str]:
        return [line["fault"] for line in self.proxy.injected()[self._before[0] :]]

    @property
    def arrived(self) -> list[str]:
        return [request.method for request in self.origin.requests[self._before[1] :]]


@pytest.fixture
def rig(proxy: FaultProxy, origin: ScriptedOrigin) -> Rig:
    return Rig(proxy, origin)


def test_without_faults_everything_passes_as_it_is(rig: Rig) -> None:
    with Client(rig.port) as client:
        assert client.read("a").body == BODY
        assert client("POST", "a", {"Content-Type": "text/plain"}, BODY).status == 204
    assert rig.origin.requests[-1].body == BODY
    assert rig.origin.requests[-1].headers["host"] == "weir.test"
    assert rig.injected == []


def test_a_request_can_be_delayed(rig: Rig) -> None:
    rig.plan(delay={"rate": 1, "ms": [150, 150]})
    began = time.monotonic()
    assert rig.read().body == BODY
    assert time.monotonic() - began >= 0.15
    assert rig.injected == ["delay"]


def test_a_dropped_request_never_arrives(rig: Rig) -> None:
    rig.plan(drop=1)
    assert rig.cut() == b""
    assert (rig.injected, rig.arrived) == (["drop"], [])


def test_an_error_is_answered_without_the_origin(rig: Rig) -> None:
    rig.plan(error={"rate": 1, "statuses": [503]})
    assert rig.read().status == 503
    assert (rig.injected, rig.arrived) == (["error"], [])


def test_a_repeated_append_arrives_twice_and_is_answered_once(rig: Rig) -> None:
    rig.plan(repeat=1)
    with Client(rig.port) as client:
        headers = {"Content-Type": "text/plain", "Producer-Id": "p", "Producer-Seq": "7"}
        assert client("POST", "a", headers, b"once").status == 204
        assert client("POST", "a", {"Content-Type": "text/plain"}, b"no producer").status == 204
    assert (rig.injected, rig.arrived) == (["repeat"], ["POST"] * 3)
    twice = rig.origin.requests[-3:-1]
    assert [(sent.body, sent.headers["producer-seq"]) for sent in twice] == [(b"once", "7")] * 2


def test_a_truncated_answer_ends_before_its_length(rig: Rig) -> None:
    rig.plan(truncate=1)
    for _ in range(8):
        head, _, body = rig.cut().partition(b"\r\n\r\n")
        assert b"Content-Length: 16384" in head
        assert body == BODY[: len(body)] and len(body) < len(BODY)
    assert (rig.injected, rig.arrived) == (["truncate"] * 8, ["GET"] * 8)


def test_a_short_answer_is_truncated_too(rig: Rig) -> None:
    rig.origin.on("GET", PATH, Answer(200, HEADERS, b"ab"))
    rig.plan(truncate=1)
    assert {rig.cut().partition(b"\r\n\r\n")[2] for _ in range(8)} == {b"", b"a"}


def test_a_chunked_answer_never_reaches_its_end(rig: Rig) -> None:
    rig.origin.on("GET", PATH, Answer(200, HEADERS, chunked=True, pieces=[b"one", b"two"]))
    rig.plan(truncate=1)
    for _ in range(8):
        assert not rig.cut().endswith(b"0\r\n\r\n")
    assert rig.injected == ["truncate"] * 8


def test_a_reset_breaks_the_connection_after_the_origin_has_done_its_work(rig: Rig) -> None:
    rig.plan(reset=1)
    for _ in range(8):
        with socket.create_connection(("127.0.0.1", rig.port), 10) as broken:
            broken.sendall(b"GET /v1/stream/a HTTP/1.1\r\nHost: a\r\n\r\n")
            with pytest.raises(ConnectionResetError):
                while broken.recv(65536):
                    pass
    assert (rig.injected, rig.arrived) == (["reset"] * 8, ["GET"] * 8)


def test_an_answer_can_stall_before_its_first_byte(rig: Rig) -> None:
    rig.plan(stall={"rate": 1, "ms": [200, 200]})
    began = time.monotonic()
    assert rig.read().body == BODY
    assert time.monotonic() - began >= 0.2
    assert rig.injected == ["stall"]


def test_events_flow_through_as_they_come(rig: Rig) -> None:
    gate = Gate()
    _serve_events(rig.origin, [b"event: data\ndata: 1\n\n", gate, b"event: data\ndata: 2\n\n"])
    with EventStream(rig.port, "a") as events:
        assert events.next_write()[0].data == "1"  # while the origin holds the rest
        gate.open()
        assert events.next_write()[0].data == "2"


def test_an_event_stream_stalls_amid(rig: Rig) -> None:
    pieces = [b"event: data\ndata: %d %s\n\n" % (n, b"x" * 1000) for n in range(12)]
    _serve_events(rig.origin, [item for piece in pieces for item in (piece, 0.005)])
    rig.plan(stall={"rate": 1, "ms": [200, 200]})
    began = time.monotonic()
    with EventStream(rig.port, "a") as events:
        assert len(events.rest()) == 12
    assert time.monotonic() - began >= 0.2
    assert rig.injected == ["stall"]


@pytest.mark.parametrize(
    ("broken", "shown"),
    [
        ("bad-offset", b"Stream-Next-Offset: no/offset?"),
        ("bad-name", b"bad name: 1"),
        ("two-lengths", b"Content-Length: 11"),
        ("huge", b"x-huge: " + b"x" * 70_000),
        ("bad-version", b"HTPT/1.1 200"),
    ],
)
def test_a_header_is_broken_where_the_receiver_can_see_it(
    rig: Rig, broken: str, shown: bytes
) -> None:
    rig.plan(garble={"rate": 1, "breaks": [broken]})
    with Connection(rig.port) as connection:
        connection.send(b"GET /v1/stream/a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        assert shown.lower() in connection.wait_closed().lower()
    assert rig.injected == ["garble"]


def test_an_answer_can_lose_its_offset(rig: Rig) -> None:
    rig.plan(garble={"rate": 1, "breaks": ["no-offset"]})
    assert "Stream-Next-Offset" not in rig.read()


def test_the_log_says_what_happened_where_and_when(rig: Rig) -> None:
    rig.plan(error={"rate": 1, "statuses": [502]})
    with Client(rig.port) as client:
        client("GET", "a", {"X-Request-Id": "r7"}, query="offset=-1&live=long-poll&access_token=s")
    line = rig.proxy.injected()[-1]
    assert abs(line.pop("time") - time.time()) < 10
    assert line.pop("number") >= 1
    assert line == {
        **{"place": "test", "fault": "error", "method": "GET", "path": PATH, "status": 502},
        **{"offset": "-1", "live": "long-poll", "request_id": "r7"},
    }


def test_a_client_that_leaves_is_gone_at_the_origin_too(rig: Rig) -> None:
    rig.origin.hold()
    before, asked = rig.origin.abandoned, len(rig.origin.requests)
    with Connection(rig.port) as connection:
        connection.send(b"GET /v1/stream/a?live=long-poll HTTP/1.1\r\nHost: a\r\n\r\n")
        rig.origin.wait_for_requests(asked + 1)
    wait_until(lambda: rig.origin.abandoned > before)
    rig.origin.release()


def test_a_wrong_plan_is_refused_before_it_is_written(tmp_path: Path) -> None:
    with pytest.raises(PlanError):
        FaultProxy("", 1, tmp_path).set_plan({"faults": {"burn": 1}})
    assert list(tmp_path.iterdir()) == []


def test_half_a_line_of_the_log_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "faults.jsonl").write_text('{"fault": "drop"}\n{"fau')
    assert FaultProxy("", 1, tmp_path).injected() == [{"fault": "drop"}]
    assert FaultProxy("", 1, tmp_path / "none").injected() == []


def _serve_events(origin: ScriptedOrigin, pieces: list[bytes | float | Gate]) -> None:
    headers = {"Content-Type": "text/event-stream"}
    origin.on("GET", PATH, Answer(200, headers, chunked=True, pieces=pieces))


@pytest.mark.parametrize("broken", BREAKS)
def test_a_gateway_never_passes_on_what_is_broken(
    rig: Rig, origin: ScriptedOrigin, broken: str
) -> None:
    path = f"/v1/stream/through/{broken}"
    origin.on("GET", path, Answer(200, HEADERS, BODY))
    rig.plan(garble={"rate": 1, "breaks": [broken], "paths": "/through/"})
    with (
        LocalGateway(make_gateway_config(f"http://127.0.0.1:{rig.port}")) as gateway,
        gateway.client() as client,
    ):
        assert client.read(f"through/{broken}").status == 502
        rig.plan()
        assert client.read(f"through/{broken}").body == BODY
