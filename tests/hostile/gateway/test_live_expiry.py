"""Permission that ends while its holder is connected, and credentials in what readers share."""

import threading
import time
from pathlib import Path

import pytest

from tests.helpers.gateway import KEY, bearer
from tests.helpers.keys import make_key, write_jwks
from tests.helpers.offsets import nameless
from tests.helpers.rawhttp import (
    PREFIX,
    Closed,
    EventStream,
    Response,
    control,
    encode_request,
    wait_until,
)
from tests.helpers.redis import running_redis
from tests.helpers.scripted_origin import Answer, Gate, Recorded, SimpleStream
from tests.hostile.gateway.arena import Arena, Recording, check_refusal, soon

SHORT_S = 2.0  # the life of a token that must be good when it comes


@pytest.fixture
def stream(arena: Arena, request: pytest.FixtureRequest) -> SimpleStream:
    """An open stream of the test's own, named after it."""
    name = request.node.name.partition("[")[0]
    stream = SimpleStream(arena.origin, PREFIX + name)
    stream.append(b"first")
    return stream


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    found: str = request.node.name
    return found.partition("[")[0]


def parked(arena: Arena, name: str, count: int) -> None:
    wait_until(lambda: sum(arena.readers_of(name)) == count, what=f"{count} readers")


def past(moment: float) -> None:
    """The clock that tokens are judged by has passed this."""
    wait_until(lambda: time.time() > moment, what="a token's end")


def read_all(events: EventStream) -> bytes:
    """The whole body up to its terminator."""
    return b"".join(events.writes)


# -- expiry --------------------------------------------------------------------------------------


def test_an_event_stream_ends_when_its_token_does_and_says_so(
    arena: Arena, stream: SimpleStream, name: str
) -> None:
    """A clean end at the right time, told apart from a rotation, and nothing after it."""
    expires = soon(SHORT_S)
    with arena.events(name, token=arena.token(exp=expires)) as events:
        body = read_all(events)
        assert expires - 0.1 < time.time() < expires + 20
        stream.append(b"later")
    assert b"first" in body and b"later" not in body
    assert b"token-expired" in body.splitlines()[-2], body
    wait_until(lambda: any(line.stream == name for line in arena.lines()))
    assert [line.ended for line in arena.lines() if line.stream == name] == ["token-expired"]


def test_a_revocation_ends_whoever_follows_with_that_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arena_class: type[Arena]
) -> None:
    """By its id or its subject; others go on, and the origin need not have any news."""
    monkeypatch.setattr("gateway.watch.PERIOD_SECS", 0.05)
    with running_redis() as redis:
        cache, auth = {"redis_url": redis.url, "redis_timeout_secs": 1.0}, {"revocation": True}
        with arena_class(tmp_path, cache=cache, auth=auth) as arena:
            stream = SimpleStream(arena.origin, PREFIX + "a")
            stream.append(b"first")
            one, other = arena.token(jti="id-1"), arena.token(jti="id-2")
            mallory = arena.token(sub="mallory")
            polls = [arena.poll("a", stream.tail, token=token) for token in (one, mallory)]
            streams = [arena.events("a", token=token) for token in (one, mallory)]
            with arena.events("a", token=other) as lasting:
                lasting.next_write()
                hubs = arena.gateway.gateway.hubs
                wait_until(lambda: hubs.reader_count == 5)
                redis.command("SET", "weir:revoked:jti:id-1", "1")
                redis.command("SET", "weir:revoked:sub:mallory", "1")
                for events in streams:
                    assert b"token-revoked" in read_all(events).splitlines()[-2]
                for poll in polls:
                    check_refusal(poll.read_response(), 401)
                stream.append(b"later")
                assert lasting.next_write()[0].data == "later"
            endings = [line.ended for line in arena.lines(5) if line.mode == "sse"]
            assert sorted(endings)[-2:] == ["token-revoked"] * 2
            wait_until(lambda: len(hubs.watch) == 0)
            for connection in (*polls, *(events.connection for events in streams)):
                connection.close()


