"""Who may decide what goes into the cache: only the stream and the offset, never a header."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.gateway import bearer
from tests.helpers.offsets import nameless
from tests.helpers.rawhttp import PREFIX, Response, encode_request
from tests.helpers.scripted_origin import Answer, Recorded, SimpleStream
from tests.hostile.gateway.arena import CANARY, Arena, check_refusal

TEXT = {"Content-Type": "text/plain"}
FRESH = {**TEXT, "Cache-Control": "public, max-age=60, immutable", "Stream-Next-Offset": "5"}
ZERO = nameless(0)


# -- what reaches the origin ---------------------------------------------------------------------

UNKEYED = {
    "X-Forwarded-Host": "evil.test",
    "X-Forwarded-Proto": "gopher",
    "X-Forwarded-Prefix": "/evil",
    "X-Forwarded-For": "6.6.6.6",
    "X-Forwarded-Port": "666",
    "X-Forwarded-Scheme": "http",
    "Forwarded": "host=evil.test;proto=gopher",
    "X-Original-URL": "/v1/stream/other",
    "X-Rewrite-URL": "/v1/stream/other",
    "X-Host": "evil.test",
    "X-HTTP-Method-Override": "DELETE",
    "X-HTTP-Method": "DELETE",
    "X-Method-Override": "DELETE",
    "Origin": "https://evil.test",
    "Referer": "https://evil.test/",
    "Accept": "text/html",
    "Accept-Language": "tlh",
    "Accept-Charset": "utf-7",
    "Accept-Encoding": "gzip, zstd, br",
    "Range": "bytes=0-1",
    "If-Range": '"x"',
    "If-Match": '"x"',
    "If-None-Match": '"x"',
    "If-Modified-Since": "Mon, 16 Nov 2026 00:00:00 GMT",
    "If-Unmodified-Since": "Mon, 16 Nov 2020 00:00:00 GMT",
    "Cookie": "admin=1",
    "Cache-Control": "no-cache, no-store",
    "Pragma": "no-cache",
    "User-Agent": "evil/1.0",
    "Via": "1.1 evil",
    "TE": "trailers",
    "Prefer": "respond-async",
    "Expect-CT": "x",
    "Stream-Seq": "1",
    "Stream-Closed": "true",
    "Stream-TTL": "1",
    "Stream-Cursor": "1",
    "Producer-Id": "evil",
    "Content-Type": "text/html",
    "Content-Encoding": "identity",
    "X-JWT-Sub": "admin",
    "Weir-Access-Key": "evil",
    "X-Request-Id-": "evil",
    "Proxy-Authorization": "Basic eDp5",
    "Upgrade-Insecure-Requests": "1",
    "Sec-Fetch-Mode": "navigate",
}
OWN = {"host", "accept", "accept-encoding", "user-agent", "x-request-id", "if-none-match"}


@pytest.fixture
def mirror(arena: Arena) -> Iterator[str]:
    """A stream whose origin would put anything that it is sent into its answer."""
    seen = 0

    def reflect(request: Recorded) -> Answer:
        nonlocal seen
        seen += 1
        fields = [field for field in request.fields if field[0].lower() not in OWN]
        return Answer(200, FRESH, repr((request.method, request.target, fields)).encode())

    name = f"mirror-{id(reflect)}"
    arena.origin.on("*", PREFIX + name, reflect)
    yield name
    assert seen > 0


@pytest.mark.parametrize("header", UNKEYED)
def test_a_header_that_is_no_part_of_the_key_changes_nothing(
    arena: Arena, mirror: str, header: str
) -> None:
    """The poisoner asks first; what he said is in nothing that the next reader gets."""
    poison = {header: UNKEYED[header]}
    poisoned = arena.ask(mirror, headers=poison)
    assert poisoned.status == 200, poisoned
    victim = arena.ask(mirror)
    assert victim["Cache-Status"] == "weir; hit"
    assert victim.body == repr(("GET", f"{PREFIX}{mirror}?offset=-1", [])).encode()
    assert "evil" not in str(victim.fields) and "evil" not in str(poisoned.fields)
    (request,) = arena.origin.find(path=PREFIX + mirror)
    assert set(request.headers) <= OWN
    assert request.headers["accept-encoding"] == "identity"


def test_names_that_connection_lists_are_dropped_and_nothing_else(
    arena: Arena, mirror: str
) -> None:
    """Nor can a client make us drop a header of our own."""
    for listed in (
        "Authorization",
        "Host",
        "X-JWT-Sub",
        "X-Request-Id",
        "Content-Length",
        "X-Evil",
    ):
        headers = {"Connection": f"close, {listed}", "X-Evil": CANARY}
        assert arena.ask(mirror, headers=headers).status in (200, 401)
    headers = {**TEXT, "Connection": "close, Stream-Seq, X-JWT-Sub", "Stream-Seq": "9"}
    arena.ask(mirror, method="POST", headers=headers, body=b"x")
    sent = arena.origin.requests[-1]
    assert sent.method == "POST" and sent.headers["x-jwt-sub"] == "alice"
    assert "stream-seq" not in sent.headers and "connection" not in sent.headers


@pytest.mark.parametrize(
    "name", ["X-JWT-Sub", "x-jwt-sub", "X_JWT_Sub", "X-Jwt_Sub", "X-JWT-Subject", "X-JWT-Scope"]
)
def test_nobody_names_himself_to_the_origin(arena: Arena, mirror: str, name: str) -> None:
    """In any spelling, twice, or empty; the origin hears the token's subject once."""
    token = arena.token(sub="bob")
    for value in ("admin", "", "bob, admin"):
        for method in ("POST", "PUT", "DELETE", "HEAD"):
            arena.ask(mirror, token=token, method=method, headers={**TEXT, name: value})
            check_named(arena.origin.requests[-1], method)
    data = encode_request("DELETE", PREFIX + mirror, bearer(token))
    arena.send(data[:-2] + f"{name}: a\r\n{name}: b\r\n\r\n".encode(), 1)
    check_named(arena.origin.requests[-1], "DELETE")


