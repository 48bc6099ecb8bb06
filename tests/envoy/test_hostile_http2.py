"""HTTP/2 that is not HTTP/2, sent to Envoy. For a gateway it is turned into HTTP/1.1, where a line
break in a value or a second length could begin a second request.

All that reaches the gateways is seen: they are scripted.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from functools import partial

import pytest

from tests.envoy.test_edge import PATH, Edge, running_edge
from tests.helpers.http2 import Exchange, Http2
from tests.helpers.scripted_origin import Answer, Gate, Recorded
from weir.edge.listeners import STREAMS_OF_A_CONNECTION

Fields = list[tuple[str, str]]

PSEUDO = {":method": "GET", ":scheme": "https", ":path": PATH, ":authority": "localhost"}
SMUGGLED = "a\r\n\r\nDELETE /v1/stream/a HTTP/1.1\r\nhost: h\r\n\r\n"


def fields(*more: tuple[str, str], **pseudo: str | None) -> Fields:
    """Of a good request, but for these; None leaves one out."""
    named = PSEUDO | {f":{name}": value for name, value in pseudo.items()}
    return [(name, value) for name, value in named.items() if value is not None] + [*more]


REFUSED: dict[str, Fields] = {
    # a value that ends its line
    "value-with-cr": fields(("x-a", "a\rb")),
    "value-with-lf": fields(("x-a", "a\nb")),
    "value-with-crlf": fields(("x-a", "a\r\nx-jwt-sub: root")),
    "value-with-a-request": fields(("x-a", SMUGGLED)),
    "value-with-nul": fields(("x-a", "a\0b")),
    # names that are none
    "name-in-upper-case": fields(("X-A", "1")),
    "name-with-space": fields(("x a", "1")),
    "name-with-colon": fields(("x:a", "1")),
    "name-with-crlf": fields(("x\r\ny", "1")),
    "name-with-nul": fields(("x\0", "1")),
    "name-with-underscore": fields(("x_jwt_sub", "1")),
    "empty-name": fields(("", "1")),
    # what belongs to a connection of HTTP/1.1
    "connection": fields(("connection", "close")),
    "keep-alive": fields(("keep-alive", "timeout=5")),
    "proxy-connection": fields(("proxy-connection", "keep-alive")),
    "upgrade": fields(("upgrade", "websocket")),
    "te": fields(("te", "gzip")),
    "transfer-encoding": fields(("transfer-encoding", "chunked")),
    # who is asked
    "no-authority": fields(authority=None),
    "empty-authority": fields(authority=""),
    "authority-with-user": fields(authority="user@localhost"),
    "authority-with-crlf": fields(authority="localhost\r\nx-a: b"),
    "two-authorities-in-one": fields(authority="localhost, evil.test"),
    "two-hosts": fields(("host", "localhost"), ("host", "evil.test")),
    # for what
    "no-path": fields(path=None),
    "empty-path": fields(path=""),
    "path-star": fields(path="*"),
    "path-without-slash": fields(path=PATH[1:]),
    "absolute-path": fields(path=f"http://evil.test{PATH}"),
    "path-with-space": fields(path=f"{PATH} HTTP/1.1"),
    "path-with-crlf": fields(path=f"{PATH} HTTP/1.1\r\nx-a: b"),
    "path-with-nul": fields(path=f"{PATH}\0"),
    "path-with-fragment": fields(path=f"{PATH}#b"),
    "path-with-escaped-slash": fields(path=f"{PATH}%2f..%2fb"),
    "path-out-of-the-streams": fields(path="/v1/stream/../../metrics"),
    "two-paths": fields((":path", f"{PATH}/b")),
    "path-after-a-header": fields(("x-a", "1"), (":path", PATH), path=None),
    # in which way
    "no-method": fields(method=None),
    "empty-method": fields(method=""),
    "method-with-space": fields(method="GET /v1/stream/b"),
    "method-with-crlf": fields(method="GET\r\n"),
    "connect": fields(method="CONNECT"),
    "connect-to-a-protocol": fields(method="CONNECT", protocol="websocket"),
    "no-scheme": fields(scheme=None),
    "scheme-with-crlf": fields(scheme="https\r\n"),
    "pseudo-header-of-an-answer": fields(status="200"),
    "unknown-pseudo-header": fields(evil="1"),
}
BODY = b"abc"
WRONG_LENGTHS: dict[str, Fields] = {
    "longer": [("content-length", "9")],
    "shorter": [("content-length", "1")],
    "negative": [("content-length", "-3")],
    "with-sign": [("content-length", "+3")],
    "a-list": [("content-length", "3, 3")],
    "two": [("content-length", "3"), ("content-length", "4")],
    "two-that-agree": [("content-length", "3"), ("content-length", "3")],
    "beside-chunks": [("content-length", "3"), ("transfer-encoding", "chunked")],
    "instead-of-chunks": [("transfer-encoding", "chunked")],
}


@pytest.fixture(scope="module")
def edge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Edge]:
    with running_edge(tmp_path_factory.mktemp("http2")) as edge:
        yield edge


def reached(edge: Edge) -> list[Recorded]:
    """All that came to a gateway, in order, but for health checks."""
    seen = [request for gateway in edge.gateways for request in gateway.requests]
    return sorted((one for one in seen if one.path != "/readyz"), key=lambda one: one.time)


def settle(edge: Edge, attacks: Mapping[str, Fields], body: bytes = b"") -> dict[str, int]:
    """All at once, each with a good token on a connection of its own, which Envoy may end, but
    takes a second for. The statuses; 0 where there was no answer."""
    token = ("authorization", edge.headers["Authorization"])
    with ExitStack() as stack:
        sent: dict[str, tuple[Http2, Exchange]] = {}
        for name, attack in attacks.items():
            client = stack.enter_context(Http2(edge.envoy.port, edge.envoy.tls("h2")))
            sent[name] = client, client.send_fields([*attack, token], body)
        for client, exchange in sent.values():
            with suppress(OSError):
                client.wait_for(partial(getattr, exchange, "ended"))
    return {name: exchange.status for name, (_, exchange) in sent.items()}


def check_refused(edge: Edge, attacks: Mapping[str, Fields], body: bytes = b"") -> None:
    before = reached(edge)
    statuses = settle(edge, attacks, body)
    assert {name for name, status in statuses.items() if status not in (0, 400, 404)} == set()
    assert reached(edge)[len(before) :] == []
    check_served(edge)


def check_served(edge: Edge) -> None:
    """Whoever is honest."""
    with Http2(edge.envoy.port, edge.envoy.tls("h2")) as client:
        assert client.request("GET", PATH, edge.headers).status == 200


def test_what_these_attacks_are_made_of_is_a_good_request(edge: Edge) -> None:
    before = len(reached(edge))
    posted = fields(("content-length", "3"), method="POST")
    assert settle(edge, {"post": posted}, BODY) == {"post": 200}
    assert settle(edge, {"get": fields()}) == {"get": 200}
    assert len(reached(edge)) == before + 2


def test_what_is_not_http_2_reaches_no_gateway(edge: Edge) -> None:
    check_refused(edge, REFUSED)


def test_a_body_of_another_length_reaches_no_gateway(edge: Edge) -> None:
    attacks = {name: fields(*more, method="POST") for name, more in WRONG_LENGTHS.items()}
    check_refused(edge, attacks, BODY)
    check_refused(edge, {"no-body": fields(("content-length", "3"), method="POST")})


def test_a_host_beside_the_authority_is_nobody(edge: Edge) -> None:
    """And the scheme is the one that the client came by."""
    path = f"{PATH}/host"
    sent = fields(("host", "evil.test"), path=path, scheme="ftp")
    assert settle(edge, {"host": sent}) == {"host": 200}
    (seen,) = edge.requests(path)
    assert [value for name, value in seen.fields if name.lower() == "host"] == ["localhost"]
    assert seen.headers["x-forwarded-proto"] == "https"
    assert "evil.test" not in str(seen.fields)


def test_who_opens_more_streams_than_he_may_gets_no_further(edge: Edge) -> None:
    gate, open_ = Gate(), f"{PATH}/open"
    for gateway in edge.gateways:
        gateway.on("GET", open_, Answer(pieces=[b"begun", gate]))
    try:
        with Http2(edge.envoy.port, edge.envoy.tls("h2")) as greedy:
            assert greedy.request("GET", PATH, edge.headers).status == 200
            assert greedy.max_streams == STREAMS_OF_A_CONNECTION
            streams = [greedy.send("GET", open_, edge.headers) for _ in range(greedy.max_streams)]
            greedy.wait_for(lambda: all(stream.status == 200 for stream in streams), "the streams")
            greedy.forget_limits()
            surplus = greedy.send("GET", f"{PATH}/surplus", edge.headers)
            with suppress(OSError):
                greedy.wait_for(lambda: surplus.ended)
            assert surplus.status == 0
    finally:
        gate.open()
    assert edge.requests(f"{PATH}/surplus") == []
    check_served(edge)
