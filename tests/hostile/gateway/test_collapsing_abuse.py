"""Readers who share a flight or a hub, and one among them who means harm."""

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.rules.tails import TRANSIT_SECS
from tests.conftest import StartOrigin
from tests.helpers.gateway import bearer
from tests.helpers.offsets import nameless
from tests.helpers.rawhttp import PREFIX, Response, control, encode_request, wait_until
from tests.helpers.scripted_origin import Answer, Gate, Recorded, SimpleStream
from tests.hostile.gateway.arena import Arena, Recording, check_refusal

CROWD = 40
FAR = nameless(10**15)


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return f"s-{abs(hash(request.node.name))}"


@pytest.fixture
def stream(arena: Arena, name: str) -> SimpleStream:
    stream = SimpleStream(arena.origin, PREFIX + name)
    stream.append(b"first")
    return stream


def crowd(arena: Arena, name: str, offset: str, count: int = CROWD, **more: str) -> list[Recording]:
    """Long-polls of as many subjects, all of them parked."""
    before = arena.readers_of(name)[1]
    polls = [
        arena.poll(name, offset, token=arena.token(sub=f"s-{number}"), **more)
        for number in range(count)
    ]
    wait_until(lambda: arena.readers_of(name)[1] == before + count, what="a crowd")
    return polls


def have_waited(arena: Arena, name: str) -> bool:
    """Long enough for an answer without news to be from after their questions."""
    tail, now = arena.gateway.gateway.hubs.tails.get(name), arena.gateway._loop.time()
    assert tail is not None
    here = list(tail.polls.at(tail.position).values())
    return len(here) == len(tail.polls) and all(now - at >= TRANSIT_SECS for _, at in here)


def answers(polls: list[Recording]) -> list[Response]:
    found = []
    for poll in polls:
        found.append(poll.read_response())
        poll.close()
    return found


# -- one request, whatever it brings -------------------------------------------------------------

OUTCOMES: dict[str, tuple[Answer, int]] = {
    "data": (Answer(200, {"Stream-Next-Offset": "9", "Content-Type": "a/b"}, b"news"), 200),
    "private": (
        Answer(200, {"Stream-Next-Offset": "9", "Cache-Control": "private"}, b"news"),
        200,
    ),
    "nothing": (Answer(204, {"Stream-Next-Offset": "5", "Stream-Up-To-Date": "true"}), 204),
    "error": (Answer(500, {}, b"boom"), 500),
    "refusal": (Answer(400, {}, b"no"), 400),
    "gone": (Answer(404, {}), 404),
    "reset": (Answer(raw=b"", cut_after=0), 502),
    "half": (Answer(200, {"Stream-Next-Offset": "9"}, b"x" * 999, cut_after=9), 502),
    "nowhere": (Answer(200, {"Content-Type": "a/b", "Stream-Cursor": "1"}, b"news"), 502),
    "no offset": (Answer(204, {"Stream-Next-Offset": "no/offset?"}), 502),
}


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_one_upstream_request_answers_everyone_who_waits(
    arena: Arena, name: str, outcome: str
) -> None:
    """Each with a token of its own; the first of them resets its connection meanwhile."""
    gate = Gate()
    answer, status = OUTCOMES[outcome]
    held: list[Recorded] = []

    async def hold(request: Recorded) -> Answer:
        held.append(request)
        await gate.passed()
        return answer

    arena.origin.on("GET", PREFIX + name, hold)
    polls = crowd(arena, name, "5")
    polls[0].reset()
    wait_until(lambda: arena.readers_of(name)[1] == CROWD - 1)
    wait_until(lambda: arena.gateway.call(lambda: have_waited(arena, name)))
    asked = len(held)
    gate.open()
    replies = answers(polls[1:])
    assert asked == 1
    assert {reply.status for reply in replies} == {status}
    assert len({reply.body for reply in replies}) == 1
    assert len({reply.get("Stream-Cursor") for reply in replies}) == 1
    # A connection that broke may have been tried once more, for all of them.
    assert len(held) <= (2 if outcome == "reset" else 1)


