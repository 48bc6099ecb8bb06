"""The hub: whoever joins, from wherever, gets every byte once and in order."""

import asyncio
import base64
import json
import random

import pytest

from tests.conftest import StartOrigin
from tests.helpers.gateway import LocalGateway
from tests.helpers.offsets import nameless, unnamed
from tests.helpers.origin import Clock, LocalOrigin
from tests.helpers.scripted_origin import Gate, ScriptedOrigin, simple_stream, until
from tests.scenarios.conftest import Gather, StartGateway
from tests.scenarios.crowd import Caller, all_answers, tokens
from tests.scenarios.watching import overtake, readers, riders, watch

TOKEN = tokens(1)[0]
POLL = "&live=long-poll"
SSE = "&live=sse"


@pytest.fixture
def real(start_origin: StartOrigin) -> LocalOrigin:
    return start_origin(storage={"chunk_bytes": 64})


@pytest.fixture
def front(real: LocalOrigin, start_gateway: StartGateway) -> LocalGateway:
    """A gateway before a real origin whose chunks are small."""
    return start_gateway(f"http://127.0.0.1:{real.port}")


async def follow(callers: list[Caller], name: str, offset: str = "-1") -> None:
    """SSE readers that have seen all there is."""
    for caller in callers:
        caller.ask(name, f"offset={offset}{SSE}", token=TOKEN)
    await asyncio.gather(*(caller.caught_up() for caller in callers))


@pytest.mark.parametrize("live", [POLL, SSE])
async def test_a_stream_does_not_expire_under_readers_at_the_gateway(
    monkeypatch: pytest.MonkeyPatch,
    start_origin: StartOrigin,
    start_gateway: StartGateway,
    gather: Gather,
    live: str,
) -> None:
    clock = Clock()
    monkeypatch.setattr("origin.app.time", clock)
    origin = start_origin()
    front = start_gateway(f"http://127.0.0.1:{origin.port}")
    shard = origin.origin.shard
    with front.client() as writer:
        tail = writer.create("brief", stream_ttl="10")
        (caller,) = await gather(front)
        caller.ask("brief", f"offset={tail}{live}", token=TOKEN)
        await until(lambda: origin.call(lambda: origin.origin.live.reader_count) == 1)
        for _ in range(3):
            clock += 60
            origin.call(shard.lifetimes.sweep)
        assert writer("HEAD", "brief").status == 200


# -- joining -------------------------------------------------------------------------------------


async def test_joiners_at_any_offset_get_every_byte_once(
    front: LocalGateway, gather: Gather
) -> None:
    """While appends go on, so that each joins in the middle of something else."""
    chance = random.Random(7)
    callers = await gather(front, 60)
    with front.client() as writer:
        ends, whole, starts = [writer.create("a")], "", {}
        for number, caller in enumerate(callers):
            for _ in range(chance.randrange(4)):
                word = f"<{len(whole)}:{'x' * chance.randrange(30)}>"
                ends.append(writer.append("a", word.encode()))
                whole += word
                await asyncio.sleep(0)
            start = ends[-1] if number % 3 else chance.choice(ends)
            starts[caller] = int(start[17:])
            caller.ask("a", f"offset={chance.choice([start, unnamed(start)])}{SSE}", token=TOKEN)
            await asyncio.sleep(chance.random() * 0.01)
        tail = writer.append("a", b"<end>")
    await asyncio.gather(*(caller.shown(tail) for caller in callers))
    for caller, position in starts.items():
        assert caller.data == (whole + "<end>")[position:]


async def test_long_polls_that_follow_one_another_get_every_byte_once(
    front: LocalGateway, gather: Gather
) -> None:
    async def read(caller: Caller, count: int) -> bytes:
        at, found = nameless(0), b""
        while len(found) < count:
            caller.ask("a", f"offset={at}{POLL}", token=TOKEN)
            answer = await caller.answer()
            assert answer.status == 200
            at, found = answer.next_offset, found + answer.body
        return found

    words = [b"<%d>" % number for number in range(100)]
    whole = b"".join(words)
    with front.client() as writer:
        writer.create("a")
        callers = await gather(front, 10)
        reading = [asyncio.create_task(read(caller, len(whole))) for caller in callers]
        for word in words:
            writer.append("a", word)
            await asyncio.sleep(0.002)
    assert set(await asyncio.gather(*reading)) == {whole}


