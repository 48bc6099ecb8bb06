"""What is measured of the origin, beside the reference server."""

import asyncio
import time
from collections.abc import Sequence

from loadtest.load.client import Client, WrongAnswerError
from loadtest.load.connection import Target
from loadtest.load.contest import Contest, Launch, Plan, Sample, Sides, Stopwatch, Trial
from loadtest.load.goals import Measure, above, at_least, below, less, more, no_worse
from loadtest.load.histogram import nearest_rank
from loadtest.load.wrk import Load, WrkResult, run_wrk
from loadtest.peers.memory import MB, cpu_seconds, resident_bytes, watch_memory
from loadtest.peers.names import FILE, MEMORY, OURS
from loadtest.peers.process import Server

STREAMS = 64
APPEND_BYTES = 100
READ_BYTES = 1024
BULK_BYTES = 1 << 20
CROWD_READERS = 1000
CROWD_PIECES, CROWD_PIECE_BYTES = 20, 100_000
IDLE_STREAMS = 100_000
BIG_PIECES, BIG_PIECE_BYTES = 500, 1_000_000
CONTENT = bytes(range(256)) * (READ_BYTES // 256)
SHORTEST_CPU_SECS = 0.01  # what the kernel's clock can tell from nothing


def numbered(prefix: str, count: int) -> list[str]:
    """The names that wrk goes round."""
    return [f"{prefix}-{number}" for number in range(count)]


def contest_appends(
    name: str, label: str, connections: int, *measures: Measure, unlike: bool = False
) -> Contest:
    load = Load("POST", name, connections, connections, APPEND_BYTES, unlike)
    paths = numbered(name, connections)

    async def prepare(server: Server, plan: Plan) -> None:
        async with Client(Target.local(server.port)) as client:
            await client.create_all(paths)
        run_wrk(server.port, load, plan.warm_up_s)

    async def measure(server: Server, plan: Plan) -> Sample:
        async with Client(Target.local(server.port)) as client:
            before = sum(await client.tails(paths))
            result, sample = measure_wrk(server, load, plan)
            stored = sum(await client.tails(paths)) - before
        if stored < result.requests * APPEND_BYTES:
            raise WrongAnswerError(f"{result.requests} appends answered, {stored} bytes stored")
        return sample

    return Contest(name, label, measures, prepare, measure, in_quick=not unlike, needs_wrk=True)


def contest_reads(name: str, label: str, *measures: Measure) -> Contest:
    load = Load("GET", name, 1, STREAMS)

    async def prepare(server: Server, plan: Plan) -> None:
        async with Client(Target.local(server.port)) as client:
            await client.fill(f"{name}-0", [CONTENT])
            await client.check_content(f"{name}-0", CONTENT)
        run_wrk(server.port, load, plan.warm_up_s)

    async def measure(server: Server, plan: Plan) -> Sample:
        result, sample = measure_wrk(server, load, plan)
        check_received(result)
        return sample

    return Contest(name, label, measures, prepare, measure, needs_wrk=True)


def measure_wrk(server: Server, load: Load, plan: Plan) -> tuple[WrkResult, Sample]:
    cpu_before = cpu_seconds(server.pid)
    result, client_cpu_s = run_wrk(server.port, load, plan.load_s)
    server_cpu_s = cpu_seconds(server.pid) - cpu_before
    figures = {"rate": result.rate, "p50": result.p50_ms, "p99": result.p99_ms}
    figures["per core"] = result.requests / max(server_cpu_s, SHORTEST_CPU_SECS)
    took_s = result.duration_s
    return result, Sample(figures, server_cpu_s / took_s, client_cpu_s / took_s)


def check_received(result: WrkResult) -> None:
    if result.received_bytes < result.requests * READ_BYTES:
        raise WrongAnswerError(f"{result.requests} reads gave {result.received_bytes} bytes")


def contest_bulk(name: str, label: str, connections: int, *measures: Measure) -> Contest:
    paths = numbered(name, connections)

    async def prepare(server: Server, plan: Plan) -> None:
        async with Client(Target.local(server.port)) as client:
            await client.create_all(paths)
        await append_bulk(server, paths, 0.3)

    async def measure(server: Server, plan: Plan) -> Sample:
        return await append_bulk(server, paths, plan.bulk_s)

    return Contest(name, label, measures, prepare, measure)


async def append_bulk(server: Server, paths: Sequence[str], seconds: float) -> Sample:
    """Append to all streams at once, each on a connection of its own."""
    body = bytes(range(256)) * (BULK_BYTES // 256)
    times_s: list[float] = []

    async with Client(Target.local(server.port)) as client:
        before = sum(await client.tails(paths))
        watch = Stopwatch(server)

        async def append(path: str) -> None:
            while watch.took_s < seconds:
                start = time.perf_counter()
                await client.append(path, body)
                times_s.append(time.perf_counter() - start)

        await asyncio.gather(*map(append, paths))
        p50, p99 = (nearest_rank(times_s, share) * 1000 for share in (0.5, 0.99))
        sample = watch.sample({"rate": len(times_s) / watch.took_s, "p50": p50, "p99": p99})
        missing = len(times_s) * len(body) - (sum(await client.tails(paths)) - before)
    if missing > 0:
        raise WrongAnswerError(f"{missing} acknowledged bytes are not in the streams")
    return sample


def contest_crowd(name: str, label: str, *measures: Measure) -> Contest:
    pieces = [bytes([65 + piece]) * CROWD_PIECE_BYTES for piece in range(CROWD_PIECES)]
    total = CROWD_PIECES * CROWD_PIECE_BYTES

    async def prepare(server: Server, plan: Plan) -> None:
        async with Client(Target.local(server.port)) as client:
            await client.fill(name, pieces)
            await client.check_content(name, b"".join(pieces))
        await read_all(server, name, 20, total)

    async def measure(server: Server, plan: Plan) -> Sample:
        return await read_all(server, name, CROWD_READERS, total)

    return Contest(name, label, measures, prepare, measure, lambda plan: plan.crowd_rounds)


async def read_all(server: Server, path: str, readers: int, total_bytes: int) -> Sample:
    """All readers at once, each from the start to the tail; the bytes must add up."""

    async def read() -> None:
        received = sum([reply.body_bytes async for reply in client.follow(path)])
        if received != total_bytes:
            raise WrongAnswerError(f"{received} bytes read, {total_bytes} written")

    async with Client(Target.local(server.port)) as client:
        await client.open_idle(readers)
        watch = Stopwatch(server)
        await asyncio.gather(*(read() for _ in range(readers)))
        return watch.sample({"last byte": watch.took_s})


async def try_idle(launch: Launch, plan: Plan) -> Sides:
    """Resident size with many streams, as made and as found after a restart: the larger."""
    paths = [f"idle/{number // 1000}/{number}" for number in range(IDLE_STREAMS)]
    with launch() as server:
        watch = Stopwatch(server)
        async with Client(Target.local(server.port)) as client:
            await client.create_all(paths, b"x" * APPEND_BYTES)
        create_s, made = watch.took_s, resident_bytes(server.pid)
    with launch() as server:
        watch = Stopwatch(server)
        async with Client(Target.local(server.port)) as client:
            await client.tails([paths[0], paths[-1]])
        ready_s, found = server.ready_s + watch.took_s, resident_bytes(server.pid)
    figures = {"resident": max(made, found) / MB, "ready": ready_s}
    more = {"made": made / MB, "found": found / MB, "create_s": create_s}
    return {OURS: [Sample({**figures, **more})]}


async def try_bigread(launch: Launch, plan: Plan) -> Sides:
    """How far the resident size rises above that of a fresh start while one reader reads all."""
    piece = bytes(range(250)) * (BIG_PIECE_BYTES // 250)
    with launch() as server:
        async with Client(Target.local(server.port)) as client:
            await client.fill("big", [piece] * BIG_PIECES)
    with launch() as server:
        async with Client(Target.local(server.port)) as client:
            await client.tails(["big"])
        with watch_memory(server.pid) as peak:
            sample = await read_all(server, "big", 1, BIG_PIECES * BIG_PIECE_BYTES)
    figures = {"growth": (peak.highest - peak.start) / MB}
    more = {"start": peak.start / MB, "read_s": sample.figures["last byte"]}
    return {OURS: [Sample({**figures, **more})]}


SCENARIOS: tuple[Contest | Trial, ...] = (
    contest_appends(
        "append64",
        "append 100 B, 64 connections",
        STREAMS,
        more("rate", "/s", at_least(5, FILE), above(1, MEMORY)),
        less("p50", "ms"),
        less("p99", "ms", no_worse(FILE)),
    ),
    contest_appends(
        "unlike64",
        "the same, all heads unlike",
        STREAMS,
        more("rate", "/s"),
        less("p99", "ms"),
        unlike=True,
    ),
    contest_appends(
        "append1",
        "append 100 B, 1 connection",
        1,
        less("p50", "ms", no_worse(FILE)),
        less("p99", "ms", no_worse(FILE)),
    ),
    contest_reads(
        "read64",
        "read 1 KiB, 64 connections",
        more("rate", "/s", at_least(4, FILE), at_least(4, MEMORY)),
    ),
    contest_bulk("bulk1", "append 1 MiB, 1 connection", 1, more("rate", "/s", no_worse(FILE))),
    contest_bulk("bulk4", "append 1 MiB, 4 connections", 4, more("rate", "/s", no_worse(FILE))),
    contest_crowd(
        "crowd", "1,000 readers of 2 MB", less("last byte", "s", above(1, FILE), above(1, MEMORY))
    ),
    Trial(
        "idle",
        "100,000 idle streams",
        (less("resident", "MB", below(500)), less("ready", "s", below(15))),
        try_idle,
        in_quick=False,
    ),
    Trial("bigread", "reading a 500 MB stream", (less("growth", "MB", below(64)),), try_bigread),
)
