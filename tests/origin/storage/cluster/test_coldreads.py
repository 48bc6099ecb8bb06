"""Cold reads: every range of a stream in packs, through merging, damage and a storage that is away.

Objects are in a folder; test_objects_s3.py has them in a real S3 server.
"""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Sequence
from itertools import accumulate
from pathlib import Path

import pytest

from origin.config import MIB, ColdConfig
from origin.storage.base import DamagedData
from origin.storage.cluster import merges
from origin.storage.cluster.blockreads import LOADS_AT_A_TIME
from origin.storage.cluster.coldreads import ColdReads
from origin.storage.cluster.diskcache import DiskCache
from origin.storage.cluster.flush import ColdStored, Flush
from origin.storage.cluster.objects import Objects, ObjectsUnavailable, open_objects
from origin.storage.cluster.packs import BLOCK_BYTES, Block, Extents, PackWriter, merge_runs
from protocol.stream import StreamState
from tests.crash.spoil import flip

ID = 0xAB_0000_0000_0001


def pack_key(pack: int) -> str:
    return f"packs/{pack:016x}"


class Cold:
    """A stream whose flushes go to a pack each, beside blocks of another stream."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.objects = open_objects(ColdConfig(backend="fs", fs_path=str(folder / "objects")), {})
        self.cache = DiskCache(str(folder / "cache"), 64 * MIB)
        self.reads = ColdReads(self.objects, self.cache, pack_key)
        self.extents = Extents()
        self.appends: list[bytes] = []
        self.packs = 0

    async def flush(self, parts: Sequence[bytes]) -> None:
        writer = self._writer()
        writer.add(ID + 1, 0, [b"of another stream"])
        writer.add(ID, self.extents.end, parts)
        await self.objects.put(pack_key(writer.pack), writer.buffers)
        for stream_id, block in writer.blocks:
            if stream_id == ID:
                self.extents.add(block)
        self.appends += parts

    async def merge(self) -> int:
        runs = merge_runs(self.extents)
        for first, last in reversed(runs):
            start, end = self.extents[first].start, self.extents[last].end
            writer = self._writer()
            writer.add(ID, start, await self.reads.parts(ID, self.extents, start, end))
            await self.objects.put(pack_key(writer.pack), writer.buffers)
            self.extents.replace(first, last, [block for _, block in writer.blocks])
        return len(runs)

    def _writer(self) -> PackWriter:
        self.packs += 1
        return PackWriter(self.packs)

    def read(self, start: int, end: int) -> "asyncio.Future[bytes]":
        return asyncio.ensure_future(self.reads.read(ID, self.extents, start, end))

    def object_path(self, pack: int) -> Path:
        return self.folder / "objects" / pack_key(pack)

    async def settle(self) -> None:
        while self.cache._flights:
            await asyncio.wait(self.cache._flights.values())

    def cached(self) -> list[Path]:
        return sorted((self.folder / "cache").iterdir())


@pytest.fixture
async def cold(tmp_path: Path) -> AsyncIterator[Cold]:
    cold = Cold(tmp_path)
    yield cold
    await cold.cache.close()


async def check_everything(cold: Cold) -> None:
    whole, end = b"".join(cold.appends), cold.extents.end
    borders = [0, *accumulate(map(len, cold.appends))]
    for start in range(0, end, 3):
        assert await cold.reads.boundary(ID, cold.extents, start) == next(
            border for border in borders if border >= start
        )
        for stop in range(start, end + 1, 7):
            assert await cold.read(start, stop) == whole[start:stop]
            pieces = await cold.reads.parts(ID, cold.extents, start, stop)
            cuts = [start, *(border for border in borders if start < border < stop), stop]
            expected = [whole[a:b] for a, b in zip(cuts, cuts[1:], strict=False) if a < b]
            assert pieces == expected
    assert await cold.reads.boundary(ID, cold.extents, end) == end


async def test_every_range_of_several_flushes(cold: Cold) -> None:
    for number in range(5):
        await cold.flush([bytes([65 + number]) * size for size in (number + 1, 2, 4)])
    await check_everything(cold)


async def test_every_range_after_merging(cold: Cold) -> None:
    for number in range(20):
        await cold.flush([bytes([65 + number]) * (number % 3 + 1), b"-"])
        while await cold.merge():
            pass
    assert len(cold.extents) < 8
    await check_everything(cold)


async def test_a_large_block_does_not_keep_others_from_being_merged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is rewritten by a flush that begins with it."""
    monkeypatch.setattr(merges, "MERGE_BYTES", 100)

    def flush_of(*sizes: int) -> Flush:
        stored = ColdStored(StreamState(ID, "s", "text/plain", 0), 0)
        for pack, size in enumerate(sizes):
            end = stored.extents.end
            stored.extents.add(Block(end, end + size, pack, 0, size))
        return Flush(stored, b"", 0, 0)

    large, small = flush_of(500), flush_of(20)
    found = await merges._find_runs([small, large, flush_of(30)], {0}, ())
    runs = [run.flush for run in found]
    assert [flush.stored.extents.end for flush in runs] == [20, 30]
    found = await merges._find_runs([large, small], {0}, ())
    assert [run.flush for run in found] == [large]


