"""What is not quite HTTP, or is meant for someone else's parser, at a gateway with tokens.

The tables of the origin's tests are tried here as well: what one of two hops reads as one request
and the other as two is how requests are smuggled past a token.
"""

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.conftest import StartOrigin
from tests.helpers.gateway import bearer
from tests.helpers.rawhttp import (
    PREFIX,
    encode_request,
)
from tests.helpers.scripted_origin import Answer, SimpleStream
from tests.hostile.gateway.arena import CANARY, Arena, check_refusal
from tests.hostile.gateway.conftest import SECRET_BYTES, check_victim
from tests.hostile.oracle import TEXT
from tests.hostile.test_headers import fields, fuzzed
from tests.hostile.test_malformed_http import REFUSED, TOLERATED


def with_token(arena: Arena, data: bytes) -> bytes:
    line = f"Host: h\r\nAuthorization: Bearer {arena.token()}\r\n".encode()
    return data.replace(b"Host: h\r\n", line, 1)


def smuggled(arena: Arena) -> bytes:
    """What must not be taken for a request, though it is a good one."""
    return encode_request("DELETE", PREFIX + TEXT, bearer(arena.token()))


# -- smuggling -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_http_is_refused_with_all_that_follows(quick: Arena, name: str) -> None:
    before = len(quick.origin.requests)
    replies = quick.send(with_token(quick, REFUSED[name]) + smuggled(quick))
    assert len(replies) == 1, replies
    assert replies[0].status in (400, 401, 404, 405, 408, 411, 413, 414, 431), replies
    check_refusal(replies[0], replies[0].status)
    assert len(quick.origin.requests) == before
    check_victim(quick)


# What even the next hop must not see half of.
PAIRS = {
    "te-in-other-case": b"Content-Length: 4\r\nTRANSFER-ENCODING: chunked\r\n\r\n0\r\n\r\n",
    "te-with-tab": b"Transfer-Encoding:\tchunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n",
    "te-with-space": b"Transfer-Encoding : chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n",
    "te-folded": b"Transfer-Encoding:\r\n chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n",
    "te-xchunked": b"Transfer-Encoding: xchunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n",
    "te-quoted": b'Transfer-Encoding: "chunked"\r\nContent-Length: 4\r\n\r\n0\r\n\r\n',
    "te-identity": b"Transfer-Encoding: identity\r\nContent-Length: 4\r\n\r\nabcd",
    "te-twice": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
    "te-with-nul": b"Transfer-Encoding: chunked\x00\r\nContent-Length: 4\r\n\r\n0\r\n\r\n",
    "te-with-vt": b"Transfer-Encoding: \x0bchunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n",
    "te-underscore": b"Transfer_Encoding: chunked\r\nContent-Length: 4\r\nX: y\n\r\n0\r\n\r\n",
    "cl-with-zeros-and-te": b"Content-Length: 004\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "cl-empty": b"Content-Length: \r\n\r\nabcd",
    "cl-float": b"Content-Length: 4.0\r\n\r\nabcd",
    "cl-space-inside": b"Content-Length: 4 4\r\n\r\nabcd",
    "cl-after-lf": b"X: y\nContent-Length: 4\r\n\r\nabcd",
    "header-after-bare-cr": b"X: y\rContent-Length: 4\r\n\r\nabcd",
    "chunk-size-with-plus": b"Transfer-Encoding: chunked\r\n\r\n+4\r\nabcd\r\n0\r\n\r\n",
    "chunk-size-with-space": b"Transfer-Encoding: chunked\r\n\r\n 4\r\nabcd\r\n0\r\n\r\n",
    "chunk-size-underscore": b"Transfer-Encoding: chunked\r\n\r\n1_0\r\nabcd\r\n0\r\n\r\n",
    "chunk-extension-with-lf": b"Transfer-Encoding: chunked\r\n\r\n4;a\nb\r\nabcd\r\n0\r\n\r\n",
    "chunk-without-its-end": b"Transfer-Encoding: chunked\r\n\r\n4\r\nabcdX0\r\n\r\n",
    "host-twice-in-other-case": b"hOST: evil\r\nContent-Length: 4\r\n\r\nabcd",
}


@pytest.mark.parametrize("name", PAIRS)
def test_no_pair_of_framings_lets_a_second_request_through(quick: Arena, name: str) -> None:
    head = f"POST {PREFIX}{TEXT} HTTP/1.1\r\nHost: h\r\nContent-Type: text/plain\r\n".encode()
    before = len(quick.origin.requests)
    replies = quick.send(with_token(quick, head) + PAIRS[name] + smuggled(quick))
    assert [reply.status for reply in replies] == [400], replies
    assert len(quick.origin.requests) == before
    check_victim(quick)


