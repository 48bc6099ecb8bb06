"""`memory`: the same interface without persistence. A restart starts empty."""

import asyncio
from collections.abc import Callable

from origin.storage.base import BelowFloor, Done, UnknownStream
from origin.storage.recent import RecentAppends
from protocol.stream import Appended, Created, Record, Removed, StreamState, Trimmed


class MemoryStorage:
    failure: str | None = None

    def __init__(self) -> None:
        self._streams: dict[int, RecentAppends] = {}
        self._blobs: dict[int, bytes] = {}

    async def recover(self) -> list[StreamState]:
        self._loop = asyncio.get_running_loop()
        return []

    def admits(self, size_bytes: int, *, urgent: bool = False) -> bool:
        return True

    def when_room(self, retry: Callable[[], None]) -> None:
        raise AssertionError("memory always admits")

    def stage(self, state: StreamState, records: tuple[Record, ...], done: Done) -> None:
        for record in records:
            if type(record) is Created:
                self._streams[record.id] = RecentAppends(state.base)
            elif type(record) is Appended:
                self._streams[record.id].append(record.data)
            elif type(record) is Trimmed:  # just before `done`, which shows it to readers
                self._loop.call_soon(self._streams[record.id].drop_below, record.floor)
            elif type(record) is Removed:
                del self._streams[record.id]
        self._loop.call_soon(done, None)

    def barrier(self, done: Done) -> None:
        self._loop.call_soon(done, None)

    def read_now(self, stream_id: int, start: int, end: int) -> bytes:
        stored = self._stored(stream_id)
        if start < stored.start and start < end:
            raise BelowFloor(stream_id)
        return stored.read(start, end)

    async def read(self, stream_id: int, start: int, end: int) -> bytes:
        return self.read_now(stream_id, start, end)

    async def parts(self, stream_id: int, start: int, end: int) -> list[bytes]:
        if start < self._stored(stream_id).start:
            raise BelowFloor(stream_id)
        return self._stored(stream_id).slices(start, end)

    async def boundary(self, stream_id: int, at_or_after: int) -> int:
        stored = self._stored(stream_id)
        if at_or_after < stored.start:
            raise BelowFloor(stream_id)
        return stored.boundary(at_or_after)

    def boundary_now(self, stream_id: int, at_or_after: int) -> int | None:
        return self._stored(stream_id).boundary(at_or_after)

    async def write_blob(self, blob: int, data: bytes) -> int:
        self._blobs[blob] = data
        return len(data)

    async def read_blob(self, blob: int, size_bytes: int, start: int, end: int) -> bytes:
        return self._blobs[blob][start:end]

    def drop_blob(self, blob: int) -> None:
        self._blobs.pop(blob, None)

    def _stored(self, stream_id: int) -> RecentAppends:
        try:
            return self._streams[stream_id]
        except KeyError:
            raise UnknownStream(stream_id) from None

    async def close(self) -> None:
        """Nothing to settle."""
