"""Unread parts of responses that are too large for the cache.

Such a response is read as fast as the origin sends it, so that its connection becomes free
regardless of the client's pace. Data that the client has no room for waits here: a little in
memory, the rest in an unnamed file, written and read by a thread.

The room is limited, in total and per subject. If the length is known, all of it is reserved before
the response starts, or the client is refused, so the response is never cut for lack of room. If
not, room is reserved step by step, and a response that finds no more is cut.
"""

import asyncio
import logging
import os
import tempfile
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import BinaryIO, TypeVar

from gateway.config import GatewayConfig
from gateway.limits import Shares, Short
from protocol.errors import ProtocolError
from protocol.replies import RETRY_AFTER
from wire.exchange import Exchange

log = logging.getLogger("weir.gateway")

MEMORY_BYTES = 64 * 1024  # per response
BLOCK_BYTES = 32 * 1024  # handed to a client at a time
STEP_BYTES = 4 * 1024 * 1024  # of room for a response of unknown length

_NO_ROOM = {
    Short.FOR_ALL: (503, "too-much-unread", "Too many large responses are waiting to be read."),
    Short.FOR_SUBJECT: (
        429,
        "too-much-unread-of-subject",
        "Too many of your large responses are waiting to be read; read them first.",
    ),
}

Result = TypeVar("Result")


class Overflow(Exception):
    """No room is left for the response, or on the disk."""


class Spools:
    """The room of one worker. Its one thread does the file work of each spool in order."""

    def __init__(self, config: GatewayConfig) -> None:
        serving = config.gateway
        total = serving.max_spool_bytes
        self._most = config.per_subject(serving.max_spool_bytes_per_subject, total)
        self.room = Shares(total, self._most)
        self._folder = serving.spool_dir or None
        self.thread = ThreadPoolExecutor(1, "spool")

    @property
    def bytes(self) -> int:
        return self.room.total

    def try_folder(self) -> None:
        """Raises OSError if files cannot be created there."""
        self.make_file().close()

    @contextmanager
    def open(self, subject: str) -> Iterator["Spool"]:
        spool = Spool(self, subject)
        try:
            yield spool
        finally:
            spool.close()

    def close(self) -> None:
        self.thread.shutdown()

    # -- for spools ----------------------------------------------------------------------------

    def take(self, subject: str, amount: int) -> tuple[int, Short | None]:
        """Reserve room for this much, or for the most that is ever granted."""
        amount = min(amount, self._most)
        short = self.room.take(subject, amount)
        return (amount if short is None else 0), short

    def make_file(self) -> BinaryIO:
        return tempfile.TemporaryFile(buffering=0, prefix="weir-", dir=self._folder)

    async def work(self, task: Callable[[], Result]) -> Result:
        """Raises Overflow if the disk is full or broken."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self.thread, task)
        except OSError as error:
            log.error("cannot spool large responses for slow readers: %s", error.strerror)
            raise Overflow from error


class Spool:
    """Bytes in order of arrival: the oldest in memory, later ones in the file."""

    def __init__(self, spools: Spools, subject: str) -> None:
        self._spools = spools
        self._subject = subject
        self._reserved = 0
        self._memory: deque[bytes] = deque()
        self._memory_bytes = 0
        self._file: BinaryIO | None = None  # used by the thread only
        self._has_file = False
        self._written = self._read = 0  # positions in the file

    def __bool__(self) -> bool:
        return bool(self._memory) or self._read < self._written

    def reserve(self, length: int | None) -> None:
        """Reserve room for a response that is about to start. Raises ProtocolError."""
        if length is not None and length <= MEMORY_BYTES:
            return
        short = self._take(STEP_BYTES if length is None else length)
        if short is not None:
            raise ProtocolError(*_NO_ROOM[short], RETRY_AFTER)

    async def put(self, data: bytes) -> None:
        """Raises Overflow."""
        in_file = self._read < self._written
        if not in_file and self._memory_bytes + len(data) <= MEMORY_BYTES:
            self._memory.append(data)
            self._memory_bytes += len(data)
            return
        start = self._written if in_file else 0  # reuse the file once it is fully read
        while start + len(data) > self._reserved:
            if self._take(STEP_BYTES) is not None:
                raise Overflow
        self._has_file = True
        await self._spools.work(lambda: self._write_at(start, data))
        self._read = self._read if in_file else 0
        self._written = start + len(data)

    async def get(self) -> bytes:
        """The next bytes, a moderate amount; empty if there are none. Raises Overflow."""
        if self._memory:
            data = self._memory.popleft()
            self._memory_bytes -= len(data)
            return data
        size = min(BLOCK_BYTES, self._written - self._read)
        if not size:
            return b""
        data = await self._spools.work(lambda: self._read_at(self._read, size))
        self._read += len(data)
        return data

    def close(self) -> None:
        if self._reserved:
            self._spools.room.release(self._subject, self._reserved)
        if self._has_file:
            self._spools.thread.submit(self._close_file)

    def _take(self, amount: int) -> Short | None:
        taken, short = self._spools.take(self._subject, amount)
        self._reserved += taken
        return short

    # -- in the thread -------------------------------------------------------------------------

    def _write_at(self, position: int, data: bytes) -> None:
        if self._file is None:
            self._file = self._spools.make_file()
        rest = memoryview(data)
        while rest:
            written = os.pwrite(self._file.fileno(), rest, position)
            position += written
            rest = rest[written:]

    def _read_at(self, position: int, size: int) -> bytes:
        assert self._file is not None
        data = os.pread(self._file.fileno(), size, position)
        if not data:
            raise OSError("the file is shorter than the data written to it")
        return data

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()


class Outlet:
    """One response on its way to a possibly slow client. `sent` counts the bytes passed on."""

    def __init__(self, exchange: Exchange, spool: Spool, frame: Callable[[bytes], bytes]) -> None:
        self._exchange = exchange
        self._spool = spool
        self._frame = frame
        self.sent = 0

    async def take(self, piece: bytes) -> None:
        """Never waits for the client. Raises Overflow."""
        while self._spool and await self._has_room():
            self._give(await self._spool.get())
        given = 0
        while given < len(piece) and not self._spool and await self._has_room():
            self._give(piece[given : given + BLOCK_BYTES])
            given += BLOCK_BYTES
        if given < len(piece):
            await self._spool.put(piece[given:])

    async def empty(self) -> None:
        """Send the rest as the client reads it. Raises ConnectionError, Overflow."""
        while data := await self._spool.get():
            self._give(data)
            await self._exchange.drain()

    async def _has_room(self) -> bool:
        """Writes reach the socket at the end of the loop's turn; only then the backlog shows it."""
        if self._exchange.backlog() >= BLOCK_BYTES:
            await asyncio.sleep(0)
        return self._exchange.backlog() < BLOCK_BYTES

    def _give(self, data: bytes) -> None:
        self._exchange.write(self._frame(data))
        self.sent += len(data)
