"""The window of a followed stream: what is in it, what it counts, how it is searched."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.entries import OVERHEAD_BYTES, Entry, make_entry
from gateway.hub import NOT_STORED
from gateway.rules.window import Window, Windows
from protocol.heads import parse_head
from tests.helpers.offsets import nameless
from tests.helpers.parts import chunk


def entry(start: int, body: bytes = b"x") -> Entry:
    head = parse_head(chunk(start, start + len(body), tail=True))
    return make_entry("a", nameless(start), head, body, policy=NOT_STORED, now=0, public=False)


def lone(most: int) -> Window:
    """A window that has all the room there is."""
    return Windows(1 << 30, most).make()


class Compared(str):
    """An offset that counts how often it is held against another."""

    __slots__ = ("times",)
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        self.times = getattr(self, "times", 0) + 1
        return str(self) == other


@pytest.mark.parametrize("position", [0, 4999, 9999])
def test_an_entry_is_found_without_a_search(position: int) -> None:
    window = lone(1 << 30)
    for start in range(10_000):
        window.add(entry(start))
    wanted = Compared(nameless(position))
    found = window.at(wanted)
    assert found is not None and found.part == nameless(position)
    assert wanted.times <= 3


def test_the_oldest_leave_first_and_what_is_too_large_does_not_stay() -> None:
    window = lone(3 * OVERHEAD_BYTES + 100)
    for start in range(5):
        window.add(entry(start))
    assert [window.at(nameless(start)) is not None for start in range(5)] == [False] * 2 + [
        True
    ] * 3
    window.add(entry(5, b"x" * 4 * OVERHEAD_BYTES))
    assert len(window) == 0 and window.bytes == 0


def test_a_form_is_counted_when_it_is_made_and_never_for_one_that_has_left() -> None:
    window, one = lone(2 * OVERHEAD_BYTES), entry(0)
    window.add(one)
    one.event()
    window.recount(one)
    assert window.bytes == one.size > OVERHEAD_BYTES + 1
    window.clear()
    window.recount(one)
    assert len(window) == 0 and window.bytes == 0


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 3000), st.booleans())))
def test_a_window_counts_what_it_holds(steps: list[tuple[int, int, bool]]) -> None:
    window = lone(4 * OVERHEAD_BYTES)
    held: dict[int, Entry] = {}
    for start, size, shows in steps:
        held[start] = entry(start, b"x" * size)
        window.add(held[start])
        if shows:
            held[start].event()
            window.recount(held[start])
        kept = [each for at, each in held.items() if window.at(nameless(at)) is each]
        assert window.bytes == sum(each.size for each in kept) <= 4 * OVERHEAD_BYTES
        assert len(window) == len(kept)


# -- all of a worker -----------------------------------------------------------------------------


def test_the_window_that_has_not_grown_for_longest_gives_way() -> None:
    windows = Windows(4 * OVERHEAD_BYTES + 100, 1 << 30)
    quiet, busy = windows.make(), windows.make()
    for start in range(2):
        quiet.add(entry(start))
        busy.add(entry(start))
    busy.add(entry(2))
    assert (len(quiet), len(busy)) == (1, 3) and quiet.at(nameless(1)) is not None
    for start in range(3, 6):
        busy.add(entry(start))
    assert (len(quiet), len(busy)) == (0, 4)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9), st.integers(0, 5000))))
def test_all_windows_together_are_counted_and_bounded(steps: list[tuple[int, int, int]]) -> None:
    """An append of nothing stands for the end of a hub."""
    most = 5 * OVERHEAD_BYTES
    windows = Windows(most, 3 * OVERHEAD_BYTES)
    made = [windows.make() for _ in range(3)]
    for number, start, size in steps:
        if size:
            made[number].add(entry(start, b"x" * size))
        else:
            made[number].clear()
        assert windows.bytes == sum(window.bytes for window in made) <= most
        assert all(bool(len(window)) == bool(window.bytes) for window in made)
