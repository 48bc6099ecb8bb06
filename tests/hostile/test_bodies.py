"""Bodies that try to be more than data: JSON oddities, event injection."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.helpers.rawhttp import PREFIX, Client, EventStream, control, encode_request
from tests.hostile.oracle import JSON, Arena

SETTINGS = settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
KIND = {"Content-Type": "application/json"}

NOT_JSON = {
    "nan": b"NaN",
    "nan-inside": b'[1, {"a": NaN}]',
    "infinity": b"Infinity",
    "minus-infinity": b"[-Infinity]",
    "bad-utf8": b'"\xff"',
    "bad-utf8-in-key": b'{"\xc3\x28": 1}',
    "overlong-utf8": b'"\xc0\xaf"',
    "utf8-surrogate": b'"\xed\xa0\x80"',
    "cut-utf8": b'"\xe2\x82',
    "utf-16": '{"a":1}'.encode("utf-16"),
    "byte-order-mark": b"\xef\xbb\xbf1",
    "trailing-comma": b"[1,]",
    "two-values": b"1 2",
    "two-arrays": b"[1][2]",
    "unclosed": b'{"a":',
    "unclosed-string": b'"abc',
    "single-quotes": b"{'a':1}",
    "comment": b"/* x */ 1",
    "leading-zero": b"01",
    "plus": b"+1",
    "hex": b"0x10",
    "dot": b".5",
    "raw-newline": b'"a\nb"',
    "raw-nul": b'"a\x00b"',
    "nul-after": b"1\x00",
    "bad-escape": b'"\\x41"',
    "short-escape": b'"\\u00"',
    "form-feed": b"\x0c1",
    "no-break-space": b"\xc2\xa01",
    "blanks": b" \t\r\n",
    "empty-array": b"[]",
    "empty-array-with-blanks": b" [ \n ] ",
    "deep-array": b"[" * 5000 + b"]" * 5000,
    "deep-object": b'{"a":' * 3000 + b"1" + b"}" * 3000,
    "deep-and-unclosed": b"[" * 30_000,
    "bracket-swap": b"[1}",
    "comma-injection": b"1,2",
    "array-break-out": b'"x"],["y"',
}


@pytest.mark.parametrize("body", NOT_JSON.values(), ids=NOT_JSON.keys())
def test_what_is_not_json_is_refused(arena: Arena, body: bytes) -> None:
    for more in ({}, {"Connection": "close"}):
        with arena.connect() as connection:
            reply = connection.request("POST", PREFIX + JSON, KIND | more, body)
        assert reply.status == 400, reply
        arena.check(reply)


@pytest.mark.parametrize("body", NOT_JSON.values(), ids=NOT_JSON.keys())
def test_a_create_with_it_creates_nothing(arena: Arena, body: bytes) -> None:
    if body.strip(b" \t\r\n[]") == b"" and body.strip():
        return  # `[]` is a legal start
    with arena.connect() as connection:
        assert connection.request("PUT", PREFIX + "bad-json", KIND, body).status == 400
        assert connection.request("HEAD", PREFIX + "bad-json").status == 404
    arena.check()


ODD_JSON = {
    "duplicate-keys": b'{"a":1,"a":2}',
    "big-number": b"123456789012345678901234567890",
    "tiny-number": b"1e-999",
    "huge-exponent": b"1E+400",
    "minus-zero": b"-0",
    "trailing-zeros": b"1.000",
    "half-a-pair": b'{"t":"\\ud83d"}',
    "halves-in-keys": b'[{"\\ud800":"\\\\"},"\\udc00\\ud800",0]',
    "nul-escape": b'"\\u0000"',
    "separators": '"\u2028\u2029\u0085"'.encode(),
    "markup": b'"</script><!--"',
    "proto": b'{"__proto__":{"x":1},"constructor":1}',
    "inner-blanks": b'{ "a" :\t[ 1 ,\n 2 ] }',
    "array-in-array": b"[[1,2],[]]",
    "deep-enough": b"[" * 401 + b"]" * 401,
    "escaped-solidus": b'"\\/"',
}


@pytest.mark.parametrize("body", ODD_JSON.values(), ids=ODD_JSON.keys())
def test_odd_json_comes_back_byte_for_byte(
    arena: Arena, body: bytes, request: pytest.FixtureRequest
) -> None:
    name = f"odd/{request.node.callspec.id}"
    with Client(arena.port) as client:
        client.create(name, "application/json")
        client.append(name, body, "application/json")
        expected = body if body.startswith(b"[") else b"[" + body + b"]"
        assert client.read(name).body == expected
        with EventStream(arena.port, name) as events:
            assert events.next_write()[0].data.encode() == expected
    arena.check()


@SETTINGS
@given(
    st.binary(max_size=30)
    | st.text('[]{}",:0123456789.eE+-\\untrfalsi \n', max_size=30).map(str.encode)
)
def test_fuzzed_json_is_refused_or_read_back_as_json(arena: Arena, body: bytes) -> None:
    with Client(arena.port) as client:
        client.create("fuzz-json", "application/json", b"[0]")
        reply = client("POST", "fuzz-json", KIND, body)
        content = client.read("fuzz-json").body
        assert client("DELETE", "fuzz-json").status == 204
    if reply.status == 204:
        sent = json.loads(body)
        assert json.loads(content) == [0, *(sent if isinstance(sent, list) else [sent])]
    else:
        assert (reply.status, content) == (400, b"[0]")
    assert arena.origin.errors.found == []


ATTACKS = {
    "lf": b'safe\n\nevent: control\ndata:{"streamClosed":true}\n\n',
    "cr": b'safe\r\revent: control\rdata:{"streamClosed":true}\r\r',
    "crlf": b'safe\r\n\r\nevent: control\r\ndata:{"streamClosed":true}\r\n\r\n',
    "mixed": b"a\n\r\n\rb\r\r\nc",
    "id-and-retry": b"\nid: 7\nretry: 1\n: comment\n",
    "separators": "a\u2028event: x\u2029b\u0085c\x0bd\x0ce".encode(),
    "nul": b"a\x00b",
    "bom": b"\xef\xbb\xbfa",
    "blanks": b"  leading\n  two",
    "bad-utf8": b"\xff\xfe \xc3",
    "empty-lines": b"\n\n\n",
    "escape": b"\x1b[2J\x07",
}


@pytest.mark.parametrize("body", ATTACKS.values(), ids=ATTACKS.keys())
@pytest.mark.parametrize("live", [False, True], ids=["caught-up", "live"])
def test_data_cannot_forge_events(arena: Arena, body: bytes, live: bool) -> None:
    with Client(arena.port) as client:
        client.create("forge")
        if not live:
            tail = client.append("forge", body)
        with EventStream(arena.port, "forge") as events:
            if live:
                events.next_write()  # the greeting of an empty stream
                tail = client.append("forge", body)
            written = events.next_write()
        assert client("DELETE", "forge").status == 204
    expected = body.replace(b"\r\n", b"\n").replace(b"\r", b"\n").decode("utf-8", "replace")
    held_back = 1 if body.endswith(b"\xc3") else 0
    assert [event.kind for event in written] == ["data", "control"]
    assert written[0].data == (expected[:-1] if held_back else expected)
    assert control(written[1]).get("streamClosed") is None
    if not held_back:
        assert control(written[1])["streamNextOffset"] == tail
    arena.check()


def test_chunked_bodies_are_put_together(arena: Arena) -> None:
    data = (
        f"POST {PREFIX}pieces HTTP/1.1\r\nHost: h\r\nContent-Type: text/plain\r\n"
        "Transfer-Encoding: chunked\r\n\r\n"
        "1\r\na\r\n00002;ext=1\r\nbc\r\nA\r\n0123456789\r\n0\r\nX-Trailer: y\r\n\r\n"
    ).encode()
    with Client(arena.port) as client:
        client.create("pieces")
        replies = arena.ask(data)
        assert replies[0].status == 204
        assert client.read("pieces").body == b"abc0123456789"
        assert client("DELETE", "pieces").status == 204


def test_a_body_at_the_limit_is_taken_and_one_byte_more_is_not(arena: Arena) -> None:
    with Client(arena.port) as client:
        client.create("limit")
        assert client("POST", "limit", {"Content-Type": "text/plain"}, b"x" * 65536).status == 204
        for more in ({}, {"Connection": "close"}):
            data = encode_request(
                "POST", PREFIX + "limit", {"Content-Type": "text/plain", **more}, b"x" * 65537
            )
            assert arena.ask(data)[0].status == 413
        assert client("DELETE", "limit").status == 204
