"""A write that was acknowledged is seen by every read that begins after it, whichever gateway took
either: shared fetches never answer from before a reader's question."""

import asyncio
import random
import time
from collections.abc import Awaitable
from dataclasses import dataclass, field

import pytest

from tests.conftest import StartOrigin
from tests.helpers.gateway import LocalGateway
from tests.helpers.offsets import nameless
from tests.helpers.rawhttp import Response
from tests.helpers.scripted_origin import (
    ScriptedOrigin,
    SimpleStream,
    simple_stream,
    until,
)
from tests.scenarios.conftest import Gather, StartGateway
from tests.scenarios.crowd import Caller, tokens
from tests.scenarios.watching import overtake, riders

TOKEN = tokens(1)[0]
PATH = "/v1/stream/a"


async def write(caller: Caller, body: bytes = b"new", **headers: str) -> Response:
    caller.ask("a", token=TOKEN, method="POST", body=body, Content_Type="text/plain", **headers)
    answer = await caller.answer()
    assert answer.status in (200, 204)
    return answer


@pytest.fixture(params=["same", "other"])
def pair(request: pytest.FixtureRequest, start_gateway: StartGateway) -> list[LocalGateway]:
    """The gateway that reads, and the one that writes."""
    reading = start_gateway()
    return [reading, reading if request.param == "same" else start_gateway()]


@pytest.mark.parametrize("stored", [False, True], ids=["cold", "revalidated"])
@pytest.mark.parametrize("mode", ["offset=-1", "offset=-1&live=sse"], ids=["catch-up", "sse"])
async def test_a_write_during_a_shared_read_is_seen_by_whoever_asks_after_it(
    mode: str, stored: bool, scripted: ScriptedOrigin, pair: list[LocalGateway], gather: Gather
) -> None:
    stream = simple_stream(scripted, PATH, "text/plain", b"old.")
    reading, writing = pair
    early, late = await gather(reading, 2)
    [writer] = await gather(writing)
    if stored:
        early.ask("a", "offset=-1", token=TOKEN)
        await early.answer()
    script = overtake(scripted, stream, PATH)
    early.ask("a", mode, token=TOKEN)
    await script.gate.reached()  # what it will bring is decided
    tail = (await write(writer)).next_offset
    late.ask("a", mode, token=TOKEN)
    await until(lambda: riders(reading) == 2)
    script.gate.open()
    if "sse" in mode:
        await asyncio.gather(early.shown(tail), late.shown(tail))
        assert [early.data, late.data] == ["old.new"] * 2
        assert b"old.new" in late.body  # in its first event, not by way of the tail
    else:
        assert (await early.answer()).body == b"old."
        assert (await late.answer()).body == b"old.new"


async def test_all_who_come_during_a_read_share_the_next_one(
    scripted: ScriptedOrigin, gateway: LocalGateway, gather: Gather
) -> None:
    stream = simple_stream(scripted, PATH, "text/plain", b"old.")
    script = overtake(scripted, stream, PATH)
    writer, early, *late = await gather(gateway, 102)
    early.ask("a", "offset=-1", token=TOKEN)
    await script.gate.reached()
    await write(writer)
    for caller, token in zip(late, tokens(100), strict=True):
        caller.ask("a", "offset=-1", token=token)
    await until(lambda: riders(gateway) == 101)
    script.gate.open()
    assert (await early.answer()).body == b"old."
    assert {(await caller.answer()).body for caller in late} == {b"old.new"}
    assert stream.counts["catch-up"] == 2


async def test_a_close_during_a_shared_read_is_seen_by_whoever_asks_after_it(
    scripted: ScriptedOrigin, pair: list[LocalGateway], gather: Gather
) -> None:
    script = overtake(scripted, simple_stream(scripted, PATH, "text/plain", b"old."), PATH)
    early, late = await gather(pair[0], 2)
    [writer] = await gather(pair[1])
    early.ask("a", "offset=-1", token=TOKEN)
    await script.gate.reached()
    await write(writer, b"", Stream_Closed="true")
    late.ask("a", "offset=-1", token=TOKEN)
    await until(lambda: riders(pair[0]) == 2)
    script.gate.open()
    assert not (await early.answer()).closed
    assert (await late.answer()).closed


