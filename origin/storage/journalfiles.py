"""Where batches go: the journal file in use, a spare after it, older ones until they are retired.

Older files stay until a checkpoint has moved their contents. The spare is created in a thread
before it is needed. Without one, a full journal accepts no more.
"""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor

from origin.storage.format import BATCH_HEADER
from origin.storage.journal import BatchPlace, Journal, JournalFile
from origin.storage.opening import Opened

log = logging.getLogger("weir.storage")


class JournalFiles:
    def __init__(
        self,
        journal: Journal,
        opened: Opened,
        workers: Executor,
        *,
        max_files: int,
        retry_s: float,
        on_change: Callable[[], None],
    ) -> None:
        """`on_change` is called when a spare is ready, or could not be created."""
        self._journal = journal
        self._workers = workers
        self._max_files = max_files
        self._retry_s = retry_s
        self._on_change = on_change
        self.older = opened.older
        self.current = opened.current
        self.spare = opened.spare
        self.no_space = opened.no_space
        self.next_batch = opened.recovered.next_batch
        self._making: asyncio.Task[None] | None = None
        self._is_retiring = False
        self._is_closing = False

    def admits(self, size_bytes: int) -> bool:
        """Whether a batch of this size fits in this file or the next."""
        if size_bytes <= self.current.room_bytes:
            return True
        return self.spare is not None and size_bytes <= self.spare.room_bytes

    def place(self, size_bytes: int) -> BatchPlace | None:
        """The place of the next batch; None if it must wait for a file."""
        if size_bytes > self.current.room_bytes:
            if self.spare is None:
                return None
            self._open_spare()
        file = self.current
        place = BatchPlace(file, file.used, self.next_batch)
        self.next_batch += 1
        file.used += BATCH_HEADER.size + size_bytes
        return place

    def hand_over(self) -> list[JournalFile]:
        """Switch to the spare; the caller retires all files before it."""
        self._open_spare()
        retired, self.older = self.older, []
        return retired

    def begin_retiring(self) -> None:
        self._is_retiring = True

    def end_retiring(self) -> None:
        self._is_retiring = False
        self.want_spare()

    def want_spare(self) -> None:
        if self.spare is not None or self._making is not None or self._is_closing:
            return
        # Beyond the limit only a checkpoint helps: wait for it, or make the file it needs to cut.
        if not self._is_retiring or len(self.older) + 1 < self._max_files:
            self._making = asyncio.get_running_loop().create_task(self._make_spare())

    async def close(self) -> None:
        self._is_closing = True
        if self._making is not None:
            await asyncio.wait({self._making})

    def _open_spare(self) -> None:
        assert self.spare is not None
        self.older.append(self.current)
        self.current, self.spare = self.spare, None
        self.want_spare()

    async def _make_spare(self) -> None:
        loop = asyncio.get_running_loop()
        number = self.current.number + 1
        try:
            self.spare = await loop.run_in_executor(
                self._workers, self._journal.create_file, number
            )
            self.no_space = None
        except OSError as error:
            if self.no_space is None:
                log.error("cannot create a journal file, appends will be refused: %s", error)
            self.no_space = error
            loop.call_later(self._retry_s, self.want_spare)
        finally:
            self._making = None
        self._on_change()
