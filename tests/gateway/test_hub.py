"""Live readers without sockets (`hub`, `hubs`, `catchups`, `longpolls`, `ssereaders`): who is told
what, and that nobody is left behind. `test_tails` has the decisions alone."""

import asyncio
import gc
from collections.abc import AsyncIterator, Callable
from typing import Any
from weakref import ref

import pytest

from gateway.asking import TooLarge, UpstreamError, UpstreamResponse
from gateway.hub import LiveTail
from gateway.hubs import KEPT_AT_ONCE
from tests.helpers.offsets import nameless
from tests.helpers.parts import (
    OTHER_INCARNATION,
    Asked,
    Asking,
    KeptExchange,
    Parts,
    chunk,
    make_parts,
    quiet,
    soon,
)

MakeParts = Callable[..., Parts]
ZERO = nameless(0)
MIB = 1024 * 1024


@pytest.fixture
async def make() -> AsyncIterator[MakeParts]:
    made: list[Parts] = []

    def start(**sections: Any) -> Parts:
        made.append(make_parts(**sections))
        return made[-1]

    yield start
    for parts in made:
        await parts.close()
        assert not parts.upstream.open, "an upstream request outlived its readers"


@pytest.fixture
def parts(make: MakeParts) -> Parts:
    return make()


def poll(parts: Parts, position: int, exchange: KeptExchange | None = None) -> Asking:
    target = f"a?offset={nameless(position)}&live=long-poll"
    return parts.ask(target, exchange=exchange)


async def follow(parts: Parts, body: bytes = b"hello") -> Asking:
    """An SSE reader that has caught up with `body` and rides the hub."""
    reader = parts.ask("a?offset=-1&live=sse")
    (await parts.upstream.next()).answer(200, chunk(0, len(body), tail=True), body)
    await soon(lambda: parts.hubs.reader_count > 0)
    return reader


def the_tail(parts: Parts, stream: str = "a") -> LiveTail:
    tail = parts.hubs.tails.get(stream)
    assert tail is not None
    return tail


# -- sharing -------------------------------------------------------------------------------------


async def test_all_who_wait_at_one_place_share_one_poll_and_its_data(parts: Parts) -> None:
    waiting = [poll(parts, 5) for _ in range(50)]
    tail = await parts.upstream.next()
    assert tail.live and tail.target == f"/v1/stream/a?offset={nameless(5)}&live=long-poll"
    tail.answer(200, chunk(5, 9, tail=True), b"news")
    answers = [await one.exchange.answered() for one in waiting]
    assert {(a.status, a.body, a.next_offset) for a in answers} == {(200, b"news", nameless(9))}
    assert len(parts.upstream.asked) == 1


