"""How ranges are cut, packed, and limited."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from protocol.offsets import START
from spark.ranges import REQUEST_BYTES, Beyond, Range, cut, pack, shares, span
from tests.helpers.offsets import nameless

AT = nameless
sizes = st.lists(st.integers(1, 2000), max_size=30)


def whole(end: str, start: str = START, beyond: Beyond = Beyond.TAKE) -> Range:
    return Range("a", "i1", start, end, end, beyond)


def test_bytes_between_offsets_are_told_only_by_positions() -> None:
    assert span(START, AT(7)) == 7
    assert span(AT(3), AT(7)) == 4
    assert span(AT(7), AT(3)) == 0
    assert span("x1", "x9") is None
    assert span(AT(3), "0000000000000001_0000000000000007") is None


@given(sizes, st.integers(1, 5000))
def test_parts_make_the_whole_and_end_where_chunks_end(sizes: list[int], most: int) -> None:
    borders = [sum(sizes[: n + 1]) for n in range(len(sizes))]
    end = AT((borders or [0])[-1] + 1)
    parts = list(cut(whole(end), map(AT, borders), most))
    assert (parts[0].start, parts[-1].end) == (START, end)
    assert all(before.end == after.start for before, after in pairwise(parts))
    assert {part.limit for part in parts} == {end}
    for part in parts[:-1]:
        assert part.end in map(AT, borders)
        assert part.size_bytes <= most or part.size_bytes in sizes  # a chunk of its own


def test_a_part_does_not_take_a_snapshot_that_lies_beyond_all_of_them() -> None:
    borders = [AT(5), AT(9)]
    assert {part.beyond for part in cut(whole(AT(12)), borders, 5)} == {Beyond.REFUSE}
    later = whole(AT(12), beyond=Beyond.LATER)
    assert {part.beyond for part in cut(later, borders, 5)} == {Beyond.LATER}
    assert [part.beyond for part in cut(whole(AT(12)), [], 5)] == [Beyond.TAKE]


@given(st.lists(st.integers(0, 5 * REQUEST_BYTES)), st.integers(1, 10 * REQUEST_BYTES))
def test_small_ranges_share_a_partition(sizes: list[int], most: int) -> None:
    ranges = [whole(AT(size), AT(0)) for size in sizes]
    packed = list(pack(ranges, most))
    assert [each for partition in packed for each in partition] == ranges
    for partition in packed:
        cost = sum(REQUEST_BYTES + each.size_bytes for each in partition)
        assert len(partition) == 1 or cost <= most
    for before, after in pairwise(packed):
        joined = sum(REQUEST_BYTES + each.size_bytes for each in (*before, after[0]))
        assert joined > most


@given(st.dictionaries(st.text(max_size=3), st.integers(1, 1000)), st.integers(1, 5000))
def test_a_budget_is_shared_fairly_and_used(waiting: dict[str, int], budget: int) -> None:
    granted = shares(waiting, budget)
    assert granted.keys() == waiting.keys()
    assert all(0 <= granted[name] <= waiting[name] for name in waiting)
    assert budget - len(waiting) < sum(granted.values()) <= budget or granted == waiting
    least = min(granted.values(), default=0)
    assert all(granted[name] == waiting[name] for name in waiting if granted[name] < least)
    assert all(least <= granted[name] for name in waiting if granted[name] < waiting[name])
