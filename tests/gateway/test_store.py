"""The first level: bounded by bytes, and nothing that has left is served or held."""

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from gateway.entries import OVERHEAD_BYTES, Entry, Form
from gateway.store import Store

MAX_BYTES = 4 * (OVERHEAD_BYTES + 100)
MAX_OBJECT = OVERHEAD_BYTES + 200


def entry(
    stream: str = "a", offset: str = "0", size: int = 100, *, immutable: bool = True
) -> Entry:
    body = b"x" * size
    return Entry(
        stream, offset, "text/plain", "9", False, False, "", "", body, immutable, 0, 9, 9, 9
    )


@pytest.fixture
def store() -> Store:
    return Store(MAX_BYTES, MAX_OBJECT)


def test_what_was_put_is_found_by_stream_and_offset(store: Store) -> None:
    one, other = entry("a", "0"), entry("b", "0")
    assert store.put(one) and store.put(other)
    assert (store.get("a", "0"), store.get("b", "0")) == (one, other)
    assert store.get("a", "1") is None and len(store) == 2


def test_the_least_used_leaves_first(store: Store) -> None:
    for offset in "0123":
        store.put(entry("a", offset))
    store.get("a", "0")
    store.put(entry("a", "4"))
    assert store.get("a", "1") is None and store.get("a", "0") is not None
    assert (store.evicted, len(store)) == (1, 4)


def test_what_is_too_large_is_not_kept_and_leaves_nothing_old_behind(store: Store) -> None:
    store.put(entry("a", "0"))
    assert not store.put(entry("a", "0", 201))
    assert store.get("a", "0") is None and store.bytes == 0


def test_some_parts_of_a_stream_can_leave(store: Store) -> None:
    for offset in ("0", "5", "/bootstrap"):
        store.put(entry("a", offset, immutable=offset != "/bootstrap"))
    store.put(entry("b", "0"))
    kept = store.get("a", "0")
    assert kept is not None and (place := kept.kept) is not None
    store.drop_some("a", lambda offset: offset != "5")
    assert [store.get("a", offset) is None for offset in ("0", "5", "/bootstrap")] == [
        True,
        False,
        True,
    ]
    assert place.entry is None and store.get("b", "0") is not None
    store.drop_some("never seen", lambda offset: True)


def test_a_small_cache_refuses_what_it_cannot_hold() -> None:
    small = Store(100, 10**9)
    assert not small.put(entry()) and len(small) == 0


def test_an_entry_that_grew_is_counted_anew(store: Store) -> None:
    one = entry()
    store.put(one)
    before = store.bytes
    one.forms["gzip"] = Form("gzip", b"x" * 50, "")
    store.recount(one)
    assert store.bytes == before + 50
    one.forms["zstd"] = Form("zstd", b"x" * 500, "")
    store.recount(one)
    assert len(store) == 0, "it outgrew what may be kept"


def test_an_entry_that_left_does_not_come_back_by_growing(store: Store) -> None:
    one = entry()
    store.put(one)
    store.purge("a")
    store.recount(one)
    assert store.get("a", "0") is None
    fresh = entry()
    store.put(fresh)
    store.recount(one)
    assert store.get("a", "0") is fresh


def test_a_write_makes_tails_obsolete_and_nothing_else(store: Store) -> None:
    store.put(entry("a", "0"))
    store.put(entry("a", "1", immutable=False))
    store.put(entry("b", "1", immutable=False))
    store.drop_tails("a")
    assert store.get("a", "0") is not None and store.get("a", "1") is None
    assert store.get("b", "1") is not None


def test_a_purge_takes_all_of_one_stream(store: Store) -> None:
    for stream in "ab":
        store.put(entry(stream, "0"))
        store.put(entry(stream, "1", immutable=False))
    assert store.purge("a") == 2 and store.purge("a") == 0
    assert store.get("a", "0") is None and store.get("b", "0") is not None
    store.clear()
    assert (len(store), store.bytes) == (0, 0)


def replace_it(store: Store) -> None:
    store.put(entry("a", "0", 1))


def evict_it(store: Store) -> None:
    for offset in "1234":
        store.put(entry("a", offset))


@pytest.mark.parametrize(
    "leave",
    [
        replace_it,
        evict_it,
        lambda store: store.drop("a", "0"),
        lambda store: store.purge("a"),
        lambda store: store.clear(),
        lambda store: store.put(entry("a", "0", 999)),
    ],
)
def test_who_remembers_an_entry_learns_that_it_left_and_holds_none_of_it(
    store: Store, leave: Any
) -> None:
    one = entry()
    store.put(one)
    kept = one.kept
    assert kept is not None and kept.entry is one
    leave(store)
    assert kept.entry is None and one.kept is None


class StoreModel(RuleBasedStateMachine):
    """Against a plain dict: never more than the bound, never anything that was dropped."""

    def __init__(self) -> None:
        super().__init__()
        self.store = Store(MAX_BYTES, MAX_OBJECT)
        self.model: dict[tuple[str, str], Entry] = {}

    @rule(
        stream=st.sampled_from("ab"),
        offset=st.sampled_from("0123"),
        size=st.integers(0, 250),
        immutable=st.booleans(),
    )
    def put(self, stream: str, offset: str, size: int, immutable: bool) -> None:
        one = entry(stream, offset, size, immutable=immutable)
        stored = self.store.put(one)
        assert stored == (one.size <= MAX_OBJECT)
        self.model.pop((stream, offset), None)
        if stored:
            self.model[stream, offset] = one

    @rule(stream=st.sampled_from("ab"), offset=st.sampled_from("0123"), size=st.integers(1, 99))
    def grow(self, stream: str, offset: str, size: int) -> None:
        one = self.model.get((stream, offset))
        if one is not None:
            one.forms["gzip"] = Form("gzip", b"x" * size, "")
            self.store.recount(one)

    @rule(stream=st.sampled_from("ab"))
    def purge(self, stream: str) -> None:
        self.store.purge(stream)
        self.model = {key: one for key, one in self.model.items() if key[0] != stream}

    @rule(stream=st.sampled_from("ab"))
    def drop_tails(self, stream: str) -> None:
        self.store.drop_tails(stream)
        kept = {k: one for k, one in self.model.items() if k[0] != stream or one.immutable}
        self.model = kept

    @invariant()
    def holds_only_what_was_put_within_its_bounds(self) -> None:
        found = {key: self.store.get(*key) for key in self.model}
        assert all(one is None or one is self.model[key] for key, one in found.items())
        present = [one for one in found.values() if one is not None]
        assert len(present) == len(self.store)
        assert sum(one.size for one in present) == self.store.bytes <= MAX_BYTES
        assert all((one.kept is not None) == (one in present) for one in self.model.values())
        listed = {(s, o) for s, offsets in self.store._parts.items() for o in offsets}
        assert listed == {(one.stream, one.part) for one in present}


TestStoreModel = StoreModel.TestCase
TestStoreModel.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
