"""`file-durable` and `file-fast`: one journal for all streams, a segment file for each.

An append is staged on the event loop, written and synced with everything else that is waiting
(`commit`), published to the stream's recent bytes (`stored`), and acknowledged. A checkpoint later
moves it to its segment (`checkpoints`).
"""

import asyncio
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
from origin.storage.blobs import BLOB_THREADS, write_blob
from origin.storage.checkpoints import Checkpoints
from origin.storage.checkpointwriter import Cut
from origin.storage.commit import Batch, GroupCommit, ThreadWriter, Unit
from origin.storage.datafolder import DataFolder
from origin.storage.files import Files, lock_directory
from origin.storage.format import encode_batch, encode_records
from origin.storage.journal import BatchPlace
from origin.storage.journalfiles import JournalFiles
from origin.storage.opening import Opened, open_folder
from origin.storage.stored import Stored
from protocol.stream import Appended, Created, Record, Removed, StreamState, Trimmed

T = TypeVar("T")

RETRY_SECS = 1.0
FIRST_CHECKPOINT_SECS = 1.0
TRIM_SECS = 1.0  # until data replaced by a snapshot is freed
RESERVE_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class _Sealed:
    place: BatchPlace
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
        checkpoint_s: float,
        files: Files | None = None,
    ) -> None:
        self.folder = DataFolder(
            data_dir, files or Files(), journal_bytes=journal_bytes, synced=synced
        )
        self._max_journal_files = journal_files
        self._checkpoint_s = checkpoint_s
        self._cut_at_bytes = journal_bytes * 3 // 4
        self._reserve_bytes = min(RESERVE_BYTES, journal_bytes // 8)
        self._streams: dict[int, Stored] = {}
        self._waiting: deque[Callable[[], None]] = deque()
        self._readers = ThreadPoolExecutor(4, thread_name_prefix="weir-read")
        self._blob_workers = ThreadPoolExecutor(BLOB_THREADS, thread_name_prefix="weir-blob")
        self._lock_fd = -1

    # -- opening and closing -----------------------------------------------------------------

    async def recover(self) -> list[StreamState]:
        self._loop = asyncio.get_running_loop()
        for folder in (self.folder.journal_path, self.folder.segments_path):
            os.makedirs(folder, exist_ok=True)
        self._lock_fd = lock_directory(self.folder.path)
        try:
            opened = await self._loop.run_in_executor(self._readers, open_folder, self.folder)
        except BaseException:
            os.close(self._lock_fd)
            raise
        self._begin(opened)
        return [stored.state for stored in self._streams.values()]

    def _begin(self, opened: Opened) -> None:
        recovered = opened.recovered
        streams = self._streams = recovered.streams
        self._commit = GroupCommit(
            seal=self._seal,
            writer=ThreadWriter(self._write, "weir-journal"),
            publish=self._publish,
        )
        self.journal_files = JournalFiles(
            self.folder.journal,
            opened,
            self._readers,
            max_files=self._max_journal_files,
            retry_s=RETRY_SECS,
            on_change=self._go_on,
        )
        self.checkpoints = Checkpoints(
            self.folder,
            self.journal_files,
            self._commit,
            streams,
            changed={id_: streams[id_].state for id_ in recovered.touched},
            removed=list(recovered.removed),
            interval_s=self._checkpoint_s,
            retry_s=RETRY_SECS,
            cut_at_bytes=self._cut_at_bytes,
            on_error=self._retry_waiting,
        )
        self.journal_files.want_spare()
        # Restarts in a row must not pile up journal files.
        has_changes = recovered.touched or recovered.removed
        delay_s = FIRST_CHECKPOINT_SECS if has_changes else self._checkpoint_s
        self.checkpoints.schedule(0 if self.journal_files.older else delay_s)

    async def close(self) -> None:
        """Settle what is staged; the journal keeps it for the next start."""
        await self._commit.drain()
        self.checkpoints.abandon()
        await self.journal_files.close()
        await self.checkpoints.close()
        self._readers.shutdown()
        self._blob_workers.shutdown()
        self.folder.catalog.close()
        self.folder.journal.close()
        os.close(self._lock_fd)

    # -- room --------------------------------------------------------------------------------

    @property
    def failure(self) -> str | None:
        return None if self._commit.failure is None else str(self._commit.failure)

    def admits(self, size_bytes: int, *, urgent: bool = False) -> bool:
        """Everything pending must fit one journal file, so that a batch can take it all."""
        if self._commit.failure is not None:
            raise StorageFailed(str(self._commit.failure))
        need = self._commit.pending_bytes + size_bytes + (0 if urgent else self._reserve_bytes)
        if self.journal_files.admits(need):
            return True
        trouble = self.journal_files.no_space or self.checkpoints.error
        if self.journal_files.spare is None and trouble is not None:
            raise StorageFull(str(trouble))
        return False

    def when_room(self, retry: Callable[[], None]) -> None:
        if not self._waiting:  # they are told if the batch that they wait for fails
            self._commit.barrier(self._tell_waiting)
        self._waiting.append(retry)

    def _tell_waiting(self, error: Exception | None) -> None:
        if error is not None:
            self._retry_waiting()

    def _go_on(self) -> None:
        """A spare journal file is ready, or could not be created."""
        self._commit.start_batch()
        self.checkpoints.cut_if_idle()
        self._retry_waiting()

    def _retry_waiting(self) -> None:
        waiting, self._waiting = self._waiting, deque()
        for retry in waiting:
            retry()

    # -- writing -----------------------------------------------------------------------------

    def stage(self, state: StreamState, records: tuple[Record, ...], done: Done) -> None:
        self.checkpoints.changed[state.id] = state
        for record in records:
            if type(record) is Created:
                self._streams[state.id] = Stored(state, state.base)
            elif type(record) is Removed:  # recorded now: a cut may come before it is published
                del self.checkpoints.changed[state.id]
                self.checkpoints.removed.append(state.id)
        encoded = encode_records(records)
        self._commit.add(Unit(state, records, encoded, sum(map(len, encoded)), done))

    def barrier(self, done: Done) -> None:
        self._commit.barrier(done)

    def _seal(self, pending: list[Unit], size_bytes: int) -> Batch | None:
        """Seal everything pending; None if it must wait for a file, as it may if not admitted."""
        place = self.journal_files.place(size_bytes)
        if place is None:
            return None
        buffers = [buffer for unit in pending for buffer in unit.encoded]
        sealed = encode_batch(buffers, place.number, place.file.salt)
        return Batch(pending, size_bytes, _Sealed(place, sealed, self.checkpoints.cut_if_due()))

    def _write(self, batch: Batch) -> None:
        assert isinstance(batch.where, _Sealed)
        self.folder.journal.write(batch.where.place, batch.where.buffers)

    def _publish(self, batch: Batch) -> None:
        for unit in batch.units:
            for record in unit.records:
                if type(record) is Appended:
                    self._streams[record.id].add(record.data)
                elif type(record) is Trimmed:
                    self._streams[record.id].trim(record.floor)
                    self.checkpoints.schedule(TRIM_SECS)
                elif type(record) is Removed:
                    self._forget(record.id)
        assert isinstance(batch.where, _Sealed)
        if batch.where.cut is not None:
            self.checkpoints.begin(batch.where.cut)
        if self._waiting:
            self._retry_waiting()

    def _forget(self, stream_id: int) -> None:
        """Its removal is in the journal, so its segment can be deleted; if that fails, the next
        checkpoint retries."""
        if self._streams.pop(stream_id).extent.end and self.folder.synced:
            remove = partial(self.folder.segments.remove, stream_id)
            self._loop.run_in_executor(self._readers, self.folder.reclaimer.do, remove)

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
        border, extent = stored.flushed, stored.extent
        # Take the newest bytes before the thread runs: a checkpoint may free them meanwhile.
        newest = b""
        if end > border and stored.recent is not None:
            newest = stored.recent.read(border, end)
        read = partial(self.folder.segments.read, stream_id, extent, start, min(end, border))
        older = await self._from_segment(stream_id, start, read)
        return older + newest if newest else older

    async def parts(self, stream_id: int, start: int, end: int) -> list[bytes]:
        if start >= end:
            return []
        stored = self._stored(stream_id)
        stored.check_floor(start)
        border, extent = stored.flushed, stored.extent
        newest = [] if stored.recent is None else stored.recent.slices(max(start, border), end)
        if start >= border:
            return newest
        read = partial(self.folder.segments.parts, stream_id, extent, start, min(end, border))
        return await self._from_segment(stream_id, start, read) + newest

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
        look = partial(self.folder.segments.boundary, stream_id, stored.extent, at_or_after)
        return await self._from_segment(stream_id, at_or_after, look)

    def _stored(self, stream_id: int) -> Stored:
        try:
            return self._streams[stream_id]
        except KeyError:
            raise UnknownStream(stream_id) from None

    async def _from_segment(self, stream_id: int, start: int, work: Callable[[], T]) -> T:
        try:
            return await self._loop.run_in_executor(self._readers, work)
        except DamagedData:
            if start < self._stored(stream_id).floor:  # freed meanwhile, or removed
                raise BelowFloor(stream_id) from None
            raise

    # -- blobs -------------------------------------------------------------------------------

    async def write_blob(self, blob: int, data: bytes) -> int:
        return await write_blob(self.folder.blobs, self._blob_workers, blob, data)

    async def read_blob(self, blob: int, size_bytes: int, start: int, end: int) -> bytes:
        return await self._loop.run_in_executor(
            self._readers, self.folder.blobs.read, blob, size_bytes, start, end
        )

    def drop_blob(self, blob: int) -> None:
        if self.folder.synced:
            remove = partial(self.folder.blobs.remove, blob)
            self._loop.run_in_executor(self._blob_workers, self.folder.reclaimer.do, remove)
        else:  # a power cut may still undo the record that made it obsolete
            self.checkpoints.drop_blob(blob)
