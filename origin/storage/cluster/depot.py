"""The objects of one shard: packs of stream data, checkpoints, snapshots.

Keys carry the epoch of the owner that wrote them, so that no two owners ever write the same one:

  {cluster}/{shard}/packs/{epoch}-{number}
  {cluster}/{shard}/checkpoints/{epoch}-{number}
  {cluster}/{shard}/blobs/{blob}

An object counts only once a record in the journal names it. What no record names any more, or never
did, is deleted: at once, or by a sweep if that failed or its owner died.
"""

import asyncio
import logging
import time
from collections.abc import Collection, Iterable

from origin.storage.base import StorageAway
from origin.storage.cluster.coldblobs import ColdBlobs
from origin.storage.cluster.coldreads import ColdReads
from origin.storage.cluster.diskcache import DiskCache
from origin.storage.cluster.envelope import CheckpointRecord
from origin.storage.cluster.objects import Objects, ObjectsUnavailable
from origin.storage.cluster.packs import PackWriter
from origin.storage.cluster.saved import Saved, decode_saved, encode_saved, merged

log = logging.getLogger("weir.storage")

UNNAMED_SECS = 600.0  # an object that nothing names is deleted after this time


class Depot:
    def __init__(
        self, objects: Objects, cache: DiskCache, cluster: str, shard: int, epoch: int
    ) -> None:
        self._objects = objects
        self._epoch = epoch
        self._folder = f"{cluster}/{shard:03d}"
        self._packs = 0
        self._checkpoints = 0
        self._blobs = ColdBlobs(objects, cache)
        self._uploading: set[str] = set()
        self._unnamed: set[str] = set()  # as of the last sweep
        self.reads = ColdReads(objects, cache, self.pack_key)

    # -- packs ---------------------------------------------------------------------------------

    def pack_key(self, pack: int) -> str:
        return f"{self._folder}/packs/{pack >> 32:08x}-{pack & 0xFFFFFFFF:08x}"

    def new_pack(self) -> PackWriter:
        self._packs += 1
        return PackWriter(self._epoch << 32 | self._packs)

    async def put_pack(self, writer: PackWriter) -> None:
        await self._objects.put(self.pack_key(writer.pack), writer.buffers)

    async def get_range(self, pack: int, start: int, size_bytes: int) -> bytes:
        return await self._objects.get_range(self.pack_key(pack), start, size_bytes)

    async def drop_packs(self, packs: Iterable[int]) -> None:
        await self._delete(list(map(self.pack_key, packs)))

    # -- checkpoints ---------------------------------------------------------------------------

    async def put_saved(self, saved: Saved) -> str:
        """Returns the key."""
        self._checkpoints += 1
        key = f"{self._folder}/checkpoints/{self._epoch:08x}-{self._checkpoints:08x}"
        await self._objects.put(key, await asyncio.to_thread(encode_saved, saved, key))
        return key

    async def load(self, record: CheckpointRecord) -> Saved:
        return merged([await self._saved(key) for key in (record.base, *record.deltas)])

    async def _saved(self, key: str) -> Saved:
        return await asyncio.to_thread(decode_saved, await self._objects.get(key), key)

    async def drop_checkpoints(self, keys: Iterable[str]) -> None:
        await self._delete(list(keys))

    # -- snapshots -----------------------------------------------------------------------------

    def blob_key(self, blob: int) -> str:
        return f"{self._folder}/blobs/{blob:016x}"

    async def write_blob(self, blob: int, data: bytes) -> int:
        key = self.blob_key(blob)
        self._uploading.add(key)
        try:
            return await self._blobs.write(key, data)
        except ObjectsUnavailable as error:
            raise StorageAway(str(error)) from error
        finally:
            self._uploading.discard(key)

    async def read_blob(self, blob: int, size_bytes: int, start: int, end: int) -> bytes:
        return await self._blobs.read(self.blob_key(blob), size_bytes, start, end)

    async def drop_blob(self, blob: int) -> None:
        await self._delete([self.blob_key(blob)])

    # -- collection ----------------------------------------------------------------------------

    async def _delete(self, keys: list[str]) -> None:
        try:
            await self._objects.delete(keys)
        except ObjectsUnavailable as error:  # the sweep deletes them later
            log.info("could not delete %d objects: %s", len(keys), error)

    async def sweep(
        self, packs: Collection[int], checkpoints: Collection[str], blobs: Collection[int]
    ) -> dict[int, int]:
        """Delete what nothing names and nobody is about to; returns the size of each pack.

        Called after a checkpoint of ours was committed. A later owner may exist by now, but its
        objects are younger than the wait."""
        named = {*map(self.pack_key, packs), *checkpoints, *map(self.blob_key, blobs)}
        before_s = time.time() - UNNAMED_SECS
        found = await self._objects.list(f"{self._folder}/")
        unnamed = {
            each.key
            for each in found
            if each.key not in named and each.key not in self._uploading
            if each.modified_s < before_s
        }
        # Twice in a row: what is being replaced right now may still be named if that fails.
        doomed = unnamed & self._unnamed
        self._unnamed = unnamed - doomed
        if doomed:
            log.info("deleting %d objects that nothing names", len(doomed))
            await self._delete(sorted(doomed))
        sizes = {each.key: each.size_bytes for each in found}
        return {pack: sizes[key] for pack in packs if (key := self.pack_key(pack)) in sizes}