def check_named(request: Recorded, method: str) -> None:
    assert request.method == method
    named = [field for field in request.fields if "jwt" in field[0].lower()]
    assert named == [("x-jwt-sub", "bob")]


def test_an_allowed_origin_is_added_after_the_cache(
    tmp_path: Path, arena_class: type[Arena]
) -> None:
    """One site's permission is not what the next site finds in the cache."""
    http = {"cors_origins": ("https://good.test", "https://fine.test")}
    with arena_class(tmp_path, http=http) as arena:
        stream = SimpleStream(arena.origin, PREFIX + "a", chunk_bytes=1)
        stream.append(b"x")
        stream.append(b"y")
        for origin in ("https://good.test", "https://evil.test", "https://fine.test", "null", None):
            for _ in range(2):
                reply = arena.ask("a", headers={"Origin": origin} if origin else {})
                allowed = origin if origin in http["cors_origins"] else None
                assert reply.get("Access-Control-Allow-Origin") == allowed
                assert "Origin" in str([f for f in reply.fields if f[0] == "vary"])


ORIGIN_S_OWN = {
    "Set-Cookie": "session=of-the-first-reader",
    "WWW-Authenticate": "Basic realm=origin",
    "Server-Timing": "db;dur=53",
    "Server": "origin/1.0",
    "X-Powered-By": "origin",
    "X-Internal": "10.0.0.7",
    "Via": "1.1 origin",
    "Access-Control-Allow-Origin": "https://evil.test",
    "Access-Control-Allow-Credentials": "true",
    "Strict-Transport-Security": "max-age=1",
    "Clear-Site-Data": '"*"',
    "Link": "<https://evil.test/x.js>; rel=preload",
    "Refresh": "0; url=https://evil.test",
    "Alt-Svc": 'h2="evil.test:443"',
    "Service-Worker-Allowed": "/",
    "Age": "99999",
    "Cache-Status": "origin; hit",
    "CDN-Cache-Control": "public, max-age=99999",
    "Surrogate-Control": "max-age=99999",
    "Surrogate-Key": "evil",
    "Vary": "*",
    "Expires": "Thu, 01 Jan 2099 00:00:00 GMT",
    "Trailer": "X-Evil",
    "Keep-Alive": "timeout=999",
    "Upgrade": "h2c",
    "Authorization": "Bearer x",
}
# Tags and ids are made here, and may hold any digits.
OUR_OWN = ("cross-origin-resource-policy", "vary", "etag", "x-request-id")
MARKS = ("origin", "evil", "99999", "session", "10.0.0.7", "dur=53", "2099", "h2c", "credentials")


