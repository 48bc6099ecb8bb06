"""Packs: immutable objects with blocks of many streams, and where a stream's blocks are. Pure.

Blocks have the format of segments (`origin.storage.format`). A flush adds one small block to each
stream that grew; `merge_runs` says which of them to rewrite as larger ones, so that an old stream
is a few large reads.
"""

import sys
from array import array
from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from origin.storage.base import DamagedData
from origin.storage.format import (
    BLOCK_HEADER,
    BlockHead,
    Malformed,
    block_boundaries,
    check_block_body,
    decode_block_head,
    encode_block,
)

BLOCK_BYTES = 1024 * 1024
FULL_BYTES = BLOCK_BYTES // 2  # a block from this size on stays as it is
GROWTH = 3  # a block is rewritten when this many times its size has come after it
NEWEST_BLOCKS = 512
LENGTH_BYTES = 4  # of each append, in the block's table

_FIELDS = 4  # of a row: start, pack, offset, size_bytes


class Block(NamedTuple):
    """Positions `start` to `end` of a stream are at `offset` of this pack."""

    start: int
    end: int
    pack: int
    offset: int
    size_bytes: int


class DecodedBlock(NamedTuple):
    head: BlockHead
    body: memoryview  # table and payload
    payload: memoryview

    def parts(self) -> list[bytes]:
        """One piece for each append."""
        first = self.head.start
        ends = [end - first for end in block_boundaries(self.head, self.body)]
        return [bytes(self.payload[s:e]) for s, e in zip([0, *ends], ends, strict=False)]


RawExtents = tuple[int, bytes]


class Extents:
    """The blocks of one stream in order; each begins where the one before it ends."""

    __slots__ = ("_rows", "end")

    def __init__(self) -> None:
        self._rows = array("Q")
        self.end = 0

    @classmethod
    def from_raw(cls, raw: RawExtents) -> "Extents":
        extents = cls()
        end, rows = raw
        if len(rows) % (_FIELDS * extents._rows.itemsize):
            raise Malformed("truncated extents")
        extents._rows.frombytes(rows)
        if sys.byteorder == "big":
            extents._rows.byteswap()
        extents.end = end
        return extents

    def to_raw(self) -> RawExtents:
        rows = self._rows
        if sys.byteorder == "big":
            rows = rows[:]
            rows.byteswap()
        return self.end, rows.tobytes()

    def copy(self) -> "Extents":
        extents = Extents()
        extents._rows, extents.end = self._rows[:], self.end
        return extents

    @property
    def first(self) -> int:
        """Position where the first block begins."""
        return self._rows[0] if self._rows else self.end

    def __len__(self) -> int:
        return len(self._rows) // _FIELDS

    def __iter__(self) -> Iterator[Block]:
        return map(self.__getitem__, range(len(self)))

    def __getitem__(self, index: int) -> Block:
        if not 0 <= index < len(self):
            raise IndexError(index)
        row = index * _FIELDS
        start, pack, offset, size_bytes = self._rows[row : row + _FIELDS]
        return Block(start, self._start(index + 1), pack, offset, size_bytes)

    def add(self, block: Block) -> None:
        if block.start != self.end and (self._rows or block.start < self.end):
            raise ValueError(f"block at {block.start} does not continue at {self.end}")
        self._rows.extend(_row(block))
        self.end = block.end

    def between(self, start: int, end: int) -> list[Block]:
        """Those that have any of these positions."""
        if start >= end:
            return []
        first = max(0, self._index(start))
        last = self._index(end - 1) if end <= self.end else len(self) - 1
        return [self[index] for index in range(first, last + 1) if self._start(index + 1) > start]

    def find(self, start: int, end: int) -> tuple[int, int] | None:
        """(first, last) index of the blocks that are exactly these positions."""
        first, last = self._index(start), self._index(end - 1)
        if 0 <= first <= last and self._start(first) == start and self._start(last + 1) == end:
            return first, last
        return None

    def replace(self, first_index: int, last_index: int, blocks: Sequence[Block]) -> None:
        """Other blocks for the same positions; both indexes are included."""
        borders = [block.start for block in blocks] + [self._start(last_index + 1)]
        if borders[0] != self._start(first_index) or borders[1:] != [each.end for each in blocks]:
            raise ValueError("blocks are not for the positions that they replace")
        rows = array("Q", (field for block in blocks for field in _row(block)))
        self._rows[first_index * _FIELDS : (last_index + 1) * _FIELDS] = rows

    def drop_below(self, floor: int) -> list[Block]:
        """Remove and return the blocks that end at or before `floor`."""
        count = len(self) if floor >= self.end else max(0, self._index(floor))
        dropped = [self[index] for index in range(count)]
        del self._rows[: count * _FIELDS]
        return dropped

    def packs(self) -> Iterator[int]:
        """The pack of each block."""
        return iter(self._rows[1::_FIELDS])

    def sizes(self, first_index: int) -> Sequence[int]:
        """In bytes, of the blocks from this one on."""
        return self._rows[first_index * _FIELDS + 3 :: _FIELDS]

    def _start(self, index: int) -> int:
        row = index * _FIELDS
        return self._rows[row] if row < len(self._rows) else self.end

    def _index(self, position: int) -> int:
        """Of the last block that begins at or before this position; -1 if there is none."""
        return bisect_right(range(len(self)), position, key=self._start) - 1


