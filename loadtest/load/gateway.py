"""What is measured of the gateway, beside what could stand in its place.

Everyone gets the same requests, tokens included; streams are new for each server and round, so
that nothing is cached which the scenario does not want cached.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import count

from loadtest.load.client import TEXT, Client, WrongAnswerError, expect, fetch_metrics, parse_reads
from loadtest.load.connection import Target
from loadtest.load.contest import Contest, Plan, Sample, Stopwatch
from loadtest.load.crowd import Fan, Writer, build_message, check_answer, open_crowd, open_events
from loadtest.load.goals import at_least, below, less, more
from loadtest.load.histogram import nearest_rank
from loadtest.load.origin import CONTENT, check_received, measure_wrk, numbered
from loadtest.load.wrk import Load, run_wrk
from loadtest.peers.memory import await_idle, resident_bytes
from loadtest.peers.names import ENVOY, NCHAN, NGINX, NODE, OURS, PLAIN_ENVOY, VARNISH
from loadtest.peers.process import Server
from loadtest.peers.tokens import read_tokens
from protocol.offsets import START

TOKENS = 1000
STREAMS = 100
CONNECTIONS = 64
POLLS = 1000
SSE_READERS = 500
IDLE_READERS = 2000
MISSES_PER_S = 200
MISS_CONNECTIONS = 200  # a server that stalls for a second finds all of it waiting, as in life
ARRIVAL_SECS = 1.0
"""Long-polls arrive spread over this, as in life: nginx looks every 0.5 s from each one's arrival,
and readers who all came in one instant would meet it in luck or out of luck together."""
IDLE_LIMIT_SECS = 10.0
LAST_CHUNK = b"\r\n0\r\n\r\n"

_numbers = count()


def new_path(name: str) -> str:
    """Below `bench/`, which the tokens' scope names."""
    return f"bench/{name}-{next(_numbers)}"


def reader_of(server: Server) -> Client:
    tokens = read_tokens(server.tokens) if server.tokens else []
    return Client(Target.local(server.port), tokens, content_type=TEXT)


def writer_of(server: Server) -> Client:
    return Client(Target.local(server.write_port), content_type=TEXT)


async def count_origin_reads(server: Server, before: int | None = None) -> int:
    """GET requests that the origin of this server has answered, or has since we last looked."""
    if not server.origin_port:
        return 0
    reads = parse_reads(await fetch_metrics(Target.local(server.origin_port)))
    return reads if before is None else reads - before - 1  # the last look is one of them


# -- cached reads ----------------------------------------------------------------------------------


def _cached_load(server: Server) -> Load:
    return Load("GET", f"bench/cached-{server.port}", STREAMS, CONNECTIONS, tokens=server.tokens)


async def prepare_cached(server: Server, plan: Plan) -> None:
    load = _cached_load(server)
    async with writer_of(server) as writer:
        await writer.create_all(numbered(load.prefix, STREAMS), CONTENT, closed=True)
    await read_once(server, numbered(load.prefix, STREAMS))
    run_wrk(server.port, load, plan.warm_up_s)


async def measure_cached(server: Server, plan: Plan) -> Sample:
    load = _cached_load(server)
    await read_once(server, numbered(load.prefix, STREAMS))  # what has become stale is fresh again
    before = await count_origin_reads(server)
    result, sample = measure_wrk(server, load, plan)
    check_received(result)
    if (missed := await count_origin_reads(server, before)) > result.requests / 100:
        raise WrongAnswerError(f"{missed} of {result.requests} reads went to the origin")
    return sample


async def read_once(server: Server, paths: Iterable[str]) -> None:
    """Read every stream through the server and look at each byte."""
    async with reader_of(server) as reader:
        for path in paths:
            await reader.check_content(path, CONTENT)


# -- readers who wait ------------------------------------------------------------------------------


@asynccontextmanager
async def new_stream(server: Server, name: str) -> AsyncIterator[tuple[Client, Writer, str, str]]:
    """A client for its readers, its writer, its path, and the offset of its tail."""
    path = new_path(name)
    async with reader_of(server) as reader, writer_of(server) as client:
        offset = await client.create(path)
        writer = await Writer.open(client, path)
        yield reader, writer, path, offset
        await writer.finish()


async def measure_polls(server: Server, plan: Plan) -> Sample:
    """All wait at the tail, one message is appended: milliseconds until the last has its answer."""
    message = build_message(1)
    before = await count_origin_reads(server)
    async with new_stream(server, "polls") as (reader, writer, path, offset):
        query = f"?offset={offset}&live=long-poll"
        requests = [reader.request("GET", path, query) for _ in range(POLLS)]
        async with open_crowd(reader.target, requests, ARRIVAL_SECS) as crowd:
            await asyncio.to_thread(await_idle, server.pid, IDLE_LIMIT_SECS)
            if any(crowd.received):
                raise WrongAnswerError("a long-poll was answered before there was anything")
            watch = Stopwatch(server)
            writer.append(message)
            await crowd.gather(lambda data: data.endswith((message, LAST_CHUNK)))
            sample = watch.sample({"last answer": watch.took_s * 1000})
    for data in crowd.received:
        check_answer(data, message)
    if not server.origin_port:
        return sample
    at_origin = {"at origin": await count_origin_reads(server, before)}
    return replace(sample, figures={**sample.figures, **at_origin})