async def test_a_deletion_during_a_shared_read_is_seen_by_whoever_asks_after_it(
    scripted: ScriptedOrigin, pair: list[LocalGateway], gather: Gather
) -> None:
    script = overtake(scripted, simple_stream(scripted, PATH, "text/plain", b"old."), PATH)
    early, late = await gather(pair[0], 2)
    [writer] = await gather(pair[1])
    early.ask("a", "offset=-1", token=TOKEN)
    await script.gate.reached()
    writer.ask("a", token=TOKEN, method="DELETE")
    assert (await writer.answer()).status == 204
    late.ask("a", "offset=-1", token=TOKEN)
    script.gate.open()
    assert (await early.answer()).body == b"old."
    assert (await late.answer()).status == 404


async def test_a_chunk_that_never_changes_is_shared_in_spite_of_a_write(
    scripted: ScriptedOrigin, gateway: LocalGateway, gather: Gather
) -> None:
    stream = SimpleStream(scripted, PATH, chunk_bytes=4)
    for body in (b"one.", b"two."):
        stream.append(body)
    script = overtake(scripted, stream, PATH)
    writer, early, late = await gather(gateway, 3)
    early.ask("a", "offset=-1", token=TOKEN)
    await script.gate.reached()
    await write(writer)
    late.ask("a", "offset=-1", token=TOKEN)
    await until(lambda: riders(gateway) == 2)
    script.gate.open()
    assert [(await caller.answer()).body for caller in (early, late)] == [b"one."] * 2
    assert stream.counts["catch-up"] == 1


async def test_a_tail_at_the_end_of_a_chunk_is_not_called_the_latest_once_more_follows(
    scripted: ScriptedOrigin, gateway: LocalGateway, gather: Gather
) -> None:
    """Its bytes and the origin's tag stay the same: a 304 must not confirm the rest of it."""
    stream = SimpleStream(scripted, PATH, chunk_bytes=4)
    stream.append(b"old.")
    [reader] = await gather(gateway)
    reader.ask("a", "offset=-1", token=TOKEN)
    first = await reader.answer()
    stream.append(b"more")
    reader.ask("a", "offset=-1", token=TOKEN)
    second = await reader.answer()
    assert [first.up_to_date, second.up_to_date] == [True, False]
    assert first.body == second.body
    assert first["ETag"] != second["ETag"]
    assert "fwd-status=304" in second["Cache-Status"]


async def test_a_long_poll_at_the_old_tail_gets_what_was_written_before_it_began(
    scripted: ScriptedOrigin, pair: list[LocalGateway], gather: Gather
) -> None:
    stream = simple_stream(scripted, PATH, "text/plain", b"old.")
    at = stream.tail
    early, late = await gather(pair[0], 2)
    [writer] = await gather(pair[1])
    early.ask("a", f"offset={at}&live=long-poll", token=TOKEN)
    await until(lambda: stream.waiting == 1)
    tail = (await write(writer)).next_offset
    late.ask("a", f"offset={at}&live=long-poll", token=TOKEN)
    answers = await asyncio.gather(early.answer(), late.answer())
    assert {(answer.body, answer.next_offset) for answer in answers} == {(b"new", tail)}


async def test_what_the_hub_has_is_called_the_latest_only_if_it_is(
    scripted: ScriptedOrigin, pair: list[LocalGateway], gather: Gather
) -> None:
    """A window holds what was the tail when it came; a write may have followed elsewhere."""
    stream = simple_stream(scripted, PATH, "text/plain", b"old.")
    at = stream.tail
    stays, late = await gather(pair[0], 2)
    [writer] = await gather(pair[1])
    stays.ask("a", f"offset={at}&live=sse", token=TOKEN)
    await until(lambda: stream.waiting == 1)
    first = (await write(writer, b"one.")).next_offset
    await stays.shown(first)
    late.ask("a", f"offset={at}&live=long-poll", token=TOKEN)
    answer = await late.answer()
    assert (answer.body, answer.next_offset, answer.up_to_date) == (b"one.", first, True)
    script = overtake(scripted, stream, PATH)  # the hub need not hear of the next write
    second = (await write(writer, b"two.")).next_offset
    late.ask("a", f"offset={at}&live=long-poll", token=TOKEN)
    script.gate.open()
    answer = await late.answer()
    assert answer.next_offset == second or not answer.up_to_date


# -- under load ----------------------------------------------------------------------------------