@pytest.mark.parametrize("name", TOLERATED)
def test_what_is_odd_but_legal_is_answered_without_harm(quick: Arena, name: str) -> None:
    """With a token that may only read: whatever it is taken for, nothing changes."""
    data = TOLERATED[name]
    line = f"Host: h\r\nAuthorization: Bearer {quick.token(scope='read:*')}\r\n".encode()
    replies = quick.send(data.replace(b"Host: h\r\n", line, 1), 1)
    assert {reply.status for reply in replies} <= {200, 204, *range(400, 500)}
    for reply in replies:
        assert CANARY.encode() not in reply.body
    for request in quick.origin.requests:
        assert request.method in ("GET", "HEAD") and request.target.startswith(PREFIX)
        assert request.headers["host"] == f"127.0.0.1:{quick.origin.port}"
    check_victim(quick)


def test_bare_line_feeds_do_not_end_a_head(quick: Arena) -> None:
    before = len(quick.origin.requests)
    for data in (
        b"GET %b HTTP/1.1\nHost: h\n\n",
        b"GET %b HTTP/1.1\r\nHost: h\n\r\n",
        b"GET %b HTTP/1.1\r\nHost: h\r\nX: y\n\n",
        b"GET %b HTTP/1.1\nHost: h\r\n\r\n",
    ):
        whole = with_token(quick, data % (PREFIX + TEXT).encode()) + smuggled(quick)
        assert [reply.status for reply in quick.send(whole)] in ([400], [408])
    assert len(quick.origin.requests) == before
    check_victim(quick)


def test_one_request_goes_upstream_as_one_request(quick: Arena) -> None:
    """However its body was framed, ours has one length; a request inside a body stays a body."""
    quick.origin.on("POST", PREFIX + "sink", Answer(204, {"Stream-Next-Offset": "5"}))
    inner = b"GET /evil HTTP/1.1\r\nHost: x\r\n\r\n"
    auth = f"Host: h\r\nAuthorization: Bearer {quick.token()}\r\nContent-Type: a/b\r\n".encode()
    head = f"POST {PREFIX}sink HTTP/1.1\r\n".encode() + auth
    framings = (
        b"Content-Length: %d\r\n\r\n%b" % (len(inner), inner),
        b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(inner), inner),
        b"Transfer-Encoding: chunked\r\n\r\n%x;x=y\r\n%b\r\n0\r\nX-JWT-Sub: evil\r\n\r\n"
        % (len(inner), inner),
    )
    for framing in framings:
        quick.send(head + framing, 1)
        request = quick.origin.requests[-1]
        assert request.body == inner and request.path == PREFIX + "sink"
        names = [name.lower() for name, _ in request.fields]
        assert names.count("content-length") + names.count("transfer-encoding") == 1
        assert names.count("host") == 1 and request.headers["x-jwt-sub"] == "alice"
    assert not quick.origin.find(path="/evil")


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.sampled_from(["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"]), fields, st.binary())
def test_fuzzed_headers_change_nothing(
    quick: Arena, method: str, lines: list[tuple[str, str]], body: bytes
) -> None:
    """With a token that may only read, among headers of every kind."""
    before = len(quick.origin.requests)
    token = ("Authorization", f"Bearer {quick.token(scope='read:*')}")
    data = fuzzed(method, PREFIX + TEXT, [token, *lines, ("Connection", "close")], body)
    for reply in quick.send(data, 1):
        assert reply.status < 500, reply
        assert CANARY.encode() not in reply.body
    sent = quick.origin.requests[before:]
    assert {request.method for request in sent} <= {"GET", "HEAD"}


# -- targets -------------------------------------------------------------------------------------


def test_an_absolute_target_does_not_choose_host_or_location(arena: Arena) -> None:
    path = PREFIX + "absolute"
    arena.origin.on("PUT", path, lambda r: Answer(201, {"Location": f"http://o{path}"}))
    token = f"Authorization: Bearer {arena.token()}\r\n"
    for host in ("evil.test", "h"):
        head = f"PUT http://evil.test{path} HTTP/1.1\r\nHost: {host}\r\n{token}"
        (reply,) = arena.send(f"{head}Content-Length: 0\r\n\r\n".encode(), 1)
        assert reply.status in (201, 400, 404)
        assert "evil" not in (reply.get("Location") or "")
    assert all("evil" not in str(request.fields) for request in arena.origin.requests)