@pytest.mark.parametrize("status", [204, 500, 503, 404])
async def test_an_answer_without_data_goes_to_all_who_wait(
    parts: Parts, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.rules.tails.TRANSIT_SECS", 0.0)
    waiting = [poll(parts, 5) for _ in range(10)]
    tail = await parts.upstream.next()
    waiting += [poll(parts, 5) for _ in range(10)]
    tail.answer(status, {"stream-next-offset": nameless(5)})
    assert {(await one.exchange.answered()).status for one in waiting} == {status}
    assert len(parts.upstream.asked) == 1


async def test_who_came_while_nothing_new_was_on_its_way_hears_of_later_news(
    parts: Parts,
) -> None:
    """A write may have been acknowledged between the origin's answer and his question."""
    early = poll(parts, 5)
    tail = await parts.upstream.next()
    late = poll(parts, 5)
    tail.answer(204, {"stream-next-offset": nameless(5)})
    assert (await early.exchange.answered()).status == 204
    (await parts.upstream.next()).answer(200, chunk(5, 9, tail=True), b"news")
    assert (await late.exchange.answered()).body == b"news"


async def test_who_is_behind_is_served_by_a_catch_up_read(parts: Parts) -> None:
    ahead = poll(parts, 9)
    await parts.upstream.next()
    behind = poll(parts, 5)
    (await parts.upstream.next()).answer(200, chunk(5, 9, tail=True), b"news")
    assert (await behind.exchange.answered()).body == b"news"
    assert ahead.exchange.finished == 0


async def test_who_is_ahead_waits_until_the_hub_has_come_there(parts: Parts) -> None:
    here = poll(parts, 5)
    tail = await parts.upstream.next()
    ahead = poll(parts, 9)
    (await parts.upstream.next()).answer(200, chunk(9, 9, tail=True), b"")
    await quiet()
    tail.answer(200, chunk(5, 9, tail=True), b"news")
    assert (await here.exchange.answered()).body == b"news"
    (await parts.upstream.next()).answer(200, chunk(9, 12, tail=True), b"now")
    assert (await ahead.exchange.answered()).body == b"now"


async def test_a_place_between_two_batches_finds_its_data_itself(parts: Parts) -> None:
    poll(parts, 5)
    tail = await parts.upstream.next()
    between = poll(parts, 7)
    (await parts.upstream.next()).answer(200, chunk(7, 7, tail=True), b"")
    await quiet()
    tail.answer(200, chunk(5, 9, tail=True), b"news")
    (await parts.upstream.next()).answer(200, chunk(7, 9, tail=True), b"ws")
    assert (await between.exchange.answered()).body == b"ws"


async def batches(parts: Parts, *bodies: bytes) -> None:
    """Data that the hub hands to a reader and keeps, from position 5 on."""
    start = 5
    for body in bodies:
        reader = poll(parts, start)
        tail = await parts.upstream.next()
        tail.answer(200, chunk(start, start + len(body), tail=True), body)
        await reader.exchange.answered()
        start += len(body)


async def test_the_window_serves_who_is_a_batch_late(parts: Parts) -> None:
    await batches(parts, b"news", b"more")
    answer = await poll(parts, 5).exchange.answered()
    assert (answer.body, answer["Cache-Status"]) == (b"news", "weir; hit; detail=hub")
    assert not answer.up_to_date
    assert len(parts.upstream.asked) == 2


async def test_whether_the_windows_last_batch_is_the_latest_is_asked(parts: Parts) -> None:
    """Only the origin knows whether more was written before the question; all who come share it."""
    await batches(parts, b"news")
    late = [poll(parts, 5) for _ in range(3)]
    (await parts.upstream.next()).answer(200, chunk(5, 9, tail=True), b"news")
    answers = [await one.exchange.answered() for one in late]
    assert {(answer.body, answer.up_to_date) for answer in answers} == {(b"news", True)}
    assert len(parts.upstream.asked) == 2


async def test_the_window_stands_in_for_an_origin_that_is_away(parts: Parts) -> None:
    await batches(parts, b"news")
    late = poll(parts, 5)
    (await parts.upstream.next()).fail()
    answer = await late.exchange.answered()
    assert (answer.body, answer.up_to_date) == (b"news", False), "nobody can know"


async def test_a_hub_that_is_trusted_says_that_its_last_batch_is_the_latest(
    make: MakeParts,
) -> None:
    parts = make(cache={"tail_reads": "hub"})
    await batches(parts, b"news")
    poll(parts, 9)
    await parts.upstream.next()
    answer = await poll(parts, 5).exchange.answered()
    assert (answer.body, answer.up_to_date) == (b"news", True)
    assert len(parts.upstream.asked) == 2


async def test_a_hub_beyond_the_tail_is_moved_back_to_a_proven_tail(parts: Parts) -> None:
    bogus = poll(parts, 999)
    await parts.upstream.next()
    honest = poll(parts, 5)
    for _ in range(3):
        (await parts.upstream.next()).answer(200, chunk(5, 5, tail=True), b"")
    assert (await bogus.exchange.answered()).status == 400
    tail = await parts.upstream.next()
    assert tail.live and nameless(5) in tail.target
    tail.answer(200, chunk(5, 9, tail=True), b"news")
    assert (await honest.exchange.answered()).body == b"news"


async def test_a_hub_vouches_for_the_tail_only_while_it_waits_there(
    make: MakeParts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By configuration; while the origin is away, nobody knows."""
    monkeypatch.setattr("gateway.hub.FIRST_PAUSE_SECS", 10.0)
    parts = make(cache={"tail_reads": "hub"})
    await follow(parts)
    tail = await parts.upstream.next()
    assert (await parts.ask("a").exchange.answered())["Cache-Status"] == "weir; hit; detail=hub"
    tail.fail()
    await quiet()
    asking = parts.ask("a")
    (await parts.upstream.next()).answer(200, chunk(0, 9, tail=True), b"hellonews")
    assert (await asking.exchange.answered()).body == b"hellonews"


async def ride(parts: Parts, start: int, count: int) -> None:
    """So many batches of one byte, for a reader who takes each at once."""
    for position in range(start, start + count):
        asked = await parts.upstream.next()
        while not asked.live:
            asked = await parts.upstream.next()
        asked.answer(200, chunk(position, position + 1, tail=True), b"%d" % (position % 10))
    await soon(lambda: the_tail(parts).position == nameless(start + count))


async def test_a_window_of_tiny_batches_is_bounded_as_well(make: MakeParts) -> None:
    """An entry of one byte takes up far more than that."""
    parts = make(cache={"hub_window_bytes": 100 * 1024})
    await follow(parts)
    await ride(parts, 5, 200)
    window = the_tail(parts).window
    assert 20 < len(window) <= 50 and window.bytes <= 100 * 1024
    assert window.at(nameless(204)) is not None and window.at(nameless(5)) is None


async def test_a_window_counts_the_events_that_are_made_of_its_entries(parts: Parts) -> None:
    await follow(parts)
    tail = await parts.upstream.next()
    tail.answer(200, chunk(5, 1005, tail=True), b"\n" * 1000)
    await soon(lambda: the_tail(parts).position == nameless(1005))
    assert the_tail(parts).window.bytes > 7000


async def test_all_windows_share_one_room_and_who_misses_something_catches_up(
    make: MakeParts,
) -> None:
    parts = make(gateway={"max_windows_bytes": 5 * MIB // 2})
    for name in "abcd":
        one = parts.ask(f"{name}?offset={nameless(5)}&live=long-poll")
        tail = await parts.upstream.next()
        tail.answer(200, chunk(5, 5 + MIB // 2, tail=True), b"x" * (MIB // 2))
        await one.exchange.answered()
        two = parts.ask(f"{name}?offset={nameless(5 + MIB // 2)}&live=long-poll")
        tail = await parts.upstream.next()
        tail.answer(200, chunk(5 + MIB // 2, 5 + MIB // 2 + 9, tail=True), b"x" * 9)
        await two.exchange.answered()
    windows = parts.hubs.tails.windows
    kept = [name for name in "abcd" if the_tail(parts, name).window.at(nameless(5))]
    assert kept == ["a", "b", "c", "d"] and windows.bytes < 5 * MIB // 2
    for name in "ef":
        one = parts.ask(f"{name}?offset={nameless(5)}&live=long-poll")
        (await parts.upstream.next()).answer(200, chunk(5, 5 + MIB // 2), b"x" * (MIB // 2))
        await one.exchange.answered()
    assert the_tail(parts).window.at(nameless(5)) is None
    assert windows.bytes <= 5 * MIB // 2
    late = parts.ask(f"a?offset={nameless(5)}&live=long-poll")
    (await parts.upstream.next()).answer(200, chunk(5, 14 + MIB // 2, tail=True), b"caught up")
    assert (await late.exchange.answered()).body == b"caught up"


async def test_a_hub_that_has_ended_keeps_no_room(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.hub.LINGER_SECS", 0.0)
    await batches(parts, b"news", b"more")
    await soon(lambda: len(parts.hubs.tails) == 0)
    assert parts.hubs.tails.windows.bytes == 0


class Watched(UpstreamResponse):
    """An answer that can be told to be gone."""


async def test_an_answer_is_let_go_before_the_next_is_waited_for(parts: Parts) -> None:
    """It may be 16 MiB, and the stream silent for days."""
    await follow(parts)
    answer = Watched(200, chunk(5, 9, tail=True), b"news")
    (await parts.upstream.next()).future.set_result(answer)
    kept = ref(answer)
    del answer
    await parts.upstream.next()
    parts.upstream.asked[:] = parts.upstream.open  # which holds it as well
    await quiet()
    gc.collect()
    assert kept() is None


def shown(reader: Asking) -> bytes:
    """What the data events brought."""
    data = reader.exchange.data.partition(b"\r\n\r\n")[2]
    return b"".join(
        line[5:] for line in data.split(b"\n") if line[:5] == b"data:" and b"{" not in line
    )


async def test_who_is_far_behind_is_shown_a_bounded_part_of_the_window_at_a_time(
    parts: Parts,
) -> None:
    """The rest comes in one piece by a catch-up read; nothing is missing, nothing comes twice."""
    await follow(parts)
    slow = KeptExchange()
    slow.room_bytes = 0
    late = parts.ask("a?offset=-1&live=sse", exchange=slow)
    asked = await parts.upstream.next()
    while asked.live:
        asked = await parts.upstream.next()
    asked.answer(304, chunk(0, 5, tail=True))
    await soon(lambda: slow.unread > 0)
    tail = parts.upstream.open[0]
    tail.answer(200, chunk(5, 6, tail=True), b"5")
    await ride(parts, 6, 3 * KEPT_AT_ONCE)
    slow.room_bytes = None
    slow.take()
    reread = await parts.upstream.next("GET")
    while reread.live:
        reread = await parts.upstream.next("GET")
    at, end = 5 + KEPT_AT_ONCE, 6 + 3 * KEPT_AT_ONCE
    assert f"offset={nameless(at)}" in reread.target
    digits = b"".join(b"%d" % (position % 10) for position in range(5, end))
    assert shown(late) == b"hello" + digits[: at - 5]
    reread.answer(200, chunk(at, end, tail=True), digits[at - 5 :])
    await soon(lambda: len(the_tail(parts).readers) == 2)
    assert shown(late) == b"hello" + digits


# -- ends ----------------------------------------------------------------------------------------


async def test_the_upstream_poll_is_cancelled_when_all_have_left(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.hub.LINGER_SECS", 0.0)
    waiting = [poll(parts, 5) for _ in range(3)]
    tail = await parts.upstream.next()
    for one in waiting:
        one.exchange.leave()
    await soon(lambda: tail.future.cancelled())
    assert len(parts.hubs.tails) == 0
    assert [record.status for record in parts.log.records] == [499] * 3


async def test_every_slot_is_given_back(make: MakeParts) -> None:
    parts = make(gateway={"max_live_readers": 2})
    for _ in range(5):
        waiting, reader = poll(parts, 5), parts.ask("a?offset=-1&live=sse")
        await quiet()
        assert poll(parts, 5).response.status == 503
        waiting.exchange.leave()
        reader.exchange.leave()
    assert parts.hubs.slots.total == 0


async def test_data_with_the_end_reaches_every_reader(parts: Parts) -> None:
    reader, waiting = await follow(parts), poll(parts, 5)
    (await parts.upstream.next()).answer(200, chunk(5, 9, closed=True), b"last")
    answer = await waiting.exchange.answered()
    assert answer.closed and answer.body == b"last"
    await reader.exchange.answered()
    assert b"data:last\n" in reader.exchange.data and b'"streamClosed":true' in reader.exchange.data
    assert parts.log.records[-1].ended == "closed"


async def test_a_close_without_data_ends_every_reader(parts: Parts) -> None:
    reader, waiting = await follow(parts), poll(parts, 5)
    told = {"stream-next-offset": nameless(5), "stream-closed": "true"}
    (await parts.upstream.next()).answer(204, told)
    answer = await waiting.exchange.answered()
    assert answer.status == 204 and answer.closed and "Stream-Cursor" not in answer
    await reader.exchange.answered()
    assert b'"streamClosed":true' in reader.exchange.data


async def test_half_a_character_at_the_end_of_a_stream_is_sent_as_text(parts: Parts) -> None:
    reader = await follow(parts, "é".encode()[:1])
    assert b"event: data" not in reader.exchange.data
    told = {"stream-next-offset": nameless(1), "stream-closed": "true"}
    (await parts.upstream.next()).answer(204, told)
    await reader.exchange.answered()
    assert b"data:\xc3\n" in reader.exchange.data


async def test_deletion_answers_who_waits_and_ends_who_reads(parts: Parts) -> None:
    reader, waiting = await follow(parts), poll(parts, 5)
    await parts.upstream.next()
    parts.purges.forget("a")
    assert reader.exchange.data.endswith(b"0\r\n\r\n")
    (await parts.upstream.next()).answer(404, {"content-type": "text/plain"}, b"gone")
    assert (await waiting.exchange.answered()).status == 404
    assert [(r.status, r.role, r.ended) for r in parts.log.records] == [
        (200, "hub", "deleted"),
        (404, "hub", ""),
    ]


async def test_a_late_purge_does_not_say_of_a_stream_that_it_is_gone(parts: Parts) -> None:
    """The notice may be about the stream that was there before."""
    waiting = poll(parts, 5)
    await parts.upstream.next()
    parts.purges.forget("a")
    (await parts.upstream.next()).answer(200, chunk(5, 9, tail=True), b"news")
    answer = await waiting.exchange.answered()
    assert (answer.status, answer.body) == (200, b"news")


async def test_readers_who_replay_get_a_clean_end_when_the_gateway_stops(parts: Parts) -> None:
    reader, waiting = parts.ask("a?offset=-1&live=sse"), parts.ask("a?offset=now&live=long-poll")
    first, second = await parts.upstream.next(), await parts.upstream.next()
    parts.hubs.drain()
    stopping = asyncio.create_task(parts.hubs.settle(5.0))
    await quiet()
    first.answer(200, chunk(0, 5), b"hello")
    second.answer(200, chunk(5, 5, tail=True), b"")
    await stopping
    assert reader.exchange.data.endswith(b"0\r\n\r\n")
    assert (await waiting.exchange.answered()).status == 204


# -- never mixed ---------------------------------------------------------------------------------


async def test_one_event_stream_never_shows_two_incarnations(parts: Parts) -> None:
    """Re-created behind the gateway's back while a reader replays."""
    reader = parts.ask("a?offset=-1&live=sse")
    (await parts.upstream.next()).answer(200, chunk(0, 5), b"older")
    other = chunk(5, 9, tail=True, incarnation=OTHER_INCARNATION)
    (await parts.upstream.next()).answer(200, other, b"newer")
    await reader.exchange.answered()
    assert b"older" in reader.exchange.data and b"newer" not in reader.exchange.data
    assert parts.log.records[-1].ended == "deleted"
    await quiet()
    assert parts.hubs.reader_count == 0


async def test_a_reader_who_replays_ends_when_his_stream_is_purged(parts: Parts) -> None:
    reader = parts.ask("a?offset=-1&live=sse")
    headers = {"content-type": "text/plain", "stream-next-offset": "x5"}  # no incarnation
    (await parts.upstream.next()).answer(200, headers, b"older")
    await soon(lambda: b"older" in reader.exchange.data)
    parts.purges.forget("a")
    await reader.exchange.answered()
    assert reader.exchange.data.endswith(b"0\r\n\r\n")
    assert parts.log.records[-1].ended == "deleted"


async def test_a_tail_of_another_incarnation_is_not_shown_to_present_readers(parts: Parts) -> None:
    reader = await follow(parts)
    other = chunk(5, 9, tail=True, incarnation=OTHER_INCARNATION)
    (await parts.upstream.next()).answer(200, other, b"newer")
    await reader.exchange.answered()
    assert b"newer" not in reader.exchange.data
    assert parts.log.records[-1].ended == "deleted"


@pytest.mark.parametrize("status", [200, 204])
async def test_a_poll_that_shows_a_new_stream_purges_the_old_one_and_all_who_wait_begin_anew(
    parts: Parts, status: int
) -> None:
    await parts.fill("a", chunk(0, 5), b"older")
    waiting = poll(parts, 5)
    other = chunk(5, 9, tail=True, incarnation=OTHER_INCARNATION)
    (await parts.upstream.next()).answer(status, other, b"newer" if status == 200 else b"")
    again = await parts.upstream.next()
    assert parts.cache.fresh("a", "-1") is None and waiting.exchange.finished == 0
    again.answer(200, other, b"newer")
    assert (await waiting.exchange.answered()).body == b"newer"


# -- nobody is left behind -----------------------------------------------------------------------


async def test_a_large_batch_does_not_make_a_reader_slow(make: MakeParts) -> None:
    """What counts is what he has not taken of earlier ones."""
    parts = make(gateway={"max_reader_backlog_bytes": 1000})
    reader = await follow(parts)
    reader.exchange.unread = 500
    (await parts.upstream.next()).answer(200, chunk(5, 100_005, tail=True), b"x" * 100_000)
    await parts.upstream.next()
    assert not reader.exchange.aborted
    reader.exchange.unread = 1001
    parts.upstream.open[0].answer(200, chunk(100_005, 100_006, tail=True), b"y")
    await soon(lambda: reader.exchange.aborted)
    assert parts.log.records[-1].ended == "slow"


async def searching(parts: Parts) -> tuple[Asking, Asked]:
    """A long-poll whose time is up while the origin is asked for what there is at its place."""
    poll(parts, 5)
    tail = await parts.upstream.next()
    one = poll(parts, 7)
    (await parts.upstream.next()).answer(200, chunk(7, 7, tail=True), b"")
    await quiet()
    (waiting,) = (p for p in the_tail(parts).polls if p.call is one.call)
    tail.answer(200, chunk(5, 9, tail=True), b"news")
    search = await parts.upstream.next()
    waiting.time_is_up()
    return one, search


async def test_a_long_poll_that_timed_out_in_search_of_its_data_leaves_its_connection_alone(
    parts: Parts,
) -> None:
    one, search = await searching(parts)
    assert (await one.exchange.answered()).status == 204
    search.fail(TooLarge())
    await quiet()
    assert not one.exchange.watched and one.exchange.finished == 1
    assert parts.hubs.reader_count == 0


async def test_a_search_that_ends_after_its_time_parks_nobody(parts: Parts) -> None:
    one, search = await searching(parts)
    await one.exchange.answered()
    search.answer(200, chunk(7, 7, tail=True), b"")
    await quiet()
    assert parts.hubs.reader_count == 0 and not one.exchange.watched


async def test_a_mistake_of_ours_is_an_answer_not_a_silence(
    parts: Parts, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    one, reader = parts.ask("a?offset=now&live=long-poll"), parts.ask("a?offset=-1&live=sse")
    for _ in range(2):
        (await parts.upstream.next()).fail(RuntimeError("a mistake"))
    assert (await one.exchange.answered()).status == 500
    assert (await reader.exchange.answered()).status == 500
    assert parts.hubs.slots.total == 0
    assert "a mistake" in caplog.text


async def test_a_mistake_with_one_reader_is_none_with_the_others(
    parts: Parts, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(data: bytes) -> None:
        raise RuntimeError("a mistake")

    readers, polls = [await follow(parts)], [poll(parts, 5) for _ in range(3)]
    tail = await parts.upstream.next()
    monkeypatch.setattr(polls[0].exchange, "write", fail)
    tail.answer(200, chunk(5, 9, tail=True), b"news")
    assert [(await one.exchange.answered()).body for one in polls[1:]] == [b"news"] * 2
    await soon(lambda: b"data:news" in readers[0].exchange.data)
    assert polls[0].exchange.aborted and "a mistake" in caplog.text
    await soon(lambda: parts.hubs.slots.total == 1)


async def test_a_refused_position_is_not_asked_for_again_and_again(parts: Parts) -> None:
    """Somebody waits ahead of a place that the origin refuses."""
    here = poll(parts, 5)
    tail = await parts.upstream.next()
    ahead = poll(parts, 9)
    (await parts.upstream.next()).answer(200, chunk(9, 9, tail=True), b"")
    await quiet()
    tail.answer(400)
    assert (await here.exchange.answered()).status == 400
    again = await parts.upstream.next()
    assert nameless(9) in again.target
    again.answer(200, chunk(9, 12, tail=True), b"now")
    assert (await ahead.exchange.answered()).body == b"now"


async def test_an_origin_that_answers_204_at_once_is_not_asked_in_a_loop(parts: Parts) -> None:
    await follow(parts)
    for _ in range(3):
        if parts.upstream.unseen():
            (await parts.upstream.next()).answer(204, {"stream-next-offset": nameless(5)})
        await quiet(50)
    assert sum(asked.live for asked in parts.upstream.asked) == 1


async def test_a_stream_that_never_gets_on_ends_the_reader_and_not_the_loop(parts: Parts) -> None:
    """A chunk that says it is not the tail and leads nowhere."""
    reader = parts.ask("a?offset=-1&live=sse")
    (await parts.upstream.next()).answer(200, chunk(0, 0), b"")
    await soon(lambda: bool(parts.upstream.open) or reader.exchange.finished > 0)
    for asked in parts.upstream.open:
        asked.answer(200, chunk(0, 0), b"")
    await reader.exchange.answered()
    assert parts.log.records[-1].ended == "upstream-error"


async def test_a_batch_too_large_to_keep_is_streamed_to_who_waits(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed: list[object] = []

    async def stream(*given: object) -> None:
        passed.append(given)

    monkeypatch.setattr(parts.passes, "stream", stream)
    one = poll(parts, 5)
    (await parts.upstream.next()).fail(TooLarge())
    await soon(lambda: passed == [(one.call, nameless(5))])
    assert parts.hubs.reader_count == 0


async def test_a_tail_that_cannot_be_kept_is_an_answer_not_a_silence(parts: Parts) -> None:
    waiting = parts.ask("a?offset=now&live=long-poll")
    (await parts.upstream.next()).fail(TooLarge())
    await quiet()
    assert waiting.exchange.finished and waiting.response.status == 502
    assert parts.hubs.slots.total == 0


async def test_readers_outlast_a_short_outage(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.hub.FIRST_PAUSE_SECS", 0.001)
    reader = await follow(parts)
    for _ in range(3):
        (await parts.upstream.next()).fail(UpstreamError(502, "origin-unreachable", "away"))
    (await parts.upstream.next()).answer(200, chunk(5, 9, tail=True), b"news")
    await soon(lambda: b"data:news" in reader.exchange.data)


async def test_an_error_of_the_origin_is_not_kept_by_anyone(parts: Parts) -> None:
    one = poll(parts, 5)
    (await parts.upstream.next()).answer(404, {"content-type": "text/plain"}, b"gone")
    assert (await one.exchange.answered())["Cache-Control"] == "no-store"
