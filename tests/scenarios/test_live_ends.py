"""How live reads end: in time, with their token, too slow, drained. Always so that the reader can
go on from where it was."""

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.accesslog import whole_lines
from tests.helpers.gateway import KEY, LocalGateway
from tests.helpers.keys import make_token
from tests.helpers.scripted_origin import ScriptedOrigin, SimpleStream, simple_stream, until
from tests.scenarios.conftest import Gather, StartGateway
from tests.scenarios.crowd import Caller, all_answers, tokens
from tests.scenarios.watching import readers, riders

TOKEN = tokens(1)[0]
PATH = "/v1/stream/a"


@pytest.fixture
def stream(scripted: ScriptedOrigin) -> SimpleStream:
    return simple_stream(scripted, PATH, "text/plain", b"one.")


async def follow(caller: Caller, offset: str = "-1", token: str = TOKEN) -> None:
    caller.ask("a", f"offset={offset}&live=sse", token=token)
    await caller.caught_up()


def poll(caller: Caller, offset: str, token: str = TOKEN) -> None:
    caller.ask("a", f"offset={offset}&live=long-poll", token=token)


def short_lived(seconds: float) -> str:
    return make_token(KEY, sub="brief", exp=time.time() + seconds)


def log_lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in whole_lines(folder)]


# -- time ----------------------------------------------------------------------------------------


async def test_every_long_poll_has_its_own_deadline(
    stream: SimpleStream, start_gateway: StartGateway, gather: Gather
) -> None:
    gateway = start_gateway(gateway={"long_poll_timeout_secs": 2.0})
    first, second = await gather(gateway, 2)
    begun = [time.monotonic()]
    poll(first, stream.tail)
    await asyncio.sleep(0.5)  # a part of what the first will wait
    begun.append(time.monotonic())
    poll(second, stream.tail)
    answers = await all_answers([first, second])
    assert {answer.status for answer in answers} == {204}
    assert {answer.next_offset for answer in answers} == {stream.tail}
    assert all(answer.up_to_date and answer["Stream-Cursor"] for answer in answers)
    waits = [caller.answered_at - at for caller, at in zip((first, second), begun, strict=True)]
    assert min(waits) > 1.95  # the second was not answered with the first
    assert stream.counts["long-poll"] == 1


async def test_quiet_event_streams_beat(
    stream: SimpleStream, start_gateway: StartGateway, gather: Gather
) -> None:
    gateway = start_gateway(gateway={"sse_heartbeat_secs": 0.1})
    [caller] = await gather(gateway)
    await follow(caller)
    await caller.until(lambda: caller.comments >= 3)
    await caller.shown(stream.append(b"two."))
    assert caller.data == "one.two."
    assert stream.counts["long-poll"] <= 2


async def test_event_streams_rotate_at_different_times_and_lose_nothing(
    stream: SimpleStream, start_gateway: StartGateway, gather: Gather
) -> None:
    gateway = start_gateway(gateway={"sse_rotation_secs": 0.6})
    callers = await gather(gateway, 40)
    begun = time.monotonic()
    await asyncio.gather(*(follow(caller) for caller in callers))
    await asyncio.gather(*(caller.finished() for caller in callers))
    lasted = [caller.answered_at - begun for caller in callers]
    assert min(lasted) > 0.53
    assert max(lasted) < 20.0
    assert max(lasted) - min(lasted) > 0.03
    tail = stream.append(b"two.")
    for caller in callers:  # on the same connection, from where it was
        caller.ask("a", f"offset={caller.offset}&live=sse", token=TOKEN)
    await asyncio.gather(*(caller.shown(tail) for caller in callers))
    assert {caller.data for caller in callers} == {"two."}


# -- tokens --------------------------------------------------------------------------------------


async def test_an_event_stream_ends_with_its_token(
    stream: SimpleStream, gateway: LocalGateway, gather: Gather
) -> None:
    brief, lasting = await gather(gateway, 2)
    token = short_lived(2.0)
    begun = time.monotonic()
    await follow(brief, token=token)
    await follow(lasting)
    await brief.finished()
    assert 1.0 < brief.answered_at - begun < 20.0
    brief.ask("a", "offset=-1&live=sse", token=token)
    assert (await brief.answer()).status == 401
    tail = stream.append(b"two.")
    await lasting.shown(tail)