def test_a_hot_token_is_refused_from_the_moment_it_ends(
    tmp_path: Path, arena_class: type[Arena]
) -> None:
    """However often it was good before, on the same connection."""
    unlimited = {"requests_per_second": 0.0}  # a quick machine would exceed its rate
    with arena_class(tmp_path, gateway=unlimited) as arena, arena.connect() as connection:
        stream = SimpleStream(arena.origin, PREFIX + "hot", chunk_bytes=5)
        stream.append(b"first")
        stream.append(b"later")  # what was appended first is a chunk that is kept
        expires = soon(SHORT_S)
        head = encode_request("GET", PREFIX + "hot", bearer(arena.token(exp=expires)))
        statuses = set()
        while (asked := time.time()) < expires + 0.2:
            connection.send(head)
            status = connection.read_response().status
            statuses.add(status)
            assert status == 200 if time.time() < expires else status == 401 or asked < expires
    assert statuses == {200, 401}


def test_one_reader_s_expiry_is_nothing_to_the_others(
    arena: Arena, stream: SimpleStream, name: str
) -> None:
    short = [arena.events(name, token=arena.token(exp=soon(SHORT_S))) for _ in range(3)]
    with arena.events(name) as lasting:
        lasting.next_write()
        for events in short:
            assert b"later" not in read_all(events)
            events.connection.close()
        stream.append(b"later")
        assert [event.data for event in lasting.next_write()][0] == "later"


def test_a_waiting_long_poll_is_judged_again_at_delivery(
    arena: Arena, stream: SimpleStream, name: str
) -> None:
    expires = soon(SHORT_S)
    expired = arena.poll(name, stream.tail, token=arena.token(exp=expires))
    good = arena.poll(name, stream.tail)
    parked(arena, name, 2)
    past(expires)
    stream.append(b"not for everyone")
    with expired, good:
        reply = expired.read_response()
        check_refusal(reply, 401)
        assert b"everyone" not in reply.body and "Stream-Next-Offset" not in reply
        assert good.read_response().body == b"not for everyone"


def test_a_long_poll_ahead_of_its_hub_is_judged_again_as_well(
    arena: Arena, stream: SimpleStream, name: str
) -> None:
    """Data that goes past a waiting reader's offset reaches him by a catch-up read."""
    behind = stream.tail
    gate = Gate()
    held = Answer(200, wait_for=gate, raw=batch(stream, b"ABCDEF"))
    answer = stream._answer
    served: list[Recorded] = []

    async def script(request: Recorded) -> Answer:
        if request.parameters.get("live") == "long-poll" and not served:
            served.append(request)
            return held
        return await answer(request)

    arena.origin.on("*", PREFIX + name, script)
    leader = arena.poll(name, behind)
    parked(arena, name, 1)
    middle = stream.append(b"ABC")
    expires = soon(SHORT_S)
    ahead = arena.poll(name, middle, token=arena.token(exp=expires))
    parked(arena, name, 2)
    stream.append(b"DEF")
    past(expires)
    gate.open()
    with leader, ahead:
        assert leader.read_response().body == b"ABCDEF"
        reply = ahead.read_response()
        assert b"DEF" not in reply.body
        check_refusal(reply, 401)


def batch(stream: SimpleStream, data: bytes) -> bytes:
    end = len(b"first") + len(data)
    head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nStream-Up-To-Date: true\r\n"
    head += f"Stream-Next-Offset: {nameless(end)}\r\nContent-Length: {len(data)}\r\n\r\n"
    return head.encode() + data


