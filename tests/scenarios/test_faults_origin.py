"""An origin that is gone, slow, or breaks off: right bytes or a clear refusal, never half of an
answer that looks whole."""

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count

import pytest

from tests.helpers.gateway import LocalGateway, TokenClient
from tests.helpers.offsets import nameless
from tests.helpers.rawhttp import Closed, Response, wait_until
from tests.helpers.scripted_origin import (
    Answer,
    Gate,
    Recorded,
    ScriptedOrigin,
    SimpleStream,
    dropped,
    simple_stream,
    until,
)
from tests.scenarios.conftest import Gather, StartGateway
from tests.scenarios.crowd import all_answers, tokens
from tests.scenarios.watching import grow_older, readers, riders

TOKEN = tokens(1)[0]
PATH = "/v1/stream/a"
PROBLEM = "application/problem+json"
BODY = b"0123456789" * 1000
GOOD = {
    "Content-Type": "text/plain",
    "Stream-Next-Offset": nameless(len(BODY)),
    "Stream-Up-To-Date": "true",
    "ETag": '"0000000000000001:0:10000"',
}
HEAD = b"HTTP/1.1 200 OK\r\n" + "".join(f"{n}: {v}\r\n" for n, v in GOOD.items()).encode()
WHOLE = Answer(200, GOOD, BODY)
MODES = {"catch-up": "", "long-poll": "&live=long-poll", "sse": "&live=sse"}


def raw(*parts: bytes | float) -> Answer:
    return Answer(raw=parts, close=True)