Known = dict[int, bytes]  # records by position
RECORD = 16
SECONDS = 3.0


@dataclass
class Ledger:
    """What was acknowledged: no read that begins now may end before `tail`."""

    tail: int = 0
    written: int = 0
    reads: int = 0
    shared: int = 0
    until: float = field(default_factory=lambda: time.monotonic() + SECONDS)

    @property
    def is_open(self) -> bool:
        return time.monotonic() < self.until


def position(offset: str) -> int:
    return int(offset.rpartition("_")[2])


async def keep_writing(caller: Caller, token: str, number: int, ledger: Ledger) -> None:
    count = 0
    while ledger.is_open:
        body = b"%03d:%011d\n" % (number, count)
        caller.ask("a", token=token, method="POST", body=body, Content_Type="text/plain")
        answer = await caller.answer()
        assert answer.status == 204
        ledger.tail = max(ledger.tail, position(answer.next_offset))
        ledger.written += 1
        count += 1
        await asyncio.sleep(0.005)


async def keep_reading(caller: Caller, token: str, known: Known, ledger: Ledger) -> None:
    """From some place to the tail; each chunk must be what every other reader saw there."""
    chance = random.Random(token)
    while ledger.is_open:
        at, must_see = RECORD * chance.randrange(ledger.tail // RECORD + 1), ledger.tail
        reached = False
        while not reached:
            begun = ledger.tail
            caller.ask("a", f"offset={nameless(at)}", token=token)
            answer = await caller.answer()
            assert answer.status == 200
            check_bytes(known, at, answer.body)
            at += len(answer.body)
            assert at == position(answer.next_offset)
            reached = answer.up_to_date
            assert not reached or at >= begun, "older than the question"
            ledger.shared += "collapsed" in answer["Cache-Status"]
        assert at >= must_see
        ledger.reads += 1


async def keep_polling(caller: Caller, token: str, known: Known, ledger: Ledger) -> None:
    at = 0
    while ledger.is_open:
        must_see = ledger.tail
        caller.ask("a", f"offset={nameless(at)}&live=long-poll", token=token)
        answer = await caller.answer()
        assert answer.status == 200 or at >= must_see, "nothing new, they say"
        check_bytes(known, at, answer.body)
        at += len(answer.body)
        ledger.reads += 1


async def keep_following(
    gateway: LocalGateway, gather: Gather, known: Known, ledger: Ledger
) -> None:
    """By SSE from the start to what was the tail when it began; then once more."""
    while ledger.is_open:
        [caller] = await gather(gateway)
        must_see = ledger.tail
        caller.ask("a", "offset=-1&live=sse", token=TOKEN)
        await caller.caught_up()
        assert position(caller.offset or "") >= must_see, "up to date, they say"
        check_bytes(known, 0, caller.data.encode())
        ledger.reads += 1
        caller.close()


def check_bytes(known: Known, at: int, body: bytes) -> None:
    """Learn what is new, compare what is known."""
    for start in range(0, len(body), RECORD):
        record = body[start : start + RECORD]
        assert known.setdefault(at + start, record) == record


@pytest.mark.slow
async def test_two_gateways_under_load_never_answer_from_before_the_question(
    start_origin: StartOrigin, start_gateway: StartGateway, gather: Gather
) -> None:
    origin = start_origin(storage={"chunk_bytes": 1024})
    gateways = [start_gateway(f"http://127.0.0.1:{origin.port}") for _ in range(2)]
    with gateways[0].client() as client:
        client.create("a")
    ledger, known = Ledger(), Known()
    work: list[Awaitable[None]] = []
    for gateway in gateways:
        callers = iter(await gather(gateway, 33))
        work += [keep_writing(next(callers), t, id(gateway) % 1000, ledger) for t in tokens(5)]
        work += [keep_reading(next(callers), token, known, ledger) for token in tokens(20)]
        work += [keep_polling(next(callers), token, known, ledger) for token in tokens(8)]
        work += [keep_following(gateway, gather, known, ledger) for _ in range(2)]
    await asyncio.gather(*work)
    with origin.client() as client:
        assert position(client("GET", "a", query="offset=now").next_offset) == ledger.tail
    assert ledger.written * RECORD == ledger.tail
    assert ledger.written > 50 and ledger.reads > 200
    assert ledger.shared > 0