@pytest.mark.parametrize("query", ["offset=-1&live=sse", "offset=-1&live=long-poll"])
def test_an_answer_that_comes_after_the_token_s_end_is_not_given(arena: Arena, query: str) -> None:
    """The origin held the first byte for longer than the token had to live."""
    name = "held-" + query[-3:]
    stream = SimpleStream(arena.origin, PREFIX + name)
    stream.append(b"too late")
    gate = arena.origin.hold()
    expires = soon(SHORT_S)
    before = arena.origin.count()
    with Later(arena, name, query, arena.token(exp=expires)) as asked:
        wait_until(lambda: arena.origin.count() > before)
        past(expires)
        gate.open()
        arena.origin.release()
        reply = asked.reply()
    assert b"too late" not in reply.body
    check_refusal(reply, 401)


class Later:
    """A request whose answer is read on another thread."""

    def __init__(self, arena: Arena, name: str, query: str, token: str) -> None:
        self._replies: list[Response] = []

        def work() -> None:
            self._replies.append(arena.ask(name, query, token=token))

        self._thread = threading.Thread(target=work)

    def __enter__(self) -> "Later":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join(60)

    def reply(self) -> Response:
        self._thread.join(60)
        return self._replies[0]


def test_permission_that_is_taken_away_ends_a_reader_within_a_rotation(
    tmp_path: Path, arena_class: type[Arena]
) -> None:
    """Its key leaves the set: the stream rotates, and the reader does not come back in."""
    path = write_jwks(tmp_path / "jwks.json", KEY)
    auth = {"jwks": str(path), "jwks_refresh_secs": 0.05}
    with arena_class(tmp_path, auth=auth, gateway={"sse_rotation_secs": 0.5}) as arena:
        SimpleStream(arena.origin, PREFIX + "a").append(b"x")
        token = arena.token()
        with arena.events("a", token=token) as events:
            write_jwks(path, make_key("EdDSA", "other"))
            began = time.monotonic()
            last = events.rest()[-1]
            assert time.monotonic() - began < 20  # the usual rotation is a minute
        query = f"offset={control(last)['streamNextOffset']}&live=sse"
        check_refusal(arena.ask("a", query, token=token), 401)


def test_a_key_that_leaves_the_set_ends_whoever_follows_with_its_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arena_class: type[Arena]
) -> None:
    """Long before a rotation, and without a Redis; readers whose key stays go on."""
    monkeypatch.setattr("gateway.watch.PERIOD_SECS", 0.05)
    stays = make_key("EdDSA", "stays")
    path = write_jwks(tmp_path / "jwks.json", KEY, stays)
    auth = {"jwks": str(path), "jwks_refresh_secs": 0.05}
    with arena_class(tmp_path, auth=auth, gateway={"sse_rotation_secs": 3600.0}) as arena:
        stream = SimpleStream(arena.origin, PREFIX + "a")
        stream.append(b"first")
        with (
            arena.events("a") as ends,
            arena.poll("a", stream.tail) as poll,
            arena.events("a", token=arena.token(stays)) as lasting,
        ):
            lasting.next_write()
            parked(arena, "a", 3)
            write_jwks(path, stays)
            assert b"token-revoked" in read_all(ends).splitlines()[-2]
            check_refusal(poll.read_response(), 401)
            stream.append(b"later")
            assert lasting.next_write()[0].data == "later"


# -- what is shared ------------------------------------------------------------------------------


def test_a_flight_outlives_the_token_and_the_client_that_began_it(arena: Arena) -> None:
    stream = SimpleStream(arena.origin, PREFIX + "flight", chunk_bytes=4)
    stream.append(b"data")
    stream.append(b"more")
    gate = arena.origin.hold()
    expires = soon(SHORT_S)
    before = arena.origin.count(path=PREFIX + "flight")
    leader = arena.connect()
    leader.send(request_of(arena, "flight", arena.token(sub="leader", exp=expires)))
    wait_until(lambda: arena.origin.count(path=PREFIX + "flight") == before + 1)
    followers = [arena.connect() for _ in range(5)]
    for number, follower in enumerate(followers):
        follower.send(request_of(arena, "flight", arena.token(sub=f"follower-{number}")))
    past(expires)
    leader.reset()
    gate.open()
    arena.origin.release()
    for follower in followers:
        assert follower.read_response().body == b"data"
        follower.close()
    requests = arena.origin.find(path=PREFIX + "flight")[before:]
    assert len(requests) == 1