@asynccontextmanager
async def open_fan(server: Server, name: str, readers: int) -> AsyncIterator[Fan]:
    """Event streams that have all begun, and a server that has nothing left to do for them."""
    async with new_stream(server, name) as (reader, writer, path, _):
        async with open_events(reader, path, readers) as crowd:
            await asyncio.to_thread(await_idle, server.pid, IDLE_LIMIT_SECS)
            fan = Fan(crowd, writer)
            yield fan
            fan.check()


async def run_fanout(server: Server, seconds: float) -> Sample:
    """Messages to everyone, as many a second as arrive: one at a time or two under way.

    The better counts: two keep a gateway and its origin busy at once, one suits a single server.
    A server may put two messages into one event: what counts is messages that reached a reader,
    and the rate of events stands beside it.
    """
    async with open_fan(server, "fanout", SSE_READERS) as fan:
        await fan.run(0.0, 1)  # not measured: everyone is there
        samples = [await _measure_fan(server, fan, seconds / 2, window) for window in (1, 2)]
    return max(samples, key=lambda sample: sample.figures["messages"])


async def _measure_fan(server: Server, fan: Fan, seconds: float, window: int) -> Sample:
    published, received, events = fan.published, fan.received, fan.events
    watch = Stopwatch(server)
    await fan.run(seconds, window)
    rate = (fan.received - received) / watch.took_s
    share = (fan.events - events) / (fan.published - published)
    return watch.sample({"messages": rate, "events": rate * share, "window": window})


async def measure_readers(server: Server, readers: int) -> Sample:
    """What event streams without events cost in resident memory; they must all be alive."""
    before = resident_bytes(server.pid)
    async with open_fan(server, "idle", readers) as fan:
        after = resident_bytes(server.pid)
        await fan.run(0.0, 1)
    each = (after - before) / readers
    return Sample({"resident": each / 1024, "before": before, "after": after})


# -- misses ----------------------------------------------------------------------------------------


async def measure_misses(server: Server, seconds: float) -> Sample:
    """Turn by turn a stream is read through the proxy and another at the origin itself, so that
    both meet the same noise. No stream is read twice: every answer of the proxy is a miss."""
    total = round(seconds * MISSES_PER_S)
    by, direct = (numbered(new_path("miss"), total) for _ in range(2))
    async with reader_of(server) as proxy, writer_of(server) as origin:
        await origin.create_all([*by, *direct], CONTENT, closed=True)
        for client in (proxy, origin):
            await client.open_idle(MISS_CONNECTIONS)
        times_s: tuple[list[float], list[float]] = ([], [])
        watch = Stopwatch(server)
        async with asyncio.TaskGroup() as group:
            for number in range(2 * total):
                due_s = number / MISSES_PER_S / 2
                await asyncio.sleep(max(0.0, due_s - watch.took_s))
                client, paths = ((proxy, by), (origin, direct))[number % 2]
                group.create_task(_miss(client, paths[number // 2], times_s[number % 2]))
        (p50, p99), (direct_p50, _) = (
            [nearest_rank(times, share) * 1000 for share in (0.5, 0.99)] for times in times_s
        )
        return watch.sample(
            {"added p50": p50 - direct_p50, "p50": p50, "p99": p99, "direct p50": direct_p50}
        )


async def _miss(client: Client, path: str, times_s: list[float]) -> None:
    request = client.request("GET", path, f"?offset={START}")
    start = time.perf_counter()
    reply = expect(await client.fetch(request), 200)
    times_s.append(reply.read_at - start)
    if reply.body_bytes != len(CONTENT):
        raise WrongAnswerError(f"{reply.body_bytes} bytes read, {len(CONTENT)} written")


# -- the table -------------------------------------------------------------------------------------


SCENARIOS = (
    Contest(
        "cached",
        "cached reads of 1 KiB, 1,000 tokens",
        (
            more(
                "per core", "/s", at_least(1, NGINX), at_least(5, ENVOY), at_least(5, PLAIN_ENVOY)
            ),
            more("rate", "/s"),
            less("p99", "ms"),
        ),
        prepare_cached,
        measure_cached,
        needs_wrk=True,
        peers=(OURS, NGINX, VARNISH, ENVOY, PLAIN_ENVOY),
    ),
    Contest(
        "polls",
        "1,000 long-polls, one append",
        (
            less("last answer", "ms", at_least(2, VARNISH), at_least(10, NGINX)),
            less("at origin", "requests"),
        ),
        measure_polls,  # every token has been seen then, and every thread exists
        measure_polls,
        peers=(OURS, NGINX, VARNISH, ENVOY, NODE),
    ),
    Contest(
        "fanout",
        "SSE to 500 readers, delivered",
        (more("messages", "/s", at_least(2, NODE), at_least(1, NCHAN)), more("events", "/s")),
        lambda server, plan: run_fanout(server, 0.5),
        lambda server, plan: run_fanout(server, plan.load_s),
        peers=(OURS, NODE, NCHAN),
    ),
    Contest(
        "miss",
        "200 misses a second",
        (less("added p50", "ms", below(1)), less("p99", "ms")),
        lambda server, plan: measure_misses(server, 1.0),
        lambda server, plan: measure_misses(server, plan.load_s),
        peers=(OURS, NGINX, VARNISH, ENVOY),
    ),
    Contest(
        "readers",
        "2,000 idle SSE readers, each",
        (less("resident", "KiB", below(40)),),
        # What the first readers bring in is not theirs.
        lambda server, plan: measure_readers(server, 5),
        lambda server, plan: measure_readers(server, IDLE_READERS),
        # Once only: a process that has held readers before gives nothing back to the system.
        lambda plan: 1,
        peers=(OURS, NODE, NCHAN),
    ),
)
