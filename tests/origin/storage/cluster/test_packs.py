"""Packs: what is written is found and verified; merging keeps blocks few and writes little."""

import math
import random
from collections.abc import Sequence
from itertools import accumulate, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from origin.storage.base import DamagedData
from origin.storage.cluster.packs import (
    BLOCK_BYTES,
    FULL_BYTES,
    GROWTH,
    LENGTH_BYTES,
    Block,
    Extents,
    PackWriter,
    cut_blocks,
    decode_block,
    merge_runs,
)
from origin.storage.format import BLOCK_HEADER, Malformed, block_boundaries

ID = 0xAB_0000_0000_0001
MOST_FLUSHED = BLOCK_BYTES // 4
LEAST_BLOCK = BLOCK_HEADER.size + LENGTH_BYTES + 1  # with one append of one byte


def write(parts: Sequence[bytes], start: int = 0) -> tuple[bytes, list[Block]]:
    writer = PackWriter(7)
    writer.add(ID, start, parts)
    assert sum(map(len, writer.buffers)) == writer.size_bytes
    return b"".join(writer.buffers), [block for _, block in writer.blocks]


# -- writing and reading ---------------------------------------------------------------------


@given(st.lists(st.binary(max_size=50), max_size=20), st.integers(0, 2**60))
def test_small_appends_are_one_block(parts: list[bytes], start: int) -> None:
    data, blocks = write(parts, start)
    parts = [part for part in parts if part]
    assert len(blocks) == bool(parts)
    for block in blocks:
        head, body, payload = decode_block(data, ID, block, "pack")
        assert payload == b"".join(parts)
        ends = list(accumulate(map(len, parts), initial=start))[1:]
        assert block_boundaries(head, body) == ends


def test_blocks_of_several_streams() -> None:
    writer = PackWriter(2**64 - 1)
    given = {1: (100, [b"abc", b"de"]), 2: (0, [b"f"]), 3: (5, [bytes(BLOCK_BYTES * 3)])}
    for stream_id, (start, parts) in given.items():
        writer.add(stream_id, start, parts)
    data = b"".join(writer.buffers)
    for stream_id, block in writer.blocks:
        start, parts = given[stream_id]
        assert (block.start, block.pack) == (start, 2**64 - 1)
        stored = data[block.offset : block.offset + block.size_bytes]
        assert decode_block(stored, stream_id, block, "pack").payload == b"".join(parts)


lengths_of_appends = st.lists(
    st.one_of(st.integers(1, 1000), st.integers(1, BLOCK_BYTES), st.just(16 * BLOCK_BYTES)),
    max_size=40,
)


@given(lengths_of_appends)
def test_cuts_are_even_and_never_inside_an_append(lengths: list[int]) -> None:
    parts = [bytes(length) for length in lengths]
    runs = list(cut_blocks(parts))
    assert [part for run in runs for part in run] == parts
    largest = max(lengths, default=0)
    for run in runs:
        assert len(run) == 1 or sum(map(len, run)) <= 1.5 * BLOCK_BYTES + largest
    if largest <= BLOCK_BYTES // 4 and sum(lengths) >= BLOCK_BYTES:
        assert min(sum(map(len, run)) for run in runs) >= FULL_BYTES


def test_one_byte_appends_do_not_make_huge_blocks() -> None:
    assert all(len(run) * 5 < 1.6 * BLOCK_BYTES for run in cut_blocks([b"."] * 500_000))


@pytest.mark.parametrize("position", [0, 5, 9, 17, 25, 33, 38, 40, 44, -1])
def test_a_flipped_bit_is_found_anywhere(position: int) -> None:
    data, [block] = write([b"hello", b"world"])
    damaged = bytearray(data)
    damaged[position] ^= 4
    with pytest.raises(DamagedData, match=r"^shard/pack: damaged at byte 0: "):
        decode_block(bytes(damaged), ID, block, "shard/pack")