async def test_a_joiner_ahead_of_the_hub_waits_for_what_comes_after_his_place(
    scripted: ScriptedOrigin, gateway: LocalGateway, gather: Gather
) -> None:
    stream = simple_stream(scripted, "/v1/stream/a", "text/plain", b"one.")
    behind, sse, poll = await gather(gateway, 3)
    await follow([behind], "a")
    await until(lambda: stream.waiting == 1)
    gate = overtake(scripted, stream, "/v1/stream/a").gate
    stream.append(b"zero")  # the poll under way brings it; the next one's answers are held
    await behind.until(lambda: "zero" in behind.data)
    ahead = stream.append(b"two.")
    await gate.reached()  # the hub asks at the place before "two."
    sse.ask("a", f"offset={ahead}{SSE}", token=TOKEN)
    poll.ask("a", f"offset={ahead}{POLL}", token=TOKEN)
    await until(lambda: riders(gateway) == 2)
    gate.open()
    await until(lambda: readers(gateway) == 3)
    tail = stream.append(b"three.")
    await asyncio.gather(behind.shown(tail), sse.shown(tail))
    answer = await poll.answer()
    assert (behind.data, sse.data, answer.body) == ("one.zerotwo.three.", "three.", b"three.")


async def test_a_joiner_ahead_of_the_hub_is_not_passed_by(
    scripted: ScriptedOrigin, gateway: LocalGateway, gather: Gather
) -> None:
    """One answer may go past his place, without beginning there."""
    stream = simple_stream(scripted, "/v1/stream/a", "text/plain", b"one.")
    watched = watch(scripted, stream, "/v1/stream/a")
    watched.gate.open()
    watched.live_gate = gate = Gate()
    behind, sse, poll = await gather(gateway, 3)
    await follow([behind], "a")
    await gate.reached()  # the hub's request has not been looked at yet
    ahead = stream.append(b"two.")
    await follow([sse], "a", ahead)
    poll.ask("a", f"offset={ahead}{POLL}", token=TOKEN)
    await until(lambda: readers(gateway) == 3)
    tail = stream.append(b"three.")
    gate.open()
    await asyncio.gather(behind.shown(tail), sse.shown(tail))
    answer = await poll.answer()
    assert (behind.data, sse.data, answer.body) == ("one.two.three.", "three.", b"three.")
    assert watched.most == 1


@pytest.mark.parametrize("first", [True, False], ids=["comes-first", "comes-later"])
@pytest.mark.parametrize("mode", [POLL, SSE], ids=["long-poll", "sse"])
async def test_an_offset_that_was_made_up_harms_nobody_else(
    mode: str, first: bool, front: LocalGateway, gather: Gather
) -> None:
    with front.client() as writer:
        at = writer.create("a", body=b"one.")
        bogus, *good = await gather(front, 5)
        if not first:
            await follow(good[:2], "a")
        bogus.ask("a", f"offset={nameless(4000)}{mode}", token=TOKEN)
        if first:
            await asyncio.sleep(0.05)
            await follow(good[:2], "a")
        for caller in good[2:]:
            caller.ask("a", f"offset={at}{POLL}", token=TOKEN)
        await until(lambda: readers(front) >= 4)
        tail = writer.append("a", b"two.")
    await asyncio.gather(*(caller.shown(tail) for caller in good[:2]))
    assert {answer.body for answer in await all_answers(good[2:])} == {b"two."}
    assert [caller.data for caller in good[:2]] == ["one.two."] * 2


