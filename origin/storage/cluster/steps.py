"""Long loops on the event loop, in steps between which it serves others."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

T = TypeVar("T")

STEP = 256


async def in_steps(items: Iterable[T]) -> AsyncIterator[T]:
    for number, item in enumerate(items, 1):
        yield item
        if number % STEP == 0:
            await asyncio.sleep(0)
