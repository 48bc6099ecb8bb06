"""Message ends are found wherever slices are cut."""

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from protocol import nesting
from protocol.jsonmode import MAX_DEPTH, split_messages, stored_form
from protocol.nesting import BETWEEN, batches, nestings
from tests.protocol.test_jsonmode import HALVES, layouts, values

TRICKY = ['"', "\\", '\\"', '",', "],[", "{", "}", ","]
texts = st.lists(st.sampled_from(TRICKY), max_size=6).map("".join)
messages_of = st.lists(values | texts | st.lists(texts, max_size=3), min_size=1, max_size=6)


def is_whole(stored: bytes) -> bool:
    return list(nestings(stored))[-1:] == [BETWEEN]


@given(messages_of, layouts, st.integers(1, 9))
@example(["\\", '\\"', ["\\\\"]], {}, 1)
def test_whole_is_what_begins_between_messages(
    items: list[Any], layout: dict[str, Any], slice_bytes: int
) -> None:
    stored = stored_form(json.dumps(items, **layout).encode())
    begins, at = {0}, 0
    for message in split_messages(stored)[:-1]:
        at += len(message) + 1
        begins.add(at)
    after_commas = {n + 1 for n, byte in enumerate(stored[:-1]) if byte == ord(",")}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nesting, "SLICE_BYTES", slice_bytes)
        assert {n for n in after_commas | {0} if is_whole(stored[n:])} == begins
        assert not is_whole(b"")


@given(messages_of, layouts, st.integers(1, 9))
@example([[[1, 2], 3], "a,b", 4], {}, 1)
def test_batches_have_all_messages_and_each_is_small(
    items: list[Any], layout: dict[str, Any], slice_bytes: int
) -> None:
    stored = stored_form(json.dumps(items, **layout).encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nesting, "SLICE_BYTES", slice_bytes)
        found = list(batches(stored))
    assert [message for batch in found for message in batch] == split_messages(stored)
    assert all(sum(map(len, batch[:-1])) <= slice_bytes for batch in found)


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("slice_bytes", [1, 2, 3, 5, 8])
def test_halves_of_surrogate_pairs_are_messages_as_any(
    half: bytes, slice_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nesting, "SLICE_BYTES", slice_bytes)
    stored = b"1," + half + b',"\\\\",'
    assert is_whole(stored) and is_whole(stored[2:])
    assert not is_whole(stored[3:])
    assert sum(batches(stored), []) == [b"1", half, b'"\\\\"']


@pytest.mark.parametrize(
    "message",
    [b"1" * 9000, b"1E400", b"[" * MAX_DEPTH + b"]" * MAX_DEPTH, b'"' + b"\\\\" * 99 + b'"'],
)
def test_long_numbers_and_deep_messages_are_as_any(
    message: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nesting, "SLICE_BYTES", 64)
    assert sum(batches(message + b",1,"), []) == [message, b"1"]


def test_a_large_message_is_never_parsed_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[int] = []

    def split(stored: bytes) -> list[bytes]:
        parsed.append(len(stored))
        return split_messages(stored)

    monkeypatch.setattr(nesting, "split_messages", split)
    large = b"[" + b"[],{}," * 50_000 + b'"' + b",\\ud83d" * 50_000 + b'"]'
    assert sum(batches(b"1,2," + large + b",3,"), []) == [b"1", b"2", large, b"3"]
    assert max(parsed) <= 2 * nesting.SLICE_BYTES


def test_nothing_stored_has_no_messages() -> None:
    assert sum(batches(b""), []) == []
