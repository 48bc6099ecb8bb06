"""The access log's files: lines are batched in memory and written by a thread.

Only the event loop's thread may call `write`. It encodes the line at once into the batch of its
hour. (Another thread that encodes would hold the interpreter, and so the loop, for as long.) Every
PAUSE_SECS, or when BATCH_BYTES are waiting, the writer thread takes all batches and appends each to
its hour's file with one call. Lines lost to a full buffer or a failing disk are counted.
"""

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from protocol.accesslog import HOUR_MS, AccessRecord, append_line, file_name

log = logging.getLogger("weir.gateway")

PAUSE_SECS = 0.1
BATCH_BYTES = 256 * 1024  # a busy log is written in small pieces
MAX_WAITING_LINES = 100_000
# Of one hour's batch; as much again may be on its way to the disk.
MAX_WAITING_BYTES = 64 * 1024 * 1024
COMPLAIN_SECS = 60.0
CLOSE_SECS = 5.0
FILE_MODE = 0o640  # lines name clients


class _Batch:
    """Lines of one hour."""

    __slots__ = ("data", "lines")

    def __init__(self) -> None:
        self.data = bytearray()
        self.lines = 0


Batches = dict[int, _Batch]  # by hour since 1970


class AccessLog:
    """Raises OSError or ValueError when the folder or the gateway's name cannot be used."""

    def __init__(
        self,
        folder: Path | str,
        gateway: str,
        worker: int,
        *,
        max_lines: int = MAX_WAITING_LINES,
        max_bytes: int = MAX_WAITING_BYTES,
        pause_secs: float = PAUSE_SECS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        file_name(gateway, worker, 0)
        self._folder = Path(folder)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._gateway = gateway
        self._worker = worker
        self._max_lines = max_lines
        self._max_bytes = max_bytes
        self._pause_secs = pause_secs
        self._clock = clock
        self._batches: Batches = {}
        self._adding = False
        self._complained_at = float("-inf")
        # Each counter is changed by one thread only: the first two by the loop's.
        self._accepted = 0
        self._refused = 0
        self._failed = 0
        self.written = 0
        self._closing = False
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="access log", daemon=True)
        self._thread.start()

    @property
    def dropped(self) -> int:
        """Lines that were lost."""
        return self._refused + self._failed

    @property
    def waiting(self) -> int:
        return self._accepted - self.written - self._failed

    def write(self, record: AccessRecord) -> None:
        """Never waits, never fails; the record may be changed afterwards."""
        self._adding = True
        try:
            batch = self._batch(record.time_ms // HOUR_MS)
            if batch is not None:
                append_line(record, batch.data)
        finally:
            self._adding = False

    def write_line(self, time_ms: int, line: bytes) -> None:
        """The same for a line that is already encoded."""
        self._adding = True
        try:
            batch = self._batch(time_ms // HOUR_MS)
            if batch is not None:
                batch.data += line
        finally:
            self._adding = False

    def _batch(self, hour: int) -> "_Batch | None":
        """Where the next line goes; None when there is no room for it."""
        batch = self._batches.get(hour)
        if batch is None:
            batch = self._batches[hour] = _Batch()
        size = len(batch.data)
        waiting = self._accepted - self.written - self._failed
        if waiting >= self._max_lines or size >= self._max_bytes:
            self._refused += 1
            return None
        batch.lines += 1
        self._accepted += 1
        if size >= BATCH_BYTES and not self._wake.is_set():
            self._wake.set()
        return batch

    async def close(self) -> None:
        """Write what waits, for CLOSE_SECS at most; later lines are dropped."""
        self._max_lines = 0
        self._closing = True
        self._wake.set()
        await asyncio.to_thread(self._thread.join, CLOSE_SECS)
        if self._thread.is_alive():
            log.error("access log is stuck: %d lines not written", self.waiting)

    # -- the writer's thread -------------------------------------------------------------------

    def _run(self) -> None:
        while not self._closing:
            self._wake.wait(self._pause_secs)
            self._wake.clear()
            self._write_batches()
        self._write_batches()

    def _write_batches(self) -> None:
        for hour, batch in self._take().items():
            name = file_name(self._gateway, self._worker, hour * HOUR_MS)
            sent = self._append(self._folder / name, batch.data)
            lost = batch.data.count(b"\n", sent)
            self.written += batch.lines - lost
            self._failed += lost

    def _take(self) -> Batches:
        """`write` sets `_adding` before it reads `_batches`; here the order is reversed. Once
        `_adding` is unset after the exchange, nothing more is added to the taken batches."""
        taken, self._batches = self._batches, {}
        while self._adding:
            time.sleep(0.0001)
        return taken

    def _append(self, path: Path, data: bytearray) -> int:
        """Number of bytes written. The file is opened each time, so files can be moved or
        removed without notifying us."""
        sent = 0
        try:
            file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
            try:
                if _ends_torn(file):
                    os.write(file, b"\n")
                while sent < len(data):
                    sent += os.write(file, memoryview(data)[sent:])
            finally:
                os.close(file)
        except OSError as error:
            self._complain(error)
        return sent

    def _complain(self, error: OSError) -> None:
        if self._clock() - self._complained_at >= COMPLAIN_SECS:
            self._complained_at = self._clock()
            log.error("cannot write the access log, dropping lines: %s", error)


class NoAccessLog(AccessLog):
    """Used when the access log is off."""

    def __init__(self) -> None:
        self.written = self._accepted = self._refused = self._failed = 0

    def write(self, record: AccessRecord) -> None:
        pass

    def write_line(self, time_ms: int, line: bytes) -> None:
        pass

    async def close(self) -> None:
        pass


def open_access_log(folder: Path | str, gateway: str, worker: int) -> AccessLog:
    """The log in `folder`; an empty name turns it off."""
    return AccessLog(folder, gateway, worker) if str(folder) != "" else NoAccessLog()


def _ends_torn(file: int) -> bool:
    """Whether the last write was incomplete: the disk was full, or the process died."""
    size = os.fstat(file).st_size
    return size > 0 and os.pread(file, 1, size - 1) != b"\n"
