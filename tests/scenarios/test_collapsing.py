"""Counters as proof: how many requests an origin sees of a crowd, every client with a token of its
own, and when the crowd is answered."""

import asyncio
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import islice

import pytest

from gateway.rules.tails import TRANSIT_SECS
from protocol.cursors import next_cursor
from tests.helpers.gateway import LocalGateway
from tests.helpers.offsets import nameless
from tests.helpers.rawhttp import Response
from tests.helpers.scripted_origin import (
    Answer,
    Gate,
    Recorded,
    ScriptedOrigin,
    SimpleStream,
    simple_stream,
    until,
)
from tests.scenarios.conftest import Gather, StartGateway
from tests.scenarios.crowd import Caller, all_answers, tokens
from tests.scenarios.watching import readers, riders, watch

LATEST_S = 20.0  # after the origin's answer, the last reader has it
ZERO = nameless(0)
AT_10 = nameless(10)
TAIL = {"Content-Type": "text/plain", "Stream-Next-Offset": AT_10}
DATA = TAIL | {"Stream-Up-To-Date": "true", "Stream-Cursor": "7", "ETag": '"e"'}


@pytest.fixture
def gateway(start_gateway: StartGateway) -> LocalGateway:
    """Patient with an origin that holds back while a crowd gathers on a busy machine."""
    return start_gateway(upstream={"first_byte_timeout_secs": 60.0, "connect_timeout_secs": 30.0})


def bodies(answers: list[Response]) -> set[tuple[int, bytes]]:
    return {(answer.status, answer.body) for answer in answers}


# -- 100 long-polls of one key -------------------------------------------------------------------


ROWS = {
    "200": Answer(200, DATA | {"Cache-Control": "public, max-age=20"}, b"0123456789"),
    "204": Answer(204, TAIL | {"Stream-Up-To-Date": "true", "Cache-Control": "no-store"}),
    "private": Answer(200, DATA | {"Cache-Control": "private"}, b"0123456789"),
    "without": Answer(200, DATA, b"0123456789"),
    "500": Answer(500, {"Content-Type": "text/plain"}, b"broken"),
}


@dataclass
class Held:
    """A script that answers a time after it may, and notes when it did."""

    answer: Answer
    hold_s: float
    may: Gate
    answered_at: list[float] = field(default_factory=list)

    async def __call__(self, request: Recorded) -> Answer:
        assert request.live
        await self.may.passed()
        await asyncio.sleep(self.hold_s)
        self.answered_at.append(time.monotonic())
        return self.answer


@pytest.mark.slow
async def test_a_hundred_long_polls_are_one_request_whatever_the_answer(
    scripted: ScriptedOrigin, gateway: LocalGateway, gather: Gather
) -> None:
    """All rows at once, each on a stream of its own."""
    may = Gate()
    rows = {(name, hold): Held(ROWS[name], hold, may) for name in ROWS for hold in (0.0, 6.0)}
    for (name, hold), script in rows.items():
        scripted.on("GET", f"/v1/stream/{name}-{hold:.0f}", script)
    callers = await gather(gateway, 100 * len(rows))
    crowds = dict(zip(rows, (callers[at : at + 100] for at in range(0, 1000, 100)), strict=True))
    for (name, hold), crowd in crowds.items():
        for caller, token in zip(crowd, tokens(100), strict=True):
            caller.ask(f"{name}-{hold:.0f}", f"offset={ZERO}&live=long-poll", token=token)
    await until(lambda: readers(gateway) == len(callers))
    await asyncio.sleep(TRANSIT_SECS)  # who has come later is told "nothing new" by the next answer
    may.open()
    answers = iter(await all_answers(callers))
    for (name, hold), crowd in crowds.items():
        check_row(rows[name, hold], crowd, list(islice(answers, 100)))
        assert scripted.count(path=f"/v1/stream/{name}-{hold:.0f}") == 1, name
    assert gateway.metric("upstream_requests", kind="live") == len(rows)
    assert gateway.metric("requests", mode="long-poll") == len(callers)


def check_row(row: Held, crowd: list[Caller], answers: list[Response]) -> None:
    assert len(row.answered_at) == 1
    late = max(caller.answered_at for caller in crowd) - row.answered_at[0]
    assert late < LATEST_S, row.answer
    assert bodies(answers) == {(row.answer.status, row.answer.body)}
    if row.answer.status < 300:
        assert {answer.next_offset for answer in answers} == {AT_10}
        assert len({answer["Stream-Cursor"] for answer in answers}) == 1


# -- 1,000 at once -------------------------------------------------------------------------------