SERVICE_PATHS = [
    "/healthz/../v1/stream/secret",
    "/healthz/%2e%2e/v1/stream/secret",
    "/healthz%2f..%2fv1/stream/secret",
    "/healthz/../../v1/stream/secret",
    "/healthz;/../v1/stream/secret",
    "/healthz/",
    "/healthzzz",
    "/healthz/x",
    "/HEALTHZ",
    "//healthz",
    "//v1/stream/secret",
    "/./v1/stream/secret",
    "/v1//stream/secret",
    "/V1/stream/secret",
    "/v1/stream%2fsecret",
    "/v1/%73tream/secret",
    "/v1/stream/../../healthz/../v1/stream/secret",
    "/x/../v1/stream/secret",
    "/metrics",
    "/readyz/../v1/stream/secret",
    "/console/../v1/stream/secret",
    "/v1/stream",
    "/v1/stream/",
    "http://h/v1/stream/secret",
    "http:///v1/stream/secret",
    "*",
]


@pytest.mark.parametrize("target", SERVICE_PATHS)
def test_no_service_path_leads_past_the_token(arena: Arena, target: str) -> None:
    before = arena.origin.count()
    for method in ("GET", "HEAD", "PUT", "DELETE", "OPTIONS"):
        for reply in arena.send(encode_request(method, target), 1):
            assert reply.status in (204, 400, 401, 404, 405), reply
            assert SECRET_BYTES not in reply.body
            assert reply.status != 204 or method == "OPTIONS"
    assert arena.origin.count() == before


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_the_paths_without_a_token_tell_nothing(arena: Arena, path: str) -> None:
    for target in (path, f"{path}?x={CANARY}", f"{path}?offset=-1&live=sse"):
        (reply,) = arena.send(encode_request("GET", target), 1)
        assert reply.status == 200 and reply.body in (b"ok", b"ready")
    assert arena.send(encode_request("POST", path), 1)[0].status == 404
    check_refusal(arena.send(encode_request("GET", "/metrics"), 1)[0], 404)


def test_a_preflight_needs_no_token_and_asks_nobody(arena: Arena) -> None:
    before = arena.origin.count()
    asked = {"Origin": "https://a.test", "Access-Control-Request-Method": "DELETE"}
    with arena.connect() as connection:
        reply = connection.request("OPTIONS", PREFIX + "secret", asked)
    assert (reply.status, reply.body) == (204, b"") and arena.origin.count() == before
    assert "Access-Control-Allow-Credentials" not in reply


@pytest.mark.parametrize("host", ["evil/../x", "a b", "h?x", "user@h", '"><script>', "[::1", "a,b"])
def test_a_strange_host_is_in_no_location(arena: Arena, host: str) -> None:
    path = PREFIX + "hosted"
    arena.origin.on("PUT", path, Answer(201, {"Location": f"http://o{path}"}))
    head = f"PUT {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {arena.token()}\r\n"
    for reply in arena.send(f"{head}Content-Length: 0\r\n\r\n".encode(), 1):
        assert host not in (reply.get("Location") or "")


# -- answers that an origin or a creator made up -------------------------------------------------

SPLITTING = [
    b"Content-Type: text/plain\r\n X-Evil: 1",
    b"Content-Type: text/plain\rX-Evil: 1",
    b"Content-Type: text/plain\nX-Evil: 1\n",
    b"Content-Type: text/plain\x00X-Evil: 1",
    b"Content-Type: text/plain\xe5\x98\x8a\xe5\x98\x8dX-Evil: 1",
    b'ETag: "a\r\n\tX-Evil: 1"',
    b"Stream-Next-Offset: 1\x0bX-Evil: 1",
    b"Location: /x\x7fX-Evil: 1",
    b"Stream-Cursor: 1\x85X-Evil: 1",
    b"Cache-Control: max-age=1\rX-Evil: 1",
]


@pytest.mark.parametrize("field", SPLITTING, ids=lambda field: repr(field)[2:40])
def test_no_header_of_the_origin_becomes_two(arena: Arena, field: bytes) -> None:
    head = b"HTTP/1.1 200 OK\r\n" + field + b"\r\nContent-Length: 1\r\n\r\nx"
    path = f"split-{SPLITTING.index(field)}"
    arena.origin.on("*", PREFIX + path, Answer(raw=head, close=True))
    for method, query in (("GET", ""), ("GET", "offset=now"), ("PUT", ""), ("HEAD", "")):
        with arena.connect() as connection:
            target = PREFIX + path + (f"?{query}" if query else "")
            connection.send(encode_request(method, target, bearer(arena.token())))
            raw = connection._take_until(b"\r\n\r\n")
        assert b"\nX-Evil" not in raw and b"\rX-Evil" not in raw.replace(b"\r\n", b"")
        assert not {*b"\x00\x0b\x7f\x85"} & {*raw}


