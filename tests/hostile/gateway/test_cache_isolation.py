"""Who may see what the cache holds, what it must not hold, and when it must let go."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.conftest import StartOrigin
from tests.helpers.gateway import bearer
from tests.helpers.offsets import nameless
from tests.helpers.origin import LocalOrigin
from tests.helpers.rawhttp import PREFIX, Response, encode_request, wait_until
from tests.helpers.redis import RedisServer, running_redis
from tests.helpers.scripted_origin import Answer, Gate, SimpleStream
from tests.hostile.gateway.arena import Arena, check_refusal, lasting
from tests.hostile.gateway.conftest import SECRET_BYTES

TEXT = {"Content-Type": "text/plain"}
FRESH = {**TEXT, "Cache-Control": "public, max-age=60, immutable", "Stream-Next-Offset": "5"}
ZERO = nameless(0)


# -- reading what is cached ----------------------------------------------------------------------


def strangers(arena: Arena) -> dict[str, str | None]:
    return {
        "nobody": None,
        "expired": arena.token(ttl=-1),
        "no-scope": arena.token(scope=""),
        "write-only": arena.token(scope="write:secret create:secret delete:secret"),
        "sibling": arena.token(scope="read:secrets read:secre read:secret/* read:Secret"),
        "prefix-of-another": arena.token(scope="read:secretary* read:sec"),
        "star-inside": arena.token(scope="read:s*t read:*cret read:?ecret"),
        "other-action": arena.token(scope="reads:secret readsecret: READ:secret :secret read"),
        "comma": arena.token(scope="read:x,read:secret"),
        "service": arena.token(scope="read:__ds/*"),
        "bucket": arena.token(scope="read:/ds/secret read:/v1/stream read:/v1/streams/secret"),
    }


@pytest.mark.parametrize(
    "who",
    [
        *("nobody", "expired", "no-scope", "write-only", "sibling", "prefix-of-another"),
        *("star-inside", "other-action", "comma", "service", "bucket"),
    ],
)
def test_a_hot_chunk_gives_a_stranger_no_byte(arena: Arena, who: str) -> None:
    """Nor its tag, its age, its length, or the news that it is cached."""
    token = strangers(arena)[who]
    etag, before = arena.ask("secret")["ETag"], arena.origin.count()
    requests: list[tuple[str, str, dict[str, str]]] = [
        ("GET", "", {}),
        ("GET", "offset=-1", {"Connection": "close"}),
        ("GET", "", {"If-None-Match": etag}),
        ("GET", "", {"Accept-Encoding": "gzip"}),
        ("GET", "", {"Range": "bytes=0-1"}),
        ("HEAD", "", {}),
        ("GET", "offset=now", {}),
        ("GET", "offset=-1&live=sse", {}),
        ("GET", "offset=-1&live=long-poll", {}),
    ]
    for method, query, headers in requests:
        reply = arena.ask("secret", query, token=token, method=method, headers=headers)
        check_refusal(reply, 401, 403)
        assert SECRET_BYTES[:8] not in reply.body and "Cache-Status" not in reply
        assert "Stream-Next-Offset" not in reply
    assert arena.origin.count() == before
    assert arena.ask("secret").body == SECRET_BYTES


def test_the_answer_to_a_stranger_is_the_same_for_what_is_cached_and_what_is_not(
    arena: Arena,
) -> None:
    token = arena.token(scope="read:x")
    answers = [arena.ask(name, token=token) for name in ("secret", "nothing")]
    for name, reply in zip(("secret", "nothing"), answers, strict=True):
        assert reply.json()["detail"] == f"The token lacks the scope read:{name}"
    assert [[f[0] for f in reply.fields] for reply in answers] == [
        [f[0] for f in answers[0].fields]
    ] * 2


def test_a_hit_is_judged_by_its_own_token_however_hot_it_is(arena: Arena) -> None:
    """Readers and strangers in turn, on one connection and on many."""
    good = [arena.token(sub=f"good-{number}", scope="read:secret") for number in range(3)]
    bad = [arena.token(sub=f"bad-{number}", scope="read:secrets") for number in range(3)]
    with arena.connect() as connection:
        for number in range(30):
            for tokens, status in ((good, 200), (bad, 403)):
                headers = bearer(tokens[number % 3])
                reply = connection.request("GET", PREFIX + "secret", headers)
                assert reply.status == status
                assert (SECRET_BYTES in reply.body) == (status == 200)


# -- what is stored ------------------------------------------------------------------------------

BAD_ANSWERS = {
    "cut-by-reset": Answer(200, FRESH, b"x" * 5000, cut_after=100),
    "cut-by-close": Answer(200, FRESH, b"x" * 5000, cut_after=100, reset=False),
    "chunked-and-cut": Answer(200, FRESH, b"x" * 5000, cut_after=100, chunked=True),
    "longer-than-said": Answer(200, {**FRESH, "Content-Length": "9"}, b"x" * 5, close=True),
    "without-a-length": Answer(
        raw=b"HTTP/1.1 200 OK\r\nStream-Next-Offset: 5\r\nConnection: close\r\n\r\nxxx",
        close=True,
    ),
    "compressed": Answer(200, {**FRESH, "Content-Encoding": "gzip"}, b"xxx"),
    "partial": Answer(206, {**FRESH, "Content-Range": "bytes 0-1/9"}, b"xx"),
    "not-modified-unasked": Answer(304, FRESH),
    "two-lengths": Answer(
        raw=b"HTTP/1.1 200 OK\r\nStream-Next-Offset: 5\r\nContent-Length: 1\r\n"
        b"Content-Length: 3\r\n\r\nxxx",
        close=True,
    ),
    "two-next-offsets": Answer(
        raw=b"HTTP/1.1 200 OK\r\nStream-Next-Offset: 5\r\nStream-Next-Offset: 6\r\n"
        b"Content-Length: 3\r\n\r\nxxx"
    ),
    "no-next-offset": Answer(200, TEXT, b"xxx"),
    "no-offset-at-all": Answer(200, {**FRESH, "Stream-Next-Offset": "no/offset?"}, b"xxx"),
    "noise": Answer(raw=b"\x00\x01\x02 HTTP\r\n\r\n", close=True),
}


@pytest.mark.parametrize("name", BAD_ANSWERS)
def test_half_an_answer_is_neither_passed_on_nor_kept(arena: Arena, name: str) -> None:
    path = f"bad-{name}"
    arena.origin.on("GET", PREFIX + path, BAD_ANSWERS[name])
    for headers in ({}, {"Connection": "close"}, {"If-None-Match": "*"}):
        check_refusal(arena.ask(path, headers=headers), 502)
    arena.origin.on("GET", PREFIX + path, Answer(200, FRESH, b"whole"))
    reply = arena.ask(path)
    assert (reply.status, reply.body) == (200, b"whole")
    assert "miss" in reply["Cache-Status"]


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 410, 429, 500, 502, 503, 301, 302])
def test_a_refusal_of_the_origin_is_not_kept(arena: Arena, status: int) -> None:
    """However long the origin says that it may be."""
    name = f"refusing-{status}"
    lasting_headers = {"Cache-Control": "public, max-age=600, immutable", "Retry-After": "7"}
    arena.origin.on("GET", PREFIX + name, Answer(status, {**FRESH, **lasting_headers}, b"no"))
    reply = arena.ask(name)
    assert reply.status == status and reply["Retry-After"] == "7"
    assert "public" not in reply["Cache-Control"]
    arena.origin.on("GET", PREFIX + name, Answer(200, FRESH, b"yes"))
    assert arena.ask(name).body == b"yes"


def test_a_head_is_not_taken_for_a_chunk(arena: Arena) -> None:
    arena.origin.on("HEAD", PREFIX + "heads", Answer(200, FRESH))
    arena.origin.on("GET", PREFIX + "heads", Answer(200, FRESH, b"body"))
    assert arena.ask("heads", method="HEAD").status == 200
    assert arena.ask("heads").body == b"body"
    assert arena.ask("heads", method="HEAD").body == b""
    assert arena.ask("heads").body == b"body"


def test_a_not_modified_for_one_is_not_an_empty_chunk_for_the_next(arena: Arena) -> None:
    etag = arena.ask("secret")["ETag"]
    for condition in (etag, f"W/{etag}", "*", f'"x", {etag}'):
        reply = arena.ask("secret", headers={"If-None-Match": condition})
        assert (reply.status, reply.body) == (304, b"")
        assert arena.ask("secret").body == SECRET_BYTES
    assert arena.ask("secret", headers={"If-None-Match": '"x"'}).body == SECRET_BYTES


def test_a_stream_that_can_expire_is_asked_for_each_time(arena: Arena) -> None:
    """Else a busy stream would run out, because its reads never reach the origin."""
    stream = SimpleStream(arena.origin, PREFIX + "ttl", chunk_bytes=4)
    for data in (b"1234", b"5678"):
        stream.append(data)
    stream.delete()
    headers = {**TEXT, "Stream-TTL": "60"}
    assert arena.ask("ttl", method="PUT", headers=headers).status == 201
    for data in (b"1234", b"5678"):
        stream.append(data)
    for number in range(1, 4):
        assert arena.ask("ttl").body == b"1234"
        assert stream.counts["catch-up"] == number


def test_the_cache_is_bounded_whatever_is_asked_for(
    tmp_path: Path, arena_class: type[Arena]
) -> None:
    limit = 300_000
    with arena_class(tmp_path, cache={"max_bytes": limit}) as arena:
        arena.origin.on("GET", PREFIX + "*", Answer(200, FRESH, b"x" * 5000))
        for number in range(120):
            assert arena.ask(f"s-{number}").status == 200
            assert arena.ask("s-0", f"offset=made-up-{number}").status == 200
            assert arena.gateway.gateway.holdings.store.bytes <= limit
        assert arena.gateway.gateway.holdings.store.evicted > 100


# -- streams that change under the cache ---------------------------------------------------------


@pytest.fixture
def real(tmp_path: Path, start_origin: StartOrigin, arena_class: type[Arena]) -> Iterator[Arena]:
    """In front of our own origin, with short holds."""
    origin = start_origin(server={"long_poll_timeout_secs": 2.0})
    with arena_class(tmp_path, origin_url=f"http://127.0.0.1:{origin.port}") as arena:
        yield arena


def write(arena: Arena, name: str, body: bytes, kind: str = "text/plain", **more: str) -> Response:
    headers = {"Content-Type": kind, **{key.replace("_", "-"): v for key, v in more.items()}}
    return arena.ask(name, method="POST", headers=headers, body=body)


def test_nothing_of_a_deleted_stream_is_left_when_its_name_is_taken_again(real: Arena) -> None:
    """Chunks, tags, waiting readers; and the new one is of another type."""
    real.ask("name", method="PUT", headers=TEXT)
    write(real, "name", b"old bytes")
    old = real.ask("name")
    assert real.ask("name").body == b"old bytes"
    poll = real.poll("name", old.next_offset)
    with poll, real.events("name") as events:
        events.next_write()
        real.wait_for_polls("name", 1)
        assert real.ask("name", method="DELETE").status == 204
        assert real.ask("name").status == 404
        assert poll.read_response().status == 404
        assert events.rest() == []
    json_type = {"Content-Type": "application/json"}
    assert real.ask("name", method="PUT", headers=json_type, body=b"[1]").status == 201
    for headers in ({}, {"If-None-Match": old["ETag"]}, {"Connection": "close"}):
        reply = real.ask("name", headers=headers)
        assert (reply.status, reply.body) == (200, b"[1]")
        assert reply["Content-Type"] == "application/json"
    assert real.ask("name", "offset=-1&live=long-poll").body == b"[1]"


def test_a_chunk_that_never_changes_is_gone_with_its_stream(real: Arena) -> None:
    """The whole of a closed stream, however hot it is when the stream is deleted."""
    closing = {**TEXT, "Stream-Closed": "true"}
    real.ask("name", method="PUT", headers=closing, body=b"old bytes")
    ask = encode_request("GET", PREFIX + "name", bearer(real.token()))
    with real.connect() as connection:
        for _ in range(5):
            connection.send(ask)
            reply = connection.read_response()
        assert reply["Cache-Status"] == "weir; hit" and "immutable" in reply["Cache-Control"]
        assert real.ask("name", method="DELETE").status == 204
        connection.send(ask)
        assert connection.read_response().status == 404
        real.ask("name", method="PUT", headers=closing, body=b"new bytes")
        for _ in range(3):
            connection.send(ask)
            assert connection.read_response().body == b"new bytes"


def test_a_close_changes_the_tag_of_an_origin_that_has_none(arena: Arena) -> None:
    tail = {**TEXT, "Stream-Next-Offset": "5", "Stream-Up-To-Date": "true"}
    closed = Answer(200, {**tail, "Stream-Closed": "true"}, b"hello")
    arena.origin.on("GET", PREFIX + "tagless", [Answer(200, tail, b"hello"), closed])
    before = arena.ask("tagless")
    after = arena.ask("tagless", headers={"If-None-Match": before["ETag"]})
    assert not before.closed and after.closed and after.status == 200


def test_a_close_without_data_shows_everywhere(real: Arena) -> None:
    real.ask("name", method="PUT", headers=TEXT)
    write(real, "name", b"all there is")
    before = real.ask("name")
    assert not before.closed and real.ask("name", headers={"If-None-Match": before["ETag"]})
    poll = real.poll("name", before.next_offset)
    with poll, real.events("name") as events:
        events.next_write()
        real.wait_for_polls("name", 1)
        assert real.ask("name", method="POST", headers={"Stream-Closed": "true"}).status == 204
        reply = real.ask("name", headers={"If-None-Match": before["ETag"]})
        assert reply.status == 200 and reply.closed
        assert real.ask("name").closed and real.ask("name", method="HEAD").closed
        answer = poll.read_response()
        assert answer.closed and answer.status == 204
        assert '"streamClosed":true' in events.rest()[-1].data
    at_end = real.ask("name", f"offset={before.next_offset}&live=long-poll")
    assert at_end.closed and at_end.status == 204


def test_parameters_of_a_write_that_our_origin_does_not_know_change_nothing(real: Arena) -> None:
    for method, body in (("PUT", b""), ("POST", b"hello")):
        query = "awareness=x&offset=now&live=sse&max_bytes=1"
        assert real.ask("name", query, method=method, headers=TEXT, body=body).status < 300
    assert real.ask("name").body == b"hello"
    assert real.ask("name", "awareness=x", method="DELETE").status == 204


def test_an_acknowledged_write_is_in_every_read_that_begins_after_it(arena: Arena) -> None:
    """Also while an older read of the same key is on its way, with an answer from before."""
    gate = Gate()
    tail = {**TEXT, "Stream-Up-To-Date": "true", "Cache-Control": "public, max-age=0"}
    old = Answer(200, {**tail, "Stream-Next-Offset": "4"}, b"old,", wait_for=gate)
    new = Answer(200, {**tail, "Stream-Next-Offset": "7"}, b"old,new")
    arena.origin.on("GET", PREFIX + "rw", [old, new])
    arena.origin.on("POST", PREFIX + "rw", Answer(204, {"Stream-Next-Offset": "7"}))
    with arena.connect() as older, arena.connect() as younger:
        older.send(encode_request("GET", PREFIX + "rw", bearer(arena.token())))
        wait_until(lambda: gate.waiting == 1)
        assert write(arena, "rw", b"new").status == 204
        younger.send(encode_request("GET", PREFIX + "rw", bearer(arena.token())))
        flights = arena.gateway.gateway.holdings.flights._open
        wait_until(lambda: sum(flight.riders for flight in flights.values()) == 2)
        gate.open()
        assert older.read_response().body == b"old,"
        assert younger.read_response().body == b"old,new"


# -- the second level ----------------------------------------------------------------------------


def test_what_redis_was_made_to_say_is_not_believed(
    tmp_path: Path, arena_class: type[Arena]
) -> None:
    """Swapped, forged, cut and foreign values: the origin is asked instead."""
    with running_redis() as redis:
        cache = {"redis_url": redis.url, "redis_key": "s3cret", "redis_timeout_secs": 1.0}
        with arena_class(tmp_path, cache=cache) as arena:
            for name in ("mine", "theirs"):
                stream = SimpleStream(arena.origin, PREFIX + name, chunk_bytes=6)
                stream.append(f"{name:6}".encode())
                stream.append(b"tail")
                assert arena.ask(name).body == f"{name:6}".encode()
            wait_until(lambda: len(redis.command("KEYS", "weir:chunk:*")) == 2)
            one, other = sorted(redis.command("KEYS", "weir:chunk:*"))
            honest, foreign = redis.command("GET", one), redis.command("GET", other)
            for poison in (foreign, honest[:-1], b"", b"\x00" * 100, honest + b"x", flip(honest)):
                redis.command("SET", one, poison)
                arena.gateway.call(arena.gateway.gateway.holdings.store.clear)
                for name in ("mine", "theirs"):
                    assert arena.ask(name).body == f"{name:6}".encode()
            assert not [k for k in redis.command("KEYS", "*") if b"mine" in k and b"." in k]


def saved(redis: RedisServer) -> dict[bytes, bytes]:
    """All that gateways have put there; waits for the first chunk."""
    wait_until(lambda: redis.command("KEYS", "weir:chunk:*") != [])
    keys = redis.command("KEYS", "weir:gen:*") + redis.command("KEYS", "weir:chunk:*")
    return {key: redis.command("GET", key) for key in keys}


def put_back(redis: RedisServer, values: dict[bytes, bytes]) -> None:
    for key, value in values.items():
        redis.command("SET", key, value)


class Fleet:
    """Gateways with a key, between an origin and a Redis that somebody else can write to."""

    def __init__(self, origin: LocalOrigin, redis: RedisServer, folder: Path) -> None:
        self.origin, self.redis, self._folder = origin, redis, folder

    def gateway(self, arena_class: type[Arena], name: str) -> Arena:
        cache = {"redis_url": self.redis.url, "redis_key": "s3cret", "redis_timeout_secs": 1.0}
        url = f"http://127.0.0.1:{self.origin.port}"
        return arena_class(self._folder / name, origin_url=url, cache=cache)

    def fill(self, arena: Arena) -> tuple[str, dict[bytes, bytes]]:
        """A stream whose first chunk is in Redis: where that ends, and all that Redis has."""
        end = arena.ask("name", method="PUT", headers=TEXT, body=b"old.").next_offset
        write(arena, "name", b"tail")
        assert arena.ask("name").body == b"old."
        return end, saved(self.redis)


@pytest.fixture
def fleet(tmp_path: Path, start_origin: StartOrigin) -> Iterator[Fleet]:
    with running_redis() as redis:
        yield Fleet(start_origin(storage={"chunk_bytes": 4}), redis, tmp_path)


@pytest.mark.parametrize("who", ["who purged it", "who came later"])
@pytest.mark.parametrize("what", ["a deleted stream", "what a snapshot replaced"])
def test_what_is_put_back_into_redis_brings_nothing_back(
    fleet: Fleet, arena_class: type[Arena], what: str, who: str
) -> None:
    """Each value is genuine and its time is not over; only that it was purged is not seen in it."""
    with fleet.gateway(arena_class, "one") as one:
        end, values = fleet.fill(one)
        if what == "a deleted stream":
            expected = (200, b"new.")
            assert one.ask("name", method="DELETE").status == 204
            one.ask("name", method="PUT", headers=TEXT, body=b"new.")
            write(one, "name", b"tail")
        else:
            expected = (410, b"")
            done = one.ask(f"name/snapshot/{end}", method="PUT", headers=TEXT, body=b"s")
            assert done.status == 204
        with ExitStack() as stack:
            reader = one
            if who == "who came later":
                reader = stack.enter_context(fleet.gateway(arena_class, "two"))
            for query in ("offset=" + end, "", "offset=-1"):
                put_back(fleet.redis, values)
                reply = reader.ask("name", query)
            assert (reply.status, reply.body if reply.status == 200 else b"") == expected


def test_a_gateway_that_never_heard_of_a_stream_believes_nothing_of_it(
    fleet: Fleet, arena_class: type[Arena]
) -> None:
    """While the origin is away, nobody can say whether what Redis has was deleted meanwhile."""
    with fleet.gateway(arena_class, "one") as one:
        _, values = fleet.fill(one)
    fleet.origin.stop()
    put_back(fleet.redis, values)
    with fleet.gateway(arena_class, "two") as two:
        check_refusal(two.ask("name"), 502, 503, 504)


def flip(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


def test_a_stranger_gets_nothing_from_the_second_level(
    tmp_path: Path, arena_class: type[Arena]
) -> None:
    with running_redis() as redis:
        with arena_class(tmp_path, cache={"redis_url": redis.url}) as arena:
            stream = SimpleStream(arena.origin, PREFIX + "a", chunk_bytes=4)
            stream.append(b"1234")
            stream.append(b"tail")
            assert arena.ask("a").body == b"1234"
            wait_until(lambda: len(redis.command("KEYS", "weir:chunk:*")) == 1)
            arena.gateway.call(arena.gateway.gateway.holdings.store.clear)
            for token in (None, arena.token(scope="read:b"), arena.token(ttl=-1)):
                check_refusal(arena.ask("a", token=token), 401, 403)
            assert arena.gateway.metric("shared_hits") == 0
            assert lasting(arena.ask("a"))[2] == b"1234"
            assert arena.gateway.metric("shared_hits") == 1
