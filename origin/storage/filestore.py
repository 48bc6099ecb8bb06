"""`file-durable` and `file-fast`: one journal for all streams, a segment file for each.

Life of an append: staged on the event loop, written and synced with everything else that waits
(`commit`), published into the stream's `Recent` bytes, acknowledged. A checkpoint later moves it:

  cut         sealing a batch, note every changed stream's state; the next batch opens a new file
  landed      that batch is on disk: note each changed stream's recent bytes
  background  write those bytes to segments, sync; append states and Checkpoint to the catalog, sync
  finish      forget the bytes in memory, delete the old journal files and dead segments

A crash anywhere in between only means that the journal is read from the checkpoint before.
"""

import asyncio
import logging
import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from origin.storage.base import (
    BelowFloor,
    DamagedData,
    Done,
    StorageFailed,
    StorageFull,
    UnknownStream,
)
from origin.storage.blobs import BLOB_THREADS, Blobs, write_blob
from origin.storage.catalog import Catalog
from origin.storage.checkpoints import CheckpointAbandoned, CheckpointWriter, Cut, Flush
from origin.storage.commit import Batch, GroupCommit, Unit
from origin.storage.files import Files, lock_directory
from origin.storage.format import (
    BATCH_HEADER,
    encode_batch,
    encode_records,
    encode_state,
)
from origin.storage.journal import Journal, JournalFile, Resource
from origin.storage.reclaim import Reclaimer, Step
from origin.storage.recovery import Recovered, Stored, recover
from origin.storage.segments import Segments
from protocol.stream import Appended, Created, Record, Removed, StreamState, Trimmed

T = TypeVar("T")

log = logging.getLogger("weir.storage")

RETRY_SECS = 1.0
FIRST_CHECKPOINT_SECS = 1.0
TRIM_SECS = 1.0  # until what a snapshot made superfluous is given back
RESERVE_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class _Sealed:
    place: Resource
    buffers: list[bytes]
    cut: Cut | None