def test_a_whole_block_in_the_wrong_place_is_found() -> None:
    data, [block] = write([b"hello"], 100)
    for wrong in (block._replace(start=99), block._replace(end=106)):
        with pytest.raises(DamagedData, match="another stream or position"):
            decode_block(data, ID, wrong, "pack")
    with pytest.raises(DamagedData, match="another stream or position"):
        decode_block(data, ID + 1, block, "pack")
    with pytest.raises(DamagedData, match="48 bytes, expected 49"):
        decode_block(data[:-1], ID, block, "pack")


# -- extents ---------------------------------------------------------------------------------


def make_extents(lengths: Sequence[int], start: int = 0) -> tuple[Extents, list[Block]]:
    borders = list(accumulate(lengths, initial=start))
    blocks = [
        Block(begin, end, 1000 + begin, 10 * begin, end - begin + 44)
        for begin, end in pairwise(borders)
    ]
    extents = Extents()
    for block in blocks:
        extents.add(block)
    return extents, blocks


lists_of_lengths = st.lists(st.integers(1, 30), max_size=12)


@given(lists_of_lengths, st.integers(0, 50), st.data())
def test_extents_are_a_list_of_blocks(lengths: list[int], start: int, data: st.DataObject) -> None:
    extents, blocks = make_extents(lengths, start)
    assert list(extents) == blocks
    assert list(Extents.from_raw(extents.to_raw())) == blocks
    assert list(extents.packs()) == [block.pack for block in blocks]
    assert (extents.first, extents.end) == ((start, blocks[-1].end) if blocks else (0, 0))
    begin, end = data.draw(st.integers(0, 400)), data.draw(st.integers(0, 400))
    overlapping = [block for block in blocks if block.start < end and block.end > begin]
    assert extents.between(begin, end) == (overlapping if begin < end else [])


@given(lists_of_lengths, st.integers(0, 400), st.integers(1, 30))
def test_blocks_below_the_floor_are_dropped(lengths: list[int], floor: int, more: int) -> None:
    extents, blocks = make_extents(lengths, 7)
    end = extents.end
    assert extents.drop_below(floor) == [block for block in blocks if block.end <= floor]
    assert list(extents) == [block for block in blocks if block.end > floor]
    assert extents.end == end
    with pytest.raises(ValueError, match="does not continue"):
        extents.add(Block(end - 1, end + more, 1, 0, 50))
    extents.add(Block(end, end + more, 1, 0, 50))
    assert extents.end == end + more


@given(st.lists(st.integers(1, 30), min_size=1, max_size=12), st.data())
def test_a_run_is_replaced_by_its_positions(lengths: list[int], data: st.DataObject) -> None:
    extents, blocks = make_extents(lengths)
    first = data.draw(st.integers(0, len(blocks) - 1))
    last = data.draw(st.integers(first, len(blocks) - 1))
    start, end = blocks[first].start, blocks[last].end
    assert extents.find(start, end) == (first, last)
    middle = (start + end) // 2
    borders = sorted({start, middle, end})
    merged = [Block(begin, stop, 5, 0, 99) for begin, stop in pairwise(borders)]
    extents.replace(first, last, merged)
    assert list(extents) == [*blocks[:first], *merged, *blocks[last + 1 :]]
    with pytest.raises(ValueError, match="positions that they replace"):
        extents.replace(0, 0, [Block(0, extents[0].end + 1, 5, 0, 99)])


def test_a_run_that_is_no_longer_there_is_not_found() -> None:
    extents, _ = make_extents([10, 10, 10])
    assert [extents.find(0, 15), extents.find(5, 20), extents.find(0, 40)] == [None] * 3
    extents.drop_below(10)
    assert extents.find(0, 20) is None
    assert Extents().find(0, 20) is None


def test_damaged_extents_are_refused() -> None:
    end, rows = make_extents([3, 4])[0].to_raw()
    with pytest.raises(Malformed, match="truncated"):
        Extents.from_raw((end, rows[:-1]))


# -- merging ---------------------------------------------------------------------------------