async def test_a_thousand_long_polls_with_mixed_cursors_are_one_request(
    scripted: ScriptedOrigin, gateway: LocalGateway, gather: Gather
) -> None:
    stream = simple_stream(scripted, "/v1/stream/a", "text/plain", b"x")
    at = stream.tail
    now = next_cursor(time.time(), None, b"")
    kinds = ["", "0", "17", str(now - 1), str(now), str(now + 1), str(now + 500), "123456789012345"]
    asked = [kinds[number % len(kinds)] for number in range(1000)]
    callers = await gather(gateway, 1000)
    for caller, cursor, token in zip(callers, asked, tokens(1000), strict=True):
        more = f"&cursor={cursor}" if cursor else ""
        caller.ask("a", f"offset={at}&live=long-poll{more}", token=token)
    await until(lambda: readers(gateway) == 1000)
    stream.append(b"news")
    answers = await all_answers(callers)
    assert bodies(answers) == {(200, b"news")}
    assert stream.counts == {"long-poll": 1}
    told: dict[str, set[int]] = {}
    for cursor, answer in zip(asked, answers, strict=True):
        told.setdefault(cursor, set()).add(int(answer["Stream-Cursor"]))
    assert all(len(cursors) == 1 for cursors in told.values()), told
    assert all(cursors.pop() > int(cursor or 0) for cursor, cursors in told.items())


