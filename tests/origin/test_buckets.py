"""The index of buckets by itself: order, pages, and what a page costs."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from origin.buckets import Buckets
from protocol.requests import Listing

BUCKET = "/ds/buck"
EVERYTHING = Listing("", "", 1000)
locals_ = st.text("ab-é", min_size=1, max_size=4)


def index(*names: str) -> Buckets:
    buckets = Buckets()
    buckets.load([f"{BUCKET}/{name}" for name in names])
    return buckets


class Counted(list[str]):
    """A list that counts which of its items are looked at."""

    looks = 0

    def __getitem__(self, at: Any) -> Any:
        Counted.looks += 1
        return super().__getitem__(at)


@pytest.mark.parametrize(
    "wanted",
    [
        Listing("", "", 10),
        Listing("", "050000", 10),
        Listing("", "099985", 10),
        Listing("07", "", 10),
        Listing("07", "071234", 10),
        Listing("08", "071234", 10),
        Listing("x", "", 10),
    ],
)
def test_a_page_of_100000_streams_costs_no_more_than_the_page(wanted: Listing) -> None:
    buckets = index(*(f"{number:06}" for number in range(100_000)))
    (bucket,) = buckets._shown
    names = buckets._shown[bucket] = Counted(buckets._shown[bucket])
    matching = [n for n in names if n.startswith(wanted.prefix) and n > wanted.after]
    Counted.looks = 0
    page, more = buckets.page(BUCKET, wanted)
    assert (page, more) == (matching[:10], len(matching) > 10)
    assert 0 < Counted.looks < 100


@given(st.sets(locals_), locals_ | st.just(""), locals_ | st.just(""), st.integers(1, 5))
def test_a_page_is_what_a_scan_would_find(
    names: set[str], prefix: str, after: str, limit: int
) -> None:
    matching = sorted(n for n in names if n.startswith(prefix) and n > after)
    page, more = index(*names).page(BUCKET, Listing(prefix, after, limit))
    assert (page, more) == (matching[:limit], len(matching) > limit)


@given(st.lists(st.tuples(st.booleans(), locals_)))
def test_streams_that_come_and_go_leave_those_that_are_there(steps: list[tuple[bool, str]]) -> None:
    buckets, there = Buckets(), set[str]()
    for come, name in steps:
        path = f"{BUCKET}/{name}"
        if come and name not in there:
            buckets.hold(path)
            buckets.show(path)
            there.add(name)
        elif not come and name in there:
            buckets.hide(path)
            buckets.hide(path)  # ended, and then removed
            buckets.release(path)
            there.discard(name)
        assert buckets.page(BUCKET, EVERYTHING) == (sorted(there), False)
        assert buckets.count(BUCKET) == len(there)
        assert buckets.is_empty(BUCKET) == (not there)


def test_buckets_do_not_see_each_other() -> None:
    buckets = index("a")
    buckets.load(["/ds/buck2/b"])
    assert buckets.page("/ds/buck", EVERYTHING) == (["a"], False)
    assert buckets.page("/ds/none", EVERYTHING) == ([], False)
    assert buckets.count("/ds/buck2") == 1


def test_flat_streams_are_in_no_bucket() -> None:
    buckets = Buckets()
    for name in ("buck", "ds/buck/s"):
        buckets.hold(name)
        buckets.show(name)
    assert buckets.is_empty("") and buckets.is_empty("ds/buck")
    assert buckets.count(BUCKET) == 0
    for name in ("buck", "ds/buck/s"):
        buckets.hide(name)
        buckets.release(name)
    assert buckets.is_empty("")


def test_a_bucket_is_held_longer_than_its_streams_are_shown() -> None:
    """A stream that forks read is gone for clients, but its name is taken."""
    buckets = Buckets()
    buckets.hold(f"{BUCKET}/s")
    buckets.show(f"{BUCKET}/s")
    buckets.hide(f"{BUCKET}/s")
    assert (buckets.count(BUCKET), buckets.is_empty(BUCKET)) == (0, False)
    buckets.release(f"{BUCKET}/s")
    assert buckets.is_empty(BUCKET)
