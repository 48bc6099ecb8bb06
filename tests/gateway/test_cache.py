"""Catch-up reads against an origin that is answered by hand: who is asked, what is kept, and that
nothing of a stream outlives it."""

import asyncio

import pytest

from gateway.entries import Entry
from gateway.reads import Asker
from protocol.replies import Reply
from tests.helpers.offsets import nameless
from tests.helpers.parts import (
    INCARNATION,
    OTHER_INCARNATION,
    DictShared,
    MakeParts,
    Parts,
    chunk,
    quiet,
    soon,
)

ASKER = Asker("test")


class Clock:
    now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


class KeptPurges:
    """Someone who holds something of streams, and is told to forget it."""

    def __init__(self) -> None:
        self.forgotten: list[str] = []

    def forget(self, stream: str) -> None:
        self.forgotten.append(stream)

    def trim(self, stream: str, earliest: str) -> None:
        pass

    def clear(self) -> None:
        pass


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def parts(make: MakeParts, clock: Clock) -> Parts:
    return make(clock=clock)


# -- what is kept --------------------------------------------------------------------------------


async def test_a_chunk_that_never_changes_is_asked_for_once(parts: Parts) -> None:
    await parts.fill("a", chunk(0, 5), b"hello")
    again = parts.ask("a?offset=-1&other=1").response
    assert (again.body, again["Cache-Status"]) == (b"hello", "weir; hit")
    assert len(parts.upstream.asked) == 1


async def test_a_tail_is_served_only_on_the_origins_word(parts: Parts) -> None:
    await parts.fill("a", chunk(0, 5, tail=True), b"hello")
    again = parts.ask("a")
    asked = await parts.upstream.next()
    assert asked.request.headers["if-none-match"] == f'"{INCARNATION}:0:5"'
    assert not again.exchange.data
    asked.answer(304, chunk(0, 5, tail=True))
    assert (await again.exchange.answered()).body == b"hello"
    assert parts.log.records[-1].verdict == "revalidated"


async def test_a_stale_chunk_is_served_at_once_and_refreshed_once(
    parts: Parts, clock: Clock
) -> None:
    await parts.fill("a", chunk(0, 5), b"hello")
    clock.now += 61
    stale = [await parts.ask("a").exchange.answered() for _ in range(5)]
    assert {s["Cache-Status"] for s in stale} == {"weir; hit; detail=stale"}
    (await parts.upstream.next()).answer(304, chunk(0, 5))
    await soon(lambda: parts.cache.fresh("a", "-1") is not None)
    assert len(parts.upstream.asked) == 2
    assert parts.ask("a").response["Age"] == "0"


async def test_nothing_is_kept_of_now_and_of_refusals(parts: Parts) -> None:
    got = parts.ask("a?offset=now&live=long-poll")
    (await parts.upstream.next()).answer(200, chunk(5, 5, closed=True), b"")
    await got.exchange.answered()
    await parts.fill("b", {"content-type": "text/plain"}, b"no offset told")
    await parts.fill("c", {"cache-control": "public, max-age=600"}, b"", 403)
    assert len(parts.store) == 0


async def test_a_refusal_is_for_nobodys_cache(parts: Parts) -> None:
    answer = await parts.fill("a", {"cache-control": "public, max-age=600"}, b"gone", 404)
    assert (answer.status, answer["Cache-Control"]) == (404, "no-store")


# -- an origin in trouble ------------------------------------------------------------------------


@pytest.mark.parametrize("status", [0, 500, 502, 503, 504])
async def test_what_never_changes_is_served_while_the_origin_is_in_trouble(
    parts: Parts, clock: Clock, status: int
) -> None:
    await parts.fill("a", chunk(0, 5), b"hello")
    clock.now += 3600
    again = parts.ask("a")
    asked = await parts.upstream.next()
    asked.answer(status) if status else asked.fail()
    answer = await again.exchange.answered()
    assert (answer.status, answer.body, answer["Age"]) == (200, b"hello", "3600")
    assert parts.log.records[-1].verdict == "stale"


@pytest.mark.parametrize("status", [0, 500])
async def test_a_tail_is_not_served_while_the_origin_is_in_trouble(
    parts: Parts, status: int
) -> None:
    await parts.fill("a", chunk(0, 5, tail=True), b"hello")
    again = parts.ask("a")
    asked = await parts.upstream.next()
    asked.answer(status) if status else asked.fail()
    assert (await again.exchange.answered()).status == (status or 502)
    assert parts.log.records[-1].verdict == ("miss" if status else "error")


async def test_a_read_that_came_during_another_is_answered_in_time(parts: Parts) -> None:
    """In front of a cluster: the second question would hang as long as the first."""
    parts.upstream.until = asyncio.get_running_loop().time() + 0.05
    parts.ask("a")
    await parts.upstream.next()
    late = parts.ask("a")
    assert (await late.exchange.answered()).status == 503
    assert len(parts.upstream.asked) == 1


# -- streams that are gone or others -------------------------------------------------------------


