"""Blocks of objects, from the disk cache or from the object, verified each time."""

import asyncio
import logging
from collections.abc import Sequence

from origin.storage.base import DamagedData
from origin.storage.cluster.diskcache import DiskCache
from origin.storage.cluster.objects import ObjectMissing, Objects
from origin.storage.cluster.packs import Block, DecodedBlock, decode_block

log = logging.getLogger("weir.storage")

LOADS_AT_A_TIME = 4  # for one range


class BlockReads:
    def __init__(self, objects: Objects, cache: DiskCache) -> None:
        self._objects = objects
        self._cache = cache

    async def load(self, key: str, stream_id: int, block: Block) -> DecodedBlock:
        """Raises ObjectsUnavailable, or DamagedData with the object's key and the offset in it."""
        place = f"{key}@{block.offset}+{block.size_bytes}"

        async def fetch() -> bytes:
            data = await self._fetch(key, block)
            decode_block(data, stream_id, block, key)  # nothing else gets into the cache
            return data

        data = await self._cache.get(place, block.size_bytes, fetch)
        try:
            return decode_block(data, stream_id, block, key)
        except DamagedData as error:
            log.warning("on the disk cache: %s", error)
            self._cache.forget(place)
            return decode_block(await fetch(), stream_id, block, key)

    async def load_all(
        self, stream_id: int, wanted: Sequence[tuple[str, Block]]
    ) -> list[DecodedBlock]:
        """In this order; each with the key of its object."""
        if len(wanted) == 1:
            return [await self.load(wanted[0][0], stream_id, wanted[0][1])]
        slots = asyncio.Semaphore(LOADS_AT_A_TIME)

        async def load(key: str, block: Block) -> DecodedBlock:
            async with slots:
                return await self.load(key, stream_id, block)

        loads = [asyncio.create_task(load(key, block), name=f"load {key}") for key, block in wanted]
        try:
            return await asyncio.gather(*loads)
        finally:
            for task in loads:  # after an error, or when the caller leaves
                task.cancel()

    async def _fetch(self, key: str, block: Block) -> bytes:
        try:
            return await self._objects.get_range(key, block.offset, block.size_bytes)
        except ObjectMissing:
            raise DamagedData(key, block.offset, "the object is missing") from None