def test_a_flight_that_fails_is_followed_by_one_other(arena: Arena, name: str) -> None:
    """Those in time get the error; those who came during the flight share the next one."""
    gate = Gate()
    fail = Answer(503, {"Retry-After": "3"}, b"busy", wait_for=gate)
    good = Answer(200, {"Stream-Next-Offset": "5", "Stream-Up-To-Date": "true"}, b"hello")
    arena.origin.on("GET", PREFIX + name, [fail, good])
    first, late = arena.connect(), [arena.connect() for _ in range(10)]
    ask = encode_request("GET", PREFIX + name, bearer(arena.token()))
    first.send(ask)
    wait_until(lambda: gate.waiting == 1)
    for connection in late:
        connection.send(ask)
    flights = arena.gateway.gateway.holdings.flights._open
    wait_until(lambda: sum(flight.riders for flight in flights.values()) == 11)
    gate.open()
    with first:
        reply = first.read_response()
    assert reply.status == 503 and reply["Retry-After"] == "3"
    assert [reply.body for reply in answers(late)] == [b"hello"] * 10
    assert arena.origin.count(path=PREFIX + name) == 2


def test_when_all_leave_nothing_is_left(arena: Arena, name: str, stream: SimpleStream) -> None:
    gate = arena.origin.hold()
    ask = encode_request("GET", PREFIX + name, bearer(arena.token()))
    reading = [arena.connect() for _ in range(10)]
    for connection in reading:
        connection.send(ask)
    arena.origin.wait_for_requests(1, path=PREFIX + name)
    abandoned = arena.origin.abandoned
    for connection in reading:
        connection.reset()
    wait_until(lambda: arena.origin.abandoned > abandoned, what="the end of the fetch")
    gate.open()
    arena.origin.release()
    wait_until(lambda: len(arena.gateway.gateway.holdings.flights) == 0)
    assert arena.ask(name).body == b"first"


def test_live_answers_are_never_kept_nor_conditional(
    arena: Arena, name: str, stream: SimpleStream
) -> None:
    """An empty answer that a cache kept would be a chain of instant ones."""
    quick = SimpleStream(arena.origin, PREFIX + name, long_poll_s=0.05)
    quick.append(b"first")
    query = f"offset={quick.tail}&live=long-poll"
    empty = arena.ask(name, query)
    assert empty.status == 204 and "no-store" in empty["Cache-Control"]
    before = quick.counts["long-poll"]
    assert arena.ask(name, query).status == 204
    assert quick.counts["long-poll"] > before
    (poll,) = crowd(arena, name, quick.tail, 1)
    quick.append(b"news")
    (reply,) = answers([poll])
    for condition in ("*", reply.get("ETag") or "*"):
        old = f"offset={nameless(5)}&live=long-poll"
        again = arena.ask(name, old, headers={"If-None-Match": condition})
        assert (again.status, again.body) == (200, b"news")


# -- cursors -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "cursor",
    ["0", "-1", "9" * 15, "9" * 16, "9" * 32, "1e9", "0x10", "%00", "x", "%0d%0a", "1,2", " 7"],
    ids=lambda cursor: cursor[:17],
)
def test_no_cursor_makes_a_key_or_a_request_of_its_own(
    arena: Arena, name: str, stream: SimpleStream, cursor: str
) -> None:
    polls = crowd(arena, name, stream.tail, 3)
    polls += crowd(arena, name, stream.tail, 3, cursor=cursor.replace(" ", "%20"))
    stream.append(b"news")
    replies = answers(polls)
    assert stream.counts["long-poll"] == 1
    assert [reply.body for reply in replies] == [b"news"] * 6
    plain, own = (
        {r["Stream-Cursor"] for r in replies[:3]},
        {r["Stream-Cursor"] for r in replies[3:]},
    )
    assert len(plain) == len(own) == 1
    (sent,) = own
    assert sent.isdigit() and len(sent) <= 33
    if cursor.isdigit():
        assert int(sent) > int(cursor)


def test_a_cursor_that_could_only_lead_backwards_is_refused(
    arena: Arena, name: str, stream: SimpleStream
) -> None:
    reply = arena.ask(name, f"offset={stream.tail}&live=long-poll&cursor={'9' * 33}")
    assert (reply.status, reply.json()["code"]) == (400, "invalid-cursor")
    assert stream.counts["long-poll"] == 0


