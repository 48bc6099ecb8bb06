"""Segment files: blocks that are verified on every read, and an index that only grows."""

import os
import random
from itertools import accumulate
from pathlib import Path

import pytest

from origin.storage.base import DamagedData
from origin.storage.files import Files
from origin.storage.format import BLOCK_HEADER, Extent
from origin.storage.segments import BLOCK_BYTES, Segments

ID = 0xAB_0000_0000_0001


def write(segments: Segments, size: int, start: int, parts: list[bytes]) -> int:
    fd, size = segments.write(ID, size, start, parts)
    os.close(fd)
    return size


@pytest.fixture
def segments(tmp_path: Path) -> Segments:
    return Segments(str(tmp_path), Files())


def test_ranges_over_blocks_of_several_checkpoints(segments: Segments) -> None:
    parts = [bytes([65 + number]) * (number % 4 + 1) for number in range(15)]
    whole = b"".join(parts)
    size = position = 0
    for first in range(0, 15, 3):
        size = write(segments, size, position, parts[first : first + 3])
        position += sum(map(len, parts[first : first + 3]))
        assert segments.read(ID, Extent(0, size), 0, position) == whole[:position]
    for start in range(len(whole)):
        for end in range(start + 1, len(whole) + 1):
            assert segments.read(ID, Extent(0, size), start, end) == whole[start:end]
    ends = [0, *accumulate(map(len, parts))]
    for position in range(len(whole)):
        expected = next(end for end in ends if end >= position)
        assert segments.boundary(ID, Extent(0, size), position) == expected


def test_segment_that_starts_at_a_fork_point(segments: Segments) -> None:
    size = write(segments, 0, 100, [b"abc", b"de"])
    assert segments.read(ID, Extent(0, size), 101, 104) == b"bcd"
    assert [segments.boundary(ID, Extent(0, size), position) for position in (100, 101, 103)] == [
        100,
        103,
        103,
    ]


def test_long_runs_become_several_blocks(segments: Segments, tmp_path: Path) -> None:
    rng = random.Random(1)
    parts = [rng.randbytes(rng.randrange(1, BLOCK_BYTES)) for _ in range(9)]
    parts.append(rng.randbytes(3 * BLOCK_BYTES))  # one append is never cut
    size = write(segments, 0, 0, parts)
    blocks = [head for head, _, _ in segments.walk(ID, Extent(0, size))]
    assert len(blocks) > 3
    assert all(head.length <= BLOCK_BYTES or head.appends == 1 for head in blocks)
    whole = b"".join(parts)
    assert segments.read(ID, Extent(0, size), 12345, len(whole) - 777) == whole[12345:-777]


def test_bytes_beyond_the_size_are_written_over(segments: Segments) -> None:
    size = write(segments, 0, 0, [b"kept,"])
    write(segments, size, 5, [b"of a checkpoint that did not finish,"])
    size = write(segments, size, 5, [b"next,"])
    assert segments.read(ID, Extent(0, size), 0, 10) == b"kept,next,"
    assert segments.read(ID, Extent(0, size), 5, 10) == b"next,"


def test_old_index_learns_new_blocks(segments: Segments) -> None:
    first = write(segments, 0, 0, [b"one,"])
    assert segments.read(ID, Extent(0, first), 0, 4) == b"one,"
    second = write(segments, first, 4, [b"two,"])
    assert segments.read(ID, Extent(0, second), 0, 8) == b"one,two,"
    assert segments.read(ID, Extent(0, first), 0, 4) == b"one,"


def test_damage_after_the_index_was_made_is_noticed(segments: Segments) -> None:
    size = write(segments, 0, 0, [b"some bytes"])
    assert segments.read(ID, Extent(0, size), 0, 10) == b"some bytes"
    path = Path(segments.path(ID))
    data = bytearray(path.read_bytes())
    data[BLOCK_HEADER.size + 4 + 3] ^= 1
    path.write_bytes(data)
    with pytest.raises(DamagedData, match="damaged at byte 0: block checksum"):
        segments.read(ID, Extent(0, size), 0, 2)


def test_missing_and_foreign_files_are_damage(segments: Segments) -> None:
    with pytest.raises(DamagedData, match="missing"):
        segments.read(ID, Extent(0, 100), 0, 10)
    size = write(segments, 0, 0, [b"some bytes"])
    other = Path(segments.path(ID + 1))
    other.write_bytes(Path(segments.path(ID)).read_bytes())
    with pytest.raises(DamagedData, match="belongs to another"):
        segments.read(ID + 1, Extent(0, size), 0, 10)


def test_removed_segment_is_gone(segments: Segments) -> None:
    write(segments, 0, 0, [b"bytes"])
    segments.remove(ID)
    segments.remove(ID)  # once more does no harm
    assert not Path(segments.path(ID)).exists()


def test_what_is_below_the_extent_is_given_back_and_the_rest_still_read(
    segments: Segments,
) -> None:
    parts = [bytes([65 + number]) * BLOCK_BYTES for number in range(6)]
    whole = b"".join(parts)
    size = write(segments, 0, 0, parts)
    first = segments.block_at(ID, Extent(0, size), 3 * BLOCK_BYTES + 5)
    before = os.stat(segments.path(ID)).st_blocks
    segments.punch(ID, first)
    kept = Extent(first, size)
    assert before - os.stat(segments.path(ID)).st_blocks >= 2.9 * BLOCK_BYTES / 512
    for reader in (segments, Segments(segments.folder, Files())):  # an old index, and a new one
        assert reader.read(ID, kept, 3 * BLOCK_BYTES, len(whole)) == whole[3 * BLOCK_BYTES :]
        assert reader.boundary(ID, kept, 3 * BLOCK_BYTES + 1) == 4 * BLOCK_BYTES
        with pytest.raises(DamagedData):
            reader.read(ID, kept, 0, 10)
    with pytest.raises(DamagedData):
        Segments(segments.folder, Files()).boundary(ID, kept, 10)


def test_a_gap_is_fine_where_the_extent_begins_behind_it(segments: Segments) -> None:
    first = write(segments, 0, 0, [b"never read again,"])
    assert segments.read(ID, Extent(0, first), 0, 5) == b"never"
    size = write(segments, first, 100, [b"new,", b"newer,"])
    assert segments.read(ID, Extent(first, size), 100, 110) == b"new,newer,"
    assert segments.parts(ID, Extent(first, size), 101, 106) == [b"ew,", b"ne"]
