"""What is not quite HTTP: the victim of each request is a real stream."""

import socket
import struct
import time

import pytest

from tests.helpers.rawhttp import PREFIX, Closed, encode_request
from tests.hostile.oracle import CANARY, TEXT, Arena

POST = f"POST {PREFIX}{TEXT} HTTP/1.1\r\nHost: h\r\nContent-Type: text/plain\r\n".encode()
GET = f"GET {PREFIX}{TEXT} HTTP/1.1\r\nHost: h\r\n".encode()
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n"
C = CANARY.encode()

# Each is refused as a whole: whatever follows on the connection is not taken for a request.
REFUSED = {
    "length-and-chunked": CHUNKED + b"Content-Length: 3\r\n\r\n0\r\n\r\n",
    "chunked-and-length": POST
    + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "two-lengths": POST + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
    "two-equal-lengths": POST + b"Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
    "length-list": POST + b"Content-Length: 3, 3\r\n\r\nabc",
    "signed-length": POST + b"Content-Length: +3\r\n\r\nabc",
    "negative-length": POST + b"Content-Length: -3\r\n\r\nabc",
    "hex-length": POST + b"Content-Length: 0x3\r\n\r\nabc",
    "underscore-length": POST + b"Content-Length: 1_0\r\n\r\nabcdefghij",
    "arabic-length": POST + "Content-Length: ٣\r\n\r\nabc".encode(),
    "word-length": POST + b"Content-Length: " + C + b"\r\n\r\nabc",
    "huge-length": POST + b"Content-Length: " + b"9" * 40 + b"\r\n\r\nabc",
    "unknown-coding": POST + b"Transfer-Encoding: " + C + b"\r\n\r\nabc",
    "chunked-not-last": POST + b"Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
    "chunked-twice": POST + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    "bad-chunk-size": CHUNKED + b"\r\nzz\r\nabc\r\n0\r\n\r\n",
    "negative-chunk-size": CHUNKED + b"\r\n-1\r\nabc\r\n0\r\n\r\n",
    "prefixed-chunk-size": CHUNKED + b"\r\n0x3\r\nabc\r\n0\r\n\r\n",
    "huge-chunk-size": CHUNKED + b"\r\n" + b"f" * 40 + b"\r\nabc\r\n0\r\n\r\n",
    "empty-chunk-size": CHUNKED + b"\r\n\r\nabc\r\n0\r\n\r\n",
    "chunk-longer-than-said": CHUNKED + b"\r\n2\r\nabc\r\n0\r\n\r\n",
    "chunk-with-bare-lf": CHUNKED + b"\r\n3\nabc\n0\n\n",
    "space-before-colon": GET + b"X : 1\r\n\r\n",
    "space-before-length-colon": POST + b"Content-Length : 3\r\n\r\nabc",
    "folded-header": GET + b"X: " + C + b"\r\n folded\r\n\r\n",
    "nul-in-value": GET + b"X: a\x00" + C + b"\r\n\r\n",
    "nul-in-name": GET + b"X\x00: a\r\n\r\n",
    "cr-in-value": GET + b"X: a\r" + C + b"\r\n\r\n",
    "no-colon": GET + C + b"\r\n\r\n",
    "empty-name": GET + b": " + C + b"\r\n\r\n",
    "not-a-name": GET + b"X(Y): 1\r\n\r\n",
    "two-hosts": GET + b"Host: " + C + b"\r\n\r\n",
    "no-version": f"GET {PREFIX}{TEXT}\r\nHost: h\r\n\r\n".encode(),
    "strange-version": f"GET {PREFIX}{TEXT} HTTP/7.5\r\nHost: h\r\n\r\n".encode(),
    "http-2-preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "tls-hello": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64) + b"\r\n\r\n",
    "space-in-target": f"GET {PREFIX}a b HTTP/1.1\r\nHost: h\r\n\r\n".encode(),
    "relative-target": b"GET v1/stream/x HTTP/1.1\r\nHost: h\r\n\r\n",
    "method-with-brackets": f"G(E)T {PREFIX}{TEXT} HTTP/1.1\r\nHost: h\r\n\r\n".encode(),
    "noise": bytes(range(256)) + b"\r\n\r\n",
    "endless-header": GET + b"X: " + b"y" * 20_000 + b"\r\n\r\n",
    "endless-target": b"GET /" + b"y" * 20_000 + b" HTTP/1.1\r\nHost: h\r\n\r\n",
    "endless-method": b"G" * 20_000 + b" / HTTP/1.1\r\nHost: h\r\n\r\n",
    "many-headers": GET + b"".join(b"X-%d: y\r\n" % n for n in range(2000)) + b"\r\n",
}


