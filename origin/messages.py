"""Scans stored JSON on the event loop in slices, yielding to other tasks in between."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

from protocol.nesting import BETWEEN, batches, nestings

T = TypeVar("T")


async def in_turns(steps: Iterable[T]) -> AsyncIterator[T]:
    for number, step in enumerate(steps):
        if number:  # short texts have one step
            await asyncio.sleep(0)
        yield step


async def is_whole(stored: bytes) -> bool:
    """Whether the bytes after a comma, up to the end of its append, are whole messages."""
    return [nesting async for nesting in in_turns(nestings(stored))][-1:] == [BETWEEN]


async def fitting_length(stored: bytes, most_bytes: int) -> int:
    """Bytes of the first messages that fit, with their commas; at least of one. Beyond that, only
    the next message is scanned."""
    size = 0
    async for messages in in_turns(batches(stored)):
        for message in messages:
            if size and size + len(message) + 1 > most_bytes:
                return size
            size += len(message) + 1
        if size and size >= most_bytes:
            break
    return size


async def prefix_length(stored: bytes, count: int) -> int | None:
    """Bytes of the first `count` messages with their commas; None if there are fewer."""
    size = 0
    async for messages in in_turns(batches(stored)):
        size += sum(map(len, messages[:count])) + len(messages[:count])
        count -= min(count, len(messages))
        if not count:
            return size
    return None
