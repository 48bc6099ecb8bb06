"""One running fetch per key, shared by all requests that may share it.

A flight departs when its upstream request is sent. Riders that boarded before that take any
result. Riders that came during the flight take the result only if it `settles` the question for
good (a chunk that never changes); otherwise they all share the next flight, which departs when
this one has landed. So no reader gets a result from before its own request, and only one request
per key is out at a time, whatever the load.

A flight has no owner: it is a separate task, cancelled only when its last rider has left.
`detach` removes a stream's flights: their riders still get results, newcomers do not, and the
results must not be stored (`Flight.detached`).
"""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Generic, TypeVar

from gateway.slots import OURS, Payers

Result = TypeVar("Result")
Key = tuple[str, str]  # stream, what is asked of it


class Flight(Generic[Result]):
    def __init__(self, key: Key, number: int, stamps: "count[int]", subject: str) -> None:
        self.key = key
        self.payers = Payers(subject)  # everyone who boards
        self.number = number
        self.departure: int | None = None  # a stamp later than those of all riders in time
        self.detached = False
        self.has_begun = False  # its response: from then on nobody's time runs out
        self.limits: set[asyncio.Timeout] = set()  # of its riders
        self.riders = 0
        self.task: asyncio.Task[Result]
        self._stamps = stamps

    def depart(self) -> None:
        if self.departure is None:
            self.departure = next(self._stamps)

    def begin(self) -> None:
        self.has_begun = True
        for limit in self.limits:
            if not limit.expired():
                limit.reschedule(None)

    def answers(self, arrival: int) -> bool:
        return self.departure is None or self.departure > arrival


class Flights(Generic[Result]):
    """`stamps` number arrivals and departures; other modules may share them."""

    def __init__(
        self, settles: Callable[[Result], bool], stamps: "count[int] | None" = None
    ) -> None:
        self._open: dict[Key, Flight[Result]] = {}
        self._settles = settles
        self._stamps = stamps or count(1)
        self._numbers = count(1)
        self.started = 0
        self.collapsed = 0

    def __len__(self) -> int:
        return len(self._open)

    def is_open(self, key: Key) -> bool:
        return key in self._open

    async def join(
        self,
        key: Key,
        fetch: Callable[[Flight[Result]], Awaitable[Result]],
        subject: str = OURS,
        until: float | None = None,
    ) -> tuple[Result, Flight[Result], bool]:
        """The result, its flight, and whether this call started the flight. Raises TimeoutError at
        `until`, by the loop's clock, unless a response has begun: whoever came during a flight
        waits for two of them. A flight that this call started at once has to end by itself."""
        arrival = next(self._stamps)
        is_first = True
        while True:
            flight = self._open.get(key)
            leads = flight is None
            if flight is None:
                flight = self._start(key, fetch, subject)
            else:
                flight.payers.add(subject)
            in_time = flight.answers(arrival)
            try:
                async with asyncio.timeout_at(None if leads and is_first else until) as limit:
                    result = await self._ride(flight, limit)
            except Exception:
                if in_time or limit.expired():
                    raise
                is_first = False
                continue
            is_first = False
            if in_time or self._settles(result):
                self.collapsed += not leads
                return result, flight, leads

    def lone(self, key: Key, subject: str = OURS) -> Flight[Result]:
        """A flight that is not shared, and whose result must not be stored."""
        flight: Flight[Result] = Flight(key, 0, self._stamps, subject)
        flight.detached = True
        return flight

    def detach(self, stream: str, which: Callable[[str], bool] = lambda asked: True) -> None:
        for key in [key for key in self._open if key[0] == stream and which(key[1])]:
            self._open.pop(key).detached = True

    def detach_all(self) -> None:
        for flight in self._open.values():
            flight.detached = True
        self._open.clear()

    def _start(
        self, key: Key, fetch: Callable[[Flight[Result]], Awaitable[Result]], subject: str
    ) -> Flight[Result]:
        flight: Flight[Result] = Flight(key, next(self._numbers), self._stamps, subject)

        async def fly() -> Result:
            try:
                return await fetch(flight)
            finally:
                self._close(flight)  # before the result is visible: no boarding after landing

        flight.task = asyncio.create_task(fly(), name=f"flight {key[0]} {key[1]}")
        flight.task.add_done_callback(_forgive)
        self._open[key] = flight
        self.started += 1
        return flight

    async def _ride(self, flight: Flight[Result], limit: asyncio.Timeout) -> Result:
        if flight.has_begun:
            limit.reschedule(None)
        flight.limits.add(limit)
        flight.riders += 1
        try:
            return await asyncio.shield(flight.task)
        finally:
            flight.limits.discard(limit)
            flight.riders -= 1
            if not flight.riders and not flight.task.done():
                self._close(flight)  # first: nobody may board a cancelled flight
                flight.task.cancel()

    def _close(self, flight: Flight[Result]) -> None:
        if self._open.get(flight.key) is flight:
            del self._open[flight.key]


def _forgive(task: "asyncio.Task[Result]") -> None:
    """Riders get the exception; a flight without riders need not warn."""
    if not task.cancelled():
        task.exception()