class FileStorage:
    def __init__(
        self,
        data_dir: str,
        *,
        synced: bool,
        journal_bytes: int,
        journal_files: int,
        checkpoint_secs: float,
        files: Files | None = None,
    ) -> None:
        self._files = files or Files()
        self._synced = synced
        self._data_dir = data_dir
        self._journal_files = journal_files
        self._checkpoint_secs = checkpoint_secs
        self._cut_at_bytes = journal_bytes * 3 // 4
        self._reserve_bytes = min(RESERVE_BYTES, journal_bytes // 8)
        folder = os.path.join(data_dir, "journal")
        self._journal = Journal(folder, self._files, file_bytes=journal_bytes, synced=synced)
        self._catalog = Catalog(os.path.join(data_dir, "catalog"), self._files)
        self._segments = Segments(os.path.join(data_dir, "segments"), self._files)
        self._blobs = Blobs(os.path.join(data_dir, "snapshots"), self._files)
        self._reclaimer = Reclaimer(data_dir)
        self._checkpoints = CheckpointWriter(
            self._files,
            self._journal,
            self._catalog,
            self._segments,
            self._blobs,
            self._reclaimer,
        )
        self._streams: dict[int, Stored] = {}
        self._dirty: dict[int, StreamState] = {}
        self._removed: list[int] = []
        self._dropped: list[int] = []  # blobs that go with the next checkpoint
        self._older: list[JournalFile] = []
        self._spare: JournalFile | None = None
        self._spare_coming = False
        self._no_space: OSError | None = None
        self._checkpoint_error: Exception | None = None
        self._waiting: deque[Callable[[], None]] = deque()
        self._cut_wanted = False
        self._checkpoint: asyncio.Task[None] | None = None
        self._readers = ThreadPoolExecutor(4, thread_name_prefix="weir-read")
        self._background = ThreadPoolExecutor(1, thread_name_prefix="weir-checkpoint")
        self._blob_workers = ThreadPoolExecutor(BLOB_THREADS, thread_name_prefix="weir-blob")
        self._tasks: set[asyncio.Task[None]] = set()
        self._lock_fd = -1
        self._closing = False
        self._timer: asyncio.TimerHandle | None = None

    # -- opening ---------------------------------------------------------------------------

    async def recover(self) -> list[StreamState]:
        self._loop = asyncio.get_running_loop()
        self._lock()
        try:
            recovered = await self._loop.run_in_executor(self._background, self._open)
        except BaseException:
            os.close(self._lock_fd)
            raise
        self._streams = recovered.streams
        self._next_batch = recovered.next_batch
        self._dirty = {id_: self._streams[id_].state for id_ in recovered.touched}
        self._removed = list(recovered.removed)
        self._commit = GroupCommit(
            seal=self._seal, write=self._write, publish=self._publish, name="weir-journal"
        )
        self._want_spare()
        # Restarts in a row must not pile up journal files.
        delay_s = FIRST_CHECKPOINT_SECS if self._dirty or self._removed else self._checkpoint_secs
        self._schedule_checkpoint(0 if self._older else delay_s)
        return [stored.state for stored in self._streams.values()]

    def _lock(self) -> None:
        os.makedirs(os.path.join(self._data_dir, "journal"), exist_ok=True)
        os.makedirs(os.path.join(self._data_dir, "segments"), exist_ok=True)
        self._lock_fd = lock_directory(self._data_dir)

    def _open(self) -> Recovered:
        """Recover and leave the journal as it is: the first checkpoint retires it."""
        catalog_path = os.path.join(self._data_dir, "catalog")
        if not os.path.exists(catalog_path):
            self._refuse_orphans(catalog_path)
            first = self._journal.create_file(1)
            self._journal.release(first)
            self._catalog.create(1)
            self._catalog.close()
            self._journal.open_watermark()
            self._journal.mark(0, 1, first.used)
        recovered = recover(catalog_path, self._journal)
        # What was written and not synced when we died counts from now on: sync it before we
        # delete anything because of it, and before anyone can read it.
        self._catalog.open(recovered.catalog_end, recovered.catalog_tail)
        last = recovered.last_batch
        *self._older, self._current = [
            self._journal.reopen(number, path, salt, last if last and last.path == path else None)
            for number, path, salt in recovered.journals
        ]
        self._drop_leftovers(recovered)
        self._journal.open_watermark()
        self._journal.mark(recovered.next_batch - 1, self._current.number, self._current.used)
        try:
            self._spare = self._journal.create_file(self._current.number + 1)
        except OSError as error:
            log.error("no new journal file, appends will be refused: %s", error)
            self._no_space = error
        return recovered

    def _refuse_orphans(self, catalog_path: str) -> None:
        """A journal beyond its first, empty file without a catalog means the catalog was lost."""
        found = self._journal.list_files()
        segments = os.listdir(os.path.join(self._data_dir, "segments"))
        if len(found) > 1 or segments or os.path.exists(self._journal.watermark_path):
            raise DamagedData(catalog_path, 0, "the catalog is missing, but data is there")
        for _, path in found:
            self._files.unlink(path)

    def _drop_leftovers(self, recovered: Recovered) -> None:
        """Files that a crash left between two steps: unfinished, retired, or no stream's."""
        folder = os.path.join(self._data_dir, "journal")
        for name in os.listdir(folder):
            if name.endswith(".new"):
                self._files.unlink(os.path.join(folder, name))
        steps: list[Step] = []
        for number, path in self._journal.list_files():
            if number > recovered.journals[-1][0]:  # empty, and its name is wanted again
                self._files.unlink(path)
            elif number < recovered.journals[0][0]:
                steps.append(partial(self._files.unlink, path))
        streams = recovered.streams
        named = {s.state.snapshot.blob for s in streams.values() if s.state.snapshot}
        steps += [partial(self._blobs.remove, blob) for blob in self._blobs.leftovers(named)]
        for stored in streams.values():
            if stored.extent.first:  # perhaps the last punch never came
                steps.append(partial(self._punch, stored.state.id, stored.extent.first))
        for stream_id in set(self._segments.found()) - recovered.cataloged:
            if stream_id in streams:  # its next flush begins anew; no backup knows this one
                self._segments.remove(stream_id)
            else:
                steps.append(partial(self._segments.remove, stream_id))
        self._reclaimer.do(*steps)

    def _punch(self, stream_id: int, first: int) -> None:
        try:
            self._segments.punch(stream_id, first)
        except OSError as error:  # not every file system can
            log.warning("nothing given back: %s", error)

    # -- writing ---------------------------------------------------------------------------

    @property
    def failure(self) -> str | None:
        return None if self._commit.failure is None else str(self._commit.failure)

    def admits(self, size_bytes: int, *, urgent: bool = False) -> bool:
        """All that is pending must fit one journal file, so a batch always takes all of it."""
        if self._commit.failure is not None:
            raise StorageFailed(str(self._commit.failure))
        need = self._commit.pending_bytes + size_bytes + (0 if urgent else self._reserve_bytes)
        if need <= self._current.room_bytes:
            return True
        if self._spare is not None:
            return need <= self._spare.room_bytes
        if self._no_space is not None or self._checkpoint_error is not None:
            raise StorageFull(str(self._no_space or self._checkpoint_error))
        return False

    def when_room(self, retry: Callable[[], None]) -> None:
        if not self._waiting:  # what they wait for may be a batch that never lands
            self._commit.barrier(self._tell_waiting)
        self._waiting.append(retry)

    def _tell_waiting(self, error: Exception | None) -> None:
        if error is not None:
            self._retry_waiting()

    def stage(self, state: StreamState, records: tuple[Record, ...], done: Done) -> None:
        self._dirty[state.id] = state
        for record in records:
            if type(record) is Created:
                self._streams[state.id] = Stored(state, state.base)
            elif type(record) is Removed:  # noted now: a cut may seal before this is published
                del self._dirty[state.id]
                self._removed.append(state.id)
        encoded = encode_records(records)
        self._commit.add(Unit(state, records, encoded, sum(map(len, encoded)), done))

    def barrier(self, done: Done) -> None:
        self._commit.barrier(done)

    def _seal(self, pending: list[Unit], size_bytes: int) -> Batch | None:
        """Seal all that is pending, in the current file or, when that is full, in the next."""
        if size_bytes > self._current.room_bytes:
            if self._spare is None:  # units that no one admitted: they wait for a file
                return None
            self._open_spare()
        file = self._current
        place = Resource(file, file.used, self._next_batch)
        buffers = [buffer for unit in pending for buffer in unit.encoded]
        sealed = encode_batch(buffers, place.number, file.salt)
        self._next_batch += 1
        file.used += BATCH_HEADER.size + size_bytes
        cut = self._try_cut() if self._cut_due() else None
        return Batch(pending, size_bytes, _Sealed(place, sealed, cut))

    def _cut_due(self) -> bool:
        return self._cut_wanted or self._current.used > self._cut_at_bytes

    def _can_cut(self) -> bool:
        """A file to go on in, no checkpoint before this one unfinished, and states to trust."""
        # After a failure, states hold what was refused: they must never reach the catalog.
        return self._spare is not None and self._checkpoint is None and self._commit.failure is None

    def _open_spare(self) -> None:
        assert self._spare is not None
        self._older.append(self._current)
        self._current, self._spare = self._spare, None
        self._want_spare()

    def _try_cut(self) -> Cut | None:
        """Begin a checkpoint behind everything staged so far, if nothing stands in the way."""
        self._cut_wanted = not self._can_cut()
        if self._cut_wanted:
            return None
        flushes = [
            Flush(stored, encode_state(state), state.tail)
            for id_, state in self._dirty.items()
            if (stored := self._streams.get(id_)) is not None
        ]
        removed, self._removed = self._removed, []
        dropped, self._dropped = self._dropped, []
        self._dirty = {}
        self._open_spare()
        retired, self._older = self._older, []
        return Cut(flushes, removed, dropped, retired, self._next_batch, self._current.number)

    def _write(self, batch: Batch) -> None:
        assert isinstance(batch.where, _Sealed)
        self._journal.write(batch.where.place, batch.where.buffers)

    def _publish(self, batch: Batch) -> None:
        for unit in batch.units:
            for record in unit.records:
                if type(record) is Appended:
                    self._streams[record.id].add(record.data)
                elif type(record) is Trimmed:
                    self._streams[record.id].trim(record.floor)
                    self._schedule_checkpoint(TRIM_SECS)
                elif type(record) is Removed:
                    self._forget(record.id)
        assert isinstance(batch.where, _Sealed)
        if batch.where.cut is not None:
            self._begin_checkpoint(batch.where.cut)
        if self._waiting:
            self._retry_waiting()

    def _forget(self, stream_id: int) -> None:
        """Its removal is in the journal, so its segment can go now, without a checkpoint."""
        if self._streams.pop(stream_id).extent.end and self._synced:
            self._loop.run_in_executor(self._readers, self._checkpoints.remove_segment, stream_id)

    # -- journal files -----------------------------------------------------------------------

    def _want_spare(self) -> None:
        if self._spare is None and not self._spare_coming and not self._closing:
            # Beyond the limit only a checkpoint helps: wait for it, or give the next its file.
            if self._checkpoint is None or len(self._older) + 1 < self._journal_files:
                self._spare_coming = True
                self._spawn(self._make_spare())

    async def _make_spare(self) -> None:
        number = self._current.number + 1
        try:
            self._spare = await self._loop.run_in_executor(
                self._readers, self._journal.create_file, number
            )
            self._no_space = None
        except OSError as error:
            if self._no_space is None:
                log.error("no new journal file, appends will be refused: %s", error)
            self._no_space = error
            self._loop.call_later(RETRY_SECS, self._want_spare)
        finally:
            self._spare_coming = False
        self._commit.start_batch()
        self._cut_if_idle()
        self._retry_waiting()

    def _retry_waiting(self) -> None:
        waiting, self._waiting = self._waiting, deque()
        for retry in waiting:
            retry()

    # -- checkpoints -------------------------------------------------------------------------

    def _schedule_checkpoint(self, delay_s: float) -> None:
        due = self._loop.time() + delay_s
        if self._timer is not None:
            if self._timer.when() <= due:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(due, self._checkpoint_due)

    def _checkpoint_due(self) -> None:
        self._timer = None
        if self._closing or self._commit.failure is not None:
            return
        self._schedule_checkpoint(self._checkpoint_secs)
        self._want_spare()
        if self._reclaimer.is_waiting:
            self._loop.run_in_executor(self._readers, self._reclaimer.settle)
        if self._dirty or self._removed or self._dropped or self._older:
            self._cut_wanted = True
            self._cut_if_idle()

    def _cut_if_idle(self) -> None:
        """With nothing staged there is no batch to cut behind: cut here and now."""
        if self._cut_wanted and self._commit.idle:
            cut = self._try_cut()
            if cut is not None:
                self._begin_checkpoint(cut)

    def _begin_checkpoint(self, cut: Cut) -> None:
        for flush in cut.flushes:
            flush.note_bytes()
        self._checkpoint = self._spawn(self._run_checkpoint(cut))

    async def _run_checkpoint(self, cut: Cut) -> None:
        try:
            while not self._closing:
                try:
                    await self._loop.run_in_executor(self._background, self._checkpoints.write, cut)
                    break
                except CheckpointAbandoned:
                    return
                except Exception as error:  # mostly a full disk; the journal holds everything
                    self._note_checkpoint_error(error)
                    await asyncio.sleep(RETRY_SECS)
            else:
                return
            self._checkpoint_error = None
            for flush in cut.flushes:
                flush.finish()
            await self._loop.run_in_executor(self._background, self._checkpoints.reclaim, cut)
        finally:
            self._checkpoint = None
            self._want_spare()
            self._cut_if_idle()

    def _note_checkpoint_error(self, error: Exception) -> None:
        """Appends go on while the journal has room; those that wait for more are told."""
        if str(error) != str(self._checkpoint_error):
            log.error("checkpoint failed, trying again: %r", error)
        self._checkpoint_error = error
        self._retry_waiting()

    # -- reading -----------------------------------------------------------------------------

    def read_now(self, stream_id: int, start: int, end: int) -> bytes | None:
        if start >= end:
            return b""
        stored = self._stored(stream_id)
        if start < stored.floor:
            raise BelowFloor(stream_id)
        if start < stored.flushed or stored.recent is None:
            return None
        return stored.recent.read(start, end)

    async def read(self, stream_id: int, start: int, end: int) -> bytes:
        data = self.read_now(stream_id, start, end)
        if data is not None:
            return data
        stored = self._stored(stream_id)
        border, extent = stored.flushed, stored.extent
        # Take the newest bytes before the thread runs: a checkpoint may drop them meanwhile.
        newest = b""
        if end > border and stored.recent is not None:
            newest = stored.recent.read(border, end)
        older = await self._from_segment(
            stream_id,
            start,
            partial(self._segments.read, stream_id, extent, start, min(end, border)),
        )
        return older + newest if newest else older

    async def parts(self, stream_id: int, start: int, end: int) -> list[bytes]:
        if start >= end:
            return []
        stored = self._stored(stream_id)
        if start < stored.floor:
            raise BelowFloor(stream_id)
        border, extent = stored.flushed, stored.extent
        newest = [] if stored.recent is None else stored.recent.slices(max(start, border), end)
        if start >= border:
            return newest
        older = await self._from_segment(
            stream_id,
            start,
            partial(self._segments.parts, stream_id, extent, start, min(end, border)),
        )
        return older + newest

    def boundary_now(self, stream_id: int, at_or_after: int) -> int | None:
        recent = self._stored(stream_id).recent
        if recent is None or at_or_after < recent.start:
            return None
        return recent.boundary(at_or_after)

    async def boundary(self, stream_id: int, at_or_after: int) -> int:
        stored = self._stored(stream_id)
        if at_or_after < stored.floor:
            raise BelowFloor(stream_id)
        if at_or_after >= stored.flushed:
            return stored.flushed if stored.recent is None else stored.recent.boundary(at_or_after)
        extent = stored.extent
        return await self._from_segment(
            stream_id,
            at_or_after,
            partial(self._segments.boundary, stream_id, extent, at_or_after),
        )

    # -- blobs -------------------------------------------------------------------------------

    async def write_blob(self, blob: int, data: bytes) -> int:
        return await write_blob(self._blobs, self._blob_workers, blob, data)

    async def read_blob(self, blob: int, size_bytes: int, start: int, end: int) -> bytes:
        return await self._loop.run_in_executor(
            self._readers, self._blobs.read, blob, size_bytes, start, end
        )

    def drop_blob(self, blob: int) -> None:
        if self._synced:
            remove = partial(self._blobs.remove, blob)
            self._loop.run_in_executor(self._blob_workers, self._reclaimer.do, remove)
        else:  # a power cut may still take back the record that made it superfluous
            self._dropped.append(blob)

    # -- pieces ------------------------------------------------------------------------------

    def _stored(self, stream_id: int) -> Stored:
        try:
            return self._streams[stream_id]
        except KeyError:
            raise UnknownStream(stream_id) from None

    async def _from_segment(self, stream_id: int, start: int, work: Callable[[], T]) -> T:
        try:
            return await self._loop.run_in_executor(self._readers, work)
        except DamagedData:
            if start < self._stored(stream_id).floor:  # given back meanwhile, or removed
                raise BelowFloor(stream_id) from None
            raise

    # -- closing -----------------------------------------------------------------------------

    async def close(self) -> None:
        """Settle what is staged; the journal keeps it, and the next start reads it from there."""
        if self._timer is not None:
            self._timer.cancel()
        await self._commit.drain()
        self._closing = self._checkpoints.abandoned = True
        for task in list(self._tasks):
            await asyncio.wait({task})
        self._readers.shutdown()
        self._background.shutdown()
        self._blob_workers.shutdown()
        self._catalog.close()
        self._journal.close()
        os.close(self._lock_fd)

    def _spawn(self, work: "asyncio._CoroutineLike[None]") -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