class Growth:
    """A stream that grows by flushes and is merged after each of them, by sizes alone."""

    def __init__(self) -> None:
        self.extents = Extents()
        self.flushed = self.written = 0

    def flush(self, length: int) -> None:
        length += LENGTH_BYTES  # counted as if the table were part of the stream
        size = BLOCK_HEADER.size + length
        self.flushed += size
        self.written += size
        self.extents.add(Block(self.extents.end, self.extents.end + length, 1, 0, size))
        while runs := merge_runs(self.extents):
            for first, last in reversed(runs):
                start, end = self.extents[first].start, self.extents[last].end
                size = BLOCK_HEADER.size + end - start
                self.written += size
                self.extents.replace(first, last, [Block(start, end, 1, 0, size)])

    def check(self) -> None:
        """All blocks are full, but for the last, which are few."""
        sizes = list(self.extents.sizes(0))
        small = [size for size in sizes if size < FULL_BYTES]
        assert small == sizes[len(sizes) - len(small) :]
        most = 1 + math.log(FULL_BYTES / LEAST_BLOCK, 1 + 1 / GROWTH)  # sums grow by this factor
        assert len(small) <= most < 35


def flush_all(lengths: Sequence[int]) -> Growth:
    growth = Growth()
    for length in lengths:
        growth.flush(length)
        growth.check()
    return growth


flushed_lengths = st.one_of(
    st.integers(1, MOST_FLUSHED), st.integers(1, 100), st.sampled_from([1, MOST_FLUSHED])
)


@settings(max_examples=500)
@given(st.lists(flushed_lengths, max_size=100))
def test_blocks_of_any_small_flushes_are_few(lengths: list[int]) -> None:
    growth = flush_all(lengths)
    assert growth.written <= 7 * max(1, growth.flushed)


@settings(max_examples=500)
@given(
    st.lists(st.tuples(st.integers(1, 16), st.sampled_from([1.1, 1.3, 2.0, 4.0]), st.booleans())),
    st.integers(1, 5),
)
def test_flushes_that_grow_and_shrink_on_purpose(
    waves: list[tuple[int, float, bool]], times: int
) -> None:
    lengths: list[int] = []
    for count, factor, falls in waves:
        wave = [min(MOST_FLUSHED, int(30 * factor**power)) for power in range(count)]
        lengths += reversed(wave) if falls else wave
    growth = flush_all(lengths * times)
    assert growth.written <= 7 * max(1, growth.flushed)


@pytest.mark.parametrize("length", [10, 100, 1000, 20_000, 200_000])
def test_a_byte_is_written_about_six_times(length: int) -> None:
    growth = flush_all([length] * min(20_000, 6 * BLOCK_BYTES // length))
    assert growth.written / growth.flushed < 6.5


def test_random_flushes_become_full_blocks() -> None:
    rng = random.Random(3)
    growth = flush_all([int(10 ** rng.uniform(0, 5.4)) for _ in range(2000)])
    assert growth.extents.end / len(growth.extents) > FULL_BYTES
    assert growth.written / growth.flushed < 4


def test_a_run_between_full_blocks_is_merged_at_once() -> None:
    full = BLOCK_BYTES
    assert merge_runs(make_extents([full, 400, 10, 10, full, 7])[0]) == [(1, 3)]
    assert merge_runs(make_extents([full, 400, full, 7, 3])[0]) == []


def test_many_blocks_are_merged_in_portions() -> None:
    """As after a time without merging."""
    extents, _ = make_extents([1000] * 5000)
    runs = merge_runs(extents, newest=5000)
    assert runs[0][0] == 0 and runs[-1][1] == 4999
    assert all(last + 1 == first for (_, last), (first, _) in pairwise(runs))
    assert len(runs) == math.ceil(5000 * 1044 / BLOCK_BYTES)


def test_only_the_newest_blocks_are_looked_at() -> None:
    extents, _ = make_extents([10] * 4 + [BLOCK_BYTES] * 600)
    assert merge_runs(extents) == []
    assert merge_runs(extents, newest=604) == [(0, 3)]
