"""What is measured of a cluster on one machine, beside one origin and the reference server.

Requests go straight to the owner of each stream, as gateways send them. All peers get the same
ones: as many generator threads as there are nodes, and the same access key.
"""

import asyncio
import time
from collections.abc import Iterator, Sequence
from itertools import count, islice

from loadtest.load.bounds import CACHE_BYTES, JOURNALS_BYTES, try_bounds
from loadtest.load.client import WrongAnswerError, expect
from loadtest.load.contest import Contest, Launch, Plan, Sample, Sides, Stopwatch, Trial
from loadtest.load.goals import Measure, at_least, below, less, more
from loadtest.load.histogram import nearest_rank
from loadtest.load.origin import CONTENT, check_received, measure_wrk, numbered
from loadtest.load.owners import Owners
from loadtest.load.takeovers import contest_recovery, try_replay, try_takeovers
from loadtest.load.wrk import run_wrk
from loadtest.peers.clusters import Cluster, find_cluster, run_cluster
from loadtest.peers.memory import MB, bytes_read
from loadtest.peers.names import DURABLE, FILE, OURS
from loadtest.peers.process import Server
from protocol.offsets import START

SMALL_BYTES, LARGE_BYTES = 100, 16 * 1024
CONNECTIONS = STREAMS = 64  # the reference server fails with more than 100 streams at a time
COLD_STREAMS, COLD_BYTES = 400, 64 * 1024  # for each round
COLD_CONNECTIONS = 16
FILLERS, FILLER_BYTES = 40, 1 << 20  # written last, so that no journal has the cold streams
SHARDS = (1, 3, 6, 16)

_numbers = count()


def contest_appends(
    connections: int, size_bytes: int, *measures: Measure, in_quick: bool = False
) -> Contest:
    name = f"cluster-append{connections}" + ("-16k" if size_bytes == LARGE_BYTES else "")
    size = "16 KiB" if size_bytes == LARGE_BYTES else f"{size_bytes} B"
    label = f"append {size}, {connections} connection{'s' if connections > 1 else ''}"
    paths = numbered(name, min(connections, STREAMS))

    async def prepare(server: Server, plan: Plan) -> None:
        async with Owners(server) as owners:
            await owners.create_all(paths)
            load = owners.load("POST", paths, connections, size_bytes)
            run_wrk(server.port, load, plan.warm_up_s)

    async def measure(server: Server, plan: Plan) -> Sample:
        async with Owners(server) as owners:
            load = owners.load("POST", paths, connections, size_bytes)
            before = sum(await owners.tails(paths))
            result, sample = measure_wrk(server, load, plan)
            stored = sum(await owners.tails(paths)) - before
        if stored < result.requests * size_bytes:
            raise WrongAnswerError(f"{result.requests} appends answered, {stored} bytes stored")
        return sample

    measures = measures or (more("rate", "/s"), less("p50", "ms"), less("p99", "ms"))
    return Contest(name, label, measures, prepare, measure, in_quick=in_quick, needs_wrk=True)


# -- reads -----------------------------------------------------------------------------------------


def contest_reads(name: str, label: str, *measures: Measure) -> Contest:
    """Streams that were just written, and old ones, of which none is read twice."""
    unread: dict[str, Iterator[str]] = {}

    async def prepare(server: Server, plan: Plan) -> None:
        paths = numbered("cold", plan.rounds * COLD_STREAMS)
        unread[server.name] = iter(paths)
        await write_cold(server, paths)

    async def measure(server: Server, plan: Plan) -> Sample:
        hot = await read_hot(server, plan)
        cold = await read_cold(server, list(islice(unread[server.name], COLD_STREAMS)))
        figures = {f"hot {name}": value for name, value in hot.figures.items()}
        figures |= {f"cold {name}": value for name, value in cold.figures.items()}
        return Sample(figures, hot.server_cpu, cold.client_cpu)

    return Contest(name, label, measures, prepare, measure, needs_wrk=True)


async def write_cold(server: Server, paths: Sequence[str]) -> None:
    """Afterwards nobody has them in memory."""
    async with Owners(server) as owners:
        await owners.fill_all(paths, b"c" * COLD_BYTES)
        await owners.fill_all(numbered("filler", FILLERS), b"f" * FILLER_BYTES)
    await server.restart()
    if (cluster := find_cluster(server)) is not None:
        await asyncio.to_thread(cluster.await_that, lambda: is_flushed(cluster), "all is flushed")


def is_flushed(cluster: Cluster) -> bool:
    return not any(shard.journal_bytes for shard in cluster.open_shards())


async def read_hot(server: Server, plan: Plan) -> Sample:
    paths = numbered(f"hot{next(_numbers)}", CONNECTIONS)
    async with Owners(server) as owners:
        await owners.fill_all(paths, CONTENT)
        result, sample = measure_wrk(server, owners.load("GET", paths, CONNECTIONS), plan)
    check_received(result)
    return sample


