"""What a scenario waits for and counts: who waits where, and which requests are out."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

from tests.helpers.gateway import LocalGateway
from tests.helpers.scripted_origin import Answer, Gate, Recorded, ScriptedOrigin, SimpleStream

Script = Callable[[Recorded], Awaitable[Answer]]


def riders(gateway: LocalGateway) -> int:
    """Reads that wait for a fetch."""
    flights = gateway.gateway.holdings.flights
    return gateway.call(lambda: sum(flight.riders for flight in flights._open.values()))


def readers(gateway: LocalGateway) -> int:
    """Long-polls and SSE readers that wait at hubs."""
    return gateway.call(lambda: gateway.gateway.hubs.reader_count)


def grow_older(gateway: LocalGateway, seconds: float) -> None:
    """Everything in the first level was stored that much earlier."""

    def shift() -> None:
        for entry in gateway.gateway.holdings.store._entries.values():
            for name in ("stored_at", "fresh_until", "stale_until", "error_until"):
                setattr(entry, name, getattr(entry, name) - seconds)
            entry.forms.clear()

    gateway.call(shift)


@dataclass
class Watched:
    """A stream's own answers, with the number of live requests that were out at a time, and gates
    before which requests wait before anyone looks at them."""

    stream: Script
    gate: Gate = field(default_factory=Gate)
    live_gate: Gate | None = None
    out: int = 0
    most: int = 0

    async def __call__(self, request: Recorded) -> Answer:
        if not request.live:
            await self.gate.passed()
            return await self.stream(request)
        self.out += 1
        self.most = max(self.most, self.out)
        try:
            if self.live_gate is not None:
                await self.live_gate.passed()
            return await self.stream(request)
        finally:
            self.out -= 1


@dataclass
class Overtaken:
    """A stream whose reads are decided at once, and answered when their gate opens."""

    stream: Script
    gate: Gate = field(default_factory=Gate)

    async def __call__(self, request: Recorded) -> Answer:
        answer = await self.stream(request)
        return replace(answer, wait_for=self.gate) if request.method == "GET" else answer


def watch(origin: ScriptedOrigin, stream: SimpleStream, path: str) -> Watched:
    watched = Watched(stream._answer)
    origin.on("*", path, watched)
    return watched


def overtake(origin: ScriptedOrigin, stream: SimpleStream, path: str) -> Overtaken:
    overtaken = Overtaken(stream._answer)
    origin.on("*", path, overtaken)
    return overtaken
