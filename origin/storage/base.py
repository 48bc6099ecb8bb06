"""The interface of every storage.

A storage keeps records in order and returns bytes. It never judges: a record passed to `stage` was
accepted and is already applied to its state. `done` is called once, on the event loop, when the
record can no longer be lost, or with the error that lost it.
"""

from collections.abc import Callable
from typing import Protocol

from protocol.stream import Record, StreamState

Done = Callable[[Exception | None], None]


class StorageFailed(Exception):
    """A write or sync failed: nothing more is accepted until a recovery."""


class StorageAway(StorageFailed):
    """What the storage depends on does not answer: nothing is accepted for now."""


class StorageLost(StorageFailed):
    """Another node has taken over these streams; this is not stored."""


class OutcomeUnknown(StorageLost):
    """The same, but what was on its way may be stored."""


class StorageFull(Exception):
    """The disk is full; appends work again once there is room."""


class UnknownStream(Exception):
    """There is no such stream, or it was removed."""


class BelowFloor(Exception):
    """These bytes are no longer kept: a snapshot replaced them."""


class UnusableData(Exception):
    """The data directory cannot be opened; says why and names the path."""


class DamagedData(UnusableData):
    """Stored bytes differ from what was written. Names the file and the position."""

    def __init__(self, path: str, position: int, reason: str) -> None:
        super().__init__(f"{path}: damaged at byte {position}: {reason}")
        self.path = path
        self.position = position


class Storage(Protocol):
    @property
    def failure(self) -> str | None:
        """Why writes are refused, or None."""

    async def recover(self) -> list[StreamState]:
        """Open the storage and return every stream it holds."""

    def admits(self, size_bytes: int, *, urgent: bool = False) -> bool:
        """Whether a unit of this size can be staged now; raises StorageFull or StorageFailed.

        Removals are urgent: some room is reserved for them, because they free room.
        """

    def when_room(self, retry: Callable[[], None]) -> None:
        """Call `retry` once when the result of `admits` may change."""

    def stage(self, state: StreamState, records: tuple[Record, ...], done: Done) -> None:
        """Queue records of one stream as one atomic unit."""

    def barrier(self, done: Done) -> None:
        """Call `done` when everything staged so far is settled."""

    def read_now(self, stream_id: int, start: int, end: int) -> bytes | None:
        """Committed bytes if they are in memory, else None."""

    async def read(self, stream_id: int, start: int, end: int) -> bytes:
        """Committed bytes of exactly this range, verified; raises BelowFloor."""

    async def parts(self, stream_id: int, start: int, end: int) -> list[bytes]:
        """The same bytes, one piece for each append."""

    async def boundary(self, stream_id: int, at_or_after: int) -> int:
        """The first position at or after this one where an append ends (or the stream begins)."""

    def boundary_now(self, stream_id: int, at_or_after: int) -> int | None:
        """The same if it is known in memory, else None."""

    async def write_blob(self, blob: int, data: bytes) -> int:
        """Store bytes outside the streams; returns their stored size. Blobs not referenced by any
        state at startup were never published, and are removed."""

    async def read_blob(self, blob: int, size_bytes: int, start: int, end: int) -> bytes:
        """A range of a blob, verified; `size_bytes` is what `write_blob` returned."""

    def drop_blob(self, blob: int) -> None:
        """Remove a blob that will not be read again."""

    async def close(self) -> None:
        """Settle everything staged and close the files."""
