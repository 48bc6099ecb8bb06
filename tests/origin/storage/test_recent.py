"""Appends in memory: any range, any boundary, and forgetting from the front."""

from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from origin.storage.recent import RecentAppends

parts = st.lists(st.binary(min_size=1, max_size=9), min_size=1, max_size=12)


def filled(start: int, data: list[bytes]) -> RecentAppends:
    recent = RecentAppends(start)
    for part in data:
        recent.append(part)
    return recent


@given(st.integers(0, 1000), parts, st.data())
def test_any_range_is_read_exactly(start: int, data: list[bytes], draw: st.DataObject) -> None:
    recent, whole = filled(start, data), b"".join(data)
    assert (recent.start, recent.end) == (start, start + len(whole))
    first = draw.draw(st.integers(0, len(whole)))
    last = draw.draw(st.integers(first, len(whole)))
    assert recent.read(start + first, start + last) == whole[first:last]


@given(st.integers(0, 1000), parts)
def test_boundary_is_the_next_end_of_a_part(start: int, data: list[bytes]) -> None:
    recent = filled(start, data)
    ends = [*accumulate(map(len, data), initial=start)]
    for position in range(start, ends[-1] + 1):
        assert recent.boundary(position) == next(end for end in ends if end >= position)


@given(st.integers(0, 1000), parts, st.data())
def test_dropped_parts_are_gone_and_the_rest_is_right(
    start: int, data: list[bytes], draw: st.DataObject
) -> None:
    recent = filled(start, data)
    count = draw.draw(st.integers(0, len(data)))
    border = start + sum(map(len, data[:count]))
    recent.drop_below(border)
    assert recent.parts == data[count:]
    assert recent.start == border
    recent.append(b"more")
    assert recent.read(border, recent.end) == b"".join(data[count:]) + b"more"


@given(st.integers(0, 1000), parts, st.data())
def test_part_that_a_drop_falls_into_is_kept(
    start: int, data: list[bytes], draw: st.DataObject
) -> None:
    recent, whole = filled(start, data), b"".join(data)
    floors = draw.draw(st.lists(st.integers(0, len(whole)), min_size=1, max_size=3))
    for floor in sorted(floors):
        recent.drop_below(start + floor)
        recent.drop_below(start)  # what is gone stays gone
        ends = [*accumulate(map(len, data))]
        assert recent.parts == [p for p, end in zip(data, ends, strict=True) if end > floor]
        assert recent.start <= start + floor or not recent.parts
        assert recent.end == start + len(whole)
        assert recent.read(start + floor, recent.end) == whole[floor:]
        assert recent.boundary(recent.end) == recent.end
    recent.append(b"more")
    assert recent.read(start + len(whole), recent.end) == b"more"


@given(st.integers(0, 1000), parts, st.data())
def test_slices_are_a_range_cut_where_parts_end(
    start: int, data: list[bytes], draw: st.DataObject
) -> None:
    recent, whole = filled(start, data), b"".join(data)
    first = draw.draw(st.integers(0, len(whole)))
    last = draw.draw(st.integers(first, len(whole)))
    slices = recent.slices(start + first, start + last)
    assert b"".join(slices) == recent.read(start + first, start + last)
    assert all(slices)
    ends = {*accumulate(map(len, slices), initial=first)} - {first, last}
    assert ends == {end for end in accumulate(map(len, data)) if first < end < last}


def test_empty_append_changes_nothing() -> None:
    recent = filled(5, [b"ab"])
    recent.append(b"")
    assert (recent.parts, recent.end) == ([b"ab"], 7)
