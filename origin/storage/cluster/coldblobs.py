"""Snapshots as objects: blocks of one size, so that the place of a range is arithmetic."""

import asyncio
import hashlib

from origin.storage.base import DamagedData
from origin.storage.cluster.blockreads import BlockReads
from origin.storage.cluster.diskcache import DiskCache
from origin.storage.cluster.objects import Objects
from origin.storage.cluster.packs import LENGTH_BYTES, Block
from origin.storage.format import BLOCK_HEADER, encode_block

PIECE_BYTES = 256 * 1024
HEAD_BYTES = BLOCK_HEADER.size + LENGTH_BYTES
STORED_BYTES = HEAD_BYTES + PIECE_BYTES


class ColdBlobs:
    def __init__(self, objects: Objects, cache: DiskCache) -> None:
        self._objects = objects
        self._blocks = BlockReads(objects, cache)

    async def write(self, key: str, data: bytes) -> int:
        """Returns the size of the object, which reads need."""
        buffers = await asyncio.to_thread(_encode, key, data)
        await self._objects.put(key, buffers)
        return sum(map(len, buffers))

    async def read(self, key: str, size_bytes: int, start: int, end: int) -> bytes:
        if start >= end:
            return b""
        length = size_bytes - HEAD_BYTES * -(-size_bytes // STORED_BYTES)
        if end > length:
            raise DamagedData(key, size_bytes, f"has {length} bytes, not {end}")
        numbers = range(start // PIECE_BYTES, -(-end // PIECE_BYTES))
        wanted = [(key, _block(number, length)) for number in numbers]
        found = await self._blocks.load_all(_owner(key), wanted)
        return b"".join(
            payload[max(0, start - head.start) : end - head.start] for head, _, payload in found
        )


def _block(number: int, length: int) -> Block:
    start = number * PIECE_BYTES
    end = min(start + PIECE_BYTES, length)
    return Block(start, end, 0, number * STORED_BYTES, HEAD_BYTES + end - start)


def _encode(key: str, data: bytes) -> list[bytes]:
    buffers: list[bytes] = []
    for start in range(0, len(data), PIECE_BYTES):
        buffers += encode_block(_owner(key), start, [data[start : start + PIECE_BYTES]])
    return buffers


def _owner(key: str) -> int:
    """Stands in each block where a segment has the stream, so that a block belongs to its key."""
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "little")