@pytest.mark.parametrize("data", REFUSED.values(), ids=REFUSED.keys())
def test_is_refused_and_the_connection_ends(arena: Arena, data: bytes) -> None:
    smuggled = encode_request("DELETE", PREFIX + "decoy")
    replies = arena.ask(data + smuggled)
    assert len(replies) == 1, replies
    assert replies[0].status in (400, 404, 405, 408, 411, 413, 414, 431), replies


# Odd but legal, or harmless: one answer each, then the connection goes on or ends.
TOLERATED = {
    "two-spaces": f"GET  {PREFIX}{TEXT} HTTP/1.1\r\nHost: h\r\n\r\n".encode(),
    "no-host": f"GET {PREFIX}{TEXT} HTTP/1.1\r\n\r\n".encode(),
    "http-1.0": f"GET {PREFIX}{TEXT} HTTP/1.0\r\n\r\n".encode(),
    "bare-lf": f"GET {PREFIX}{TEXT} HTTP/1.1\nHost: h\n\n".encode(),
    "leading-empty-lines": b"\r\n\r\n" + GET + b"\r\n",
    "fat-get": GET + b"Content-Length: 3\r\n\r\nabc",
    "chunked-get": GET + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    "upgrade": GET + b"Connection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\n\r\n",
    "h2c": GET + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\r\n",
    "connect": b"CONNECT 127.0.0.1:1 HTTP/1.1\r\nHost: h\r\n\r\n",
    "asterisk": b"OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n",
    "trace": f"TRACE {PREFIX}{TEXT} HTTP/1.1\r\nHost: h\r\nX: {CANARY}\r\n\r\n".encode(),
    "patch": f"PATCH {PREFIX}{TEXT} HTTP/1.1\r\nHost: h\r\n\r\n".encode(),
    "lower-case": f"delete {PREFIX}{TEXT} HTTP/1.1\r\nHost: h\r\n\r\n".encode(),
    "override": GET + b"X-HTTP-Method-Override: DELETE\r\n\r\n",
    "original-url": GET + b"X-Original-URL: /v1/stream/x\r\n\r\n",
    "absolute-form": f"GET http://evil{PREFIX}{TEXT} HTTP/1.1\r\nHost: h\r\n\r\n".encode(),
    "absolute-delete": f"DELETE http://h{PREFIX}x HTTP/1.1\r\nHost: h\r\n\r\n".encode(),
    "unknown-expect": POST + b"Expect: " + C + b"\r\nContent-Length: 0\r\n\r\n",
    "connection-names-a-header": POST
    + b"Connection: Stream-Seq\r\nStream-Seq: 1\r\nContent-Length: 0\r\n\r\n",
    "chunk-extension": POST.replace(b"text/plain", b"image/png")
    + b"Transfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\n\r\n",
    "trailers": POST.replace(b"text/plain", b"image/png")
    + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nStream-Closed: true\r\n\r\n",
    "gzip-body": POST + b"Content-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc",
    "latin-1-header": GET + b"X: caf\xe9\r\n\r\n",
    "utf-8-seq": POST + "Stream-Seq: é\r\nContent-Length: 1\r\n\r\nx".encode(),
    "repeated-type": POST + b"Content-Type: image/png\r\nContent-Length: 1\r\n\r\nx",
    "repeated-seq": POST + b"Stream-Seq: 1\r\nStream-Seq: 2\r\nContent-Length: 1\r\n\r\nx",
    "repeated-closed": POST + b"Stream-Closed: true\r\nStream-Closed: no\r\n\r\n",
    "range": GET + b"Range: bytes=0-1\r\n\r\n",
    "huge-expected-body": POST + b"Content-Length: 99999999\r\n\r\n",
}