async def test_nothing_is_delivered_to_a_long_poll_whose_token_ran_out(
    stream: SimpleStream, gateway: LocalGateway, gather: Gather
) -> None:
    brief, lasting = await gather(gateway, 2)
    token, over = short_lived(2.0), time.time() + 2.0
    poll(brief, stream.tail, token)
    poll(lasting, stream.tail)
    await until(lambda: readers(gateway) == 2 and time.time() > over)
    stream.append(b"secret")
    refused, answer = await all_answers([brief, lasting])
    assert (answer.status, answer.body) == (200, b"secret")
    assert refused.status == 401 and b"secret" not in refused.body
    assert 'error="invalid_token"' in refused["WWW-Authenticate"]


# -- clients that do not read --------------------------------------------------------------------


async def test_a_slow_reader_is_dropped_and_the_others_go_on(
    stream: SimpleStream, start_gateway: StartGateway, gather: Gather
) -> None:
    gateway = start_gateway(gateway={"max_reader_backlog_bytes": 64 * 1024})
    slow, *others = await gather(gateway, 4)
    await asyncio.gather(*(follow(caller) for caller in (slow, *others)))
    await until(lambda: readers(gateway) == 4)
    slow.pause()
    sent = 0
    while readers(gateway) == 4:
        assert sent < 60, "never dropped"
        tail = stream.append(b"x" * 512 * 1024)
        await asyncio.gather(*(caller.shown(tail) for caller in others))
        sent += 1
    assert {len(caller.data) for caller in others} == {4 + sent * 512 * 1024}
    slow.resume()
    await slow.gone
    assert not slow.ended


async def test_live_readers_are_limited_in_all_and_by_subject(
    stream: SimpleStream, start_gateway: StartGateway, gather: Gather
) -> None:
    limits = {"max_live_readers": 3, "max_live_readers_per_subject": 2}
    gateway = start_gateway(gateway=limits)
    callers = await gather(gateway, 5)
    one, two = tokens(2)
    await asyncio.gather(*(follow(caller, token=one) for caller in callers[:2]))
    poll(callers[2], stream.tail, one)
    refused = await callers[2].answer()
    assert (refused.status, refused["Retry-After"]) == (429, "1")
    poll(callers[3], stream.tail, two)
    await until(lambda: readers(gateway) == 3)
    poll(callers[4], stream.tail, two)
    assert (await callers[4].answer()).status == 503
    callers[0].close()
    await until(lambda: readers(gateway) == 2)
    await follow(callers[4], token=one)


# -- the form of an event stream -----------------------------------------------------------------


async def test_an_event_stream_is_never_compressed_kept_or_buffered(
    stream: SimpleStream, gateway: LocalGateway, gather: Gather
) -> None:
    stream.append(b"long text " * 1000)
    [caller] = await gather(gateway)
    caller.ask("a", "offset=-1&live=sse", token=TOKEN, Accept_Encoding="gzip, zstd")
    await caller.caught_up()
    fields = dict(caller.fields)
    assert "content-encoding" not in fields
    assert fields["cache-control"] == "no-cache"
    assert fields["x-accel-buffering"] == "no"
    assert caller.data.count("long text ") == 1000


async def test_data_and_control_of_a_pair_leave_in_one_write(
    stream: SimpleStream, gateway: LocalGateway, gather: Gather
) -> None:
    callers = await gather(gateway, 3)
    await asyncio.gather(*(follow(caller) for caller in callers))
    await until(lambda: readers(gateway) == 3)
    for number in range(10):
        tail = stream.append(b"word %d." % number)
        await asyncio.gather(*(caller.shown(tail) for caller in callers))
    assert not any(caller.torn for caller in callers)
    assert all(caller.writes == 11 for caller in callers)


# -- SIGTERM -------------------------------------------------------------------------------------


async def test_a_drain_ends_live_readers_cleanly_and_finishes_what_has_begun(
    scripted: ScriptedOrigin, stream: SimpleStream, gateway: LocalGateway, gather: Gather
) -> None:
    simple_stream(scripted, "/v1/stream/b", "text/plain", b"slow")
    sse, waiting, reading, writing, idle = await gather(gateway, 5)
    await follow(sse)
    poll(waiting, stream.tail)
    await until(lambda: readers(gateway) == 2)
    gate = scripted.hold()
    reading.ask("b", "offset=-1", token=TOKEN)
    writing.ask("b", method="POST", body=b"more", token=TOKEN, Content_Type="text/plain")
    await gate.reached(2)
    stopping = asyncio.create_task(asyncio.to_thread(gateway.stop))
    await sse.finished()
    answer = await waiting.answer()
    assert (answer.status, answer.next_offset) == (204, stream.tail)
    scripted.release()
    assert (await reading.answer()).body.startswith(b"slow")
    assert (await writing.answer()).status == 204
    await asyncio.gather(stopping, *(c.gone for c in (sse, waiting, reading, writing, idle)))
    with pytest.raises(ConnectionRefusedError):
        await gather(gateway)