@pytest.mark.parametrize("status", [200, 404, 500])
def test_what_is_the_origin_s_own_business_stays_there(arena: Arena, status: int) -> None:
    name = f"chatty-{status}"
    arena.origin.on("*", PREFIX + name, Answer(status, {**FRESH, **ORIGIN_S_OWN}, b"x"))
    requests = [("GET", ""), ("GET", ""), ("GET", "offset=now"), ("HEAD", ""), ("PUT", "")]
    requests += [("POST", ""), ("DELETE", ""), ("GET", "offset=5&live=long-poll")]
    for method, query in requests:
        reply = arena.ask(name, query, method=method, headers=TEXT)
        fields = [f for f in reply.fields if f[0] not in OUR_OWN]
        cors = ("access-control-allow-origin", "*")
        text = str([f for f in fields if f != cors]).lower()
        assert not [mark for mark in MARKS if mark in text], reply
        assert reply["Server"] == "weir" and "set-cookie" not in text


# -- what others may cache -----------------------------------------------------------------------


def test_no_answer_lets_a_shared_cache_keep_a_private_stream(
    tmp_path: Path, arena_class: type[Arena]
) -> None:
    """The origin says `public` to everything: it sees no tokens. RFC 9111 3.5."""
    with arena_class(tmp_path, cache={"max_object_bytes": 1000}) as arena:
        stream = SimpleStream(arena.origin, PREFIX + "doc", chunk_bytes=4)
        for data in (b"1234", b"5678"):
            stream.append(data)
        loud = {**FRESH, "Cache-Control": "public, s-maxage=99, max-age=60"}
        arena.origin.on("*", PREFIX + "large", Answer(200, loud, b"x" * 5000))
        arena.origin.on("*", PREFIX + "odd", Answer(200, {"Cache-Control": "public"}, b"x"))
        arena.origin.on("*", PREFIX + "gone", Answer(404, {"Cache-Control": "public, max-age=9"}))
        arena.origin.on("*", PREFIX + "quiet", Answer(404))
        for name in ("doc", "large", "odd", "gone", "quiet"):
            for query in ("", "offset=now", f"offset={nameless(4)}&live=long-poll"):
                for method in ("GET", "HEAD") if not query else ("GET",):
                    check_private(arena.ask(name, query, method=method))
        assert arena.ask("doc")["Vary"] == "Authorization, Accept-Encoding"


def check_private(reply: Response) -> None:
    control = reply["Cache-Control"].lower()
    assert "public" not in control and "s-maxage" not in control, reply
    assert "private" in control or "no-store" in control, reply
    assert reply.status < 400 or control == "no-store", reply
    if "private" in control:
        assert "authorization" in reply["Vary"].lower(), reply


def test_only_a_public_stream_s_chunks_are_public(tmp_path: Path, arena_class: type[Arena]) -> None:
    with arena_class(tmp_path, cdn={"public": ("news/*", "one")}) as arena:
        for name in ("news/a", "one", "news", "newsletter", "private", "ones", "one/x"):
            stream = SimpleStream(arena.origin, PREFIX + name, chunk_bytes=1)
            stream.append(b"x")
            stream.append(b"y")
        for name in ("news/a", "one"):
            assert arena.ask(name)["Cache-Control"].startswith("public")
        for name in ("news", "newsletter", "private", "ones", "one/x"):
            check_private(arena.ask(name))
        check_refusal(arena.ask("news/a", token=None), 401)  # public is for caches, not for us


# -- keys ----------------------------------------------------------------------------------------