@pytest.mark.parametrize("data", TOLERATED.values(), ids=TOLERATED.keys())
def test_is_answered_without_harm(arena: Arena, data: bytes) -> None:
    replies = arena.ask(data)
    assert replies
    assert {reply.status for reply in replies} <= {200, 204, *range(400, 500)}


def test_absolute_form_does_not_choose_the_location(arena: Arena) -> None:
    target = f"http://evil.test{PREFIX}absolute"
    with arena.connect() as connection:
        reply = connection.request("PUT", target, {"Content-Type": "text/plain"})
    assert reply.status in (201, 400, 404)
    assert "evil" not in (reply.get("Location") or "")
    arena.check(reply)


@pytest.mark.parametrize("host", ["evil/../x", "a b", "h?x", "user@h", '"><script>', "[::1", "é"])
def test_a_strange_host_does_not_reach_the_location(arena: Arena, host: str) -> None:
    data = f"PUT {PREFIX}host-{abs(hash(host))} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()
    for reply in arena.ask(data):
        assert host not in (reply.get("Location") or "")


def test_cut_off_requests_leave_nothing_behind(arena: Arena) -> None:
    whole = encode_request("POST", PREFIX + TEXT, {"Content-Type": "text/plain"}, b"abcdef")
    for size in range(1, len(whole), 3):
        with arena.connect() as connection:
            connection.send(whole[:size])
    chunked = CHUNKED + b"\r\n3\r\nabc\r\n0\r\n\r"
    for size in range(len(CHUNKED), len(chunked)):
        with arena.connect() as connection:
            connection.send(chunked[:size])
    arena.check()


def test_a_reset_in_mid_body_leaves_nothing_behind(arena: Arena) -> None:
    for data in (POST + b"Content-Length: 60000\r\n\r\n" + b"x" * 30_000, CHUNKED + b"\r\nff\r\nx"):
        with arena.connect() as connection:
            connection.send(data)
            linger = struct.pack("ii", 1, 0)  # close() now sends a reset
            connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    arena.check()


@pytest.mark.parametrize(
    "data", [b"", GET + b"\r\n", POST + b"Content-Length: 9\r\n\r\nabc", CHUNKED + b"\r\n9\r\nabc"]
)
def test_half_closed_sockets_do_no_harm(arena: Arena, data: bytes) -> None:
    arena.ask(data, half_close=True)


@pytest.mark.parametrize(
    "start", [b"", b"GET / HTTP/1.1\r\n", POST + b"Content-Length: 500\r\n\r\n"]
)
def test_a_slow_client_is_cut_off(arena: Arena, start: bytes) -> None:
    with arena.connect() as connection:
        connection.send(start)
        began = time.monotonic()
        with pytest.raises(ConnectionError):
            while time.monotonic() - began < 30:
                connection.send(b"x")
                time.sleep(0.02)
    arena.check()


def test_readers_that_never_read_do_not_stop_the_others(arena: Arena) -> None:
    idle = [arena.connect() for _ in range(20)]
    for connection in idle:
        connection.send(encode_request("GET", f"{PREFIX}{TEXT}?offset=-1&live=sse"))
        connection.send(encode_request("GET", PREFIX + TEXT) * 50)
    arena.check()
    for connection in idle:
        connection.close()
    arena.check()


def test_mixed_pipelines_with_a_bad_request_end_at_it(arena: Arena) -> None:
    good = encode_request("GET", PREFIX + TEXT)
    slow = encode_request("HEAD", PREFIX + TEXT)
    bad = GET + b"X : 1\r\n\r\n"
    with arena.connect() as connection:
        connection.send(good + slow + good + bad + encode_request("DELETE", PREFIX + TEXT))
        replies = [connection.read_response(m) for m in ("GET", "HEAD", "GET", "GET")]
        with pytest.raises(Closed):
            connection.read_response()
    assert [reply.status for reply in replies] == [200, 200, 200, 400]
    arena.check(*replies)
