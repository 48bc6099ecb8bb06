"""The bytes of snapshots. A replaced one is deleted when its last reader is done."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager

from origin.storage.base import Storage
from protocol.stream import Snapshot

PIECE_BYTES = 256 * 1024
COPIES_AT_A_TIME = 2  # each is fully in memory


class SnapshotBlobs:
    def __init__(self, storage: Storage, new_id: Callable[[], int]) -> None:
        self._storage = storage
        self._new_id = new_id
        self.readers: Counter[int] = Counter()  # of each blob
        self._retired: set[int] = set()
        self._copying = asyncio.Semaphore(COPIES_AT_A_TIME)

    async def write(self, offset: int, content_type: str, data: bytes) -> Snapshot:
        blob = self._new_id()
        blob_bytes = await self._storage.write_blob(blob, data)
        return Snapshot(offset, content_type, len(data), blob, blob_bytes)

    async def copy(self, snapshot: Snapshot) -> Snapshot:
        async with self._copying:
            data = await self._storage.read_blob(
                snapshot.blob, snapshot.blob_bytes, 0, snapshot.size_bytes
            )
            return await self.write(snapshot.offset, snapshot.content_type, data)

    async def pieces(self, snapshot: Snapshot) -> AsyncIterator[bytes]:
        for start in range(0, snapshot.size_bytes, PIECE_BYTES):
            end = min(start + PIECE_BYTES, snapshot.size_bytes)
            yield await self._storage.read_blob(snapshot.blob, snapshot.blob_bytes, start, end)

    @contextmanager
    def held(self, snapshot: Snapshot | None) -> Iterator[None]:
        """Keep it while it is read, even if it is replaced meanwhile."""
        if snapshot is None:
            yield
            return
        blob = snapshot.blob
        self.readers[blob] += 1
        try:
            yield
        finally:
            self.readers[blob] -= 1
            if not self.readers[blob]:
                del self.readers[blob]
                if blob in self._retired:
                    self._retired.discard(blob)
                    self._storage.drop_blob(blob)

    def retire(self, snapshot: Snapshot) -> None:
        """No state references it any more: drop it once it has no readers."""
        if snapshot.blob in self.readers:
            self._retired.add(snapshot.blob)
        else:
            self.drop(snapshot)

    def drop(self, snapshot: Snapshot) -> None:
        """It has no readers, and will have none."""
        self._storage.drop_blob(snapshot.blob)
