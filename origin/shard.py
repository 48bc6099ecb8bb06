"""One storage and everything that works on it. A process may hold several, which share only their
cache and their totals."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from origin.aliases import Aliases, is_alias
from origin.appends import Appends
from origin.chunks import Chunks, EncodedChunks, make_cache
from origin.config import OriginConfig
from origin.creations import Creations, Permits
from origin.forks import Forks
from origin.lifetimes import Lifetimes
from origin.outcomes import Deadline
from origin.registry import Registry, Totals
from origin.removals import Removals
from origin.snapshotblobs import SnapshotBlobs
from origin.snapshots import Snapshots
from origin.staging import Staging
from origin.storage.base import Storage


def always() -> bool:
    return True


def _never() -> bool:
    return False


class Shard:
    """`is_fresh` says whether this process may say what the tail is: on one machine always, in a
    cluster while its lease holds. It does no I/O."""

    def __init__(
        self,
        storage: Storage,
        config: OriginConfig,
        clock_ms: Callable[[], int],
        new_id: Callable[[], int],
        *,
        is_fresh: Callable[[], bool] = always,
        cache: EncodedChunks | None = None,
        totals: Totals | None = None,
        number: int = 0,
    ) -> None:
        limits = config.limits
        self.number = number
        self.is_lost = False
        self.fresh = is_fresh
        self._deadlines: set[Deadline] = set()
        self.storage = storage
        self.registry = registry = Registry(
            limits, totals or Totals(), max_total_bytes=config.max_stored_bytes
        )
        self.chunks = chunks = Chunks(
            storage,
            registry.by_id,
            make_cache(config.storage.cache_bytes) if cache is None else cache,
            chunk_bytes=config.storage.chunk_bytes,
        )
        self.staging = staging = Staging(storage)
        self.blobs = blobs = SnapshotBlobs(storage, new_id)
        self.removals = removals = Removals(registry, staging, blobs)
        self.lifetimes = lifetimes = Lifetimes(registry, removals, staging, clock_ms)
        self.appends = Appends(registry, lifetimes, staging, storage, limits, clock_ms)
        forks = Forks(registry, lifetimes, removals, blobs, chunks)
        self.permits = Permits()
        self.creations = Creations(
            registry, lifetimes, staging, self.appends, forks, blobs, self.permits, clock_ms, new_id
        )
        self.aliases = Aliases(staging, clock_ms, new_id)
        self.snapshots = Snapshots(registry, lifetimes, removals, staging, blobs, chunks, limits)

    async def start(self) -> None:
        states = await self.storage.recover()
        self.registry.load(state for state in states if not is_alias(state.name))
        self.aliases.load(state for state in states if is_alias(state.name))
        for stream in self.registry.by_id.values():
            self.lifetimes.watch(stream)
        self.removals.finish()

    def lose(self) -> None:
        """It was taken over or failed: nothing is said about it any more, and nobody waits for it.

        Live readers find out by themselves when they wake."""
        if self.is_lost:
            return
        self.is_lost = True
        self.fresh = _never
        self.registry.leave_totals()
        for deadline in list(self._deadlines):
            deadline.expire()
        for stream in list(self.registry.by_id.values()):
            stream.wake_all()

    @contextmanager
    def awaited(self, deadline: Deadline) -> Iterator[None]:
        """A request waits for this shard inside the block, until it is lost."""
        self._deadlines.add(deadline)
        try:
            yield
        finally:
            self._deadlines.discard(deadline)