async def test_a_drain_answers_readers_who_are_still_on_their_way_to_the_hub(
    scripted: ScriptedOrigin, stream: SimpleStream, gateway: LocalGateway, gather: Gather
) -> None:
    sse, waiting = await gather(gateway, 2)
    gate = scripted.hold()
    sse.ask("a", "offset=-1&live=sse", token=TOKEN)
    waiting.ask("a", "offset=now&live=long-poll", token=TOKEN)
    await gate.reached(2)
    stopping = asyncio.create_task(asyncio.to_thread(gateway.stop))
    await until(lambda: gateway.gateway.hubs.draining)
    scripted.release()
    assert (await waiting.answer()).status == 204
    await sse.finished()
    assert sse.data == "one."
    await stopping


async def test_readers_who_come_in_during_a_drain_are_not_kept(
    stream: SimpleStream, gateway: LocalGateway, gather: Gather
) -> None:
    sse, waiting = await gather(gateway, 2)
    gateway.call(gateway.gateway.hubs.drain)
    poll(waiting, stream.tail)
    assert (await waiting.answer()).status == 204
    sse.ask("a", "offset=-1&live=sse", token=TOKEN)
    await sse.finished()
    assert sse.data == "one."


# -- the log -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "serving", "end"),
    [
        ("rotated", {"sse_rotation_secs": 0.2}, lambda stream, caller: None),
        ("closed", {}, lambda stream, caller: stream.close()),
        ("deleted", {}, lambda stream, caller: stream.delete()),
        ("client-left", {}, lambda stream, caller: caller.close()),
        ("token-expired", {"name": "brief"}, lambda stream, caller: None),
        ("drained", {}, None),
    ],
)
async def test_the_log_says_why_an_event_stream_ended(
    reason: str,
    serving: dict[str, Any],
    end: Callable[[SimpleStream, Caller], None] | None,
    stream: SimpleStream,
    start_gateway: StartGateway,
    gather: Gather,
    tmp_path: Path,
) -> None:
    gateway = start_gateway(gateway={"access_log": str(tmp_path), **serving})
    [caller] = await gather(gateway)
    await follow(caller, token=short_lived(2.0) if reason == "token-expired" else TOKEN)
    await until(lambda: readers(gateway) == 1 and stream.waiting == 1)
    if end is not None:
        end(stream, caller)
        await until(lambda: gateway.metric("requests", mode="sse") == 1)
    await asyncio.to_thread(gateway.stop)
    [line] = [line for line in log_lines(tmp_path) if line["mode"] == "sse"]
    assert (line["ended"], line["status"], line["role"]) == (reason, 200, "hub")
    assert line["bytes_sent"] > 0


async def test_a_waiting_reader_that_leaves_is_logged_and_its_place_is_free(
    stream: SimpleStream, start_gateway: StartGateway, gather: Gather, tmp_path: Path
) -> None:
    gateway = start_gateway(gateway={"access_log": str(tmp_path), "max_live_readers": 1})
    first, second = await gather(gateway, 2)
    poll(first, stream.tail)
    await until(lambda: readers(gateway) == 1)
    first.close(reset=True)
    await until(lambda: readers(gateway) == 0)
    poll(second, stream.tail)
    await until(lambda: readers(gateway) == 1)
    stream.append(b"two.")
    assert (await second.answer()).body == b"two."
    await asyncio.to_thread(gateway.stop)
    gone, served = log_lines(tmp_path)
    assert (gone["status"], gone["ended"], gone["bytes_sent"]) == (499, "client-left", 0)
    assert (served["status"], served["verdict"], served["bytes_sent"]) == (200, "hub", 4)


async def test_readers_that_leave_while_they_replay_leave_nothing_behind(
    scripted: ScriptedOrigin, stream: SimpleStream, gateway: LocalGateway, gather: Gather
) -> None:
    gate = scripted.hold()
    callers = await gather(gateway, 10)
    for number, caller in enumerate(callers):
        mode = "sse" if number % 2 else "long-poll"
        caller.ask("a", f"offset=-1&live={mode}", token=TOKEN)
    await until(lambda: riders(gateway) + readers(gateway) == 10)
    await gate.reached(2)
    assert gate.waiting == 2
    for caller in callers:
        caller.close(reset=True)
    await until(lambda: riders(gateway) + readers(gateway) == 0)
    await until(lambda: scripted.abandoned == 2)