def request_of(arena: Arena, name: str, token: str) -> bytes:
    return encode_request("GET", PREFIX + name, {"Authorization": f"Bearer {token}"})


def test_shared_requests_name_no_reader(arena: Arena, stream: SimpleStream, name: str) -> None:
    """Chunks and tails are fetched for everybody: nobody's token and nobody's name goes along."""
    with arena.events(name, token=arena.token(sub="somebody")) as events:
        events.next_write()
        with arena.poll(name, stream.tail, token=arena.token(sub="somebody-else")) as waiting:
            parked(arena, name, 2)
            stream.append(b"x")
            assert waiting.read_response().status == 200
    for request in arena.origin.find("GET", PREFIX + name):
        assert not {"authorization", "x-jwt-sub", "cookie"} & set(request.headers)


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        ("pair", "pair/x"),
        ("pair%20a", "pair"),
        ("pair:a", "pair:a:b"),
        ("pair,0", "pair"),
        ("pair@x", "Pair@x"),
        ("pair'", "pair"),
    ],
)
def test_a_flight_of_one_stream_never_answers_for_another(
    arena: Arena, mine: str, theirs: str
) -> None:
    """Names that a careless key would confuse, asked for at the same moment."""
    for name in (mine, theirs):
        SimpleStream(arena.origin, PREFIX + name).append(f"bytes of {name}".encode())
    only_mine = arena.token(scope=f"read:{mine}")
    gate = arena.origin.hold()
    before = arena.origin.count()
    with (
        Later(arena, theirs, "", arena.token()) as other,
        Later(arena, mine, "", only_mine) as own,
    ):
        wait_until(lambda: arena.origin.count() == before + 2)
        assert arena.ask(theirs, token=only_mine).status == 403
        gate.open()
        arena.origin.release()
        assert own.reply().body == f"bytes of {mine}".encode()
        assert other.reply().body == f"bytes of {theirs}".encode()


def test_each_shared_reader_is_logged_under_its_own_name(
    arena: Arena, stream: SimpleStream, name: str
) -> None:
    polls: list[Recording] = []
    for number in range(4):
        polls.append(arena.poll(name, stream.tail, token=arena.token(sub=f"poll-{number}")))
    streams = [arena.events(name, token=arena.token(sub=f"sse-{number}")) for number in range(4)]
    parked(arena, name, 8)
    stream.append(b"news")
    for poll in polls:
        assert poll.read_response().body == b"news"
        poll.close()
    for reader in streams:
        while "news" not in [event.data for event in reader.next_write()]:
            pass
        reader.connection.close()
    wait_until(lambda: len([line for line in arena.lines() if line.stream == name]) == 8)
    lines = [line for line in arena.lines() if line.stream == name]
    assert sorted(line.subject for line in lines) == [
        *(f"poll-{number}" for number in range(4)),
        *(f"sse-{number}" for number in range(4)),
    ]
    assert {line.role for line in lines} == {"hub"}
    assert len({line.flight_id for line in lines}) == 1 and lines[0].flight_id
    assert all(line.bytes_sent >= len(b"news") for line in lines)


def test_a_reader_without_permission_never_joins_the_hub(
    arena: Arena, stream: SimpleStream, name: str
) -> None:
    with arena.events(name) as events:
        events.next_write()
        for token in (arena.token(scope="read:other"), arena.token(exp=1), None):
            for live in ("sse", "long-poll"):
                query = f"offset={stream.tail}&live={live}"
                check_refusal(arena.ask(name, query, token=token), 401, 403)
        assert sum(arena.readers_of(name)) == 1
        stream.append(b"x")
        assert events.next_write()[0].data == "x"
    with pytest.raises((Closed, OSError)):
        events.next_write()
