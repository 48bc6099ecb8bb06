"""Per-stream segment files: blocks of appends, written by checkpoints, verified on every read.

A segment is valid in the extent given by the catalog. Data after it was left by an unfinished
checkpoint and is overwritten by the next; data before it is below the stream's floor and has been
freed on disk. Index and reads run in worker threads.
"""

import os
import threading
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from cachetools import LRUCache

from origin.storage.base import DamagedData
from origin.storage.files import Files
from origin.storage.format import (
    BLOCK_HEADER,
    BlockHead,
    Extent,
    Malformed,
    block_boundaries,
    check_block_body,
    decode_block_head,
    encode_block,
)

BLOCK_BYTES = 256 * 1024
INDEXES_KEPT = 4096


Block = tuple[BlockHead, memoryview, memoryview]  # head, table and payload, payload


class Index:
    """Where each block of a segment begins, in the stream and in the file."""

    __slots__ = ("end", "offsets", "size_bytes", "starts")

    def __init__(self, first: int) -> None:
        self.starts = array("Q")
        self.offsets = array("Q")
        self.size_bytes = first
        self.end = 0

    def add(self, head: BlockHead) -> None:
        self.starts.append(head.start)
        self.offsets.append(self.size_bytes)
        self.size_bytes += head.size_bytes
        self.end = head.end