@pytest.fixture
def counted(arena: Arena, request: pytest.FixtureRequest) -> Iterator[str]:
    """A stream whose first chunk the origin is to be asked for once."""
    name = f"counted-{abs(hash(request.node.name))}"
    stream = SimpleStream(arena.origin, PREFIX + name, chunk_bytes=10)
    stream.append(b"0123456789")
    stream.append(b"tail")
    yield name
    assert stream.counts["catch-up"] == 1


SAME = [
    "",
    "offset=-1",
    "offset=%2D1",
    "offset=%2d%31",
    "%6fffset=-1",
    f"offset={ZERO}",
    f"offset={ZERO.replace('_', '%5F')}",
    "OFFSET=now",
    "Offset=5&LIVE=sse",
    "x=1",
    "x=1&offset=-1&x=2",
    "offset=-1&cursor=5",
    "cursor=5&offset=-1",
    "cursor=&offset=-1",
    "cursor=" + "9" * 5000 + "&offset=-1",
    "cursor=-1&offset=-1",
    "cursor=%0d%0a&offset=-1",
    "&&offset=-1&&",
    "=&offset=-1",
    "offset=-1&%00=%00",
    "offset=-1&access_token=x",
    "offset=-1&live_=sse",
    "offset=-1&_=1731745500",
    "utm_source=" + "x" * 2000,
]


def test_spellings_of_one_question_share_one_key(arena: Arena, counted: str) -> None:
    for query in SAME:
        assert arena.ask(counted, query).body == b"0123456789", query
    assert (
        len([key for key in arena.gateway.gateway.holdings.store._entries if key[0] == counted])
        == 1
    )


REFUSED = [
    "offset=-1&offset=-1",
    "offset=-1&offset=now",
    "offset=-1&%6fffset=-1",
    "live=sse&live=long-poll&offset=-1",
    "offset=-1&live=sse&cursor=1&cursor=2",
    "offset=",
    "offset=+1",
    "offset=-1;live=sse",
    "offset=-1,now",
    "offset=-1%26live=sse",
    "offset=-1%00",
    "offset=%0d%0aX-Evil:1",
    "offset=" + "0" * 256,
    "offset=%ff",
    "offset=../../x",
    "offset=a/b",
    "offset=a?b",
    "live=sse",
    "live=true&offset=-1",
    "live=SSE&offset=-1",
    "live=&offset=-1",
    "live=sse%20&offset=-1",
]


@pytest.mark.parametrize("query", REFUSED, ids=lambda query: query[:30])
def test_a_doubtful_question_is_refused_and_reaches_nobody(arena: Arena, query: str) -> None:
    before = arena.origin.count()
    for headers in ({}, {"Connection": "close"}):
        check_refusal(arena.ask("live", query, headers=headers), 400)
    assert arena.origin.count() == before


def test_a_body_with_a_read_is_refused(arena: Arena) -> None:
    """A fat GET: whoever reads the body, it is not part of the key."""
    before = arena.origin.count()
    auth = f"Authorization: Bearer {arena.token()}\r\n"
    for method in ("GET", "HEAD"):
        head = f"{method} {PREFIX}secret HTTP/1.1\r\nHost: h\r\n{auth}"
        for body in (
            "Content-Length: 8\r\n\r\noffset=5",
            "Transfer-Encoding: chunked\r\n\r\n8\r\noffset=5\r\n0\r\n\r\n",
            "Content-Length: 8\r\nContent-Type: application/x-www-form-urlencoded\r\n\r\noffset=5",
        ):
            reply = arena.send((head + body).encode(), 1)[0]
            check_refusal(reply, 400)
    assert arena.origin.count() == before


def test_now_is_never_cached(arena: Arena) -> None:
    stream = SimpleStream(arena.origin, PREFIX + "moving")
    for number in range(3):
        tail = stream.append(b"x")
        assert arena.ask("moving", "offset=now").next_offset == tail
        assert arena.ask("moving", "offset=%6eow").next_offset == tail
        assert arena.ask("moving", method="HEAD").next_offset == tail
        assert stream.counts["now"] == 2 * number + 2
    assert "no-store" in arena.ask("moving", "offset=now")["Cache-Control"]
