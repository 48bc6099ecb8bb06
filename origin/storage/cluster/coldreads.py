"""Reads of what a stream has in packs: exactly the range that was asked for, verified."""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from itertools import pairwise

from cachetools import LRUCache

from origin.storage.base import DamagedData
from origin.storage.cluster.blockreads import BlockReads
from origin.storage.cluster.diskcache import DiskCache
from origin.storage.cluster.objects import Objects
from origin.storage.cluster.packs import Block, DecodedBlock, Extents
from origin.storage.format import block_boundaries

BOUNDARIES_KEPT = 500_000  # of all blocks together


class ColdReads:
    """Packs may be deleted while a read waits; then it raises DamagedData, and the caller reads
    again by newer extents."""

    def __init__(self, objects: Objects, cache: DiskCache, pack_key: Callable[[int], str]) -> None:
        self._blocks = BlockReads(objects, cache)
        self._pack_key = pack_key
        self._boundaries: LRUCache[Block, array[int]] = LRUCache(BOUNDARIES_KEPT, getsizeof=len)

    async def read(self, stream_id: int, extents: Extents, start: int, end: int) -> bytes:
        found = await self._between(stream_id, extents, start, end)
        return b"".join(
            payload[max(0, start - head.start) : end - head.start] for head, _, payload in found
        )

    async def parts(self, stream_id: int, extents: Extents, start: int, end: int) -> list[bytes]:
        """The same bytes, one piece for each append."""
        found = await self._between(stream_id, extents, start, end)
        return [piece for block in found for piece in _pieces(block, start, end)]

    async def boundary(self, stream_id: int, extents: Extents, at_or_after: int) -> int:
        """First append boundary at or after this position."""
        if at_or_after == extents.end:
            return at_or_after
        block = self._wanted(stream_id, extents, at_or_after, at_or_after + 1)[0]
        if block.start == at_or_after:
            return at_or_after
        boundaries = self._boundaries.get(block)
        if boundaries is None:
            head, body, _ = await self._blocks.load(self._pack_key(block.pack), stream_id, block)
            boundaries = array("Q", block_boundaries(head, body))
            if len(boundaries) <= BOUNDARIES_KEPT:
                self._boundaries[block] = boundaries
        return boundaries[bisect_left(boundaries, at_or_after)]

    async def _between(
        self, stream_id: int, extents: Extents, start: int, end: int
    ) -> list[DecodedBlock]:
        if start >= end:
            return []
        blocks = self._wanted(stream_id, extents, start, end)
        keyed = [(self._pack_key(block.pack), block) for block in blocks]
        return await self._blocks.load_all(stream_id, keyed)

    def _wanted(self, stream_id: int, extents: Extents, start: int, end: int) -> list[Block]:
        blocks = extents.between(start, end)
        if not blocks or blocks[0].start > start or blocks[-1].end < end:
            raise DamagedData(f"stream {stream_id:016x}", start, "not in any pack")
        return blocks


def _pieces(block: DecodedBlock, start: int, end: int) -> list[bytes]:
    """Its appends, without what is outside of the range."""
    head, body, payload = block
    start, end = max(start, head.start), min(end, head.end)
    borders = block_boundaries(head, body)
    inside = borders[bisect_right(borders, start) : bisect_left(borders, end)]
    data = bytes(payload)  # whose slices cost far less than those of a view
    return [
        data[begin - head.start : stop - head.start]
        for begin, stop in pairwise((start, *inside, end))
    ]
