"""The shards that this node has open, is opening, or cannot open."""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial

from origin.cluster.control import clock
from origin.config import OriginConfig
from origin.shard import Shard
from origin.storage.base import DamagedData, Storage, StorageFailed
from origin.storage.cluster.clusterstore import ClusterStorage
from origin.storage.cluster.depot import Depot
from origin.storage.cluster.diskcache import DiskCache
from origin.storage.cluster.jetstream import Away, JetStream, Refused
from origin.storage.cluster.journal import Journal, JournalLost
from origin.storage.cluster.objects import Objects

log = logging.getLogger("weir.cluster")

OPENING_AT_ONCE = 4
REOPEN_SECS = 1.0
OFFLINE_SECS = 15.0  # between attempts to open a damaged shard

OpenShard = Callable[[int, Storage, Callable[[], bool]], Shard]


@dataclass(slots=True)
class Owned:
    """A shard that this node has opened."""

    number: int
    epoch: int
    shard: Shard
    storage: ClusterStorage


@dataclass(slots=True)
class Moves:
    """What has happened to shards at this node since it started."""

    opened: int = 0
    taken_over: int = 0
    handed_over: int = 0
    lost: int = 0
    opening_secs: float = 0.0  # of the last one
    replayed_bytes: int = 0

    def note_opening(self, secs: float, replayed_bytes: int) -> None:
        self.opened += 1
        self.opening_secs, self.replayed_bytes = secs, replayed_bytes


