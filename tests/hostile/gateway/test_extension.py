"""Ways to what belongs to somebody else's stream: its snapshots, its bootstrap, its bucket; and
publications that are meant to fill the gateway's memory."""

import time
from collections.abc import Iterator

import pytest

from tests.helpers.gateway import bearer
from tests.helpers.offsets import nameless
from tests.helpers.rawhttp import PREFIX, Response, wait_until
from tests.helpers.scripted_origin import Answer
from tests.hostile.gateway.arena import Arena, check_refusal, soon

AT = nameless
STATE = b"the state that nobody else may see"
TOLD = {
    "Content-Type": "text/html",
    "Stream-Snapshot-Offset": AT(5),
    "Stream-Next-Offset": AT(5),
    "Stream-Up-To-Date": "false",
    "Cache-Control": "public, max-age=60, immutable",
}
METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE")
LIMITS = {"max_body_bytes": 64 * 1024, "max_snapshot_bytes": 256 * 1024}
ALL = ("read", "write", "create", "delete", "snapshot", "subscribe")


@pytest.fixture(scope="module")
def arena(tmp_path_factory: pytest.TempPathFactory, arena_class: type[Arena]) -> Iterator[Arena]:
    """With an origin that has everything, and a snapshot of it in the cache."""
    with arena_class(tmp_path_factory.mktemp("extension"), gateway=LIMITS) as arena:
        arena.origin.on("*", "/*", Answer(200, TOLD, STATE))
        assert ask(arena, "GET", f"/v1/stream/secret/snapshot/{AT(5)}").body == STATE
        assert ask(arena, "GET", f"/ds/buck/secret/snapshot/{AT(5)}").body == STATE
        yield arena


def ask(
    arena: Arena,
    method: str,
    path: str,
    scope: str | None = None,
    headers: dict[str, str] | None = None,
    body: bytes = b"",
) -> Response:
    """By whole path; the token may do everything unless a scope is given."""
    token = arena.token() if scope is None else arena.token(scope=scope)
    with arena.connect() as connection:
        return connection.request(method, path, {**bearer(token), **(headers or {})}, body)


def all_on(*patterns: str) -> str:
    return " ".join(f"{action}:{pattern}" for action in ALL for pattern in patterns)


# -- around a scope ------------------------------------------------------------------------------

# For someone who may do everything to `open`, and to everything below `open/`.
ROUNDABOUT = [
    "secret/bootstrap",
    "secret/snapshot",
    f"secret/snapshot/{AT(5)}",
    "secret/%62ootstrap",
    "se%63ret/bootstrap",
    "secret/snapsho%74/5",
    "secret%2Fbootstrap",
    "secret%2fsnapshot%2f5",
    "open/../secret/bootstrap",
    "open/%2e%2e/secret/bootstrap",
    "open/..%2fsecret/bootstrap",
    "open/bootstrap/../../secret/bootstrap",
    "open/snapshot/../../secret",
    "open/snapshot/..%2f..%2fsecret",
    "open/snapshot/%2e%2e/%2e%2e/secret",
    "open/snapshot/5/../../../secret/snapshot/5",
    "open/snapshot/..;/secret",
    "open/snapshot/%252e%252e",
    "open//bootstrap",
    "open/snapshot//5",
    "openx/bootstrap",
    "xopen/bootstrap",
    "bootstrap",
    "snapshot/open",
    "__ds/../secret/bootstrap",
]


@pytest.mark.parametrize("way", ROUNDABOUT)
def test_no_way_round_leads_to_what_belongs_to_another_stream(arena: Arena, way: str) -> None:
    before = len(arena.origin.requests)
    for method in METHODS:
        for more in ({}, {"Connection": "close"}):
            scope = all_on("open", "open/*")
            reply = ask(arena, method, PREFIX + way, scope, more)
            assert reply.status in (400, 403, 404, 405), reply
            assert STATE not in reply.body
    assert arena.origin.requests[before:] == []


