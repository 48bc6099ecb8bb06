"""Targets that mean different things to different servers."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.helpers.rawhttp import PREFIX, encode_request
from tests.hostile.oracle import CANARY, TEXT, Arena

SETTINGS = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)

# Ways to spell the victim, or to escape from the streams, that are not its name.
NOT_NAMES = [
    "victim/../victim/text",
    "./victim/text",
    "victim/./text",
    "victim//text",
    "/victim/text",
    "victim/text/",
    "victim%2Ftext",
    "victim%2ftext",
    "victim%5Ctext",
    "victim\\text",
    "%2e%2e/stream/victim/text",
    "x/%2E%2E/victim/text",
    "x/.%2e/victim/text",
    "..%2f..%2fetc%2fpasswd",
    "../../etc/passwd",
    "victim%252Ftext",
    "%2576ictim/text",
    "victim/text%00",
    "victim/text%0a",
    "victim/text%0d%0aX:y",
    "victim/text%7f",
    "victim/text%C2%80",
    "victim/text%ff",
    "victim/text%c0%ae",
    "victim/text%",
    "victim/text%4",
    "victim/text%zz",
    "victim/text%u0041",
    "__ds/victim",
    "%5f_ds/victim",
    "x" * 1025,
    "x/" * 600,
    "%41" * 1100,
    "",
]
METHODS = ["GET", "HEAD", "PUT", "POST", "DELETE"]


@pytest.mark.parametrize("name", NOT_NAMES, ids=lambda name: name[:30])
def test_what_is_not_a_name_reaches_no_stream(arena: Arena, name: str) -> None:
    headers = {"Content-Type": "text/plain"}
    for method in METHODS:
        body = b"x" if method in ("PUT", "POST") else b""
        for more in ({}, {"Connection": "close"}):
            with arena.connect() as connection:
                data = headers | more if body else more
                reply = connection.request(method, PREFIX + name, data, body)
            assert reply.status in (400, 404), (method, name, reply)
    arena.check()


@pytest.mark.parametrize("name", ["victim/te%78t", "%76%69%63tim/text", "vict%69m/text"])
def test_needless_escapes_name_the_same_stream(arena: Arena, name: str) -> None:
    with arena.connect() as connection:
        reply = connection.request("GET", PREFIX + name)
        assert reply.status == 200
        assert reply["ETag"] == connection.request("GET", PREFIX + TEXT)["ETag"]


@pytest.mark.parametrize("name", ["caf%C3%A9", "a b".replace(" ", "%20"), "a+b", "~!$&'()*,;=:@"])
def test_the_location_names_the_stream(arena: Arena, name: str) -> None:
    with arena.connect() as connection:
        location = connection.request("PUT", PREFIX + name)["Location"]
        assert connection.request("GET", location.removeprefix("http://weir.test")).status == 200
        assert connection.request("DELETE", PREFIX + name).status == 204


@pytest.mark.parametrize(
    "source",
    [
        *(PREFIX + name for name in NOT_NAMES[:20]),
        "victim/text",
        "http://h" + PREFIX + TEXT,
        "//h" + PREFIX + TEXT,
        "/v1/stream",
        "/etc/passwd",
        PREFIX + "x" * 3000,
        PREFIX + CANARY,
        CANARY,
    ],
    ids=lambda source: source[:30],
)
def test_a_fork_names_a_stream_or_nothing(arena: Arena, source: str) -> None:
    for more in ({}, {"Stream-Fork-Offset": CANARY}, {"Stream-Fork-Sub-Offset": CANARY}):
        headers = {"Stream-Forked-From": source, **more}
        for reply in arena.ask(encode_request("PUT", PREFIX + "forked", headers)):
            assert reply.status in (400, 404), reply


QUERIES = [
    "offset=",
    "offset=%00",
    "offset=-2",
    "offset=--1",
    "offset=NOW",
    "offset=0",
    "offset=1e3",
    "offset=9999999999999999_9999999999999999",
    "offset=0000000000000001_0000000000000000",
    "offset=0000000000000000_000000000000000a",
    "offset=0000000000000000_0000000000000000%0a",
    "offset=%EF%BC%90000000000000000_0000000000000000",
    "offset=" + "9" * 5000,
    "offset=-1&offset=-1",
    "offset=a,b",
    "offset=../../x",
    "offset=%0d%0aX-Injected:%20y",
    "live=sse",
    "live=long-poll",
    "offset=-1&live=",
    "offset=-1&live=SSE",
    "offset=-1&live=sse&live=long-poll",
    "offset=-2&live=sse",
    "offset=9999999999999999_9999999999999999&live=sse",
    "offset=9999999999999999_9999999999999999&live=long-poll",
]


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query[:40])
def test_a_bad_query_is_400(arena: Arena, query: str) -> None:
    for more in ({}, {"Connection": "close"}):
        with arena.connect() as connection:
            reply = connection.request("GET", f"{PREFIX}{TEXT}?{query}", more)
        assert (reply.status, reply["Content-Type"]) == (400, "application/problem+json")
        assert not reply.get("X-Injected")
    arena.check()


@pytest.mark.parametrize(
    "cursor", ["", "-1", "x", "%00", "9" * 16, "9" * 400, "1e9", "%0d%0aX:y", "٣"]
)
def test_any_cursor_gives_a_number_back(arena: Arena, cursor: str) -> None:
    target = f"{PREFIX}{TEXT}?offset=-1&live=long-poll&cursor={cursor}".encode()
    with arena.connect() as connection:
        connection.send(b"GET " + target + b" HTTP/1.1\r\nHost: h\r\n\r\n")
        reply = connection.read_response()
    if reply.status == 200:
        assert reply["Stream-Cursor"].isdigit()
        assert len(reply["Stream-Cursor"]) <= 33
        assert cursor != "9" * 16 or int(reply["Stream-Cursor"]) > int(cursor)
    arena.check(reply)


pieces = st.sampled_from(
    ["..", ".", "/", "//", "%2e", "%2f", "%5c", "%00", "%25", "%", "\\", ";", "?", "#", "&", "="]
    + ["victim", "text", "offset", "live", "-1", "now", "sse", "é", "\u2028", "%c3", "*", "__ds"]
)
targets = st.lists(pieces | st.text(max_size=3), max_size=10).map("".join)


@SETTINGS
@given(st.sampled_from(["GET", "HEAD", "POST", "OPTIONS"]), targets)
def test_fuzzed_targets(arena: Arena, method: str, target: str) -> None:
    raw = target.encode("utf-8", "surrogatepass")
    arena.ask(method.encode() + b" " + PREFIX.encode() + raw + b" HTTP/1.1\r\nHost: h\r\n\r\n")


@SETTINGS
@given(st.sampled_from(METHODS), targets)
def test_fuzzed_targets_beside_the_streams(arena: Arena, method: str, target: str) -> None:
    raw = target.encode("utf-8", "surrogatepass")
    for reply in arena.ask(method.encode() + b" /" + raw + b" HTTP/1.1\r\nHost: h\r\n\r\n"):
        assert reply.status in (400, 404, 405), reply
