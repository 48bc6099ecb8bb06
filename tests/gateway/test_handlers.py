"""The ordinary path: what aiohttp parses gets the same answer as what the fast path takes."""

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pytest

from gateway.records import Records
from tests.conftest import StartOrigin
from tests.helpers.accesslog import whole_lines
from tests.helpers.gateway import KEY, LocalGateway, bearer, make_gateway_config
from tests.helpers.keys import make_token
from tests.helpers.offsets import nameless, unnamed
from tests.helpers.rawhttp import Connection, Response, encode_request, wait_until
from tests.helpers.scripted_origin import Answer, ScriptedOrigin

TOKEN = make_token(KEY)
READER = make_token(KEY, sub="bob", scope="read:pub/*")
ODDITIES = [{"TE": "trailers"}, {"Connection": "close"}, {"Connection": "keep-alive, x"}]
OWN = {"date", "x-request-id", "connection", "age"}  # of each answer, or of how it came
LOGGED_OWN = {"time_ms", "seq", "request_id", "duration_ms", "upstream_ms", "wait_ms", "flight_id"}


@dataclass(frozen=True)
class Ask:
    method: str
    target: str
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    def marked(self, request_id: str) -> "Ask":
        headers = {**self.headers, "X-Request-Id": request_id}
        return Ask(self.method, self.target, headers, self.body)

    def named(self, name: str) -> "Ask":
        return Ask(self.method, self.target.replace("NAME", name), self.headers, self.body)


USUAL: dict[str, Any] = {}
SPECIAL: dict[str, Any] = {  # no hit is simple here
    "http": {"cors_origins": ("https://app.example",)},
    "auth": {"cookie": "session"},
}


@pytest.fixture
def sections() -> dict[str, Any]:
    return USUAL


@pytest.fixture
def gateway(
    start_origin: StartOrigin, tmp_path: Path, sections: dict[str, Any]
) -> Iterator[LocalGateway]:
    origin = start_origin(storage={"chunk_bytes": 2048}, server={"long_poll_timeout_secs": 0.02})
    config = make_gateway_config(
        f"http://127.0.0.1:{origin.port}",
        gateway={"access_log": str(tmp_path / "log")},
        cache={"fresh_secs": 600},
        **sections,
    )
    with LocalGateway(config) as gateway:
        yield gateway


def send(connection: Connection, ask: Ask, more: dict[str, str]) -> Response:
    headers = {**ask.headers, **more}
    return connection.request(ask.method, ask.target, headers, ask.body)


def plain(gateway: LocalGateway, *asks: Ask) -> list[Response]:
    with gateway.connect() as connection:
        return [send(connection, ask, {}) for ask in asks]


def odd(gateway: LocalGateway, *asks: Ask, oddity: dict[str, str] | None = None) -> list[Response]:
    found = []
    for number, ask in enumerate(asks):
        with gateway.connect() as connection:
            found.append(send(connection, ask, oddity or ODDITIES[number % len(ODDITIES)]))
    return found


def shown(response: Response, name: str = "") -> dict[str, Any]:
    """What of an answer must be equal whichever way it came."""
    cursors = (("stream-cursor", "N") if f[0] == "stream-cursor" else f for f in response.fields)
    fields = sorted(f for f in cursors if f[0] not in OWN)
    found = {"status": response.status, "fields": fields, "body": response.body}
    return found if not name else anonymous(found, name)


def anonymous(found: dict[str, Any], name: str) -> dict[str, Any]:
    """Of a write: without the stream's name, and the tags and offsets that name the stream."""
    fields = [
        (k, unnamed(v) if k == "stream-next-offset" else v.replace(name, "NAME"))
        for k, v in found["fields"]
        if k != "etag"
    ]
    return {**found, "fields": fields, "body": found["body"].replace(name.encode(), b"NAME")}


# -- reads of one stream -------------------------------------------------------------------------