async def test_a_stream_that_begins_and_ends_elsewhere(cold: Cold) -> None:
    writer = PackWriter(9)
    writer.add(ID, 100, [b"abc", b"de"])
    await cold.objects.put(pack_key(9), writer.buffers)
    cold.extents.add(writer.blocks[0][1])
    assert await cold.read(101, 104) == b"bcd"
    assert [await cold.reads.boundary(ID, cold.extents, at) for at in (100, 101, 105)] == [
        *(100, 103, 105)
    ]
    for start, end in ((99, 101), (104, 106), (105, 106)):
        with pytest.raises(DamagedData, match=f"stream {ID:016x}: damaged at byte {start}"):
            await cold.read(start, end)
    with pytest.raises(DamagedData, match="not in any pack"):
        await cold.reads.boundary(ID, cold.extents, 99)


async def test_large_appends(cold: Cold) -> None:
    rng = random.Random(1)
    parts = [rng.randbytes(size) for size in (10, 16 * MIB, 300_000, 500_000, 700_000, 5)]
    await cold.flush(parts)
    whole = b"".join(parts)
    assert await cold.read(0, len(whole)) == whole
    assert await cold.read(16 * MIB, 16 * MIB + 100) == whole[16 * MIB : 16 * MIB + 100]
    assert await cold.reads.boundary(ID, cold.extents, 11) == 16 * MIB + 10


async def test_a_damaged_object_is_named_and_never_cached(cold: Cold) -> None:
    await cold.flush([b"hello", b"world"])
    block = cold.extents[0]
    flip(cold.object_path(1), block.offset + block.size_bytes - 1)
    for _ in range(2):
        with pytest.raises(DamagedData, match=f"^{pack_key(1)}: damaged at byte {block.offset}: "):
            await cold.read(0, 5)
    assert cold.cached() == []
    flip(cold.object_path(1), block.offset + block.size_bytes - 1)
    assert await cold.read(0, 10) == b"helloworld"


async def test_a_shortened_object_is_damaged(cold: Cold) -> None:
    await cold.flush([b"hello", b"world"])
    path = cold.object_path(1)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DamagedData, match=f"^{pack_key(1)}: damaged at byte "):
        await cold.read(0, 5)


async def test_a_missing_object_is_damage(cold: Cold) -> None:
    await cold.flush([b"hello"])
    cold.object_path(1).unlink()
    with pytest.raises(DamagedData, match=f"^{pack_key(1)}: .* the object is missing"):
        await cold.read(0, 5)


@pytest.mark.parametrize("damage", ["flipped", "empty"])
async def test_a_damaged_cache_is_mended_from_the_object(
    cold: Cold, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    await cold.flush([b"hello", b"world"])
    assert await cold.read(0, 5) == b"hello"
    await cold.settle()
    [path] = cold.cached()
    flip(path, 50) if damage == "flipped" else path.write_bytes(b"")
    with caplog.at_level(logging.WARNING):
        assert await cold.read(3, 10) == b"loworld"
    assert len(caplog.records) == (damage == "flipped")
    await cold.read(0, 5)
    await cold.settle()
    gets = cold.objects.operations["get"]
    assert await cold.read(3, 10) == b"loworld"
    assert cold.objects.operations["get"] == gets


async def test_what_is_cached_is_there_without_the_storage(cold: Cold) -> None:
    await cold.flush([b"hello"])
    await cold.flush([b"world"])
    assert await cold.read(0, 5) == b"hello"
    await cold.settle()
    (cold.folder / "objects").rename(cold.folder / "away")
    assert await cold.read(1, 4) == b"ell"
    with pytest.raises(ObjectsUnavailable):
        await cold.read(0, 10)
    (cold.folder / "away").rename(cold.folder / "objects")
    assert await cold.read(0, 10) == b"helloworld"


async def test_blocks_of_a_range_are_loaded_a_few_at_a_time(
    cold: Cold, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cold.flush([bytes([number]) * BLOCK_BYTES for number in range(10)])
    assert len(cold.extents) == 10
    at_once: list[int] = []
    running = 0
    get_range = Objects.get_range

    async def watch(objects: Objects, key: str, start: int, size_bytes: int) -> bytes:
        nonlocal running
        running += 1
        at_once.append(running)
        try:
            return await get_range(objects, key, start, size_bytes)
        finally:
            running -= 1

    monkeypatch.setattr(Objects, "get_range", watch)
    readers = [cold.read(0, cold.extents.end) for _ in range(3)]
    assert {len(data) for data in await asyncio.gather(*readers)} == {10 * BLOCK_BYTES}
    assert len(at_once) == 10  # whoever reads it at the same time shares the load
    assert max(at_once) == LOADS_AT_A_TIME


async def test_boundaries_are_remembered(cold: Cold) -> None:
    await cold.flush([b"hello", b"world"])
    assert await cold.reads.boundary(ID, cold.extents, 2) == 5
    lookups = cold.cache.hits + cold.cache.misses
    assert await cold.reads.boundary(ID, cold.extents, 6) == 10
    assert cold.cache.hits + cold.cache.misses == lookups


async def test_a_reader_that_leaves_and_one_that_stays(cold: Cold) -> None:
    await cold.flush([bytes(BLOCK_BYTES)] * 3)
    leaves, stays = cold.read(0, cold.extents.end), cold.read(0, cold.extents.end)
    await asyncio.sleep(0)
    leaves.cancel()
    assert len(await stays) == 3 * BLOCK_BYTES
    with pytest.raises(asyncio.CancelledError):
        await leaves
