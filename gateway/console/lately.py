"""The streams that all workers served lately, asked for once a second at most.

For an answer each worker goes through all streams that it knows; anyone with a token may ask, as
often as he likes and many at once. So one asks, and the others wait for what he is told.
"""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Iterable

FRESH_SECS = 1.0

FromAll = Callable[[], Awaitable[Iterable[str]]]  # what every worker says


class Lately:
    def __init__(self, all_streams: FromAll, clock: Callable[[], float] = time.monotonic) -> None:
        self._all_streams = all_streams
        self._clock = clock
        self._asking = asyncio.Lock()
        self._names: tuple[str, ...] = ()
        self._stale_at = -math.inf

    async def names(self) -> tuple[str, ...]:
        """Each once, in order."""
        async with self._asking:
            if self._clock() >= self._stale_at:
                self._names = tuple(dict.fromkeys(await self._all_streams()))
                self._stale_at = self._clock() + FRESH_SECS
            return self._names
