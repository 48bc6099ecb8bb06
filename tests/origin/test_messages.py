"""Large appends are looked through while others have their turn."""

import asyncio
import json
from collections.abc import Awaitable
from typing import Any, TypeVar
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from origin import chunks as chunks_module
from origin.chunks import Chunks, make_cache
from origin.config import LimitsConfig
from origin.messages import fitting_length, is_whole, prefix_length
from origin.snapshotblobs import PIECE_BYTES
from origin.snapshots import Snapshots
from origin.storage.memory import MemoryStorage
from origin.streams import Stream
from protocol.errors import ProtocolError
from protocol.jsonmode import split_messages, stored_form
from protocol.nesting import SLICE_BYTES
from protocol.stream import Appended, Created, apply, begin
from tests.protocol.test_jsonmode import layouts, values

T = TypeVar("T")

HALVES = b'"' + b",\\ud83d" * 200_000 + b'",'
SLICES = len(HALVES) // SLICE_BYTES


async def open_stream(*appends: bytes) -> tuple[Chunks, Stream]:
    """Of JSON, as if it had been there before."""
    storage = MemoryStorage()
    await storage.recover()
    created = Created(7, "s", "application/json", 0, None, None, None, closed=False)
    state = begin(created)
    storage.stage(state, (created,), lambda _: None)
    for data in appends:
        record = Appended(7, state.tail, data, 0)
        apply(state, record)
        storage.stage(state, (record,), lambda _: None)
    chunks = Chunks(storage, {}, make_cache(1 << 24), chunk_bytes=1 << 18)
    return chunks, Stream(state, committed=True)


async def turns_of_others(work: Awaitable[T]) -> tuple[int, T]:
    """How often the loop came round while the work went on, and what came of it."""
    task = asyncio.ensure_future(work)
    turns = 0
    while not task.done():
        turns += 1
        await asyncio.sleep(0)
    return turns, task.result()


class Looks:
    """Counts the looks through the rest of an append."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = self.most = self.now = 0
        self.begun = asyncio.Event()
        monkeypatch.setattr(chunks_module, "is_whole", self)

    async def __call__(self, stored: bytes) -> bool:
        self.count, self.now = self.count + 1, self.now + 1
        self.most = max(self.most, self.now)
        self.begun.set()
        try:
            return await is_whole(stored)
        finally:
            self.now -= 1


async def test_an_offset_inside_a_large_message_is_refused_while_others_have_their_turn() -> None:
    chunks, stream = await open_stream(HALVES)
    for position in (2, 9, 16):
        turns, is_boundary = await turns_of_others(chunks.is_boundary(stream, position))
        assert not is_boundary and turns >= SLICES - 1


async def test_who_asks_again_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    chunks, stream = await open_stream(b"1," + HALVES)
    looks = Looks(monkeypatch)
    for _ in range(3):
        assert await chunks.is_boundary(stream, 2)
        assert not await chunks.is_boundary(stream, 4)
    assert looks.count == 2


async def test_few_looks_are_under_way_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    chunks, stream = await open_stream(HALVES)
    looks = Looks(monkeypatch)
    inside = [chunks.get(stream, 2 + 7 * n) for n in range(8)]
    refused = await asyncio.gather(*inside, return_exceptions=True)
    assert all(isinstance(error, ProtocolError) for error in refused)
    assert (looks.count, looks.most) == (8, chunks_module.LOOKS_AT_A_TIME)


async def test_nobody_looks_on_for_those_who_have_left(monkeypatch: pytest.MonkeyPatch) -> None:
    chunks, stream = await open_stream(HALVES)
    looks = Looks(monkeypatch)
    readers = [asyncio.create_task(chunks.get(stream, 2)) for _ in range(3)]
    await looks.begun.wait()
    readers[0].cancel()
    await asyncio.sleep(0)
    assert looks.now  # others still wait for it
    for reader in readers:
        reader.cancel()
    await asyncio.wait(readers)
    await asyncio.sleep(0)
    assert not looks.now
    with pytest.raises(ProtocolError):
        await chunks.get(stream, 2)


async def test_an_offset_that_was_handed_out_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    chunks, stream = await open_stream(b"1,2," + HALVES + b"3,")
    looks = Looks(monkeypatch)
    chunk = await chunks.limited(stream, 0, 5)
    assert (chunk.end, chunk.reply.body) == (4, b"[1,2]")
    assert (await chunks.get(stream, chunk.end)).reply.body == b"[" + HALVES + b"3]"
    assert not looks.count


@pytest.mark.parametrize("work", ["fitting", "prefix", "bootstrap"])
@pytest.mark.parametrize("stored", [HALVES, b"0," * 500_000, b"[" + b"[]," * 400_000 + b"0],"])
async def test_messages_are_found_while_others_have_their_turn(work: str, stored: bytes) -> None:
    chunks, stream = await open_stream(stored)

    async def largest_batch() -> int:
        batches = chunks.batches(stream, 0, stream.tail)
        return max([len(batch) async for batch in batches])

    if work == "fitting":
        turns, fitting = await turns_of_others(fitting_length(stored, len(stored) - 1))
        assert 0 < fitting <= len(stored)
    elif work == "prefix":
        turns, length = await turns_of_others(prefix_length(stored, 10**9))
        assert length is None
    else:
        turns, most = await turns_of_others(largest_batch())
        assert most <= SLICE_BYTES
    assert turns >= len(stored) // SLICE_BYTES - 1


@given(st.lists(values, max_size=6), st.integers(0, 8))
async def test_prefix_length_ends_after_that_many_messages(items: list[Any], count: int) -> None:
    stored = stored_form(json.dumps(items).encode())
    length = await prefix_length(stored, count)
    if count > len(items):
        assert length is None
    else:
        assert split_messages(stored[:length]) == split_messages(stored)[:count]


@given(st.lists(values, min_size=1, max_size=6), layouts, st.integers(0, 60))
async def test_as_many_messages_as_fit_but_one_at_least(
    items: list[Any], layout: dict[str, Any], most_bytes: int
) -> None:
    stored = stored_form(json.dumps(items, **layout).encode())
    ends = [0]
    for message in split_messages(stored):
        ends.append(ends[-1] + len(message) + 1)
    fitting = [end for end in ends[1:] if end <= max(most_bytes, ends[1])]
    assert await fitting_length(stored, most_bytes) == fitting[-1]


async def test_the_heads_of_tiny_parts_count_for_the_size_of_a_piece() -> None:
    chunks, stream = await open_stream(b"0," * 100_000)
    none = Mock()
    snapshots = Snapshots(none, none, none, none, none, chunks, LimitsConfig())
    pieces = [len(piece) async for piece in snapshots.parts(snapshots.bootstrap(stream))]
    assert sum(pieces) > 32 * stream.tail
    assert max(pieces) < PIECE_BYTES + 1024


async def test_what_does_not_fit_is_not_looked_at() -> None:
    """A reader who takes little of a large append must not pay for all of it."""
    many = b"1," * SLICE_BYTES
    assert await fitting_length(many + b"nonsense", 6) == 6
    assert await fitting_length(many + b"nonsense", 5) == 4