BUCKETED = [
    "/ds/buck",
    "/ds/buck/",
    "/ds/buck/streams",
    "/ds/buck/stream%73",
    "/ds/buck/secret",
    "/ds/buck/secret/bootstrap",
    f"/ds/buck/secret/snapshot/{AT(5)}",
    "/ds/buck/secre%74/snapshot",
    "/ds/buck/open/../secret",
    "/ds/buck/open%2f..%2fsecret",
    "/ds/buck/open/snapshot/../../secret",
    "/ds/buck/openx",
    "/ds/buck/streams/bootstrap",
    "/ds/buck2/open",
    "/ds/%62uck/secret",
    "/ds/../v1/stream/secret",
    "/ds/buck/../../v1/stream/secret",
    "/v1/stream/../../ds/buck/secret",
    "/v1/stream//ds/buck/open",
    "/v1/stream/ds/buck/open",
    "//ds/buck/secret",
    "/ds//buck/secret",
    "/DS/buck/secret",
]


@pytest.mark.parametrize("path", BUCKETED)
def test_a_token_for_one_stream_of_a_bucket_reaches_no_other(arena: Arena, path: str) -> None:
    before = len(arena.origin.requests)
    for method in METHODS:
        reply = ask(arena, method, path, all_on("/ds/buck/open"))
        assert reply.status in (400, 403, 404, 405), reply
        assert STATE not in reply.body
    assert arena.origin.requests[before:] == []


@pytest.mark.parametrize(
    ("scope", "path"),
    [
        ("/v1/stream/*", "/ds/buck/s"),
        ("/v1/stream/*", "/ds/buck"),
        ("/v1/stream/*", "/ds/buck/streams"),
        ("ds/*", "/ds/buck/s"),
        ("ds/buck/*", "/ds/buck/streams"),
        ("/v1/stream/ds/buck/*", "/ds/buck/s"),
        ("/v1/stream//ds/buck/*", "/ds/buck/s"),
        ("/ds/*", "/v1/stream/ds/buck/s"),
        ("/ds/buck/*", "/v1/stream/ds/buck/s"),
        ("/ds/buck/s*", "/ds/buck/streams"),
        ("/ds/buck/*", "/ds/buck"),
        ("/ds/buck", "/ds/buck/s"),
        ("/ds/buck", "/ds/buck/streams"),
        ("a/bootstrap", "/v1/stream/a/bootstrap"),
        ("a/*", "/v1/stream/a/bootstrap"),
        ("a/snapshot/*", f"/v1/stream/a/snapshot/{AT(5)}"),
    ],
)
def test_the_surfaces_share_no_scopes(arena: Arena, scope: str, path: str) -> None:
    before = len(arena.origin.requests)
    check_refusal(ask(arena, "GET", path, all_on(scope)), 403)
    assert arena.origin.requests[before:] == []


@pytest.mark.parametrize(
    ("method", "path", "scope"),
    [
        ("GET", "/v1/stream/a/bootstrap", "read:a"),
        ("GET", "/v1/stream/a/snapshot", "read:a"),
        ("HEAD", f"/v1/stream/a/snapshot/{AT(5)}", "read:a"),
        ("PUT", f"/v1/stream/a/snapshot/{AT(5)}", "snapshot:a"),
        ("DELETE", f"/v1/stream/a/snapshot/{AT(5)}", "delete:a"),
        ("PUT", f"/ds/buck/s/snapshot/{AT(5)}", "snapshot:/ds/buck/s"),
        ("GET", "/ds/buck", "read:/ds/buck"),
        ("PUT", "/ds/buck", "create:/ds/buck"),
        ("DELETE", "/ds/buck", "delete:/ds/buck"),
        ("GET", "/ds/buck/streams", "read:/ds/buck/streams"),
    ],
)
def test_each_operation_has_one_right_and_names_it(
    arena: Arena, method: str, path: str, scope: str
) -> None:
    action, _, pattern = scope.partition(":")
    others = " ".join(f"{other}:{pattern}" for other in ALL if other != action)
    refused = ask(arena, method, path, others)
    assert refused.status == 403 and f'scope="{scope}"' in refused["WWW-Authenticate"]
    assert ask(arena, method, path, scope).status == 200