async def test_a_new_incarnation_drops_all_that_is_stored_of_the_old_one(parts: Parts) -> None:
    await parts.fill("a", chunk(0, 5), b"older")
    other = chunk(5, 9, tail=True, incarnation=OTHER_INCARNATION)
    await parts.fill(f"a?offset={nameless(5)}", other, b"newer")
    assert parts.cache.fresh("a", "-1") is None
    answer = await parts.fill("a", chunk(0, 5, incarnation=OTHER_INCARNATION), b"first")
    assert answer.body == b"first"


async def test_a_slow_answer_of_the_old_incarnation_does_not_bring_it_back(parts: Parts) -> None:
    slow = parts.ask("a")
    old = await parts.upstream.next()
    other = chunk(5, 9, tail=True, incarnation=OTHER_INCARNATION)
    await parts.fill(f"a?offset={nameless(5)}", other, b"newer")
    old.answer(200, chunk(0, 5), b"older")
    await slow.exchange.answered()
    assert parts.cache.fresh("a", "-1") is None
    again = parts.ask("a")
    (await parts.upstream.next()).answer(200, chunk(0, 5, incarnation=OTHER_INCARNATION), b"first")
    assert (await again.exchange.answered()).body == b"first"


async def test_a_first_word_of_the_incarnation_drops_what_is_of_another(parts: Parts) -> None:
    """What is known of many streams may be forgotten before their chunks are."""
    await parts.fill("a", chunk(0, 5), b"older")
    parts.streams.forget("a")
    look = parts.ask("a", "HEAD")
    told = chunk(0, 5, incarnation=OTHER_INCARNATION)
    (await parts.upstream.next("HEAD")).answer(200, told)
    await look.exchange.answered()
    assert parts.cache.fresh("a", "-1") is None


async def test_what_lands_after_a_purge_teaches_nothing(parts: Parts) -> None:
    """Or the first read of the new stream would look like a second re-creation."""
    slow = parts.ask("a")
    old = await parts.upstream.next()
    parts.purges.forget("a")
    old.answer(200, chunk(0, 5), b"older")
    await slow.exchange.answered()
    holder = KeptPurges()
    parts.purges.register(holder)
    await parts.fill("a", chunk(0, 5, incarnation=OTHER_INCARNATION), b"newer")
    assert holder.forgotten == []
    stored = parts.cache.fresh("a", "-1")
    assert stored is not None and stored.body == b"newer"


async def test_a_404_drops_what_is_stored(parts: Parts, clock: Clock) -> None:
    await parts.fill("a", chunk(0, 5), b"hello")
    await parts.fill(f"a?offset={nameless(5)}", {}, b"", 404)
    assert parts.cache.fresh("a", "-1") is None


async def test_a_404_from_before_the_creation_ends_nobody(parts: Parts) -> None:
    early = parts.ask("a")
    asked = await parts.upstream.next()
    parts.purges.forget("a")  # created meanwhile
    holder = KeptPurges()
    parts.purges.register(holder)
    asked.answer(404)
    assert (await early.exchange.answered()).status == 404
    assert holder.forgotten == []


async def test_an_offset_that_is_too_old_ends_no_reader_at_the_tail(parts: Parts) -> None:
    """410 is said of deleted streams, but also of offsets that are no longer kept."""
    waiting = parts.ask(f"a?offset={nameless(9)}&live=long-poll")
    await parts.upstream.next()
    await parts.fill(f"a?offset={nameless(1)}", {}, b"", 410)
    await quiet()
    assert waiting.exchange.finished == 0 and parts.hubs.reader_count == 1


# -- the second level ----------------------------------------------------------------------------


async def test_a_chunk_is_shared_through_the_second_level(make: MakeParts) -> None:
    shared = DictShared()
    one, other = make(shared), make(shared)
    await one.fill("a", chunk(0, 5), b"hello")
    await one.fill(f"a?offset={nameless(5)}", chunk(5, 9), b"more")
    await meet(other, INCARNATION)
    got = await other.cache.get("a", "/v1/stream/a", nameless(5), ASKER)
    assert isinstance(got.outcome, Entry) and got.outcome.body == b"more"
    assert got.fetched.verdict == "hit" and other.upstream.open == []


async def meet(parts: Parts, incarnation: str, earliest: str = "") -> None:
    """Its first chunk of the second level is confirmed, and the origin tells of the stream."""
    asking = parts.ask("a")
    confirming = await parts.upstream.next("GET")
    assert confirming.request.headers["if-none-match"]
    begins = {"stream-earliest-offset": earliest} if earliest else {}
    headers = chunk(0, 5, incarnation=incarnation) | begins
    if incarnation == INCARNATION:
        confirming.answer(304, headers)
    else:
        confirming.answer(200, headers, b"other")
    (await parts.upstream.next("HEAD")).answer(200, headers)
    assert (await asking.exchange.answered()).status == 200
    await quiet()


