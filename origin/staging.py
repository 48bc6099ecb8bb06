"""Between judgement and disk: room for a unit, its commit, and waiting until it is settled.

A check and the change it allows happen in one synchronous step, so there are no locks. Staged work
is finished in completion callbacks of the storage, never in the request's own task, so a client
that disconnects does not affect accepted work.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from origin.outcomes import UNKNOWN_OUTCOME
from origin.storage.base import (
    DamagedData,
    Done,
    OutcomeUnknown,
    Storage,
    StorageAway,
    StorageFailed,
    StorageFull,
    StorageLost,
)
from origin.streams import Stream
from protocol.errors import ProtocolError
from protocol.replies import RETRY_AFTER, Reply, problem
from protocol.stream import Record

RECORD_OVERHEAD_BYTES = 4096
MAX_WAITING_BYTES = 64 * 1024 * 1024


class Staging:
    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._waiting_bytes = 0

    def check_storage(self) -> None:
        """After a failure the staged state includes lost data, so nothing may be judged by it."""
        if self._storage.failure is not None:
            raise StorageFailed(self._storage.failure)

    # -- room ----------------------------------------------------------------------------------

    @property
    def is_crowded(self) -> bool:
        """Whether the queue for room is full."""
        return self._waiting_bytes > MAX_WAITING_BYTES

    def admits(self, data_bytes: int, *, urgent: bool = False) -> bool:
        return self._storage.admits(data_bytes + RECORD_OVERHEAD_BYTES, urgent=urgent)

    def admits_quietly(self, *, urgent: bool) -> bool:
        """Whether a record without data can be staged now, for background work."""
        try:
            return self.admits(0, urgent=urgent)
        except (StorageFailed, StorageFull):
            return False

    def when_room(self, data_bytes: int, retry: Callable[[], None]) -> None:
        """Call `retry` once there may be room; until then the bytes count as waiting."""
        waiting_bytes = data_bytes + RECORD_OVERHEAD_BYTES
        self._waiting_bytes += waiting_bytes

        def retry_uncounted() -> None:
            self._waiting_bytes -= waiting_bytes
            retry()

        self._storage.when_room(retry_uncounted)

    async def room(self) -> None:
        room = asyncio.get_running_loop().create_future()
        self._storage.when_room(lambda: settle(room, None))
        await room

    async def admitted(self, data_bytes: int) -> None:
        """Return when a unit of this size can be staged; the caller must stage it at once."""
        while not self.admits(data_bytes):
            if self.is_crowded:
                raise ProtocolError(503, "busy", "Too many requests are queued.", RETRY_AFTER)
            waiting_bytes = data_bytes + RECORD_OVERHEAD_BYTES
            self._waiting_bytes += waiting_bytes
            try:
                await self.room()
            finally:  # also if the client disconnected
                self._waiting_bytes -= waiting_bytes

    # -- commits -------------------------------------------------------------------------------

    def stage(self, stream: Stream, records: tuple[Record, ...], done: Done) -> None:
        """Queue records that are already applied. Until they are settled, the stream is in flight:
        replies based on its state must wait."""
        stream.inflight += 1

        def settled(error: Exception | None) -> None:
            stream.inflight -= 1
            done(error)

        self._storage.stage(stream.state, records, settled)

    def stage_quietly(self, stream: Stream, record: Record) -> None:
        """For a record that no reply depends on; storage failures are logged."""
        self._storage.stage(stream.state, (record,), ignore)

    async def commit(
        self, stream: Stream, records: tuple[Record, ...], landed: Callable[[], None]
    ) -> None:
        """Stage and wait. `landed` is called before any waiter continues."""
        committed = asyncio.get_running_loop().create_future()

        def done(error: Exception | None) -> None:
            if error is None:
                landed()
            settle(committed, error)

        self.stage(stream, records, done)
        await committed

    async def settled(self) -> None:
        """Wait until everything staged is on disk; raises StorageFailed if it was lost."""
        settled = asyncio.get_running_loop().create_future()
        self._storage.barrier(lambda error: settle(settled, error))
        await settled

    async def decided(self) -> None:
        """Wait until everything staged is committed or lost."""
        with suppress(StorageFailed):
            await self.settled()


def ignore(error: Exception | None) -> None:
    """Nothing waits for this; storage failures are logged."""


def settle(future: "asyncio.Future[None]", error: Exception | None) -> None:
    """The waiter may be gone."""
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)


def storage_problem(error: Exception) -> Reply:
    """Responses to storage errors: enough to act on, without details of our files."""
    if isinstance(error, StorageFull):
        return problem(507, "no-space", "There is not enough disk space.", RETRY_AFTER)
    if isinstance(error, DamagedData):
        return problem(500, "damaged", "This stream's stored data is damaged.")
    if isinstance(error, StorageAway):
        return problem(503, "storage-away", "The storage does not answer.", RETRY_AFTER)
    if isinstance(error, OutcomeUnknown):
        return UNKNOWN_OUTCOME
    if isinstance(error, StorageLost):
        return problem(503, "no-owner", "The stream is moving to another node.", RETRY_AFTER)
    return problem(
        503, "storage-failed", "Storage failed; writes are refused until a restart.", RETRY_AFTER
    )
