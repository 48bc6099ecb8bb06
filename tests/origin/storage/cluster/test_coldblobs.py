"""Snapshots as objects: any range exactly, damage found, and read from the cache again."""

import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from origin.config import MIB, ColdConfig
from origin.storage.base import DamagedData
from origin.storage.cluster.coldblobs import HEAD_BYTES, PIECE_BYTES, STORED_BYTES, ColdBlobs
from origin.storage.cluster.diskcache import DiskCache
from origin.storage.cluster.objects import Objects, open_objects
from tests.crash.spoil import flip

KEY = "blobs/0000000000000007"


@pytest.fixture
def objects(tmp_path: Path) -> Objects:
    return open_objects(ColdConfig(backend="fs", fs_path=str(tmp_path / "objects")), {})


@pytest.fixture
async def blobs(objects: Objects, tmp_path: Path) -> AsyncIterator[ColdBlobs]:
    cache = DiskCache(str(tmp_path / "cache"), 64 * MIB)
    yield ColdBlobs(objects, cache)
    await cache.close()


@pytest.mark.parametrize(
    "size", [0, 1, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES, 1_000_000]
)
async def test_any_range_of_a_blob_is_read_exactly(blobs: ColdBlobs, size: int) -> None:
    data = random.Random(size).randbytes(size)
    stored = await blobs.write(KEY, data)
    assert stored == size + HEAD_BYTES * -(-size // PIECE_BYTES)
    near = {border + by for border in (0, PIECE_BYTES, 2 * PIECE_BYTES, size) for by in (-1, 0, 1)}
    borders = sorted(border for border in near if 0 <= border <= size)
    for start in borders:
        for end in (border for border in borders if border >= start):
            assert await blobs.read(KEY, stored, start, end) == data[start:end]


async def test_a_range_loads_only_its_blocks(blobs: ColdBlobs, objects: Objects) -> None:
    data = random.Random(1).randbytes(10 * PIECE_BYTES)
    stored = await blobs.write(KEY, data)
    for _ in range(2):
        await blobs.read(KEY, stored, PIECE_BYTES - 1, PIECE_BYTES + 1)
    assert objects.operations["get"] == 2


async def test_damage_is_found_with_its_block(blobs: ColdBlobs, tmp_path: Path) -> None:
    stored = await blobs.write(KEY, bytes(3 * PIECE_BYTES))
    flip(tmp_path / "objects" / KEY, STORED_BYTES + 100)
    assert await blobs.read(KEY, stored, 0, PIECE_BYTES) == bytes(PIECE_BYTES)
    with pytest.raises(DamagedData, match=f"^{KEY}: damaged at byte {STORED_BYTES}: "):
        await blobs.read(KEY, stored, 0, 2 * PIECE_BYTES)


async def test_a_blob_under_the_key_of_another_is_damage(
    blobs: ColdBlobs, objects: Objects
) -> None:
    stored = await blobs.write(KEY, b"hello")
    await objects.put("blobs/other", await objects.get(KEY))
    with pytest.raises(DamagedData, match="another stream"):
        await blobs.read("blobs/other", stored, 0, 5)


async def test_a_range_that_the_blob_does_not_have(blobs: ColdBlobs) -> None:
    stored = await blobs.write(KEY, b"hello")
    with pytest.raises(DamagedData, match="has 5 bytes, not 6"):
        await blobs.read(KEY, stored, 0, 6)
    with pytest.raises(DamagedData, match="the object is missing"):
        await blobs.read("blobs/missing", stored, 0, 5)