class Holdings:
    def __init__(
        self,
        config: OriginConfig,
        jetstream: JetStream,
        objects: Objects,
        cache: DiskCache,
        open_shard: OpenShard,
        *,
        is_fresh: Callable[[], bool],
        is_ours: Callable[[int, int], bool],
        noted_tail: Callable[[int], Awaitable[int]],
        on_change: Callable[[], None],
    ) -> None:
        """`is_ours` says whether a shard's epoch is still ours, as far as this node knows, and
        `noted_tail` how far a shard's journal has come at least."""
        self._config = config
        self._jetstream = jetstream
        self._objects = objects
        self._cache = cache
        self._open_shard = open_shard
        self._is_fresh = is_fresh
        self._is_ours = is_ours
        self._noted_tail = noted_tail
        self._on_change = on_change
        self._slots = asyncio.Semaphore(OPENING_AT_ONCE)
        self._not_before: dict[int, float] = {}
        self._damages: Counter[int] = Counter()  # failed openings in a row
        self.open: dict[int, Owned] = {}
        self.opening: dict[int, asyncio.Task[None]] = {}
        self.closing: dict[int, Owned] = {}
        self.offline: dict[int, str] = {}  # why a shard cannot be opened
        self.moves = Moves()

    def __iter__(self) -> Iterator[Owned]:
        return iter(list(self.open.values()))

    def movable(self) -> list[int]:
        """Shards that another node can open as well."""
        return sorted(n for n, owned in self.open.items() if owned.storage.can_move)

    @property
    def are_any(self) -> bool:
        """Whether this node speaks for any shard, or is about to."""
        return bool(self.open or self.opening)

    def state(self, number: int) -> str:
        """Of a shard that is assigned to this node."""
        if number in self.open:
            return "open"
        if number in self.offline:
            return "offline"
        return "opening" if number in self.opening else "closed"

    def can_open(self, number: int) -> bool:
        """Whether it is neither open nor about to be, and its last failure is long enough ago."""
        if number in self.open or number in self.opening or number in self.closing:
            return False
        return clock() >= self._not_before.get(number, 0.0)

    # -- opening -------------------------------------------------------------------------------

    def begin(self, number: int, epoch: int) -> None:
        work = self._open(number, epoch)
        self.opening[number] = asyncio.create_task(work, name=f"open shard {number}")

    async def _open(self, number: int, epoch: int) -> None:
        try:
            async with self._slots:
                owned = await self._opened(number, epoch)
        except (Away, Refused, StorageFailed, DamagedData) as error:
            self._note_failure(number, error)
        except Exception as error:
            log.exception("shard %d could not be opened", number)
            self._note_failure(number, DamagedData(f"shard {number}", 0, repr(error)))
        else:
            self._keep(owned)
        finally:
            del self.opening[number]
            self._on_change()

    async def _opened(self, number: int, epoch: int) -> Owned:
        cluster = self._config.cluster
        may_lose = cluster.journal_sync != "always"  # then an end may be missing after a power cut
        least = 0 if may_lose else await self._noted_tail(number)
        journal = Journal(self._jetstream, cluster.name, number, epoch=epoch, least_number=least)
        depot = Depot(self._objects, self._cache, cluster.name, number, epoch)
        lost = partial(self._on_lost, number, epoch)
        storage = ClusterStorage(journal, depot, cluster, self._config.server.node_id, lost)
        shard = self._open_shard(number, storage, self._is_fresh)
        began = clock()
        try:
            await shard.start()
        except BaseException:
            storage.abandon()  # it may have been recovered, and flush
            raise
        self.moves.note_opening(clock() - began, storage.flushes.used_bytes)
        return Owned(number, epoch, shard, storage)

    def _keep(self, owned: Owned) -> None:
        number = owned.number
        self.offline.pop(number, None)
        del self._damages[number]
        self.open[number] = owned
        if owned.storage.failure is not None:  # while it was opened
            self._on_lost(number, owned.epoch, StorageFailed(owned.storage.failure))
        elif not self._is_ours(number, owned.epoch):  # it took too long
            self.lose(owned, None)

    def _note_failure(self, number: int, error: Exception) -> None:
        self._not_before[number] = clock() + REOPEN_SECS
        if not isinstance(error, (DamagedData, JournalLost)):
            log.warning("shard %d could not be opened, retrying: %s", number, error)
            return
        self._damages[number] += 1
        if self._damages[number] > 1:  # once may be a purge that came in between
            self._not_before[number] = clock() + OFFLINE_SECS
            self.offline[number] = str(error)
            log.critical("shard %d is offline: %s", number, error)

    # -- closing -------------------------------------------------------------------------------

    def _on_lost(self, number: int, epoch: int, error: Exception) -> None:
        owned = self.open.get(number) or self.closing.get(number)
        if owned is not None and owned.epoch == epoch:
            self.lose(owned, error)
            self._not_before[number] = clock() + REOPEN_SECS
            self._on_change()

    def lose_others(self) -> None:
        """Those that are not ours any more. One that is being closed may still be asked."""
        for owned in [*self.open.values(), *self.closing.values()]:
            if not self._is_ours(owned.number, owned.epoch) and not owned.shard.is_lost:
                self.lose(owned, None)

    def lose(self, owned: Owned, error: Exception | None) -> None:
        """Its readers and writers go elsewhere; whoever owns it replays the journal."""
        log.warning("shard %d lost: %s", owned.number, error or "another node owns it")
        self.open.pop(owned.number, None)
        self.moves.lost += 1
        owned.shard.lose()
        owned.storage.abandon()

    async def close(self, owned: Owned) -> None:
        """Settle everything, for the next owner; requests from now on go elsewhere."""
        self.open.pop(owned.number, None)
        self.closing[owned.number] = owned
        await owned.storage.close()
        owned.shard.lose()

    def closed(self, number: int) -> None:
        """It may be opened again."""
        self.closing.pop(number, None)

    async def close_all(self) -> dict[int, int]:
        """Returns their last batches."""
        for task in self.opening.values():
            task.cancel()
        closing = list(self)
        await asyncio.gather(*map(self.close, closing))
        return last_batches(closing)


def last_batches(shards: Iterable[Owned]) -> dict[int, int]:
    """By shard, those that are known to be stored."""
    return {owned.number: owned.storage.last_batch for owned in shards}