@pytest.mark.parametrize("mode", [POLL, SSE], ids=["long-poll", "sse"])
async def test_an_offset_that_was_made_up_harms_nobody_at_an_origin_that_waits_there(
    mode: str, scripted: ScriptedOrigin, gateway: LocalGateway, gather: Gather
) -> None:
    """Such as one that compares offsets only when data comes."""
    stream = simple_stream(scripted, "/v1/stream/a", "text/plain", b"one.")
    bogus, good = await gather(gateway, 2)
    bogus.ask("a", f"offset={nameless(4000)}{POLL}", token=TOKEN)
    await until(lambda: stream.waiting == 1)
    good.ask("a", f"offset={stream.tail}{mode}", token=TOKEN)
    assert (await bogus.answer()).status == 400
    await until(lambda: readers(gateway) == 1)
    tail = stream.append(b"two.")
    if mode == SSE:
        await good.shown(tail)
        assert good.data == "two."
    else:
        assert (await good.answer()).body == b"two."


async def test_now_means_from_here_on(front: LocalGateway, gather: Gather) -> None:
    with front.client() as writer:
        writer.create("a", body=b"before.")
        sse, poll = await gather(front, 2)
        await follow([sse], "a", "now")
        poll.ask("a", f"offset=now{POLL}", token=TOKEN)
        await until(lambda: readers(front) == 2)
        tail = writer.append("a", b"after.")
    await sse.shown(tail)
    assert (sse.data, (await poll.answer()).body) == ("after.", b"after.")


async def test_long_polls_find_what_they_missed_between_two_of_them(
    scripted: ScriptedOrigin, gateway: LocalGateway, gather: Gather
) -> None:
    """The window answers without the origin, as long as somebody keeps the hub going."""
    stream = simple_stream(scripted, "/v1/stream/a", "text/plain", b"one.")
    at = stream.tail
    stays, late = await gather(gateway, 2)
    await follow([stays], "a")
    await stays.shown(stream.append(b"two."))
    await stays.shown(stream.append(b"three."))
    before = stream.counts["catch-up"]
    late.ask("a", f"offset={at}{POLL}", token=TOKEN)
    answer = await late.answer()
    assert (answer.body, answer["Cache-Status"]) == (b"two.", "weir; hit; detail=hub")
    assert stream.counts["catch-up"] == before


# -- content types -------------------------------------------------------------------------------


async def test_binary_streams_are_base64_to_sse_and_bytes_to_long_polls(
    front: LocalGateway, gather: Gather
) -> None:
    parts = [bytes(range(256)), b"\0\r\n\n\xff", b"x"]
    with front.client() as writer:
        at = writer.create("a", "application/octet-stream", parts[0])
        sse, poll = await gather(front, 2)
        await follow([sse], "a")
        poll.ask("a", f"offset={at}{POLL}", token=TOKEN)
        await until(lambda: readers(front) == 2)
        for part in parts[1:]:
            tail = writer.append("a", part, "application/octet-stream")
    await sse.shown(tail)
    assert dict(sse.fields)["stream-sse-data-encoding"] == "base64"
    pieces = [base64.b64decode(e.data) for e in sse.events if e.kind == "data"]
    assert b"".join(pieces) == b"".join(parts)
    answer = await poll.answer()
    assert b"".join(parts[1:]).startswith(answer.body) and answer.body
    assert answer["Content-Type"] == "application/octet-stream"


async def test_json_streams_give_whole_arrays(front: LocalGateway, gather: Gather) -> None:
    with front.client() as writer:
        at = writer.create("a", "application/json", b'[{"n":0}]')
        sse, poll = await gather(front, 2)
        await follow([sse], "a")
        poll.ask("a", f"offset={at}{POLL}", token=TOKEN)
        await until(lambda: readers(front) == 2)
        writer.append("a", b'[{"n":1},{"n":2}]', "application/json")
        assert json.loads((await poll.answer()).body) == [{"n": 1}, {"n": 2}]
        tail = writer.append("a", b'{"n":"\xe2\x80\xa8"}', "application/json")
    await sse.shown(tail)
    assert "stream-sse-data-encoding" not in dict(sse.fields)
    arrays = [json.loads(event.data) for event in sse.events if event.kind == "data"]
    assert [item["n"] for array in arrays for item in array] == [0, 1, 2, "\u2028"]