def test_a_creator_cannot_split_an_answer_by_his_content_type(
    tmp_path: Path, start_origin: StartOrigin, arena_class: type[Arena]
) -> None:
    origin = start_origin()
    with arena_class(tmp_path, origin_url=f"http://127.0.0.1:{origin.port}") as arena:
        for number, kind in enumerate(
            ("text/plain\tX", "text/html", 'a/b; x="\\""', "text/plain;charset=utf-7")
        ):
            made = arena.ask(
                f"s-{number}", method="PUT", headers={"Content-Type": kind}, body=b"<x>"
            )
            for reply in (made, arena.ask(f"s-{number}"), arena.ask(f"s-{number}", method="HEAD")):
                assert reply["X-Content-Type-Options"] == "nosniff"
                assert reply["Cross-Origin-Resource-Policy"] == "cross-origin"
                assert reply.status in (200, 201, 400, 404)


FORGERIES = [
    b'x\n\nevent: control\ndata: {"streamNextOffset":"evil"}\n\n',
    b'x\r\revent: control\rdata: {"streamNextOffset":"evil"}\r\r',
    b'x\r\n\r\nevent: control\r\ndata: {"streamNextOffset":"evil"}\r\n\r\n',
    b'event: control\ndata: {"streamNextOffset":"evil"}',
    b"data: x\nid: 7\nretry: 1\n: comment",
    b"\xef\xbb\xbfevent: control\ndata: evil",
    "a\u2028event: control\u2029data: evil\u0085x".encode(),
    b"\n\n\n",
    b"\r",
    b" leading space\n  and two",
    b":\n:\n",
    b"\x00\x0b\x0cevent: control",
]


@pytest.mark.parametrize("data", FORGERIES, ids=lambda data: repr(data)[2:30])
def test_no_data_forges_an_event(arena: Arena, data: bytes) -> None:
    """Caught up from the cache, and fanned out by the hub."""
    name = f"sse-{FORGERIES.index(data)}"
    stream = SimpleStream(arena.origin, PREFIX + name)
    stream.append(data)
    with arena.events(name) as events:
        for _ in range(2):
            shown, control = events.next_write()
            assert shown.kind == "data" and control.kind == "control"
            whole = data.decode().replace("\r\n", "\n").replace("\r", "\n")
            assert shown.data == whole
            assert json.loads(control.data)["streamNextOffset"] == stream.tail
            stream.append(data)


def test_bytes_that_are_not_text_go_as_base64(arena: Arena) -> None:
    stream = SimpleStream(arena.origin, PREFIX + "binary", "image/png")
    stream.append(bytes(range(256)) + b"\n\nevent: control\ndata: evil\n\n")
    with arena.events("binary") as events:
        assert ("stream-sse-data-encoding", "base64") in events.fields
        shown, _ = events.next_write()
        assert shown.kind == "data" and "\n" not in shown.data and "evil" not in shown.data


@pytest.mark.parametrize("kind", ["text/html", "image/svg+xml", "application/xhtml+xml"])
def test_what_a_browser_would_run_is_marked_on_every_answer(arena: Arena, kind: str) -> None:
    name = f"page-{kind.replace('/', '-').replace('+', '-')}"
    script = b"<script>alert(1)</script>" * 60
    stream = SimpleStream(arena.origin, PREFIX + name, kind, chunk_bytes=len(script))
    stream.append(script)
    stream.append(script)
    for query in ("", "", "offset=now", "offset=-1&live=long-poll"):
        for headers in ({}, {"Accept-Encoding": "gzip"}, {"Connection": "close"}):
            reply = arena.ask(name, query, headers=headers)
            assert reply["X-Content-Type-Options"] == "nosniff"
            assert reply["Content-Type"] == kind
            assert "sandbox" in reply["Content-Security-Policy"], reply


def test_a_recorded_request_is_what_the_tests_think_it_is(quick: Arena) -> None:
    """The oracle itself: a plain delete with this token does reach the origin."""
    SimpleStream(quick.origin, PREFIX + "decoy")
    assert quick.send(smuggled(quick).replace(TEXT.encode(), b"decoy"), 1)[0].status == 204
    (seen,) = quick.origin.find("DELETE")
    quick.origin._requests.remove(seen)