async def test_a_thousand_sse_readers_at_several_offsets_are_one_tail(
    scripted: ScriptedOrigin, gateway: LocalGateway, gather: Gather
) -> None:
    stream = simple_stream(scripted, "/v1/stream/a", "text/plain", *[b"ten bytes."] * 10)
    watched = watch(scripted, stream, "/v1/stream/a")
    offsets = ["-1", AT_10, nameless(50), stream.tail, "now"]
    callers = await gather(gateway, 1000)
    for number, (caller, token) in enumerate(zip(callers, tokens(1000), strict=True)):
        offset = offsets[number % len(offsets)]
        caller.ask("a", f"offset={offset}&live=sse", token=token)
    await until(lambda: riders(gateway) == 1000)
    watched.gate.open()
    await asyncio.gather(*(caller.shown(stream.tail) for caller in callers))
    await until(lambda: readers(gateway) == 1000 and stream.waiting == 1)
    assert stream.counts["catch-up"] + stream.counts["now"] <= 2 * len(offsets)
    before = Counter(stream.counts)
    for word in (b"one.", b"two.", b"three."):
        tail = stream.append(word)
        await asyncio.gather(*(caller.shown(tail) for caller in callers))
    assert watched.most == 1
    assert stream.counts - before == {"long-poll": 3}
    for number, caller in enumerate(callers):
        missed = (100, 90, 50, 0, 0)[number % len(offsets)]
        assert caller.data == "ten bytes." * (missed // 10) + "one.two.three."


@pytest.mark.parametrize(
    ("offset", "requests"), [("-1", 1), (nameless(20), 2)], ids=["below-tail", "at-tail"]
)
async def test_a_thousand_cold_catch_ups_share_their_requests(
    offset: str, requests: int, scripted: ScriptedOrigin, gateway: LocalGateway, gather: Gather
) -> None:
    stream = SimpleStream(scripted, "/v1/stream/a", chunk_bytes=20)
    for _ in range(3):
        stream.append(b"ten bytes.")
    watched = watch(scripted, stream, "/v1/stream/a")
    callers = await gather(gateway, 1000)
    for caller, token in zip(callers, tokens(1000), strict=True):
        caller.ask("a", f"offset={offset}", token=token)
        if caller is callers[0]:  # all others come when its request is at the origin
            await scripted.reached(1)
    await until(lambda: riders(gateway) == 1000)
    watched.gate.open()
    answers = await all_answers(callers)
    assert bodies(answers) == {(200, b"ten bytes." * (2 if offset == "-1" else 1))}
    assert stream.counts["catch-up"] == requests
    assert gateway.metric("collapsed_readers") == 1000 - requests
    roles = Counter("collapsed" in answer["Cache-Status"] for answer in answers)
    assert roles[False] == requests


async def test_shared_answers_are_the_same_bytes_apart_from_ids(
    scripted: ScriptedOrigin, gateway: LocalGateway, gather: Gather
) -> None:
    stream = simple_stream(scripted, "/v1/stream/a", "text/plain", b"x")
    watched = watch(scripted, stream, "/v1/stream/a")
    callers = await gather(gateway, 20)
    for caller, token in zip(callers, tokens(20), strict=True):
        caller.ask("a", "offset=-1", token=token)
    await until(lambda: riders(gateway) == 20)
    watched.gate.open()
    answers = await all_answers(callers)
    own = {"x-request-id", "cache-status", "date", "age"}
    shared = {tuple(f for f in answer.fields if f[0] not in own) for answer in answers}
    assert len(shared) == 1
    assert len({answer["X-Request-Id"] for answer in answers}) == 20


async def test_other_streams_and_offsets_are_not_collapsed(
    scripted: ScriptedOrigin, gateway: LocalGateway, gather: Gather
) -> None:
    for name in ("a", "b"):
        simple_stream(scripted, f"/v1/stream/{name}", "text/plain", f"of {name}....".encode())
    gate = scripted.hold()
    callers = await gather(gateway, 4)
    asked = [(name, offset) for name in "ab" for offset in ("-1", nameless(3))]
    for caller, (name, offset) in zip(callers, asked, strict=True):
        caller.ask(name, f"offset={offset}", token=tokens(1)[0])
    await gate.reached(4)
    scripted.release()
    answers = await all_answers(callers)
    assert [answer.body for answer in answers] == [b"of a....", b"a....", b"of b....", b"b...."]


# -- leaving -------------------------------------------------------------------------------------


MODES = {"catch-up": "offset=-1", "long-poll": f"offset={AT_10}&live=long-poll"}


@pytest.mark.parametrize("reset", [False, True], ids=["close", "reset"])
@pytest.mark.parametrize("mode", MODES)
async def test_the_first_caller_leaving_changes_nothing_for_the_rest(
    mode: str, reset: bool, scripted: ScriptedOrigin, gateway: LocalGateway, gather: Gather
) -> None:
    gate = Gate()
    answer = replace(ROWS["200"], wait_for=gate)
    scripted.on("GET", "/v1/stream/a", answer)
    callers = await gather(gateway, 50)
    callers[0].ask("a", MODES[mode], token=tokens(50)[0])
    await gate.reached()
    for caller, token in zip(callers[1:], tokens(50)[1:], strict=True):
        caller.ask("a", MODES[mode], token=token)
    await until(lambda: riders(gateway) + readers(gateway) == 50)
    callers[0].close(reset=reset)
    await until(lambda: riders(gateway) + readers(gateway) == 49)
    assert gate.waiting == 1
    gate.open()
    assert bodies(await all_answers(callers[1:])) == {(200, b"0123456789")}
    assert scripted.count() <= (2 if mode == "catch-up" else 1)
    assert scripted.abandoned == 0


@pytest.mark.parametrize("reset", [False, True], ids=["close", "reset"])
async def test_the_first_sse_reader_leaving_changes_nothing_for_the_rest(
    reset: bool, scripted: ScriptedOrigin, gateway: LocalGateway, gather: Gather
) -> None:
    stream = simple_stream(scripted, "/v1/stream/a", "text/plain", b"x")
    callers = await gather(gateway, 50)
    for caller, token in zip(callers, tokens(50), strict=True):
        caller.ask("a", "offset=-1&live=sse", token=token)
    await until(lambda: readers(gateway) == 50 and stream.waiting == 1)
    callers[0].close(reset=reset)
    await until(lambda: readers(gateway) == 49)
    tail = stream.append(b"more")
    await asyncio.gather(*(caller.shown(tail) for caller in callers[1:]))
    assert scripted.abandoned == 0
    assert stream.counts["long-poll"] <= 2


@pytest.mark.parametrize("mode", [*MODES, "sse"])
async def test_when_all_leave_the_origin_is_let_go(
    mode: str, scripted: ScriptedOrigin, gateway: LocalGateway, gather: Gather
) -> None:
    stream = simple_stream(scripted, "/v1/stream/a", "text/plain", b"0123456789")
    gate = scripted.hold() if mode != "sse" else None
    callers = await gather(gateway, 20)
    for caller, token in zip(callers, tokens(20), strict=True):
        caller.ask("a", MODES.get(mode, "offset=-1&live=sse"), token=token)
    await until(lambda: riders(gateway) + readers(gateway) == 20)
    await until(lambda: (gate.waiting if gate else stream.waiting) == 1)
    for number, caller in enumerate(callers):
        caller.close(reset=number % 2 == 0)
    await until(lambda: scripted.abandoned == 1)
    assert gateway.metric("flights") == 0
    await until(lambda: gateway.metric("hubs") == 0)
    assert mode == "sse" or scripted.count() == 1


async def test_a_crowd_of_failures_is_one_request_too(
    scripted: ScriptedOrigin, gateway: LocalGateway, gather: Gather
) -> None:
    gate = Gate()
    scripted.on("GET", "/v1/stream/a", replace(ROWS["500"], wait_for=gate))
    callers = await gather(gateway, 100)
    for caller, token in zip(callers, tokens(100), strict=True):
        caller.ask("a", "offset=-1", token=token)
    await until(lambda: riders(gateway) == 100)
    gate.open()
    assert {answer.status for answer in await all_answers(callers)} == {500}
    assert scripted.count() <= 2
