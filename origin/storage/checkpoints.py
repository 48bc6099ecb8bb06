"""When a checkpoint is made, and of what: the half on the event loop. Only one runs at a time.

  cut         when sealing a batch, record every changed state; the next batch opens a new file
  landed      that batch is on disk: record each changed stream's recent bytes
  background  write those bytes to segments, sync; append states and Checkpoint to the catalog, sync
  finish      free the bytes in memory, delete old journal files and dead segments

After a crash in between, the journal is replayed from the previous checkpoint.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

from origin.storage.checkpointwriter import CheckpointAbandoned, CheckpointWriter, Cut, Flush
from origin.storage.commit import GroupCommit
from origin.storage.datafolder import DataFolder
from origin.storage.format import encode_state
from origin.storage.journalfiles import JournalFiles
from origin.storage.stored import Stored
from protocol.stream import StreamState

log = logging.getLogger("weir.storage")


class Checkpoints:
    def __init__(
        self,
        folder: DataFolder,
        files: JournalFiles,
        commit: GroupCommit,
        streams: Mapping[int, Stored],
        *,
        changed: dict[int, StreamState],
        removed: list[int],
        interval_s: float,
        retry_s: float,
        cut_at_bytes: int,
        on_error: Callable[[], None],
    ) -> None:
        """`changed` and `removed` are the streams for which the catalog is outdated."""
        self._folder = folder
        self._files = files
        self._commit = commit
        self._streams = streams
        self._interval_s = interval_s
        self._retry_s = retry_s
        self._cut_at_bytes = cut_at_bytes
        self._on_error = on_error
        self.changed = changed
        self.removed = removed
        self._dropped: list[int] = []
        self._writer = CheckpointWriter(folder)
        self._background = ThreadPoolExecutor(1, thread_name_prefix="weir-checkpoint")
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._running: asyncio.Task[None] | None = None
        self._is_closing = False
        self.is_wanted = False
        self.error: Exception | None = None

    @property
    def is_running(self) -> bool:
        return self._running is not None

    def drop_blob(self, blob: int) -> None:
        """It is deleted with the next checkpoint."""
        self._dropped.append(blob)

    # -- when ----------------------------------------------------------------------------------

    def schedule(self, delay_s: float) -> None:
        due = self._loop.time() + delay_s
        if self._timer is not None:
            if self._timer.when() <= due:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(due, self._come_due)

    def _come_due(self) -> None:
        self._timer = None
        if self._is_closing or self._commit.failure is not None:
            return
        self.schedule(self._interval_s)
        self._files.want_spare()
        if self._folder.reclaimer.is_waiting:
            self._loop.run_in_executor(self._background, self._folder.reclaimer.settle)
        if self.changed or self.removed or self._dropped or self._files.older:
            self.want()

    def want(self) -> None:
        """Request a checkpoint as soon as possible."""
        self.is_wanted = True
        self.cut_if_idle()

    def cut_if_idle(self) -> None:
        """With nothing staged there is no batch to wait for: cut now."""
        if self.is_wanted and self._commit.idle:
            cut = self._try_cut()
            if cut is not None:
                self.begin(cut)

    def cut_if_due(self) -> Cut | None:
        """Called when a batch is sealed, which contains everything staged so far."""
        if self.is_wanted or self._files.current.used > self._cut_at_bytes:
            return self._try_cut()
        return None

    def _try_cut(self) -> Cut | None:
        self.is_wanted = not self._can_cut()
        if self.is_wanted:
            return None
        flushes = [
            Flush(stored, encode_state(state), state.tail)
            for id_, state in self.changed.items()
            if (stored := self._streams.get(id_)) is not None
        ]
        removed, self.removed = self.removed, []
        dropped, self._dropped = self._dropped, []
        self.changed = {}
        files = self._files
        retired = files.hand_over()
        return Cut(flushes, removed, dropped, retired, files.next_batch, files.current.number)

    def _can_cut(self) -> bool:
        """There is a spare file, no unfinished checkpoint, and the states are valid."""
        # After a failure, states include refused data and must never reach the catalog.
        has_spare, failure = self._files.spare is not None, self._commit.failure
        return has_spare and not self.is_running and failure is None

    # -- what ----------------------------------------------------------------------------------

    def begin(self, cut: Cut) -> None:
        """Called when everything staged before the cut is committed."""
        for flush in cut.flushes:
            flush.note_bytes()
        self._files.begin_retiring()
        self._running = self._loop.create_task(self._run(cut))

    async def _run(self, cut: Cut) -> None:
        try:
            if await self._write(cut):
                for flush in cut.flushes:
                    flush.finish()
                await self._loop.run_in_executor(self._background, self._writer.reclaim, cut)
        finally:
            self._running = None
            self._files.end_retiring()
            self.cut_if_idle()

    async def _write(self, cut: Cut) -> bool:
        """Whether it is on disk: a stop aborts it, errors are retried."""
        while not self._is_closing:
            try:
                await self._loop.run_in_executor(self._background, self._writer.write, cut)
            except CheckpointAbandoned:
                return False
            except Exception as error:  # usually a full disk; the journal has everything
                self._note_error(error)
                await asyncio.sleep(self._retry_s)
            else:
                self.error = None
                return True
        return False

    def _note_error(self, error: Exception) -> None:
        """Appends continue while the journal has room; waiting ones are notified."""
        if str(error) != str(self.error):
            log.error("checkpoint failed, retrying: %r", error)
        self.error = error
        self._on_error()

    # -- closing -------------------------------------------------------------------------------

    def abandon(self) -> None:
        """Leave it to the next start: the journal has everything."""
        self._is_closing = True
        self._writer.abandon()
        if self._timer is not None:
            self._timer.cancel()

    async def close(self) -> None:
        if self._running is not None:
            await asyncio.wait({self._running})
        self._background.shutdown()
