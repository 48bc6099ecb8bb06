"""What much data and many streams take of a node: memory, its disk cache, and its shards' journals.

More is written than the cache, the journals and the memory of all nodes have room for, and some of
it is read again from object storage.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from loadtest.load.client import WrongAnswerError
from loadtest.load.contest import Launch, Plan, Sample, Sides
from loadtest.load.origin import numbered
from loadtest.load.owners import Owners
from loadtest.load.takeovers import cluster_of, journal_bytes
from loadtest.load.wrk import run_wrk
from loadtest.peers.clusters import Cluster, run_cluster
from loadtest.peers.memory import MB, resident_bytes
from loadtest.peers.names import OURS
from loadtest.peers.process import Server

MIB = 1024 * 1024
CACHE_BYTES = 256 * MIB
JOURNALS_BYTES = 1024 * MIB  # of all shards
SHARDS = 16
CONNECTIONS, LARGE_STREAMS = 64, 1000
APPEND_BYTES = 16 * 1024
BURST_SECS = 10.0
READ_AGAIN = 10  # every tenth of the large streams
SAMPLE_SECS = 0.5


@dataclass(slots=True)
class Peaks:
    """The most that any node had at a time; of the journals, all shards together."""

    memory: int = 0
    cache: int = 0
    journals: int = 0
    stores: int = 0

    def look(self, cluster: Cluster, folder: Path) -> None:
        nodes = [(node.id, node.pid) for node in cluster.nodes if node.pid is not None]
        self.memory = max(self.memory, *(resident_bytes(pid) for _, pid in nodes))
        caches = (folder_bytes(folder / "nodes" / id_) for id_, _ in nodes)
        self.cache = max(self.cache, *caches)
        stores = (folder_bytes(store) for store in (folder / "nats").iterdir())
        self.stores = max(self.stores, *stores)
        with suppress(OSError):  # a node is too busy to answer
            self.journals = max(self.journals, journal_bytes(cluster))


def folder_bytes(folder: Path) -> int:
    """What its files take of the disk; some may disappear meanwhile."""
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                total += os.stat(os.path.join(path, name)).st_blocks * 512
    return total


async def try_bounds(launch: Launch, plan: Plan) -> Sides:
    folder = plan.folder / OURS / "bounds"
    settings = {
        "DS_COLD__CACHE_BYTES": str(CACHE_BYTES),
        "DS_CLUSTER__SHARDS": str(SHARDS),
        "DS_CLUSTER__JOURNAL_BYTES": str(JOURNALS_BYTES // SHARDS),
    }
    small = [f"many/{number // 1000}/{number}" for number in range(plan.streams)]
    large = numbered("large", LARGE_STREAMS)
    with run_cluster(folder, settings) as server:
        cluster = cluster_of(server)
        async with Owners(server) as owners, peaks_of(cluster, folder) as idle:
            await owners.create_all([*small, *large], b"x" * 100)
        async with peaks_of(cluster, folder) as busy:
            began = time.perf_counter()
            written = await write_much(server, large, plan.bound_bytes)
            took_s = time.perf_counter() - began
            read = await read_again(server, large[::READ_AGAIN])
    figures = {
        "streams": len(small) + len(large),
        "written": written / MB,
        "a second": written / MB / took_s,
        "read again": read / MB,
        "node before": idle.memory / MB,
        "node": busy.memory / MB,
        "cache": busy.cache / MB,
        "journals": busy.journals / MB,
        "NATS disk": busy.stores / MB,
    }
    return {OURS: [Sample(figures)]}


@asynccontextmanager
async def peaks_of(cluster: Cluster, folder: Path) -> AsyncIterator[Peaks]:
    peaks, ended = Peaks(), asyncio.Event()

    async def watch() -> None:
        while not ended.is_set():
            await asyncio.to_thread(peaks.look, cluster, folder)
            with suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), SAMPLE_SECS)

    watching = asyncio.create_task(watch(), name="peaks")
    try:
        yield peaks
    finally:
        ended.set()
        await watching


async def write_much(server: Server, paths: Sequence[str], size_bytes: int) -> int:
    async with Owners(server) as owners:
        load = owners.load("POST", paths, CONNECTIONS, APPEND_BYTES)
    written = 0
    while written < size_bytes:
        result, _ = await asyncio.to_thread(run_wrk, server.port, load, BURST_SECS)
        written += result.requests * APPEND_BYTES
    return written


async def read_again(server: Server, paths: Sequence[str]) -> int:
    """Each whole: its length must be that of its tail."""
    read = 0
    async with Owners(server) as owners:
        for path in paths:
            [tail] = await owners.tails([path])
            found = sum([r.body_bytes async for r in owners.client_of(path).follow(path)])
            if found != tail:
                raise WrongAnswerError(f"{path} has {found} bytes of {tail}")
            read += found
    return read
