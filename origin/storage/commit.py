"""Group commit: everything staged while one write is on its way leaves in the next.

At most one batch is flying. The event loop seals a batch (decides where it goes; there, states and
pending units agree, which a checkpoint needs), a thread writes and syncs it, the event loop
publishes it and calls every `done` in the order of staging. Because a batch starts only after the
one before it is on disk, a crash can tear the last batch and no other.
"""

import asyncio
import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import NamedTuple

from origin.storage.base import Done, StorageFailed
from protocol.stream import Record, StreamState

log = logging.getLogger("weir.storage")


class Unit(NamedTuple):
    """Records that stand or fall together."""

    state: StreamState
    records: tuple[Record, ...]
    encoded: list[bytes]
    size_bytes: int
    done: Done


class Batch:
    """All units that were pending when it was sealed; `where` is the storage's own note."""

    __slots__ = ("followers", "size_bytes", "units", "where")

    def __init__(self, units: list[Unit], size_bytes: int, where: object) -> None:
        self.units = units
        self.size_bytes = size_bytes
        self.where = where
        self.followers: list[Done] = []


Seal = Callable[[list[Unit], int], Batch | None]
Act = Callable[[Batch], None]


class GroupCommit:
    """Owns the writer thread and the queue of units in front of it."""

    def __init__(self, *, seal: Seal, write: Act, publish: Act, name: str) -> None:
        self._seal = seal
        self._write = write
        self._publish = publish
        self._loop = asyncio.get_running_loop()
        self._queue: SimpleQueue[Batch | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        self._scheduled = False
        self._flying: Batch | None = None
        self._pending: list[Unit] = []
        self.pending_bytes = 0
        self.failure: Exception | None = None

    @property
    def idle(self) -> bool:
        return self._flying is None and not self._pending

    def add(self, unit: Unit) -> None:
        if self.failure is not None:
            raise StorageFailed(str(self.failure))
        self._pending.append(unit)
        self.pending_bytes += unit.size_bytes
        if self._flying is None and not self._scheduled:
            self._scheduled = True  # one loop turn later, so requests read together go together
            self._loop.call_soon(self.start_batch)

    def barrier(self, done: Done) -> None:
        if self._pending:
            last = self._pending[-1]
            self._pending[-1] = last._replace(done=_both(last.done, done))
        elif self._flying is not None:
            self._flying.followers.append(done)
        else:
            done(None if self.failure is None else StorageFailed(str(self.failure)))

    def start_batch(self) -> None:
        self._scheduled = False
        if self._flying is not None or not self._pending or self.failure is not None:
            return
        batch = self._seal(self._pending, self.pending_bytes)
        if batch is not None:
            self._pending, self.pending_bytes = [], 0
            self._flying = batch
            self._queue.put(batch)

    async def drain(self) -> None:
        """Wait until nothing is pending, then end the thread."""
        settled = self._loop.create_future()
        self.barrier(lambda _error: settled.set_result(None))
        await settled
        self._queue.put(None)
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        while (batch := self._queue.get()) is not None:
            error: Exception | None = None
            try:
                self._write(batch)
            except Exception as caught:
                error = caught
            self._loop.call_soon_threadsafe(self._landed, batch, error)

    def _landed(self, batch: Batch, error: Exception | None) -> None:
        self._flying = None
        if error is not None:
            self._fail(batch, error)
            return
        self._publish(batch)
        try:
            self.start_batch()  # first, so that the disk works while the answers are written
        finally:
            for unit in batch.units:
                _call(unit.done, None)
            for done in batch.followers:
                _call(done, None)

    def _fail(self, batch: Batch, error: Exception) -> None:
        """What was not synced cannot be proved, and what was judged after it stood on it."""
        log.critical("storage failed, refusing writes until a restart: %s", error)
        self.failure = error
        lost = StorageFailed(str(error))
        units, self._pending, self.pending_bytes = batch.units + self._pending, [], 0
        for unit in units:
            _call(unit.done, lost)
        for done in batch.followers:
            _call(done, lost)


def _both(first: Done, second: Done) -> Done:
    def done(error: Exception | None) -> None:
        _call(first, error)
        second(error)

    return done


def _call(done: Done, error: Exception | None) -> None:
    try:
        done(error)
    except Exception:  # one reader's broken callback must not stop the others
        log.exception("a completion callback failed")
