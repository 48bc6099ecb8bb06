"""`cluster`: a shard's journal is replicated by NATS, its older data is in object storage.

As in the file modes, an append is staged on the event loop, committed with everything else that is
waiting, published to the stream's recent bytes, and acknowledged; a flush later moves it to blocks.
Only the two things underneath differ: a quorum's acknowledgement takes the place of a sync, and
packs that of segment files.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from origin.config import ClusterConfig
from origin.storage.base import (
    BelowFloor,
    DamagedData,
    Done,
    OutcomeUnknown,
    StorageAway,
    StorageFull,
    StorageLost,
    UnknownStream,
)
from origin.storage.cluster.depot import Depot
from origin.storage.cluster.envelope import Kind
from origin.storage.cluster.flush import ColdStored, Cut
from origin.storage.cluster.flushes import Flushes
from origin.storage.cluster.journal import LAG_SECS, Journal, stored_bytes
from origin.storage.cluster.objects import ObjectsUnavailable
from origin.storage.cluster.recovery import recover
from origin.storage.commit import Batch, GroupCommit, Landed, Unit
from origin.storage.format import encode_records
from protocol.stream import Appended, Created, Record, Removed, StreamState, Trimmed

T = TypeVar("T")

MAX_PENDING_BYTES = 32 * 1024 * 1024
RESERVE_BYTES = 256 * 1024
BACKPRESSURES = ("lost", "journal-silent", "journal-full", "objects-away")
CLOSE_SECS = 5.0
LINGER_SECS = 0.001  # a batch takes longer, and costs NATS as much as any other


@dataclass(slots=True)
class _Sealed:
    payload: bytes
    cut: Cut | None


def room_for(config: ClusterConfig) -> int:
    """Of a journal in NATS: more than appends may take, for checkpoints, and while it is purged."""
    return 2 * config.journal_bytes + MAX_PENDING_BYTES


class JournalWriter:
    """Publishes batches on the event loop, one after another."""

    def __init__(self, journal: Journal, on_lost: Callable[[Exception], None]) -> None:
        self._journal = journal
        self._on_lost = on_lost
        self._task: asyncio.Task[int] | None = None

    def begin(self, batch: Batch, landed: Landed) -> None:
        assert isinstance(batch.where, _Sealed)
        work = self._journal.publish(Kind.RECORDS, batch.where.payload)
        self._task = asyncio.get_running_loop().create_task(work)
        self._task.add_done_callback(lambda task: self._ended(task, batch, landed))

    def _ended(self, task: "asyncio.Task[int]", batch: Batch, landed: Landed) -> None:
        """Also told if it was cancelled before it had begun."""
        if task.cancelled():
            landed(batch, OutcomeUnknown("the shard was closed"))
        elif (error := task.exception()) is None:
            landed(batch, None)
        else:
            assert isinstance(error, Exception)
            landed(batch, error)
            self._on_lost(error)

    def abandon(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def close(self) -> None:
        if self._task is not None:
            await asyncio.wait({self._task})


class ClusterStorage:
    def __init__(
        self,
        journal: Journal,
        depot: Depot,
        config: ClusterConfig,
        node: str,
        on_lost: Callable[[Exception], None],
    ) -> None:
        """`on_lost` is called once, when this node can no longer write to the shard."""
        self._journal = journal
        self._depot = depot
        self._config = config
        self._node = node
        self._tell_lost = on_lost
        self._is_lost = False
        self._streams: dict[int, ColdStored] = {}
        self._waiting: deque[Callable[[], None]] = deque()
        self._background: set[asyncio.Task[None]] = set()
        self._waits_for_flush = False  # a batch that lands gives those who wait no room
        self._is_closing = False
        self._is_recovered = False
        self._reserve_bytes = min(RESERVE_BYTES, config.journal_bytes // 8)
        self._most_bytes = config.journal_bytes - self._reserve_bytes
        self._full_bytes = self._most_bytes  # or less, if an append did not fit

    # -- opening and closing -----------------------------------------------------------------

    async def recover(self) -> list[StreamState]:
        config = self._config
        self._loop = asyncio.get_running_loop()
        room = await self._journal.make_room(room_for(config))
        self._most_bytes = min(self._most_bytes, (room - MAX_PENDING_BYTES) // 2)
        self._full_bytes = self._most_bytes
        recovered = await recover(self._journal, self._depot, self._node)
        self._streams = recovered.streams
        self._writer = JournalWriter(self._journal, self._lose)
        self._commit = GroupCommit(
            seal=self._seal,
            writer=self._writer,
            publish=self._publish,
            linger_secs=LINGER_SECS,
        )
        self.flushes = Flushes(
            self._journal,
            self._depot,
            self._streams,
            recovered.checkpoint,
            changed={id_: self._streams[id_].state for id_ in recovered.touched},
            removed=list(recovered.removed),
            used_bytes=recovered.journal_bytes,
            flush_bytes=config.flush_bytes,
            flush_secs=config.flush_secs,
            on_change=self._go_on,
            on_lost=self._lose,
        )
        self._is_recovered = True
        return [stored.state for stored in self._streams.values()]

    async def close(self) -> None:
        """Settle what is staged, and leave little to replay. The journal keeps everything."""
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECS):
                await self._commit.drain()
                if self._commit.failure is None:
                    await self.flushes.flushed()
        self.abandon()

    def abandon(self) -> None:
        """Stop at once: another node owns the shard, or nobody can be reached."""
        self._is_closing = True
        self._is_lost = True
        if not self._is_recovered:
            return
        self.flushes.abandon()
        self._writer.abandon()
        self._commit.abort(StorageLost("the shard was closed"))
        self._retry_waiting()

    def _lose(self, error: Exception) -> None:
        if not self._is_lost:
            self._is_lost = True
            self._commit.abort(error)
            self.flushes.abandon()
            self._retry_waiting()
            self._tell_lost(error)

    # -- room --------------------------------------------------------------------------------

    @property
    def failure(self) -> str | None:
        return None if self._commit.failure is None else str(self._commit.failure)

    @property
    def can_move(self) -> bool:
        """Whether another owner could open it, from objects and journal alone."""
        flushes, journal = self.flushes, self._journal
        is_well = flushes.error is None and not flushes.is_spoiled
        return is_well and not journal.is_short and journal.silent_secs < LAG_SECS

    @property
    def silent_secs(self) -> float:
        """How long the journal has not answered."""
        return self._journal.silent_secs

    @property
    def last_batch(self) -> int:
        """The number of the last batch that is known to be stored."""
        return self._journal.next_number - 1

    def admits(self, size_bytes: int, *, urgent: bool = False) -> bool:
        if self._commit.failure is not None:
            raise StorageLost(str(self._commit.failure))
        if self._journal.silent_secs > self._config.answer_secs:
            raise StorageAway("the journal does not answer")
        reserve = self._reserve_bytes if urgent else 0
        if self._taken_bytes + size_bytes - reserve > self._most_bytes:
            self._full_bytes = self._taken_bytes
            if self.flushes.error is not None:
                raise StorageFull(str(self.flushes.error))
            self._waits_for_flush = True
            self.flushes.want()
            return False
        pending = self._commit.pending_bytes
        return not pending or pending + size_bytes <= MAX_PENDING_BYTES

    @property
    def _taken_bytes(self) -> int:
        return self.flushes.used_bytes + self._commit.uncommitted_bytes

    @property
    def backpressure(self) -> str | None:
        """Why appends wait or are refused."""
        if self._commit.failure is not None:
            return "lost"
        if self._journal.silent_secs > self._config.answer_secs:
            return "journal-silent"
        if self._taken_bytes >= self._full_bytes:
            return "journal-full" if self.flushes.error is None else "objects-away"
        return None

    def when_room(self, retry: Callable[[], None]) -> None:
        if not self._waiting:  # also told if the batch that they wait for fails
            self._commit.barrier(lambda error: self._retry_waiting())
        self._waiting.append(retry)

    def _go_on(self) -> None:
        """A flush was requested, has ended, or has failed."""
        if self._taken_bytes < self._full_bytes:
            self._full_bytes = self._most_bytes
        self._waits_for_flush = False
        if self._is_closing:
            return
        if self._commit.idle and self._commit.failure is None:
            self.flushes.cut_if_idle()
        self._retry_waiting()

    def _retry_waiting(self) -> None:
        waiting, self._waiting = self._waiting, deque()
        for retry in waiting:
            retry()

    # -- writing -----------------------------------------------------------------------------

    def stage(self, state: StreamState, records: tuple[Record, ...], done: Done) -> None:
        self.flushes.changed[state.id] = state
        for record in records:
            if type(record) is Created:
                self._streams[state.id] = ColdStored(state, state.base)
            elif type(record) is Removed:  # recorded now: a cut may come before it is published
                del self.flushes.changed[state.id]
                self.flushes.removed.append(state.id)
        encoded = encode_records(records)
        self._commit.add(Unit(state, records, encoded, sum(map(len, encoded)), done))

    def barrier(self, done: Done) -> None:
        self._commit.barrier(done)

    def _seal(self, pending: list[Unit], size_bytes: int) -> Batch:
        payload = b"".join([buffer for unit in pending for buffer in unit.encoded])
        return Batch(
            pending, size_bytes, _Sealed(payload, self.flushes.cut_if_due(stored_bytes(size_bytes)))
        )

    def _publish(self, batch: Batch) -> None:
        self.flushes.used_bytes += stored_bytes(batch.size_bytes)
        for unit in batch.units:
            for record in unit.records:
                if type(record) is Appended:
                    self._streams[record.id].add(record.data)
                elif type(record) is Trimmed:
                    self._streams[record.id].trim(record.floor)
                elif type(record) is Removed:
                    self.flushes.usage.release(self._streams.pop(record.id).extents)
        assert isinstance(batch.where, _Sealed)
        if batch.where.cut is not None:
            self.flushes.begin(batch.where.cut)
        if self._commit.idle and self._commit.failure is None:
            # No later batch will cut what was requested meanwhile.
            self.flushes.cut_if_idle()
        if self._waiting and not self._waits_for_flush:
            self._retry_waiting()

    # -- reading -----------------------------------------------------------------------------

    def read_now(self, stream_id: int, start: int, end: int) -> bytes | None:
        if start >= end:
            return b""
        return self._stored(stream_id).read_now(start, end)

    async def read(self, stream_id: int, start: int, end: int) -> bytes:
        data = self.read_now(stream_id, start, end)
        if data is not None:
            return data
        stored = self._stored(stream_id)
        border = stored.flushed
        # Take the newest bytes before waiting: a flush may free them meanwhile.
        newest = b""
        if end > border and stored.recent is not None:
            newest = stored.recent.read(border, end)
        reads, extents = self._depot.reads, stored.extents
        older = await self._cold(
            stream_id, start, reads.read(stream_id, extents, start, min(end, border))
        )
        return older + newest if newest else older

    async def parts(self, stream_id: int, start: int, end: int) -> list[bytes]:
        if start >= end:
            return []
        stored = self._stored(stream_id)
        stored.check_floor(start)
        border = stored.flushed
        newest = [] if stored.recent is None else stored.recent.slices(max(start, border), end)
        if start >= border:
            return newest
        reads, extents = self._depot.reads, stored.extents
        older = reads.parts(stream_id, extents, start, min(end, border))
        return await self._cold(stream_id, start, older) + newest

    def boundary_now(self, stream_id: int, at_or_after: int) -> int | None:
        recent = self._stored(stream_id).recent
        if recent is None or at_or_after < recent.start:
            return None
        return recent.boundary(at_or_after)

    async def boundary(self, stream_id: int, at_or_after: int) -> int:
        stored = self._stored(stream_id)
        stored.check_floor(at_or_after)
        if at_or_after >= stored.flushed:
            return stored.flushed if stored.recent is None else stored.recent.boundary(at_or_after)
        look = self._depot.reads.boundary(stream_id, stored.extents, at_or_after)
        return await self._cold(stream_id, at_or_after, look)

    def _stored(self, stream_id: int) -> ColdStored:
        try:
            return self._streams[stream_id]
        except KeyError:
            raise UnknownStream(stream_id) from None

    async def _cold(self, stream_id: int, start: int, work: Awaitable[T]) -> T:
        try:
            return await work
        except ObjectsUnavailable as error:
            raise StorageAway(str(error)) from error
        except DamagedData:
            if start < self._stored(stream_id).floor:  # freed meanwhile, or removed
                raise BelowFloor(stream_id) from None
            raise

    # -- blobs -------------------------------------------------------------------------------

    async def write_blob(self, blob: int, data: bytes) -> int:
        return await self._depot.write_blob(blob, data)

    async def read_blob(self, blob: int, size_bytes: int, start: int, end: int) -> bytes:
        try:
            return await self._depot.read_blob(blob, size_bytes, start, end)
        except ObjectsUnavailable as error:
            raise StorageAway(str(error)) from error

    def drop_blob(self, blob: int) -> None:
        self._do(self._depot.drop_blob(blob))

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