def _row(block: Block) -> tuple[int, int, int, int]:
    return block.start, block.pack, block.offset, block.size_bytes


# -- writing and reading ---------------------------------------------------------------------


class PackWriter:
    """The bytes of one pack, in `buffers`, and where they are, in `blocks`."""

    def __init__(self, pack: int) -> None:
        self.pack = pack
        self.buffers: list[bytes] = []
        self.blocks: list[tuple[int, Block]] = []  # each with its stream
        self.size_bytes = 0

    def add(self, stream_id: int, start: int, parts: Sequence[bytes]) -> list[Block]:
        """Appends of one stream that follow each other, the first at position `start`; returns
        their blocks."""
        before = len(self.blocks)
        for run in cut_blocks([part for part in parts if part]):
            buffers = encode_block(stream_id, start, run)
            end, size_bytes = start + sum(map(len, run)), sum(map(len, buffers))
            self.blocks.append(
                (stream_id, Block(start, end, self.pack, self.size_bytes, size_bytes))
            )
            self.buffers += buffers
            self.size_bytes += size_bytes
            start = end
        return [block for _, block in self.blocks[before:]]


def cut_blocks(parts: Sequence[bytes]) -> Iterator[list[bytes]]:
    """Blocks of about BLOCK_BYTES and of about the same size, never cut inside an append."""
    total = sum(map(len, parts)) + LENGTH_BYTES * len(parts)
    target = total / max(1, round(total / BLOCK_BYTES))
    limit = target
    run: list[bytes] = []
    position = 0
    for part in parts:
        size = len(part) + LENGTH_BYTES
        if run and position + size / 2 >= limit:
            yield run
            run = []
            limit = max(limit + target, position + target / 2)  # after an append of several blocks
        run.append(part)
        position += size
    if run:
        yield run


def decode_block(
    data: bytes | memoryview, stream_id: int, block: Block, source: str
) -> DecodedBlock:
    """The block if `data` is what was written for it; DamagedData names `source` if not."""
    view = memoryview(data)
    try:
        if len(view) != block.size_bytes:
            raise Malformed(f"{len(view)} bytes, expected {block.size_bytes}")
        head = decode_block_head(view)
        if head.stream_id != stream_id or (head.start, head.end) != (block.start, block.end):
            raise Malformed("block belongs to another stream or position")
        body = view[BLOCK_HEADER.size :]
        return DecodedBlock(head, body, check_block_body(head, body))
    except Malformed as error:
        raise DamagedData(source, block.offset, str(error)) from None


# -- merging ---------------------------------------------------------------------------------


def merge_runs(
    extents: Extents, newest: int = NEWEST_BLOCKS, unreadable: Collection[int] = ()
) -> list[tuple[int, int]]:
    """(first, last) index of neighbouring blocks, each run to be rewritten as one block.

    A block that is not full is rewritten, with all that came after it, once that is GROWTH times
    as much. So what remains has sizes that fall from block to block, which makes their number
    logarithmic; and each rewriting moves a byte into a block that is four times as large, so that
    a byte is written about six times until its block is full. Runs between full blocks will not
    grow any more, and are merged at once.

    Only the `newest` blocks are looked at, because older ones were when they were new. Blocks of
    `unreadable` packs stay, like full ones.
    """
    skipped = max(0, len(extents) - newest)
    sizes = extents.sizes(skipped)
    if unreadable:
        packs = islice(extents.packs(), skipped, None)
        pairs = zip(sizes, packs, strict=True)
        sizes = [FULL_BYTES if pack in unreadable else size for size, pack in pairs]
    runs: list[tuple[int, int]] = []
    for first, end in _small_runs(sizes):
        if end == len(sizes):
            first = _outgrown(sizes, first)
        runs += [(skipped + start, skipped + last) for start, last in _portions(sizes, first, end)]
    return runs


def _small_runs(sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Where blocks that are not full begin and end."""
    first = 0
    for index, size in enumerate(sizes):
        if size >= FULL_BYTES:
            if first < index:
                yield first, index
            first = index + 1
    if first < len(sizes):
        yield first, len(sizes)


def _outgrown(sizes: Sequence[int], first: int) -> int:
    """From which of the last blocks on to merge; their end if none has been outgrown."""
    later = sum(sizes[first:])
    for index in range(first, len(sizes)):
        size = sizes[index]
        later -= size
        if later >= GROWTH * size:
            # What is left of a full block would never grow again.
            return first if later + size >= FULL_BYTES else index
    return len(sizes)


def _portions(sizes: Sequence[int], first: int, end: int) -> Iterator[tuple[int, int]]:
    """A run that is far too long for one block, in several; a single block is no run."""
    total = 0
    for index in range(first, end):
        total += sizes[index]
        if total >= BLOCK_BYTES or index == end - 1:
            if index > first:
                yield first, index
            first, total = index + 1, 0