FAULTS = {
    "reset in the body": replace(WHOLE, cut_after=5000),
    "ended in the body": replace(WHOLE, cut_after=5000, reset=False),
    "chunked, reset in the body": replace(WHOLE, chunked=True, cut_after=5000),
    "chunked, ended in the body": replace(WHOLE, chunked=True, cut_after=5000, reset=False),
    "chunked, ended after a whole chunk": replace(WHOLE, pieces=[BODY], cut_after=0, reset=False),
    "silent in the body": raw(HEAD + b"Content-Length: 10000\r\n\r\n" + BODY[:5000], 30.0),
    "length too long": raw(HEAD + b"Content-Length: 10001\r\n\r\n" + BODY),
    "two lengths": raw(HEAD + b"Content-Length: 10000\r\nContent-Length: 9\r\n\r\n" + BODY),
    "length and chunks": raw(
        HEAD + b"Content-Length: 10000\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    ),
    "no length": raw(HEAD + b"\r\n" + BODY[:5000]),
    "bad chunk": raw(HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nxx\r\n0\r\n\r\n"),
    "garbage": raw(b"\x16\x03\x01\x02\x00 what is this\r\n\r\n"),
    "garbage in the head": raw(HEAD + b"no colon here\r\nContent-Length: 3\r\n\r\nabc"),
    "encoded": Answer(200, GOOD | {"Content-Encoding": "gzip"}, BODY),
    "partial": Answer(206, GOOD | {"Content-Range": "bytes 0-9/10000"}, BODY[:10]),
    "nothing, then reset": dropped(reset=True),
    "nothing, then end": dropped(),
}


@pytest.fixture
def gateway(start_gateway: StartGateway) -> LocalGateway:
    return start_gateway(
        upstream={
            "first_byte_timeout_secs": 1.0,
            "live_timeout_secs": 1.0,
            "idle_timeout_secs": 1.0,
            "breaker_failures": 1000,
        }
    )


@pytest.fixture
def client(gateway: LocalGateway) -> Iterator[TokenClient]:
    with gateway.client() as client:
        yield client


def is_clear(answer: Response) -> bool:
    return answer.status in (502, 503, 504) and answer["Content-Type"] == PROBLEM


# -- answers that break off ----------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_broken_answer_becomes_a_clear_refusal_and_is_not_kept(
    fault: str, mode: str, scripted: ScriptedOrigin, gateway: LocalGateway, client: TokenClient
) -> None:
    scripted.on("GET", PATH, FAULTS[fault])
    refused = client("GET", "a", query=f"offset=-1{MODES[mode]}")
    assert is_clear(refused), refused
    assert BODY[:10] not in refused.body
    assert gateway.metric("cache_entries") == 0
    scripted.on("GET", PATH, WHOLE)
    assert client.read("a").body == BODY


def test_bytes_after_an_answer_are_not_taken_for_the_next_one(
    scripted: ScriptedOrigin, gateway: LocalGateway, client: TokenClient
) -> None:
    """A length that is too short, or an answer that nobody asked for."""
    poison = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nStream-Next-Offset: 1\r\n\r\npoison"
    scripted.on("GET", PATH, Answer(raw=HEAD + b"Content-Length: 10000\r\n\r\n" + BODY + poison))
    simple_stream(scripted, "/v1/stream/b", "text/plain", b"right")
    for _ in range(5):
        answer = client.read("a")
        assert answer.body == BODY or is_clear(answer)
        assert client.read("b").body == b"right"


async def test_a_crowd_that_shared_a_broken_answer_is_refused_as_one(
    scripted: ScriptedOrigin, start_gateway: StartGateway, gather: Gather
) -> None:
    gate, gateway = Gate(), start_gateway()
    scripted.on("GET", PATH, replace(FAULTS["reset in the body"], wait_for=gate))
    callers = await gather(gateway, 100)
    for caller, token in zip(callers, tokens(100), strict=True):
        caller.ask("a", "offset=-1", token=token)
    await gate.reached()
    await until(lambda: riders(gateway) == 100)
    gate.open()
    assert all(map(is_clear, await all_answers(callers)))
    assert scripted.count() <= 2


def test_a_refresh_that_breaks_off_leaves_the_chunk_as_it_was(
    scripted: ScriptedOrigin, gateway: LocalGateway, client: TokenClient
) -> None:
    chunk = {name: value for name, value in GOOD.items() if name != "Stream-Up-To-Date"}
    scripted.on("GET", PATH, Answer(200, chunk | {"Cache-Control": "max-age=60"}, BODY))
    assert client.read("a").body == BODY
    for number, fault in enumerate(FAULTS.values()):
        scripted.on("GET", PATH, replace(fault, raw=fault.raw and [fault.raw[0]]))
        grow_older(gateway, 0 if number else 400)
        answer = client.read("a")
        assert (answer.status, answer.body) == (200, BODY)
        assert "detail=stale" in answer["Cache-Status"]


def test_a_body_too_large_to_keep_that_breaks_off_does_not_end_cleanly(
    scripted: ScriptedOrigin, start_gateway: StartGateway
) -> None:
    for cut in (replace(WHOLE, cut_after=9000), replace(WHOLE, chunked=True, cut_after=9000)):
        scripted.on("GET", PATH, cut)
        gateway = start_gateway(cache={"max_object_bytes": 1000})
        with gateway.client() as client, pytest.raises(Closed):
            client.read("a")


# -- slow ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["offset=-1", "offset=now", "offset=-1&live=sse"])
def test_an_origin_that_does_not_answer_is_given_up_in_time(
    mode: str, scripted: ScriptedOrigin, client: TokenClient
) -> None:
    scripted.hold()
    begun = time.monotonic()
    refused = client("GET", "a", query=mode)
    assert refused.status == 504 and is_clear(refused)
    assert 0.9 < time.monotonic() - begun < 9.0
    assert scripted.count() == 1  # the time is gone, a second try would double it


def test_an_answer_that_trickles_is_given_up_in_time(
    scripted: ScriptedOrigin, client: TokenClient
) -> None:
    drops = [piece for n in range(600) for piece in (BODY[n : n + 1], 0.05)]
    head = HEAD + b"Content-Length: 10000\r\n\r\n"
    scripted.on("GET", PATH, Answer(raw=[head, *drops]))
    begun = time.monotonic()
    assert is_clear(client.read("a"))
    assert time.monotonic() - begun < 20.0  # all of it would take half a minute


async def test_waiting_long_polls_do_not_hold_up_catch_ups(
    scripted: ScriptedOrigin, start_gateway: StartGateway, gather: Gather
) -> None:
    gateway = start_gateway(upstream={"connections": 1, "live_connections": 20})
    for number in range(20):
        simple_stream(scripted, f"/v1/stream/{number}", "text/plain", b"x")
    simple_stream(scripted, PATH, "text/plain", b"y")
    *waiting, reader = await gather(gateway, 21)
    for number, caller in enumerate(waiting):
        caller.ask(str(number), f"offset={nameless(1)}&live=long-poll", token=TOKEN)
    await until(lambda: scripted.count() == 20)
    reader.ask("a", "offset=-1", token=TOKEN)
    assert (await reader.answer(1.0)).body == b"y"


# -- gone ----------------------------------------------------------------------------------------


def test_chunks_that_never_change_are_served_while_the_origin_is_away(
    scripted: ScriptedOrigin, gateway: LocalGateway, client: TokenClient
) -> None:
    stream = SimpleStream(scripted, PATH, chunk_bytes=4)
    for body in (b"one.", b"two.", b"tail"):
        stream.append(body)
    client.read("a")
    client.read("a", nameless(4))
    scripted.down()
    for seconds in (0, 70, 400):  # fresh, stale, beyond revalidation
        grow_older(gateway, seconds)
        assert client.read("a").body == b"one."
        assert client.read("a", nameless(4)).body == b"two."
    for query in (f"offset={nameless(8)}", "offset=now", "offset=now&live=sse"):
        assert is_clear(client("GET", "a", query=query)), query
    assert is_clear(client("POST", "a", {"Content-Type": "text/plain"}, b"x"))
    scripted.up()
    wait_until(lambda: client.read("a", nameless(8)).status == 200)


def test_the_breaker_opens_refuses_at_once_and_closes_when_the_origin_is_back(
    scripted: ScriptedOrigin, start_gateway: StartGateway
) -> None:
    stream = simple_stream(scripted, PATH, "text/plain", b"one.")
    gateway = start_gateway(upstream={"breaker_failures": 3, "breaker_secs": 0.3})
    with gateway.client() as client:
        assert client.read("a").status == 200
        scripted.down()
        statuses = [client.read("a").status for _ in range(6)]
        assert statuses[:3] == [502] * 3 and statuses[3:] == [503] * 3
        refused = client.read("a")
        assert refused.json()["code"] == "origin-unavailable" and int(refused["Retry-After"]) >= 1
        assert gateway.metric("upstream_up") == 0
        assert gateway.metric("upstream_failures", code="origin-unreachable") == 3
        scripted.up()
        before = scripted.count()
        wait_until(lambda: client.read("a").status == 200)
        assert scripted.count() == before + 1
        stream.append(b"two.")
        assert client.read("a").body == b"one.two."
        assert gateway.metric("upstream_up") == 1


def test_a_breaker_that_is_open_does_not_keep_chunks_from_being_served(
    scripted: ScriptedOrigin, start_gateway: StartGateway
) -> None:
    stream = SimpleStream(scripted, PATH, chunk_bytes=4)
    for body in (b"one.", b"tail"):
        stream.append(body)
    gateway = start_gateway(upstream={"breaker_failures": 1, "breaker_secs": 60.0})
    with gateway.client() as client:
        client.read("a")
        scripted.down()
        assert [client.read("a", nameless(4)).status for _ in range(2)] == [502, 503]
        for seconds in (0, 70, 400):
            grow_older(gateway, seconds)
            assert client.read("a").body == b"one."


# -- what is sent again --------------------------------------------------------------------------


PRODUCER = {"Producer-Id": "p", "Producer-Epoch": "0", "Producer-Seq": "0"}


@pytest.mark.parametrize(
    ("method", "query", "headers", "again"),
    [
        ("GET", "offset=-1", {}, True),
        ("HEAD", "", {}, True),
        ("POST", "", PRODUCER, True),
        ("POST", "", {}, False),
        ("PUT", "", {}, False),
        ("DELETE", "", {}, False),
    ],
    ids=["read", "head", "producer-append", "append", "create", "delete"],
)
def test_only_what_is_safe_to_repeat_is_sent_again(
    method: str,
    query: str,
    headers: dict[str, str],
    again: bool,
    scripted: ScriptedOrigin,
    gateway: LocalGateway,
    client: TokenClient,
) -> None:
    stream = simple_stream(scripted, PATH, "text/plain", b"one.")
    numbers = count()

    async def drop_the_first(request: Recorded) -> Answer:
        answer = await stream._answer(request)  # carried out, but nobody learns of it
        return dropped(reset=True) if next(numbers) == 0 else answer

    scripted.on("*", PATH, drop_the_first)
    body = b"two." if method == "POST" else b""
    answer = client(method, "a", {"Content-Type": "text/plain", **headers}, body, query)
    assert scripted.count() == 1 + again
    assert (answer.status < 300) is again
    assert again or is_clear(answer)


def test_a_producer_append_whose_answer_was_lost_is_there_once(
    scripted: ScriptedOrigin, client: TokenClient
) -> None:
    stream = simple_stream(scripted, PATH, "text/plain", b"one.")
    numbers = count()

    async def drop_the_first(request: Recorded) -> Answer:
        answer = await stream._answer(request)
        return dropped() if request.method == "POST" and next(numbers) == 0 else answer

    scripted.on("*", PATH, drop_the_first)
    assert client("POST", "a", {"Content-Type": "text/plain", **PRODUCER}, b"two.").status < 300
    assert client.read("a").body == b"one.two."


def test_a_write_whose_answer_was_lost_is_seen_by_the_next_read(
    scripted: ScriptedOrigin, client: TokenClient
) -> None:
    stream = simple_stream(scripted, PATH, "text/plain", b"one.")
    client.read("a")

    async def lose(request: Recorded) -> Answer:
        await stream._answer(request)
        return dropped(reset=True)

    scripted.on("POST", PATH, lose)
    assert client("POST", "a", {"Content-Type": "text/plain"}, b"two.").status == 502
    assert client.read("a").body == b"one.two."


# -- live readers --------------------------------------------------------------------------------


async def test_event_streams_survive_a_short_absence_of_the_origin(
    scripted: ScriptedOrigin, start_gateway: StartGateway, gather: Gather
) -> None:
    stream = simple_stream(scripted, PATH, "text/plain", b"one.")
    gateway = start_gateway(upstream={"breaker_failures": 2})
    callers = await gather(gateway, 20)
    for caller, token in zip(callers, tokens(20), strict=True):
        caller.ask("a", "offset=-1&live=sse", token=token)
    await until(lambda: readers(gateway) == 20 and stream.waiting == 1)
    scripted.down()
    before = scripted.count()
    await until(lambda: gateway.gateway.backends.upstream.failures.total() > 3)
    tail = stream.append(b"two.")
    scripted.up()
    await asyncio.gather(*(caller.shown(tail) for caller in callers))
    assert {caller.data for caller in callers} == {"one.two."}
    assert scripted.count() - before <= 3


async def test_a_long_poll_that_waits_is_told_when_the_origin_goes(
    scripted: ScriptedOrigin, start_gateway: StartGateway, gather: Gather
) -> None:
    stream = simple_stream(scripted, PATH, "text/plain", b"one.")
    gateway = start_gateway(upstream={"retries": 0})
    callers = await gather(gateway, 20)
    for caller, token in zip(callers, tokens(20), strict=True):
        caller.ask("a", f"offset={stream.tail}&live=long-poll", token=token)
    await until(lambda: readers(gateway) == 20 and stream.waiting == 1)
    scripted.down()
    assert all(map(is_clear, await all_answers(callers)))
    scripted.up()
    tail = stream.append(b"two.")
    callers[0].ask("a", f"offset={nameless(4)}&live=long-poll", token=TOKEN)
    answer = await callers[0].answer()
    assert (answer.body, answer.next_offset) == (b"two.", tail)


Break = Callable[[Answer], Answer]


@pytest.mark.parametrize(
    "fault",
    [
        lambda answer: replace(answer, cut_after=2),
        lambda answer: replace(answer, chunked=True, cut_after=2, reset=False),
        lambda answer: Answer(raw=b"garbage\r\n\r\n", close=True),
        lambda answer: Answer(503, {"Content-Type": "text/plain"}, b"busy"),
        lambda answer: Answer(429, {"Retry-After": "1"}),
    ],
    ids=["reset", "ended", "garbage", "503", "429"],
)
async def test_an_event_stream_loses_and_repeats_nothing_when_the_tail_breaks_off(
    fault: Break, scripted: ScriptedOrigin, gateway: LocalGateway, gather: Gather
) -> None:
    stream = simple_stream(scripted, PATH, "text/plain", b"one.")
    numbers = count(1)

    async def break_some(request: Recorded) -> Answer:
        answer = await stream._answer(request)
        return fault(answer) if request.live and next(numbers) % 2 else answer

    scripted.on("*", PATH, break_some)
    callers = await gather(gateway, 5)
    for caller in callers:
        caller.ask("a", "offset=-1&live=sse", token=TOKEN)
    await until(lambda: readers(gateway) == 5)
    for word in (b"two.", b"three."):
        tail = stream.append(word)
        await asyncio.gather(*(caller.shown(tail) for caller in callers))
    assert {caller.data for caller in callers} == {"one.two.three."}


TAIL = {"Stream-Next-Offset": nameless(4), "Stream-Up-To-Date": "true"}
EMPTY = Answer(200, {"Content-Type": "text/plain"} | TAIL)


@pytest.mark.parametrize("answer", [Answer(204, TAIL), EMPTY], ids=["204", "empty"])
async def test_an_origin_that_answers_at_once_without_data_is_not_hammered(
    answer: Answer, scripted: ScriptedOrigin, gateway: LocalGateway, gather: Gather
) -> None:
    scripted.on("GET", PATH, lambda request: answer if request.live else EMPTY)
    [caller] = await gather(gateway)
    caller.ask("a", f"offset={nameless(4)}&live=sse", token=TOKEN)
    await caller.caught_up()
    await until(lambda: scripted.count(live=True) > 0)
    await asyncio.sleep(0.5)
    assert scripted.count(live=True) < 10
