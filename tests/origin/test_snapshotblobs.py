"""A snapshot's bytes stay while somebody reads them."""

from itertools import count

import pytest

from origin.snapshotblobs import PIECE_BYTES, SnapshotBlobs
from origin.storage.memory import MemoryStorage
from protocol.stream import Snapshot


class Blobs(SnapshotBlobs):
    def __init__(self) -> None:
        self.storage = MemoryStorage()
        ids = count(1)
        super().__init__(self.storage, lambda: next(ids))

    async def bytes_of(self, snapshot: Snapshot) -> bytes:
        return b"".join([piece async for piece in self.pieces(snapshot)])


async def test_one_that_nobody_reads_goes_at_once() -> None:
    blobs = Blobs()
    snapshot = await blobs.write(3, "text/plain", b"bytes")
    blobs.retire(snapshot)
    with pytest.raises(KeyError):
        await blobs.bytes_of(snapshot)


async def test_one_that_was_replaced_goes_with_its_last_reader() -> None:
    blobs = Blobs()
    snapshot = await blobs.write(3, "text/plain", b"bytes")
    with blobs.held(snapshot):
        with blobs.held(snapshot):
            blobs.retire(snapshot)
        assert await blobs.bytes_of(snapshot) == b"bytes"
    assert not blobs.readers
    with pytest.raises(KeyError):
        await blobs.bytes_of(snapshot)


async def test_a_copy_is_independent_of_what_it_was_made_of() -> None:
    blobs = Blobs()
    data = b"x" * (PIECE_BYTES + 1)
    snapshot = await blobs.write(3, "text/plain", data)
    copied = await blobs.copy(snapshot)
    assert (copied.offset, copied.content_type, copied.size_bytes) == (3, "text/plain", len(data))
    blobs.retire(snapshot)
    assert await blobs.bytes_of(copied) == data


def test_no_snapshot_is_held_by_nobody() -> None:
    blobs = Blobs()
    with blobs.held(None):
        assert not blobs.readers