TAIL = nameless(5000)
MINE = bearer(TOKEN)
GZIP = {"Accept-Encoding": "gzip"}
READS = [
    Ask("GET", target, {**MINE, **headers})
    for target in (
        "/v1/stream/pub/a",
        "/v1/stream/pub/a?offset=-1",
        "/v1/stream/pub/%61?x=1&offset=-1",
        f"/v1/stream/pub/a?offset={nameless(4100)}",
        f"/v1/stream/pub/a?offset={TAIL}",
        "/v1/stream/pub/a?offset=now",
        "/v1/stream/closed",
        f"/v1/stream/pub/a?offset={TAIL}&live=long-poll",
        f"/v1/stream/pub/a?offset={TAIL}&live=long-poll&cursor=99999999999",
        "/v1/stream/pub/a?offset=-1&live=long-poll",
        "/v1/stream/pub/a?offset=now&live=long-poll",
        "/v1/stream/closed?offset=-1&live=sse",
        "/v1/stream/nothing",
        "/v1/stream/nothing?offset=-1&live=sse",
        "/v1/stream/pub/a?offset=1&offset=2",
        "/v1/stream/pub/a?offset=",
        "/v1/stream/pub/a?live=sse",
        "/v1/stream/a%2Fb",
        "/v1/stream/__ds/../x",
    )
    for headers in (
        {},
        GZIP,
        {"If-None-Match": "*"},
        {"If-None-Match": '"x", W/"y"'},
        {"Origin": "https://app.example"},
        {"Origin": "https://other.example"},
    )
]
OTHERS = [
    Ask("HEAD", "/v1/stream/pub/a", MINE),
    Ask("HEAD", "/v1/stream/nothing", MINE),
    Ask("OPTIONS", "/v1/stream/pub/a", {"Origin": "https://app.example"}),
    Ask("GET", "/v1/stream/pub/a"),
    Ask("GET", "/v1/stream/pub/a", {"Authorization": "Basic eDp5"}),
    Ask("GET", "/v1/stream/pub/a", bearer("not.a.token")),
    Ask("GET", "/v1/stream/pub/a", {"Cookie": f"session={TOKEN}"}),
    Ask("GET", "/v1/stream/pub/a", {**MINE, "Cookie": f"session={TOKEN}"}),
    Ask("GET", "/v1/stream/closed", bearer(READER)),
    Ask("GET", "/v1/stream/pub/a", bearer(READER)),
    Ask("PATCH", "/v1/stream/pub/a", MINE),
    Ask("GET", "/healthz"),
    Ask("GET", "/readyz"),
    Ask("HEAD", "/healthz"),
    Ask("GET", "/elsewhere"),
    Ask("POST", "/v1/stream/pub/a", MINE, b"no type"),
    Ask("DELETE", "/v1/stream/nothing", MINE),
]


@pytest.fixture
def filled(gateway: LocalGateway) -> LocalGateway:
    with gateway.client() as client:
        client.create("pub/a", body=b"x" * 100)
        for _ in range(49):
            client.append("pub/a", b"y" * 100)
        client.create("closed", "application/json", b'["a","b"]', Stream_Closed="true")
    return gateway


