"""Which part of a stream a task reads, and how parts are distributed. Pure.

A batch covers one range of each stream. A large range is split at chunk boundaries into several
parts; small ranges of many streams share a partition.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto

from protocol.offsets import position_of

REQUEST_BYTES = 256 * 1024  # a request takes about as long as reading this much


class Beyond(Enum):
    """What to do if a snapshot replaced a whole range while it was read."""

    LATER = auto()  # nothing: the next batch starts below it and will read it
    TAKE = auto()  # read it: there is no next batch
    REFUSE = auto()  # it has more than requested, or other parts were read without it


@dataclass(frozen=True, slots=True)
class Range:
    """From `start` to before `end`, of the stream that had this incarnation when it was planned.

    `limit` is the end of the whole range that this is a part of.
    """

    stream: str
    incarnation: str
    start: str
    end: str
    limit: str
    beyond: Beyond

    @property
    def size_bytes(self) -> int:
        """0 if unknown."""
        return span(self.start, self.end) or 0


def span(start: str, end: str) -> int | None:
    """Bytes between two offsets, if known."""
    positions = position_of(start), position_of(end)
    if positions[0] is None or positions[1] is None:
        return None
    return max(0, positions[1] - positions[0])


def cut(whole: Range, borders: Iterable[str], part_bytes: int) -> Iterator[Range]:
    """Parts of a range, each as large as allowed; a single chunk may be larger."""
    beyond = whole.beyond if whole.beyond is Beyond.LATER else Beyond.REFUSE
    start = last = whole.start
    for border in borders:
        if (span(start, border) or 0) > part_bytes and last != start:
            yield Range(whole.stream, whole.incarnation, start, last, whole.end, beyond)
            start = last
        last = border
    if start == whole.start:
        yield whole
    else:
        yield Range(whole.stream, whole.incarnation, start, whole.end, whole.end, beyond)


def pack(ranges: Iterable[Range], partition_bytes: int) -> Iterator[tuple[Range, ...]]:
    """Groups ranges, in order, into partitions of suitable size."""
    packed: list[Range] = []
    cost = 0
    for each in ranges:
        added = REQUEST_BYTES + each.size_bytes
        if packed and cost + added > partition_bytes:
            yield tuple(packed)
            packed, cost = [], 0
        packed.append(each)
        cost += added
    if packed:
        yield tuple(packed)


def shares(waiting: Mapping[str, int], budget: int) -> dict[str, int]:
    """Divides a budget evenly; what small ones leave goes to the others."""
    granted: dict[str, int] = {}
    left = budget
    for served, (name, size) in enumerate(sorted(waiting.items(), key=lambda item: item[1])):
        granted[name] = min(size, left // (len(waiting) - served))
        left -= granted[name]
    return granted
