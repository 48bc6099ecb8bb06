"""One storage and everything that works on it. A process may hold several; they share nothing."""

from collections.abc import Callable

from origin.appends import Appends
from origin.chunks import Chunks
from origin.config import OriginConfig
from origin.creations import Creations
from origin.forks import Forks
from origin.lifetimes import Lifetimes
from origin.registry import Registry
from origin.removals import Removals
from origin.snapshotblobs import SnapshotBlobs
from origin.snapshots import Snapshots
from origin.staging import Staging
from origin.storage.base import Storage


class Shard:
    def __init__(
        self,
        storage: Storage,
        config: OriginConfig,
        clock_ms: Callable[[], int],
        new_id: Callable[[], int],
    ) -> None:
        limits = config.limits
        self.storage = storage
        self.registry = registry = Registry(limits, max_total_bytes=config.max_stored_bytes)
        self.chunks = chunks = Chunks(
            storage,
            registry.by_id,
            chunk_bytes=config.storage.chunk_bytes,
            cache_bytes=config.storage.cache_bytes,
        )
        self.staging = staging = Staging(storage)
        self.blobs = blobs = SnapshotBlobs(storage, new_id)
        self.removals = removals = Removals(registry, staging, blobs)
        self.lifetimes = lifetimes = Lifetimes(registry, removals, staging, clock_ms)
        self.appends = Appends(registry, lifetimes, staging, storage, limits, clock_ms)
        forks = Forks(registry, lifetimes, removals, blobs, chunks)
        self.creations = Creations(
            registry, lifetimes, staging, self.appends, forks, blobs, clock_ms, new_id
        )
        self.snapshots = Snapshots(registry, lifetimes, removals, staging, blobs, chunks, limits)

    async def start(self) -> None:
        self.registry.load(await self.storage.recover())
        for stream in self.registry.by_id.values():
            self.lifetimes.watch(stream)
        self.removals.finish()