def test_a_stored_snapshot_is_for_those_who_may_read_its_stream(arena: Arena) -> None:
    path = f"/v1/stream/secret/snapshot/{AT(5)}"
    mine = ask(arena, "GET", path, "read:secret")
    assert (mine.body, mine["Cache-Status"]) == (STATE, "weir; hit")
    assert mine["Cache-Control"].startswith("private") and "Authorization" in mine["Vary"]
    for scope in ("read:secret/*", "read:secret/snapshot/*", "write:secret", ""):
        check_refusal(ask(arena, "GET", path, scope), 403)


@pytest.mark.parametrize("query", ["?offset=-1", "?max_bytes=1", "?x=1&x=2", "?live=", "?%00"])
def test_no_query_splits_the_cache_of_a_snapshot(arena: Arena, query: str) -> None:
    reply = ask(arena, "GET", f"/v1/stream/secret/snapshot/{AT(5)}{query}")
    assert (reply.status, reply["Cache-Status"]) == (200, "weir; hit")


def test_a_snapshot_is_of_its_publishers_type_and_runs_in_no_browser(arena: Arena) -> None:
    reply = ask(arena, "GET", f"/v1/stream/secret/snapshot/{AT(5)}")
    assert (reply["Content-Type"], reply["Content-Security-Policy"]) == ("text/html", "sandbox")


@pytest.mark.parametrize("source", ["/ds/buck/secret", "/ds/buck/se%63ret", "/v1/stream/secret"])
def test_a_fork_of_what_one_may_not_read_is_not_made(arena: Arena, source: str) -> None:
    headers = {"Stream-Forked-From": source}
    before = len(arena.origin.requests)
    refused = ask(arena, "PUT", "/ds/buck/fork", "create:* read:/ds/buck/fork", headers)
    check_refusal(refused, 403)
    assert arena.origin.requests[before:] == []


# -- publications that are too much --------------------------------------------------------------


@pytest.mark.parametrize(
    ("scope", "size", "status"),
    [
        (None, 200_000, 401),
        ("read:* create:* delete:*", 200_000, 403),
        ("write:b", 200_000, 403),
        ("write:a", 300_000, 413),
        (None, 10**14, 413),
    ],
)
def test_a_large_publication_is_judged_before_it_is_taken_in(
    arena: Arena, scope: str | None, size: int, status: int
) -> None:
    """The answer comes although the body never does."""
    token = None if scope is None else arena.token(scope=scope)
    fields = {"Host": "weir.test", "Content-Length": str(size), **bearer(token)}
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    before = len(arena.origin.requests)
    with arena.connect() as connection:
        path = f"/v1/stream/a/snapshot/{AT(5)}"
        connection.send(f"PUT {path} HTTP/1.1\r\n{lines}\r\n".encode())
        check_refusal(connection.read_response("PUT"), status)
    assert arena.origin.requests[before:] == []


@pytest.mark.parametrize("rest", ["snapshot", "bootstrap", "snapshot/5/6", "x"])
def test_only_a_snapshot_may_be_so_large(arena: Arena, rest: str) -> None:
    body = b"x" * 100_000
    check_refusal(ask(arena, "PUT", f"/v1/stream/a/{rest}", None, {}, body), 413)
    check_refusal(ask(arena, "POST", f"/v1/stream/a/snapshot/{AT(5)}", None, {}, body), 413)


# -- time ----------------------------------------------------------------------------------------


def test_a_limited_long_poll_brings_nothing_after_its_token_has_ended(arena: Arena) -> None:
    """It would go to the origin for what it waited for."""
    news = Answer(200, {**TOLD, "Stream-Next-Offset": AT(99)}, b"x" * 90)
    arena.origin.on("GET", "/v1/stream/live", news)
    gate = arena.origin.hold()
    ends = soon(2.0)
    token = arena.token(scope="read:live", exp=ends)
    with arena.connect() as connection:
        target = f"/v1/stream/live?offset={AT(9)}&live=long-poll&max_bytes=5"
        lines = f"Host: weir.test\r\nAuthorization: Bearer {token}\r\n"
        connection.send(f"GET {target} HTTP/1.1\r\n{lines}\r\n".encode())
        wait_until(lambda: gate.waiting == 1)
        wait_until(lambda: time.time() > ends)
        arena.origin.release()
        check_refusal(connection.read_response(), 401)
    assert arena.origin.count("GET", "/v1/stream/live") == 1