@pytest.mark.parametrize("sections", [USUAL, SPECIAL], ids=["usual", "special"])
def test_reads_and_refusals_are_the_same_by_either_path(
    filled: LocalGateway, sections: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three times: to fill the cache, by the one path, by the other."""
    hits = spy(monkeypatch, Records, "write_hit")
    asks = READS + OTHERS
    plain(filled, *asks)
    plain(filled, *asks)
    hits.clear()
    for ask, one, other in zip(asks, plain(filled, *asks), odd(filled, *asks), strict=True):
        assert shown(one) == shown(other), ask
    assert (len(hits) > 10) == (sections is USUAL), "by the shortest path where there is one"


def spy(monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> list[object]:
    """One item for each call."""
    real = getattr(owner, name)
    calls: list[object] = []

    def noted(*given: Any) -> Any:
        calls.append(given)
        return real(*given)

    monkeypatch.setattr(owner, name, noted)
    return calls


def test_conditions_hold_by_either_path(filled: LocalGateway) -> None:
    whole = [ask for ask in READS if ask.headers in (MINE, {**MINE, **GZIP})]
    tagged = [
        Ask("GET", ask.target, {**ask.headers, "If-None-Match": response["ETag"]})
        for ask, response in zip(whole, plain(filled, *whole), strict=True)
        if "ETag" in response and "live" not in ask.target
    ]
    assert len(tagged) > 8
    for one, other in zip(plain(filled, *tagged), odd(filled, *tagged), strict=True):
        assert one.status == 304 and shown(one) == shown(other)


def test_log_lines_are_the_same_by_either_path(filled: LocalGateway, tmp_path: Path) -> None:
    asks = [ask for ask in READS if ask.headers in (MINE, {**MINE, **GZIP})] + OTHERS
    for ask in asks:
        plain(filled, ask, ask.marked("by-one"))
        odd(filled, ask.marked("by-the-other"))
    filled.stop()
    lines = read_log(tmp_path)
    one, other = (without_own(lines, mark) for mark in ("by-one", "by-the-other"))
    assert len(one) == len(asks) and one == other


def read_log(tmp_path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in whole_lines(tmp_path / "log")]


def without_own(lines: list[dict[str, Any]], mark: str) -> list[dict[str, Any]]:
    marked = [line for line in lines if line["request_id"] == mark]
    for line in marked:
        if line["role"] == "hub":  # the hub asks in the name of whoever came first
            del line["upstream_requests"]
    return [{k: v for k, v in line.items() if k not in LOGGED_OWN} for line in marked]


# -- writes to twins -----------------------------------------------------------------------------


def make_history(chance: Random) -> list[Ask]:
    """Requests on one stream, in an order that makes some of them fail."""
    kinds = ["text/plain", "application/json", "image/png"]
    kind = {**MINE, "Content-Type": chance.choice(kinds)}
    closing = {"Stream-Closed": chance.choice(["true", "TRUE", "no"])}
    producer = {"Producer-Id": "p", "Producer-Epoch": "0"}
    bodies = [b"", b"1", b"[1,2]", b'"x"', b"x" * 3000]
    target = "/v1/stream/NAME"
    make: list[Any] = [
        lambda: Ask("PUT", target, kind, chance.choice(bodies)),
        lambda: Ask("PUT", target, {**kind, "Stream-TTL": chance.choice(["60", "060"])}),
        lambda: Ask("POST", target, kind, chance.choice(bodies)),
        lambda: Ask("POST", target, kind | closing, chance.choice(bodies)),
        lambda: Ask(
            "POST", target, kind | producer | {"Producer-Seq": str(chance.randrange(3))}, b"1"
        ),
        lambda: Ask("POST", target, {**MINE, "Content-Type": chance.choice(kinds)}, b"1"),
        lambda: Ask("GET", target, MINE),
        lambda: Ask("GET", target + "?offset=now", MINE),
        lambda: Ask("HEAD", target, MINE),
        lambda: Ask("DELETE", target, MINE),
        lambda: Ask("PUT", target, {**kind, "Stream-Forked-From": "/v1/stream/pub/%61"}),
    ]
    return [make[0]()] + [chance.choice(make)() for _ in range(14)]


@pytest.mark.parametrize("seed", range(6))
def test_histories_are_the_same_by_either_path(filled: LocalGateway, seed: int) -> None:
    history = make_history(Random(seed))
    ones = plain(filled, *(ask.named(f"one-{seed}") for ask in history))
    twos = odd(filled, *(ask.named(f"two-{seed}") for ask in history))
    for ask, one, two in zip(history, ones, twos, strict=True):
        assert shown(one, f"one-{seed}") == shown(two, f"two-{seed}"), ask


# -- connections ---------------------------------------------------------------------------------


def old_request(target: str, *lines: str) -> bytes:
    """HTTP/1.0."""
    head = [f"GET {target} HTTP/1.0", f"Authorization: Bearer {TOKEN}", *lines]
    return "\r\n".join(head).encode() + b"\r\n\r\n"


@pytest.mark.parametrize("line", ["Accept: */*", "Connection: keep-alive"])
def test_what_has_no_length_ends_with_the_connection_for_old_clients(
    filled: LocalGateway, line: str
) -> None:
    with filled.connect() as connection:
        connection.send(old_request("/v1/stream/closed?offset=-1&live=sse", line))
        response = connection.read_response()
        assert response.get("Transfer-Encoding") is None and response["Connection"] == "close"
        assert response.body.startswith(b"event: data\ndata:") and b"streamClosed" in response.body


@pytest.mark.parametrize("line", ["Accept: */*", "Connection: keep-alive"])
def test_old_clients_get_one_answer_a_connection(filled: LocalGateway, line: str) -> None:
    with filled.connect() as connection:
        connection.send(old_request("/v1/stream/pub/a", line))
        response = connection.read_response()
        assert len(response.body) == int(response["Content-Length"]) > 2000
        assert response["Connection"] == "close" and connection.wait_closed() == b""


def test_a_client_that_wants_to_go_on_may(filled: LocalGateway) -> None:
    with filled.connect() as connection:
        for _ in range(3):
            response = connection.request("GET", "/v1/stream/pub/a", {**MINE, "TE": "trailers"})
            assert response.status == 200 and response.get("Connection") is None


def test_a_refused_body_ends_the_connection_and_is_logged(
    filled: LocalGateway, tmp_path: Path
) -> None:
    headers = {"Content-Encoding": "gzip", "X-Request-Id": "refused-1"}
    with filled.connect() as connection:
        response = connection.request("POST", "/v1/stream/pub/a", headers, b"hello")
        assert (response.status, response["Connection"]) == (415, "close")
        assert response["X-Request-Id"] == "refused-1" and connection.wait_closed() == b""
    filled.stop()
    (line,) = [line for line in read_log(tmp_path) if line["request_id"] == "refused-1"]
    assert (line["status"], line["verdict"], line["method"]) == (415, "refused", "POST")


def test_a_gateway_that_stops_answers_once_more_and_closes(tmp_path: Path) -> None:
    """Connections that were kept, while it waits for a request that has begun."""
    with ScriptedOrigin() as origin:
        config = make_gateway_config(origin.url)
        with LocalGateway(config) as gateway, gateway.connect() as one, gateway.connect() as other:
            assert other.request("GET", "/healthz").status == 200
            gate = origin.hold()
            origin.on("POST", "/v1/stream/a", Answer(204, {"Stream-Next-Offset": "1"}))
            one.send(encode_request("POST", "/v1/stream/a", MINE, b"x"))
            origin.wait_for_requests(1)
            stopping = threading.Thread(target=gateway.stop)
            stopping.start()
            wait_until(lambda: not gateway.gateway.ready)
            last = other.request("GET", "/healthz")
            assert (last.status, last["Connection"]) == (200, "close")
            assert other.wait_closed() == b""
            gate.open()
            assert one.read_response().status == 204
            stopping.join(60)