class Segments:
    def __init__(self, folder: str, files: Files) -> None:
        self.folder = folder
        self._files = files
        self._indexes: LRUCache[int, Index] = LRUCache(INDEXES_KEPT)
        self._lock = threading.Lock()

    def path(self, stream_id: int) -> str:
        name = f"{stream_id:016x}"
        return os.path.join(self.folder, name[:2], name + ".seg")

    def found(self) -> Iterator[int]:
        """Stream ids of all existing files, referenced or not."""
        for _, _, names in os.walk(self.folder):
            yield from (int(name[:-4], 16) for name in names if name.endswith(".seg"))

    def read(self, stream_id: int, extent: Extent, start: int, end: int) -> bytes:
        """Positions `start` to `end`, all inside the extent."""
        blocks = self._between(stream_id, extent, start, end)
        data = b"".join(
            payload[max(0, start - head.start) : end - head.start] for head, _, payload in blocks
        )
        self._check_length(stream_id, extent, len(data), end - start)
        return data

    def parts(self, stream_id: int, extent: Extent, start: int, end: int) -> list[bytes]:
        """The same bytes, one piece for each append."""
        pieces: list[bytes] = []
        for head, body, payload in self._between(stream_id, extent, start, end):
            begin = head.start
            for border in block_boundaries(head, body):
                if begin < end and border > start:
                    piece = payload[max(start, begin) - head.start : min(end, border) - head.start]
                    pieces.append(bytes(piece))
                begin = border
        self._check_length(stream_id, extent, sum(map(len, pieces)), end - start)
        return pieces

    def _between(self, stream_id: int, extent: Extent, start: int, end: int) -> Iterator[Block]:
        with self._opened(stream_id, extent) as (fd, path, index):
            first = bisect_right(index.starts, start) - 1
            last = bisect_right(index.starts, end - 1) - 1
            if 0 <= first <= last:
                yield from self._blocks(fd, path, index, first, last)

    def _check_length(self, stream_id: int, extent: Extent, found: int, wanted: int) -> None:
        if found != wanted:
            reason = f"{found} bytes, expected {wanted}"
            raise DamagedData(self.path(stream_id), extent.end, reason)

    def block_at(self, stream_id: int, extent: Extent, position: int) -> int:
        """File position of the block that contains this stream position."""
        with self._opened(stream_id, extent) as (_, _, index):
            return index.offsets[bisect_right(index.starts, position) - 1]

    def boundary(self, stream_id: int, extent: Extent, at_or_after: int) -> int:
        """First append boundary at or after a position inside the extent."""
        with self._opened(stream_id, extent) as (fd, path, index):
            block = bisect_right(index.starts, at_or_after) - 1
            if block < 0:
                raise DamagedData(path, extent.first, f"position {at_or_after} is missing")
            if index.starts[block] == at_or_after:
                return at_or_after
            head, body, _ = next(self._blocks(fd, path, index, block, block))
            boundaries = block_boundaries(head, body)
            return boundaries[bisect_right(boundaries, at_or_after - 1)]

    def write(
        self, stream_id: int, size_bytes: int, start: int, parts: Sequence[bytes]
    ) -> tuple[int, int]:
        """Write appends after the first `size_bytes`; returns (fd to sync and close, new size)."""
        path = self.path(stream_id)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        fd = self._files.open(path, create=True)
        try:
            for block_start, block in _blocks_of(start, parts):
                for buffer in encode_block(stream_id, block_start, block):
                    self._files.write_at(fd, buffer, size_bytes)
                    size_bytes += len(buffer)
        except BaseException:
            self._files.close(fd)
            raise
        return fd, size_bytes

    def remove(self, stream_id: int) -> None:
        with self._lock:
            self._indexes.pop(stream_id, None)
        with suppress(FileNotFoundError):
            self._files.unlink(self.path(stream_id))

    def punch(self, stream_id: int, first: int) -> None:
        """Free everything before `first` on disk."""
        try:
            fd = self._files.open(self.path(stream_id))
        except FileNotFoundError:  # the stream was removed meanwhile
            return
        try:
            self._files.punch(fd, first)
        finally:
            self._files.close(fd)

    def walk(self, stream_id: int, extent: Extent) -> Iterator[Block]:
        """Every block in order, verified: for fsck and dump."""
        with self._opened(stream_id, extent) as (fd, path, index):
            for number in range(len(index.starts)):
                yield from self._blocks(fd, path, index, number, number)

    @contextmanager
    def _opened(self, stream_id: int, extent: Extent) -> Iterator[tuple[int, str, Index]]:
        path = self.path(stream_id)
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise DamagedData(path, 0, "the segment file is missing") from None
        try:
            yield fd, path, self._index(fd, path, stream_id, extent)
        finally:
            os.close(fd)

    def _index(self, fd: int, path: str, stream_id: int, extent: Extent) -> Index:
        with self._lock:
            index = self._indexes.get(stream_id)
            # An index that ends before the extent covers only removed data.
            if index is None or index.size_bytes <= extent.first:
                index = self._indexes[stream_id] = Index(extent.first)
            while index.size_bytes < extent.end:
                data = self._files.read_at(fd, BLOCK_HEADER.size, index.size_bytes)
                index.add(self._head(path, index, stream_id, data, extent.end))
            return index

    def _head(
        self, path: str, index: Index, stream_id: int, data: bytes, size_bytes: int
    ) -> BlockHead:
        try:
            head = decode_block_head(data)
            if head.stream_id != stream_id or (index.starts and head.start != index.end):
                raise Malformed("block belongs to another stream or position")
            if index.size_bytes + head.size_bytes > size_bytes:
                raise Malformed("block extends beyond the segment")
        except Malformed as error:
            raise DamagedData(path, index.size_bytes, str(error)) from None
        return head

    def _blocks(self, fd: int, path: str, index: Index, first: int, last: int) -> Iterator[Block]:
        """Blocks `first` to `last`, from one read."""
        begin = index.offsets[first]
        end = index.offsets[last + 1] if last + 1 < len(index.offsets) else index.size_bytes
        data = memoryview(self._files.read_at(fd, end - begin, begin))
        position = 0
        for _ in range(first, last + 1):
            try:
                head = decode_block_head(data[position : position + BLOCK_HEADER.size])
                body = data[position + BLOCK_HEADER.size : position + head.size_bytes]
                payload = check_block_body(head, body)
            except Malformed as error:
                raise DamagedData(path, begin + position, str(error)) from None
            yield head, body, payload
            position += head.size_bytes


def _blocks_of(start: int, parts: Sequence[bytes]) -> Iterator[tuple[int, list[bytes]]]:
    """Cut a run of appends into blocks of about BLOCK_BYTES, never inside an append."""
    block: list[bytes] = []
    size = 0
    for part in parts:
        if block and size + len(part) > BLOCK_BYTES:
            yield start, block
            start, block, size = start + size, [], 0
        block.append(part)
        size += len(part)
    if block:
        yield start, block
