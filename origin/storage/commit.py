"""Group commit: everything staged during one write is part of the next.

At most one batch is being written. The event loop seals a batch (it assigns its place; at this
point states and pending units agree, which checkpoints need), a writer makes it durable, and the
event loop publishes it and calls every `done` in staging order. A batch starts only after the
previous one is durable, so a crash can tear only the last batch.

Where a batch is expensive, the next one may linger: clients whose appends have just landed send the
next ones within a millisecond. Without waiting for them, two halves of the clients take turns, and
the same appends need twice as many batches.
"""

import asyncio
import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import NamedTuple, Protocol

from origin.storage.base import Done, StorageFailed
from protocol.stream import Record, StreamState

log = logging.getLogger("weir.storage")


class Unit(NamedTuple):
    """Records that are committed together or not at all."""

    state: StreamState
    records: tuple[Record, ...]
    encoded: list[bytes]
    size_bytes: int
    done: Done


class Batch:
    """All units pending when it was sealed; `where` is for the storage's own use."""

    __slots__ = ("followers", "size_bytes", "units", "where")

    def __init__(self, units: list[Unit], size_bytes: int, where: object) -> None:
        self.units = units
        self.size_bytes = size_bytes
        self.where = where
        self.followers: list[Done] = []


Seal = Callable[[list[Unit], int], Batch | None]
Act = Callable[[Batch], None]


Landed = Callable[[Batch, Exception | None], None]


class Writer(Protocol):
    def begin(self, batch: Batch, landed: Landed) -> None:
        """Make it durable; call `landed` on the event loop, once."""

    async def close(self) -> None:
        """Nothing is being written any more."""


class ThreadWriter:
    """Writes batches in a thread, one after another."""

    def __init__(self, write: Act, name: str) -> None:
        self._write = write
        self._loop = asyncio.get_running_loop()
        self._queue: SimpleQueue[tuple[Batch, Landed] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def begin(self, batch: Batch, landed: Landed) -> None:
        self._queue.put((batch, landed))

    async def close(self) -> None:
        self._queue.put(None)
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        while (asked := self._queue.get()) is not None:
            batch, landed = asked
            error: Exception | None = None
            try:
                self._write(batch)
            except Exception as caught:
                error = caught
            self._loop.call_soon_threadsafe(landed, batch, error)


class GroupCommit:
    """The queue of units in front of a writer."""

    def __init__(
        self, *, seal: Seal, writer: Writer, publish: Act, linger_secs: float = 0.0
    ) -> None:
        self._linger_secs = linger_secs
        self._lingering: asyncio.TimerHandle | None = None
        self._expected = 0  # units, if all come again: nobody is waited for any more
        self._seal = seal
        self._writer = writer
        self._publish = publish
        self._loop = asyncio.get_running_loop()
        self._scheduled = False
        self._flying: Batch | None = None
        self._pending: list[Unit] = []
        self.pending_bytes = 0
        self.failure: Exception | None = None

    @property
    def uncommitted_bytes(self) -> int:
        """Of what is pending or being written."""
        return self.pending_bytes + (0 if self._flying is None else self._flying.size_bytes)

    @property
    def idle(self) -> bool:
        return self._flying is None and not self._pending

    def add(self, unit: Unit) -> None:
        if self.failure is not None:
            raise StorageFailed(str(self.failure))
        self._pending.append(unit)
        self.pending_bytes += unit.size_bytes
        if self._flying is None and not self._scheduled:
            self._scheduled = True  # one loop iteration later, to batch concurrent requests
            self._loop.call_soon(self.start_batch)
        elif self._lingering is not None and len(self._pending) >= self._expected:
            self._stop_lingering()
            self._loop.call_soon(self.start_batch)

    def barrier(self, done: Done) -> None:
        if self.failure is not None:  # something staged was lost, even if the last batch lands
            done(StorageFailed(str(self.failure)))
        elif self._pending:
            last = self._pending[-1]
            self._pending[-1] = last._replace(done=_both(last.done, done))
        elif self._flying is not None:
            self._flying.followers.append(done)
        else:
            done(None)

    def start_batch(self) -> None:
        self._scheduled = False
        self._stop_lingering()
        if self._flying is not None or not self._pending or self.failure is not None:
            return
        batch = self._seal(self._pending, self.pending_bytes)
        if batch is not None:
            self._pending, self.pending_bytes = [], 0
            self._flying = batch
            self._writer.begin(batch, self._landed)

    async def drain(self) -> None:
        """Wait until nothing is pending, then close the writer."""
        settled = asyncio.Event()  # nobody may wait for it any more
        self.barrier(lambda _error: settled.set())
        await settled.wait()
        await self._writer.close()

    def _landed(self, batch: Batch, error: Exception | None) -> None:
        self._flying = None
        if error is not None:
            self._fail(batch, error)
            return
        self._publish(batch)
        try:
            if self._linger_secs and self._pending:
                self._linger(len(self._pending) + len(batch.units))
            else:
                self.start_batch()  # first, so that the disk works while responses are written
        finally:
            for unit in batch.units:
                _call(unit.done, None)
            for done in batch.followers:
                _call(done, None)

    def _linger(self, expected: int) -> None:
        self._scheduled, self._expected = True, expected
        self._lingering = self._loop.call_later(self._linger_secs, self.start_batch)

    def _stop_lingering(self) -> None:
        if self._lingering is not None:
            self._lingering.cancel()
            self._lingering = None

    def abort(self, error: Exception) -> None:
        """Write nothing more, and tell those who wait for it. A batch in flight ends by itself."""
        self._stop_lingering()
        if self.failure is None:
            self.failure = error
        self._refuse([], [], error)

    def _fail(self, batch: Batch, error: Exception) -> None:
        """Unsynced data may be lost, and everything judged later depends on it."""
        log.critical("storage failed, refusing writes: %s", error)
        self.failure = error
        self._refuse(batch.units, batch.followers, error)

    def _refuse(self, units: list[Unit], followers: list[Done], error: Exception) -> None:
        """These, and all that are pending."""
        lost = error if isinstance(error, StorageFailed) else StorageFailed(str(error))
        units, self._pending, self.pending_bytes = units + self._pending, [], 0
        for unit in units:
            _call(unit.done, lost)
        for done in followers:
            _call(done, lost)


def _both(first: Done, second: Done) -> Done:
    def done(error: Exception | None) -> None:
        _call(first, error)
        second(error)

    return done


def _call(done: Done, error: Exception | None) -> None:
    try:
        done(error)
    except Exception:  # one failing callback must not stop the others
        log.exception("a completion callback failed")