def test_a_cursor_never_leads_backwards_and_equals_itself_elsewhere(
    tmp_path: Path, arena_class: type[Arena]
) -> None:
    """Two gateways of a fleet, one with its clock a minute ahead, and a client between them."""
    cache = {"cursor_key": "shared"}
    with arena_class(tmp_path / "a", cache=cache) as one:
        with arena_class(tmp_path / "b", one.origin.url, cache=cache) as other:
            stream = SimpleStream(one.origin, PREFIX + "s", long_poll_s=0.02)
            tail = stream.append(b"x")
            ahead = str(int(time.time() - 1_728_432_000) // 20 + 3)
            for _ in range(3):
                query = f"offset={tail}&live=long-poll&cursor={ahead}"
                found = {arena.ask("s", query)["Stream-Cursor"] for arena in (one, other)}
                assert len(found) == 1 and int(min(found)) > int(ahead)
                ahead = found.pop()


# -- offsets that nobody was given ---------------------------------------------------------------

MADE_UP = ["0", "!", "zzzz", "~", FAR, nameless(3), "0000000000000000_000000000000000!"]


@pytest.mark.parametrize("offset", MADE_UP)
def test_an_offset_that_was_made_up_harms_nobody_else(arena: Arena, name: str, offset: str) -> None:
    """It is there first, and the hub stands where it says; honest readers come after."""
    stream = SimpleStream(arena.origin, PREFIX + name)
    tail, gate = stream.append(b"first"), Gate()
    strict(arena, name, stream, gate)
    with arena.poll(name, offset) as liar, arena.events(name) as events, arena.connect() as honest:
        events.next_write()
        ask = f"{PREFIX}{name}?offset={tail}&live=long-poll"
        honest.send(encode_request("GET", ask, bearer(arena.token())))
        wait_until(lambda: waits_at(arena, name, tail) and arena.readers_of(name)[0] == 1)
        gate.open()
        check_refusal_of(liar)
        stream.append(b"news")
        assert honest.read_response().body == b"news"
        assert events.next_write()[0].data == "news"
    assert stream.counts["long-poll"] < 12, "the origin is asked again and again"


def waits_at(arena: Arena, name: str, offset: str) -> bool:
    tail = arena.gateway.gateway.hubs.tails.get(name)
    return tail is not None and any(poll.offset == offset for poll in list(tail.polls))


def check_refusal_of(liar: Recording) -> None:
    """He may also be left to wait."""
    liar.socket.settimeout(0.2)
    try:
        assert liar.read_response().status in (200, 204, 400, 404)
    except TimeoutError:
        pass


def strict(arena: Arena, name: str, stream: SimpleStream, gate: Gate) -> None:
    """An origin that refuses offsets that it never gave out; live ones when the gate opens."""
    answer, known = stream._answer, {"-1", "now", nameless(0)}

    async def script(request: Recorded) -> Answer:
        known.add(stream.tail)
        if request.method != "GET" or request.parameters.get("offset", "-1") in known:
            return await answer(request)
        stream.counts[stream._kind(request)] += 1
        if request.live:
            await gate.passed()
        return Answer(400, {}, b"never given out")

    arena.origin.on("*", PREFIX + name, script)


def test_a_thousand_made_up_offsets_leave_nothing_behind(
    arena: Arena, name: str, stream: SimpleStream
) -> None:
    gate = Gate()
    gate.open()
    strict(arena, name, stream, gate)
    entries = len(arena.gateway.gateway.holdings.store._entries)
    token = bearer(arena.token())
    with arena.connect() as connection:
        for number in range(300):
            for live in ("", "&live=long-poll") if number < 3 else ("",):
                target = f"{PREFIX}{name}?offset=made-up-{number}{live}"
                assert connection.request("GET", target, token).status == 400
    assert len(arena.gateway.gateway.holdings.store._entries) == entries
    assert len(arena.gateway.gateway.holdings.flights) == 0
    assert arena.ask(name).body == b"first"


# -- forks, seams, ends --------------------------------------------------------------------------


@pytest.fixture
def real(tmp_path: Path, start_origin: StartOrigin, arena_class: type[Arena]) -> Iterator[Arena]:
    origin = start_origin(server={"long_poll_timeout_secs": 2.0})
    serving = {"sse_rotation_secs": 0.3, "long_poll_timeout_secs": 0.6}
    url = f"http://127.0.0.1:{origin.port}"
    with arena_class(tmp_path, origin_url=url, gateway=serving) as arena:
        yield arena


TEXT = {"Content-Type": "text/plain"}


def append(arena: Arena, name: str, body: bytes) -> str:
    return arena.ask(name, method="POST", headers=TEXT, body=body).next_offset


def test_a_source_s_news_does_not_wake_the_readers_of_its_fork(real: Arena) -> None:
    real.ask("source", method="PUT", headers=TEXT)
    tail = append(real, "source", b"common,")
    fork = {**TEXT, "Stream-Forked-From": PREFIX + "source"}
    assert real.ask("fork", method="PUT", headers=fork).status == 201
    with real.poll("fork", tail) as poll:
        wait_until(lambda: real.readers_of("fork")[1] == 1)
        append(real, "source", b"source only")
        assert poll.read_response().status == 204
    append(real, "fork", b"fork only")
    assert real.ask("source").body == b"common,source only"
    assert real.ask("fork").body == b"common,fork only"
    assert real.ask("fork", f"offset={tail}&live=long-poll").body == b"fork only"


def test_nothing_is_lost_or_doubled_across_rotations(real: Arena) -> None:
    """Many short connections of one reader while a writer writes numbered events."""
    real.ask("seam", method="PUT", headers=TEXT)
    generator, offset, seen, written = random.Random(7), "-1", "", 0
    rotations = 0
    while rotations < 4:
        with real.events("seam", offset) as events:
            for piece in events.writes:
                for event in events._decoder.feed(piece):
                    if event.kind == "data":
                        seen += event.data
                    else:
                        offset = control(event)["streamNextOffset"]
                if generator.random() < 0.9 and written < 400:
                    append(real, "seam", f"{written},".encode())
                    written += 1
        append(real, "seam", f"{written},".encode())
        written += 1
        rotations += 1
    seen += real.ask("seam", f"offset={offset}").body.decode()
    assert seen == "".join(f"{number}," for number in range(written))


def test_rotations_are_spread_out(tmp_path: Path, arena_class: type[Arena]) -> None:
    """All readers of a hub that came at once must not come back at once."""
    with arena_class(tmp_path, gateway={"sse_rotation_secs": 1.0}) as arena:
        SimpleStream(arena.origin, PREFIX + "a").append(b"x")
        streams = [arena.events("a") for _ in range(20)]
        for events in streams:
            events.rest()
            events.connection.close()
        lines = [line for line in arena.lines(20) if line.mode == "sse"]
        lasted = [line.duration_ms for line in lines]
        assert {line.ended for line in lines} == {"rotated"}
        assert max(lasted) - min(lasted) > 50 and min(lasted) > 890


def test_a_drain_gives_everyone_a_clean_end(tmp_path: Path, arena_class: type[Arena]) -> None:
    """No reader is cut, no acknowledged write is lost, and new requests are not taken."""
    with arena_class(tmp_path) as arena:
        stream = SimpleStream(arena.origin, PREFIX + "a")
        stream.append(b"x")
        polls = crowd(arena, "a", stream.tail, 5)
        readers = [arena.events("a") for _ in range(5)]
        for reader in readers:
            reader.next_write()
        gate = arena.origin.hold()
        writer = arena.connect()
        headers = {**bearer(arena.token()), **TEXT}
        writer.send(encode_request("POST", PREFIX + "a", headers, b"last"))
        arena.origin.wait_for_requests(1, "POST")
        stopping = arena.gateway._loop.call_soon_threadsafe
        stopping(arena.gateway.gateway.hubs.drain)
        replies = answers(polls)
        assert {reply.status for reply in replies} == {204}
        assert {reply.next_offset for reply in replies} == {nameless(1)}
        for reader in readers:
            assert reader.rest() == []
            reader.connection.close()
        gate.open()
        arena.origin.release()
        with writer:
            assert writer.read_response().status == 204
        assert stream.tail == nameless(5)


# -- churn ---------------------------------------------------------------------------------------


def test_readers_that_come_and_go_at_random_leave_no_slot_taken(
    arena: Arena, name: str, stream: SimpleStream
) -> None:
    generator = random.Random(11)
    held: list[Recording] = []
    for number in range(150):
        held.append(arena.poll(name, generator.choice([stream.tail, nameless(0), "now"])))
        if generator.random() < 0.3:
            connection = arena.connect()
            target = f"{PREFIX}{name}?offset=-1&live=sse"
            connection.send(encode_request("GET", target, bearer(arena.token())))
            held.append(connection)
        if generator.random() < 0.5:
            leaving = held.pop(generator.randrange(len(held)))
            (leaving.reset if generator.random() < 0.5 else leaving.close)()
        if number % 10 == 0:
            stream.append(b"x")
    for connection in held:
        connection.close()
    hubs = arena.gateway.gateway.hubs
    wait_until(lambda: hubs.slots.total == 0, what="free slots")
    wait_until(lambda: arena.readers_of(name) == (0, 0))
    assert hubs.slots.holders == 0
    wait_until(lambda: len(arena.gateway.gateway.holdings.flights) == 0)
    arena.check_alive()


def test_a_stream_that_is_deleted_under_a_crowd_refuses_all_of_it(
    arena: Arena, name: str, stream: SimpleStream
) -> None:
    polls = crowd(arena, name, stream.tail)
    stream.delete()
    for reply in answers(polls):
        assert reply.status == 404 and reply["Cache-Control"] == "no-store"
    check_refusal(arena.ask(name, token=arena.token(scope="read:x")), 403)
