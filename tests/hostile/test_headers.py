"""Header values that are wrong, long, or meant for someone else's parser."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.helpers.rawhttp import PREFIX, Client, encode_request
from tests.hostile.oracle import CANARY, TEXT, Arena

SETTINGS = settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
KIND = {"Content-Type": "text/plain"}
PRODUCER = {"Producer-Id": "p", "Producer-Epoch": "0", "Producer-Seq": "0"}
LONG = CANARY + "x" * 400


@pytest.mark.parametrize(
    "headers",
    [
        *(
            {"Content-Type": value}
            for value in (CANARY, "a/b/c", "/", "text/", LONG, "text plain/x")
        ),
        {"Content-Type": f"text/plain\t{CANARY}"},
        *(KIND | {"Stream-Seq": value} for value in (LONG, "é" + CANARY, "")),
        *(KIND | PRODUCER | {"Producer-Id": value} for value in ("", LONG, "é" + CANARY)),
        *(
            KIND | PRODUCER | {"Producer-Epoch": value}
            for value in ("", "-1", "+1", "1.0", "0x1", "1e3", CANARY, "9007199254740992", "9" * 99)
        ),
        *(KIND | PRODUCER | {"Producer-Seq": value} for value in ("", " ", "a", "1_0", "²", LONG)),
        KIND | {"Producer-Id": CANARY},
        KIND | {"Producer-Seq": "0"},
        KIND | PRODUCER | {"Producer-Epoch": "0", "Producer-Seq": "7"},
        {},
        {"Content-Type": "application/json"},
    ],
    ids=lambda headers: ",".join(f"{k}={v}" for k, v in headers.items())[-60:],
)
def test_a_bad_append_is_refused(arena: Arena, headers: dict[str, str]) -> None:
    for more in ({}, {"Connection": "close"}):
        data = encode_request("POST", PREFIX + TEXT, headers | more, b"data")
        for reply in arena.ask(data)[:1]:
            assert reply.status in (400, 409), reply


@pytest.mark.parametrize(
    "headers",
    [
        *({"Content-Type": value} for value in (CANARY, "text/html\x0b", LONG, "a/b;\x7f")),
        *({"Stream-TTL": value} for value in ("", "-1", "01", "1.5", "1e9", CANARY, "9" * 500)),
        *(
            {"Stream-Expires-At": value}
            for value in ("", CANARY, "0", "9999-99-99T99:99:99Z", "2001-01-01T00:00:00Z")
        ),
        {"Stream-Expires-At": "0001-01-01T00:00:00+23:59"},
        {"Stream-Expires-At": "2099-01-01T00:00:00+99:99"},
        {"Stream-TTL": "1", "Stream-Expires-At": "2099-01-01T00:00:00Z"},
        {"Stream-Fork-Sub-Offset": "0"},
        {"Stream-Forked-From": PREFIX + TEXT, "Stream-Fork-Offset": CANARY},
        {"Stream-Forked-From": PREFIX + TEXT, "Stream-Fork-Sub-Offset": CANARY},
        {"Stream-Forked-From": PREFIX + TEXT, "Stream-Fork-Sub-Offset": "1"},
    ],
    ids=lambda headers: ",".join(f"{k}={v}" for k, v in headers.items())[-60:],
)
def test_a_bad_create_is_refused(arena: Arena, headers: dict[str, str]) -> None:
    reply = arena.ask(encode_request("PUT", PREFIX + "new", headers))[0]
    assert reply.status == 400, reply


@pytest.mark.parametrize(
    ("ttl", "expires"),
    [
        ("9007199254740991", None),
        (None, "9999-12-31T23:59:59Z"),
        (None, "9999-12-31T23:59:59-12:00"),
    ],
)
def test_the_far_future_does_not_break_the_calendar(
    arena: Arena, ttl: str | None, expires: str | None
) -> None:
    headers = {"Stream-TTL": ttl} if ttl else {"Stream-Expires-At": str(expires)}
    with arena.connect() as connection:
        replies = [connection.request("PUT", PREFIX + "far", headers)]
        replies += [
            connection.request(m, PREFIX + "far") for m in ("HEAD", "GET", "HEAD", "DELETE")
        ]
    arena.check(*replies)


@pytest.mark.parametrize(
    "kind",
    ["text/html", 'text/plain; x="\t<script>"', "multipart/mixed; boundary=--", "a/b;" + "y" * 200],
)
def test_a_content_type_comes_back_as_itself_and_is_not_sniffed(arena: Arena, kind: str) -> None:
    with Client(arena.port) as client:
        client.create("typed", kind, b"<script>")
        reply = client.read("typed")
        assert reply["Content-Type"] == kind
        assert reply["X-Content-Type-Options"] == "nosniff"
        assert client("DELETE", "typed").status == 204


@pytest.mark.parametrize(
    "value", ["", "*", '"', "W/", '"a', "," * 2000, '"a",' * 500, "\xff" * 10, "W/*", CANARY]
)
def test_any_if_none_match_is_survived(arena: Arena, value: str) -> None:
    for method, query in (("GET", ""), ("GET", "?offset=now"), ("HEAD", ""), ("DELETE", "x")):
        data = encode_request(method, PREFIX + TEXT + query, {"If-None-Match": value})
        arena.ask(data)


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": f"http://{CANARY}\x0b"},
        {"Origin": "null"},
        {"X-Forwarded-Host": "evil.test", "X-Forwarded-Proto": "gopher", "Forwarded": "host=evil"},
        {"Cookie": CANARY * 100, "Authorization": f"Bearer {CANARY}"},
        {"Accept-Encoding": "gzip;q=2, *;q=-1"},
        {"Range": "bytes=5-1"},
    ],
    ids=lambda headers: "+".join(headers),
)
def test_headers_for_others_are_ignored(arena: Arena, headers: dict[str, str]) -> None:
    for method in ("GET", "HEAD", "OPTIONS", "PUT"):
        for reply in arena.ask(encode_request(method, PREFIX + TEXT, headers)):
            assert "evil" not in str(reply.fields)


names = st.sampled_from(
    [
        *("Content-Type", "Content-Length", "Transfer-Encoding", "Connection", "Host", "Expect"),
        *("Stream-Seq", "Stream-TTL", "Stream-Expires-At", "Stream-Forked-From", "Upgrade"),
        *("Stream-Fork-Offset", "Stream-Fork-Sub-Offset", *PRODUCER, "If-None-Match", "Origin"),
        *("Content-Encoding", "TE", "Trailer", "Range", "X-Any"),
    ]
)
values = st.sampled_from(
    [
        *("", "0", "1", "-1", "true", "chunked", "close", "keep-alive", "100-continue", "gzip"),
        *("text/plain", "application/json", PREFIX + TEXT, '"x"', "*", "h", "\t", CANARY),
        "9" * 30,
    ]
) | st.text(st.characters(max_codepoint=255, exclude_characters="\r\n"), max_size=20)
fields = st.lists(st.tuples(names, values), max_size=6)


@SETTINGS
@given(st.sampled_from(["GET", "HEAD", "PUT", "DELETE", "OPTIONS"]), fields, st.binary(max_size=8))
def test_fuzzed_headers_at_a_path_of_their_own(
    arena: Arena, method: str, lines: list[tuple[str, str]], body: bytes
) -> None:
    arena.ask(fuzzed(method, PREFIX + "fuzz", lines, body))


@SETTINGS
@given(fields, st.binary(max_size=8))
def test_fuzzed_appends_without_a_type_do_not_touch_the_victim(
    arena: Arena, lines: list[tuple[str, str]], body: bytes
) -> None:
    """No Content-Type, no body: nothing here may append."""
    lines = [(name, value) for name, value in lines if name != "Content-Type"]
    arena.ask(fuzzed("POST", PREFIX + TEXT, lines, body))


def fuzzed(method: str, target: str, lines: list[tuple[str, str]], body: bytes) -> bytes:
    head = f"{method} {target} HTTP/1.1\r\nHost: h\r\n"
    head += "".join(f"{name}: {value}\r\n" for name, value in lines)
    return head.encode("latin-1") + b"\r\n" + body