async def test_characters_cut_between_appends_come_whole(
    front: LocalGateway, gather: Gather
) -> None:
    text = "a€😀é\nß"
    data = text.encode()
    with front.client() as writer:
        writer.create("a")
        early, late, resumed = await gather(front, 3)
        await follow([early], "a")
        for at in range(len(data)):
            tail = writer.append("a", data[at : at + 1])
            await asyncio.sleep(0.002)
            if at == 5:  # in the middle of the emoji
                late.ask("a", f"offset=-1{SSE}", token=TOKEN)
                await late.until(lambda: bool(late.control))
                resumed.ask("a", f"offset={late.offset}{SSE}", token=TOKEN)
                told = len(late.data.encode())
    for caller in (early, late, resumed):
        await caller.shown(tail)
    assert (early.data, late.data) == (text, text)
    assert resumed.data == data[told:].decode()


# -- ends ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("body", [b"last.", b""], ids=["append-and-close", "close"])
async def test_a_close_reaches_every_reader(
    body: bytes, front: LocalGateway, gather: Gather
) -> None:
    with front.client() as writer:
        at = writer.create("a", body=b"one.")
        callers = await gather(front, 20)
        sse, polls = callers[:10], callers[10:]
        await follow(sse, "a")
        for caller in polls:
            caller.ask("a", f"offset={at}{POLL}", token=TOKEN)
        await until(lambda: readers(front) == 20)
        writer.append("a", body, stream_closed="true")
    for caller in sse:
        await caller.finished()
        assert caller.data == "one." + body.decode()
        assert caller.control["streamClosed"] and caller.control["upToDate"]
        assert "streamCursor" not in caller.control
    answers = await all_answers(polls)
    assert {(a.status, a.body, a.closed) for a in answers} == {(200 if body else 204, body, True)}
    await until(lambda: front.metric("hubs") == 0)


@pytest.mark.parametrize("through", ["same", "other"])
async def test_a_deletion_ends_every_reader(
    through: str,
    real: LocalOrigin,
    front: LocalGateway,
    start_gateway: StartGateway,
    gather: Gather,
) -> None:
    with front.client() as writer:
        at = writer.create("a", body=b"one.")
    sse, poll = await gather(front, 2)
    await follow([sse], "a")
    poll.ask("a", f"offset={at}{POLL}", token=TOKEN)
    await until(lambda: readers(front) == 2)
    other = front if through == "same" else start_gateway(f"http://127.0.0.1:{real.port}")
    with other.client() as writer:
        assert writer("DELETE", "a").status == 204
    assert (await poll.answer()).status == 404
    await sse.finished()
    assert sse.data == "one." and "streamClosed" not in sse.control
    sse.ask("a", f"offset={at}{SSE}", token=TOKEN)
    assert (await sse.answer()).status == 404


async def test_a_stream_made_anew_with_another_type_is_another_stream(
    front: LocalGateway, gather: Gather
) -> None:
    sse, again = await gather(front, 2)
    with front.client() as writer:
        writer.create("a", body=b"text")
        await follow([sse], "a")
        assert writer("DELETE", "a").status == 204
        writer.create("a", "application/octet-stream", b"\xff\xfe")
        await sse.finished()
        await follow([again], "a")
        tail = writer.append("a", b"\x00", "application/octet-stream")
    await again.shown(tail)
    assert dict(again.fields)["stream-sse-data-encoding"] == "base64"
    pieces = [base64.b64decode(e.data) for e in again.events if e.kind == "data"]
    assert b"".join(pieces) == b"\xff\xfe\x00"
    assert sse.data == "text"


async def test_a_missing_stream_is_refused_before_anything_begins(
    front: LocalGateway, gather: Gather
) -> None:
    callers = await gather(front, 4)
    for caller, mode in zip(callers, (SSE, POLL) * 2, strict=True):
        caller.ask("nope", f"offset=-1{mode}", token=TOKEN)
    assert {answer.status for answer in await all_answers(callers)} == {404}
    await until(lambda: front.metric("hubs") == 0)