async def read_cold(server: Server, paths: Sequence[str]) -> Sample:
    """Each stream once, whole."""
    times_s: list[float] = []
    left = iter(paths)

    async with Owners(server) as owners:
        before = bytes_read(server.pid)
        watch = Stopwatch(server)

        async def read() -> None:
            for path in left:
                client = owners.client_of(path)
                start = time.perf_counter()
                reply = await client.fetch(client.request("GET", path, f"?offset={START}"))
                times_s.append(time.perf_counter() - start)
                if expect(reply, 200).body_bytes != COLD_BYTES:
                    raise WrongAnswerError(f"{reply.body_bytes} bytes of {path}")

        await asyncio.gather(*(read() for _ in range(COLD_CONNECTIONS)))
        p50, p99 = (nearest_rank(times_s, share) * 1000 for share in (0.5, 0.99))
        sample = watch.sample({"rate": len(times_s) / watch.took_s, "p50": p50, "p99": p99})
        from_files = bytes_read(server.pid) - before
    if from_files < len(paths) * COLD_BYTES and server.name != FILE:  # it maps its files
        raise WrongAnswerError(f"only {from_files} bytes came from files: this was not cold")
    return sample


# -- the number of shards --------------------------------------------------------------------------


async def try_shards(launch: Launch, plan: Plan) -> Sides:
    """The same load on clusters that differ in this alone, one after the other."""
    rounds: list[dict[str, float]] = [{} for _ in range(plan.crowd_rounds)]
    contest = contest_appends(CONNECTIONS, SMALL_BYTES)
    for shards in SHARDS:
        folder = plan.folder / OURS / f"shards-{shards}"
        with run_cluster(folder, {"DS_CLUSTER__SHARDS": str(shards)}) as server:
            await contest.prepare(server, plan)
            for figures in rounds:
                sample = await contest.measure(server, plan)
                figures[shards_rate(shards)] = sample.figures["rate"]
    return {OURS: [Sample(figures) for figures in rounds]}


def shards_rate(shards: int) -> str:
    return f"rate, {shards} shard{'s' if shards > 1 else ''}"


SCENARIOS: tuple[Contest | Trial, ...] = (
    contest_appends(1, SMALL_BYTES),
    contest_appends(
        CONNECTIONS,
        SMALL_BYTES,
        more("rate", "/s", at_least(0.6, DURABLE)),
        less("p50", "ms"),
        less("p99", "ms"),
        in_quick=True,
    ),
    contest_appends(512, SMALL_BYTES),
    contest_appends(1, LARGE_BYTES),
    contest_appends(CONNECTIONS, LARGE_BYTES),
    contest_appends(512, LARGE_BYTES),
    Trial(
        "cluster-shards",
        "append 100 B, 64 connections, by number of shards",
        tuple(more(shards_rate(shards), "/s") for shards in SHARDS),
        try_shards,
        in_quick=False,
        needs_wrk=True,
    ),
    contest_reads(
        "cluster-reads",
        "read 1 KiB just written, 64 connections; 64 KiB from cold, 16 connections",
        more("hot rate", "/s"),
        less("hot p99", "ms"),
        more("cold rate", "/s"),
        less("cold p50", "ms"),
        less("cold p99", "ms"),
    ),
    Trial(
        "cluster-takeover",
        "an owner is killed: until its streams take writes again",
        (
            less("pause", "s"),
            less("shortest", "s"),
            less("longest", "s", below(17)),
            less("of it lease", "s"),
            less("of it detection", "s"),
            less("of it opening", "s"),
        ),
        try_takeovers,
        needs_wrk=True,
    ),
    Trial(
        "cluster-replay",
        "a new owner replays a journal",
        (more("journal", "MB"), less("took", "s"), more("replayed", "MB/s")),
        try_replay,
        needs_wrk=True,
    ),
    contest_recovery(
        "cluster-recovery",
        "an owner is killed: until all of many streams are served",
        more("streams", ""),
        less("served", "s"),
        less("after the lease", "s"),
    ),
    Trial(
        "cluster-bounds",
        "what much data takes of a node with a 256 MiB cache and 1 GiB of journals",
        (
            more("streams", ""),
            more("written", "MB"),
            more("a second", "MB"),
            more("read again", "MB"),
            less("node before", "MB"),
            less("node", "MB", below(1000)),
            less("cache", "MB", below(1.05 * CACHE_BYTES / MB)),
            less("journals", "MB", below(1.05 * JOURNALS_BYTES / MB)),
            less("NATS disk", "MB"),
        ),
        try_bounds,
        in_quick=False,
        needs_wrk=True,
    ),
)