@pytest.mark.parametrize("told", ["another incarnation", "a later beginning", "no incarnation"])
async def test_what_the_origin_does_not_vouch_for_is_not_taken_from_the_second_level(
    make: MakeParts, told: str
) -> None:
    shared = DictShared()
    one, other = make(shared), make(shared)
    named = "" if told == "no incarnation" else INCARNATION
    for start, end in ((0, 5), (5, 9)):
        offset = "-1" if start == 0 else nameless(start)
        await one.fill(f"a?offset={offset}", chunk(start, end, incarnation=named), b"older")
    earliest = nameless(7) if told == "a later beginning" else ""
    named = OTHER_INCARNATION if told == "another incarnation" else INCARNATION
    await meet(other, named, earliest)
    asking = other.ask(f"a?offset={nameless(5)}")
    (await other.upstream.next("GET")).answer(410)
    assert (await asking.exchange.answered()).status == 410


async def test_after_a_gap_the_second_level_is_believed_only_on_the_origins_word(
    make: MakeParts,
) -> None:
    shared = DictShared()
    one, other = make(shared), make(shared)
    await one.fill("a", chunk(0, 5), b"hello")
    await meet(other, INCARNATION)
    other.purges.clear()
    asking = other.ask("a")
    (await other.upstream.next("GET")).fail()
    assert (await asking.exchange.answered()).status == 502


async def test_a_look_from_before_a_purge_vouches_for_nothing(make: MakeParts) -> None:
    shared = DictShared()
    one, other = make(shared), make(shared)
    await one.fill("a", chunk(0, 5), b"hello")
    first = other.ask("a")
    (await other.upstream.next("GET")).answer(304, chunk(0, 5))
    await first.exchange.answered()
    look = await other.upstream.next("HEAD")
    other.purges.forget("a")
    look.answer(200, chunk(0, 5))
    await quiet()
    again = other.ask("a")
    (await other.upstream.next("GET")).answer(404)
    assert (await again.exchange.answered()).status == 404


async def test_a_tail_does_not_go_to_the_second_level(make: MakeParts) -> None:
    shared = DictShared()
    await make(shared).fill("a", chunk(0, 5, tail=True), b"hello")
    assert shared.values == {}


@pytest.mark.parametrize("news", ["404", "another incarnation", "at the hub"])
async def test_old_chunks_do_not_come_back_from_the_second_level(
    make: MakeParts, news: str
) -> None:
    """Deleted and made anew at the origin itself: no gateway has purged anything."""
    parts = make(DictShared())
    await parts.fill("a", chunk(0, 5), b"older")
    other = chunk(5, 9, tail=True, incarnation=OTHER_INCARNATION)
    if news == "404":
        await parts.fill(f"a?offset={nameless(5)}", {}, b"", 404)
    elif news == "at the hub":
        waiting = parts.ask(f"a?offset={nameless(9)}&live=long-poll")
        (await parts.upstream.next()).answer(404)
        await waiting.exchange.answered()
    else:
        await parts.fill(f"a?offset={nameless(5)}", other, b"newer")
    answer = await parts.fill("a", chunk(0, 5, incarnation=OTHER_INCARNATION), b"first")
    assert answer.body == b"first"


async def test_nothing_is_read_from_the_second_level_before_it_is_purged(make: MakeParts) -> None:
    shared = DictShared()
    parts = make(shared)
    await parts.fill("a", chunk(0, 5), b"older")
    shared.may_purge.clear()
    await parts.fill(f"a?offset={nameless(5)}", {}, b"", 404)
    answer = await parts.fill("a", chunk(0, 5, incarnation=OTHER_INCARNATION), b"first")
    assert answer.body == b"first"
    shared.may_purge.set()
    await soon(lambda: shared.generations["a"] == 2)


async def test_a_refusal_is_an_answer_like_any_other(parts: Parts) -> None:
    asking = parts.ask("a")
    (await parts.upstream.next()).answer(429, {"retry-after": "7"}, b"slow down")
    answer = await asking.exchange.answered()
    assert (answer.status, answer["Retry-After"], answer.body) == (429, "7", b"slow down")


async def test_who_asks_for_expiry_asks_once(parts: Parts) -> None:
    """An origin without Cache-Control: a HEAD tells whether chunks may be trusted."""
    plain = {"content-type": "text/plain", "etag": '"x"'}
    for end in range(1, 4):
        await parts.fill(f"a?offset={end - 1}x", plain | {"stream-next-offset": f"{end}x"}, b"x")
    (await parts.upstream.next("HEAD")).answer(200, {"stream-next-offset": "3x"})
    await quiet()
    assert parts.upstream.unseen("HEAD") == []
    await parts.fill("a?offset=3x", plain | {"stream-next-offset": "4x"}, b"x")
    assert parts.cache.fresh("a", "3x") is not None


async def test_a_refused_read_gives_a_reply_and_no_entry(parts: Parts) -> None:
    task = asyncio.create_task(parts.cache.get("a", "/v1/stream/a", "-1", ASKER))
    (await parts.upstream.next()).answer(403)
    assert isinstance((await task).outcome, Reply)
