"""The scenarios of `weir load`: each a crowd at a given pace, and what is to be learnt from it."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from loadtest.load.goals import Goal, at_least, no_worse
from loadtest.load.readers import catch_up, follow, wait_for_news
from loadtest.load.session import Knobs, Session, SetupFailed
from loadtest.load.summary import describe_knobs
from loadtest.peers.names import ENVOY, NGINX, NODE, OURS, VARNISH
from protocol.offsets import START

ZIPF = 1.1
ARRIVAL_SECS = 1.0


Read = Callable[[Session, str, str], Coroutine[Any, Any, None]]


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    tells: str
    headline: str
    """The kind whose times are the result."""
    knobs: Knobs
    run: Callable[[Session], Awaitable[None]]
    peers: tuple[str, ...] = (OURS, NODE, NGINX, VARNISH, ENVOY)
    """On which `weir load compare` runs it."""
    least_s: float = 0.0
    """Shorter, it would tell nothing."""
    wants_tokens: Callable[[Knobs], int] | None = None
    goals: tuple[Goal, ...] = ()
    """Of the 99th percentile."""

    def sentence(self, knobs: Mapping[str, float]) -> str:
        """With the number of readers, where it speaks of them."""
        tells = self.tells.replace("N readers", f"{knobs.get('readers', 0):,.0f} readers")
        return f"{tells[0].upper()}{tells[1:]}"

    def lead(self, knobs: Mapping[str, float]) -> str:
        about = f"{self.sentence(knobs)}: {describe_knobs(knobs)}"
        return f"{about}. Times are of “{self.headline}”."


async def run_polls(session: Session) -> None:
    await _deliver(session, wait_for_news)


async def run_fanout(session: Session) -> None:
    await _deliver(session, follow)


async def _deliver(session: Session, read: Read) -> None:
    path = session.new_path("news")
    offset = await session.create(path)
    await _gather_crowd(session, lambda: read(session, path, offset))
    await session.begin()
    await session.append_paced([path])
    await session.await_deliveries()


async def run_rotation(session: Session) -> None:
    """All event streams begin in one moment, so they all end within one."""
    path = session.new_path("rotation")
    offset = await session.create(path)
    await session.begin()
    for _ in range(session.knobs.readers):
        session.spawn(follow(session, path, offset))
    await session.append_paced([path])


async def run_stampede(session: Session) -> None:
    """Waves of readers, each on a stream that nobody has read before."""
    waves = max(1, round(session.knobs.seconds * session.knobs.rate))
    paths = [session.new_path("stampede") for _ in range(waves)]
    await session.create_all(paths, b"x" * session.knobs.size, closed=True)
    await session.begin()
    unread = iter(paths)
    async for due in session.due_times(session.knobs.rate):
        path = next(unread, paths[-1])
        for _ in range(session.knobs.readers):
            session.spawn(_catch_up(session, path, due))
    await session.drain()


async def run_zipf(session: Session) -> None:
    paths = await session.create_streams("zipf", closed=True)
    await session.begin()
    await _read_paced(session, paths)


async def run_tokens(session: Session) -> None:
    """As Zipf, but no token comes twice."""
    session.want_tokens(tokens_wanted(session.knobs))
    await run_zipf(session)


def tokens_wanted(knobs: Knobs) -> int:
    """One for each read, and for each stream that is made for them."""
    return round(knobs.seconds * knobs.rate) + knobs.streams


async def run_cold(session: Session) -> None:
    """Zipf again; in the middle the cache loses everything."""
    if session.restart is None:
        raise SetupFailed("the scenario cold needs --restart COMMAND, which restarts the target")
    paths = await session.create_streams("cold", closed=True)
    await session.begin()
    session.spawn(_restart_at(session, session.knobs.seconds / 2))
    await _read_paced(session, paths)


async def run_append(session: Session) -> None:
    paths = await session.create_streams("append")
    await session.begin()
    await session.append_paced(paths)
    await session.drain()


async def run_browsers(session: Session) -> None:
    """People come, catch up, follow for a while, go, and come back to where they were."""
    paths = await session.create_streams("browsers")
    await session.begin()
    for number in range(session.knobs.readers):
        session.spawn(_browse(session, paths, by_polls=number % 3 == 0))
    await session.append_paced(paths)


async def _browse(session: Session, paths: Sequence[str], *, by_polls: bool) -> None:
    path, offset = session.random.choice(paths), START
    await asyncio.sleep(session.random.uniform(0, ARRIVAL_SECS))
    while True:
        offset = await catch_up(session, path, time.perf_counter(), offset)
        live = wait_for_news if by_polls else follow
        try:
            async with asyncio.timeout(session.random.expovariate(1 / 5)):
                await live(session, path, offset)
        except TimeoutError:
            await asyncio.sleep(session.random.uniform(0, 1))


async def _catch_up(session: Session, path: str, due: float) -> None:
    await catch_up(session, path, due)


async def _gather_crowd(session: Session, reader: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """All are there before the clock runs; they come one after another, as in life."""
    for _ in range(session.knobs.readers):
        session.spawn(reader())
        await asyncio.sleep(ARRIVAL_SECS / session.knobs.readers)
    deadline = time.perf_counter() + 30
    while session.waiting < session.knobs.readers:
        if time.perf_counter() > deadline:
            raise SetupFailed(f"only {session.waiting} readers could be connected")
        await asyncio.sleep(0.05)


async def _read_paced(session: Session, paths: Sequence[str]) -> None:
    weights = list(accumulate(1 / (rank + 1) ** ZIPF for rank in range(len(paths))))
    async for due in session.due_times(session.knobs.rate):
        path = session.random.choices(paths, cum_weights=weights)[0]
        session.spawn(_read(session, path, due))
    await session.drain()


async def _read(session: Session, path: str, due: float) -> None:
    await session.ask("read", session.request("GET", path, f"?offset={START}"), due, 200)


async def _restart_at(session: Session, after_s: float) -> None:
    await asyncio.sleep(after_s)
    assert session.restart is not None
    begun = time.perf_counter()
    await session.restart()
    session.meter.done("restart", time.perf_counter() - begun)


SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario(
            "polls",
            "N readers wait by long-poll; each append wakes all of them",
            "delivered",
            Knobs(seconds=20, readers=1000, rate=1, size=256),
            run_polls,
            goals=(at_least(2, VARNISH), at_least(10, NGINX)),
        ),
        Scenario(
            "fanout",
            "one stream to N readers by Server-Sent Events",
            "delivered",
            Knobs(seconds=20, readers=500, rate=10, size=256),
            run_fanout,
            goals=(no_worse(NODE), no_worse(ENVOY)),
        ),
        Scenario(
            "stampede",
            "N readers replay a cold stream at the same time",
            "catch-up",
            Knobs(seconds=20, readers=200, rate=0.5, size=1 << 20),
            run_stampede,
            goals=(no_worse(NODE), no_worse(NGINX)),
        ),
        Scenario(
            "zipf",
            "reads over many streams, a few of them hot",
            "read",
            Knobs(seconds=20, streams=1000, rate=2000, size=1024),
            run_zipf,
            goals=(no_worse(NGINX),),
        ),
        Scenario(
            "append",
            "appends to many streams",
            "append",
            Knobs(seconds=20, streams=100, rate=1000, size=256),
            run_append,
            goals=(no_worse(NGINX),),
        ),
        Scenario(
            "browsers",
            "readers catch up, follow, leave and come back",
            "delivered",
            Knobs(seconds=30, readers=300, streams=10, rate=20, size=256),
            run_browsers,
            goals=(no_worse(NODE), no_worse(ENVOY)),
        ),
        Scenario(
            "rotation",
            "all event streams start together, so all rotate together after a minute",
            "connect",
            Knobs(seconds=75, readers=500, rate=2, size=256),
            run_rotation,
            least_s=75,
            goals=(no_worse(ENVOY),),
        ),
        Scenario(
            "cold",
            "reads over many streams; halfway through, the cache is restarted",
            "read",
            Knobs(seconds=20, streams=1000, rate=1000, size=1024),
            run_cold,
            peers=(OURS, NGINX, VARNISH, ENVOY),  # those with a cache
            goals=(no_worse(NGINX),),
        ),
        Scenario(
            "tokens",
            "reads over many streams, each with a new token",
            "read",
            Knobs(seconds=10, streams=100, rate=500, size=1024),
            run_tokens,
            peers=(OURS, ENVOY),  # those who check tokens
            wants_tokens=tokens_wanted,
            goals=(no_worse(ENVOY),),
        ),
    )
}
