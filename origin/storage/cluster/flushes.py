"""From the journal to objects: what is flushed, when, and in which order.

  cut      when sealing a batch, record every changed state
  begin    that batch is committed: record each changed stream's bytes in memory
  upload   those bytes as blocks of one pack, then the changed states as a delta
  commit   a checkpoint record in the journal names them: from now on they count
  finish   free the bytes in memory, purge the journal before the cut, delete what is not named

One flush runs at a time, in the background. An owner that dies in between leaves the journal whole
and some objects that nothing names. Each flush also merges small blocks of the streams it touches,
so that an old stream is a few reads and not thousands.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from itertools import islice
from typing import Any, TypeVar

from origin.storage.base import DamagedData, StorageFailed
from origin.storage.cluster.depot import Depot
from origin.storage.cluster.envelope import CheckpointRecord, Kind, encode_record
from origin.storage.cluster.flush import ColdStored, Cut, Flush
from origin.storage.cluster.jetstream import Away, Refused
from origin.storage.cluster.journal import Journal
from origin.storage.cluster.merges import MERGE_BYTES, merge
from origin.storage.cluster.objects import ObjectMissing, ObjectsUnavailable
from origin.storage.cluster.packs import Extents
from origin.storage.cluster.saved import Saved, merged
from origin.storage.cluster.steps import in_steps
from origin.storage.cluster.usage import PackUsage
from origin.storage.format import encode_state
from protocol.stream import StreamState

log = logging.getLogger("weir.storage")

T = TypeVar("T")

RETRY_SECS = 1.0
DELTAS = 16  # then a new base replaces them
KEPT_SECS = 60.0  # replaced packs stay for readers that are on their way
SWEEP_SECS = 900.0
FIRST_SWEEP_SECS = 60.0
SCATTERED = 1000  # streams of sparse packs that one flush writes again, at most


class Flushes:
    def __init__(
        self,
        journal: Journal,
        depot: Depot,
        streams: Mapping[int, ColdStored],
        record: CheckpointRecord | None,
        *,
        changed: dict[int, StreamState],
        removed: list[int],
        used_bytes: int,
        flush_bytes: int,
        flush_secs: float,
        on_change: Callable[[], None],
        on_lost: Callable[[Exception], None],
    ) -> None:
        """`changed` and `removed` are the streams for which the last checkpoint is outdated."""
        self._journal = journal
        self._depot = depot
        self._streams = streams
        self._record = record
        self._flush_bytes = flush_bytes
        self._flush_secs = flush_secs
        self._on_change = on_change
        self._on_lost = on_lost
        self.usage = PackUsage()
        for stored in streams.values():
            self.usage.use(stored.extents)
        self._sparse: set[int] = set()  # packs that are mostly garbage, as of the last sweep
        self._scattered: dict[int, int] = {}  # streams, and their bytes in such packs
        self._unreadable: set[int] = set()  # packs, until the next sweep
        self._loop = asyncio.get_running_loop()
        self._running: asyncio.Task[None] | None = None
        self._later: set[asyncio.Task[None]] = set()
        self._flushed_at = time.monotonic()
        self._sweep_at = self._flushed_at + FIRST_SWEEP_SECS
        self._is_wanted = False
        self.is_spoiled = False  # the last checkpoint cannot be read back
        self._is_over = False
        self.changed = changed
        self.removed = removed
        self.used_bytes = used_bytes  # of the journal, since the last purge
        self.completed = self.failures = self.flushed_bytes = 0
        self.error: Exception | None = None
        self._ticker = self._loop.create_task(self._tick(), name=f"flushes {journal.shard}")

    @property
    def is_running(self) -> bool:
        return self._running is not None

    @property
    def _is_behind(self) -> bool:
        """Whether the last checkpoint is not enough for a new owner, besides the journal."""
        return bool(self.changed or self.removed or self.is_spoiled)

    @property
    def backlog_secs(self) -> float:
        """How long the oldest unflushed data has waited."""
        return time.monotonic() - self._flushed_at if self.changed or self.is_running else 0.0

    # -- when ----------------------------------------------------------------------------------

    async def _tick(self) -> None:
        """Flush what has waited long enough, even if nothing more is written."""
        while True:
            await asyncio.sleep(self._flush_secs / 4)
            is_idle = not (self._is_behind or self._scattered)
            if is_idle and not self.is_running:
                self._flushed_at = time.monotonic()
            elif time.monotonic() - self._flushed_at >= self._flush_secs:
                self.want()

    def want(self) -> None:
        """Request a flush as soon as possible."""
        if not self._is_wanted and not self.is_running and not self._is_over:
            self._is_wanted = True
            self._on_change()

    def cut_if_due(self, batch_bytes: int) -> Cut | None:
        """Called when a batch is sealed, which contains everything staged so far."""
        is_due = self._is_wanted or self.used_bytes + batch_bytes >= self._flush_bytes
        if self.is_running or self._is_over or not is_due:
            return None
        return self._cut(self._journal.next_number + 1, self.used_bytes + batch_bytes)

    def cut_if_idle(self) -> None:
        """With nothing staged there is no batch to wait for: cut now."""
        if self._is_wanted and not self.is_running and not self._is_over:
            self.begin(self._cut(self._journal.next_number, self.used_bytes))

    def _cut(self, next_batch: int, used_bytes: int) -> Cut:
        self._is_wanted = False
        is_whole, self.is_spoiled = self.is_spoiled, False
        ended = set(self.removed)
        for id_ in list(self._streams if is_whole else self._some_scattered()):
            if id_ not in ended:
                self.changed.setdefault(id_, self._streams[id_].state)
        flushes = [
            Flush(stored, encode_state(state), state.tail, state.floor)
            for id_, state in self.changed.items()
            if (stored := self._streams.get(id_)) is not None
        ]
        removed, self.removed = self.removed, []
        self.changed = {}
        return Cut(flushes, removed, next_batch, used_bytes, is_whole)

    def _some_scattered(self) -> Iterator[int]:
        """As many as one flush writes again."""
        there = self._streams
        self._scattered = {id_: n for id_, n in self._scattered.items() if id_ in there}
        size_bytes = 0
        for id_ in islice(self._scattered, SCATTERED):
            if size_bytes < MERGE_BYTES:
                size_bytes += self._scattered[id_]
                yield id_

    # -- what ----------------------------------------------------------------------------------

    def begin(self, cut: Cut) -> None:
        """Called when everything staged before the cut is committed."""
        if self._is_over:
            return
        cut.seq = self._journal.seq
        for flush in cut.flushes:
            flush.note_bytes()
        name = f"flush {self._journal.shard}"
        self._running = self._loop.create_task(self._run(cut), name=name)

    async def _run(self, cut: Cut) -> None:
        try:
            await self._flush(cut)
        except Exception as error:
            if not isinstance(error, (StorageFailed, DamagedData)):
                log.exception("flushing shard %d failed", self._journal.shard)
            self._on_lost(error)
        finally:
            self._running = None
            self._on_change()

    async def _flush(self, cut: Cut) -> None:
        """Blocks first, then the states, then the record that makes both count."""
        for flush in cut.flushes:
            flush.check()
        writer = self._depot.new_pack()
        await merge(self._depot, cut.flushes, self._sparse, self._unreadable, writer)
        async for flush in in_steps(cut.flushes):
            flush.add_blocks(writer)
        if writer.size_bytes:
            await self._retry(lambda: self._depot.put_pack(writer))
        after = [(flush, flush.extents()) async for flush in in_steps(cut.flushes)]
        streams = [flush.saved(extents) async for flush, extents in in_steps(after)]
        saved = Saved(streams, cut.removed)
        old = self._record
        record = await self._save(saved, cut)
        await self._journal.publish(Kind.CHECKPOINT, encode_record(record))
        self._record = record
        await self._finish(after)
        self.flushed_bytes += writer.size_bytes
        await self._retry(lambda: self._journal.purge(cut.seq + 1))
        self.used_bytes -= cut.used_bytes
        self._flushed_at = time.monotonic()
        self.completed += 1
        if old is not None:
            kept = {record.base, *record.deltas}
            stale = [key for key in (old.base, *old.deltas) if key not in kept]
            await self._depot.drop_checkpoints(stale)
        if time.monotonic() >= self._sweep_at:
            await self._sweep(record)

    async def _save(self, saved: Saved, cut: Cut) -> CheckpointRecord:
        """Upload it as a delta, or with everything before it as a new base."""
        old, now_ms = self._record, time.time_ns() // 1_000_000
        if old is not None and not cut.is_whole:
            if len(old.deltas) < DELTAS or (before := await self._read_back(old)) is None:
                delta = await self._retry(lambda: self._depot.put_saved(saved))
                return CheckpointRecord(cut.next_batch, old.base, (*old.deltas, delta), now_ms)
            saved = merged([before, saved])
        base = await self._retry(lambda: self._depot.put_saved(saved))
        return CheckpointRecord(cut.next_batch, base, (), now_ms)

    async def _read_back(self, record: CheckpointRecord) -> Saved | None:
        """None if it is damaged or missing: this owner has every state and can write all of them
        again, with its next flush."""
        try:
            return await self._retry(lambda: self._depot.load(record))
        except (DamagedData, ObjectMissing) as error:
            log.error("the checkpoint of shard %d is written anew: %s", self._journal.shard, error)
            self.is_spoiled = True
            return None

    async def _finish(self, after: list[tuple[Flush, Extents]]) -> None:
        """Between two streams anything may happen to others: each is finished by itself."""
        rare = self._sparse - self._unreadable
        async for flush, extents in in_steps(after):
            stored = flush.stored
            id_ = stored.state.id
            if id_ in self._scattered and rare.isdisjoint(extents.packs()):
                del self._scattered[id_]
            if self._streams.get(id_) is not stored:
                continue  # removed meanwhile
            self.usage.use(flush.new_blocks())
            self.usage.release(flush.dropped)
            flush.finish(extents)
        unused = self.usage.take_unused()
        if unused:
            self._do_later(self._drop(unused))

    async def _drop(self, packs: list[int]) -> None:
        await asyncio.sleep(KEPT_SECS)
        await self._depot.drop_packs(packs)

    def _do_later(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._later.add(task)
        task.add_done_callback(self._later.discard)

    async def _retry(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Until it works: meanwhile appends continue while the journal has room."""
        while True:
            try:
                result = await attempt()
            except (ObjectsUnavailable, Away, Refused) as error:
                if str(error) != str(self.error):
                    log.error("flush of shard %d, retrying: %s", self._journal.shard, error)
                self.error = error
                self.failures += 1
                self._on_change()
                await asyncio.sleep(RETRY_SECS)
            else:
                self.error = None
                return result

    async def _sweep(self, record: CheckpointRecord) -> None:
        """Delete what nothing names; have packs that are mostly garbage written again."""
        self._sweep_at = time.monotonic() + SWEEP_SECS
        states = [stored.state for stored in self._streams.values()]
        blobs = {state.snapshot.blob for state in states if state.snapshot is not None}
        try:
            sizes = await self._depot.sweep(
                self.usage.packs(), {record.base, *record.deltas}, blobs
            )
        except ObjectsUnavailable as error:
            log.info("sweep of shard %d postponed: %s", self._journal.shard, error)
            return
        self._sparse, self._unreadable = self.usage.sparse(sizes), set()
        self._scattered = {}
        async for id_, stored in in_steps(list(self._streams.items()) if self._sparse else ()):
            if not self._sparse.isdisjoint(stored.extents.packs()):
                blocks = (block for block in stored.extents if block.pack in self._sparse)
                self._scattered[id_] = sum(block.size_bytes for block in blocks)

    # -- closing -------------------------------------------------------------------------------

    async def flushed(self) -> None:
        """Flush everything that is committed now, and wait for it; not if objects are away."""
        while not self._is_over and (self._is_behind or self.is_running):
            if self.error is not None:
                return
            if self._running is not None:
                await asyncio.wait({self._running}, timeout=RETRY_SECS)
            else:
                self.want()
                await asyncio.sleep(0)

    def abandon(self) -> None:
        """Leave it to the next owner: the journal has everything. Nothing is cut any more, because
        states may be ahead of what was written."""
        self._is_over = True
        for task in (self._ticker, self._running, *self._later):
            if task is not None:
                task.cancel()
