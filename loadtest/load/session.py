"""What every scenario has at hand: streams of its own, paced requests, and counts of them.

Pacing is open-loop: a request is due when the clock says so, whatever became of those before it,
and its time counts from then. A server that stalls for a second finds a second's worth waiting.
"""

import asyncio
import random
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count, cycle
from typing import Any

from loadtest.load.client import NEXT_OFFSET, UP_TO_DATE, build_request
from loadtest.load.connection import Broken, Pool, Target, verdict_of
from loadtest.load.meter import Meter
from loadtest.load.replies import Reply

TEXT = "text/plain"
MARK = b"#"
STAMP = re.compile(rb"(\d{20})x*" + MARK)
"""Messages carry the time at which they were due, in nanoseconds."""
SETUP_TIMEOUT_S = 60.0
ANSWER_TIMEOUT_S = 30.0
DELIVERY_TIMEOUT_S = 10.0
"""After the last append: what has not arrived by then never will."""
REMOVAL_TIMEOUT_S = 20.0
HOLD_TIMEOUT_S = 90.0
"""For long-polls: above the time that any server holds one."""

Restart = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Knobs:
    """How much of it; each scenario has its own defaults."""

    seconds: float = 20.0
    readers: int = 0
    streams: int = 1
    rate: float = 0.0
    size: int = 1024


async def _nothing() -> None:
    pass


class SetupFailed(Exception):
    """The scenario could not begin."""


class Session:
    def __init__(
        self,
        target: Target,
        tokens: Sequence[str],
        knobs: Knobs,
        *,
        prefix: str,
        restart: Restart | None = None,
    ) -> None:
        self.target = target
        self.knobs = knobs
        self.meter = Meter()
        self.pool = Pool(target, self.meter)
        self.random = random.Random(7)
        self.restart = restart
        self.on_begin: Callable[[], Awaitable[None]] = _nothing
        self.notes: list[str] = []
        """Why the figures may not be what they seem."""
        self.waiting = 0
        """Readers who wait for something new right now."""
        self._token_count = len(tokens)
        self._tokens = cycle(tokens or [""])
        self._prefix = prefix
        self._numbers = count()
        self._until = 0.0
        self._created: list[str] = []
        self._appending = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def begin(self) -> None:
        """What was set up is not measured; from here on it is."""
        await self.on_begin()
        self._until = time.perf_counter() + self.knobs.seconds

    @property
    def left_s(self) -> float:
        return self._until - time.perf_counter()

    def new_path(self, name: str) -> str:
        return f"{self._prefix}/{name}-{next(self._numbers)}"

    def request(
        self,
        method: str,
        path: str,
        query: str = "",
        body: bytes | None = None,
        lines: Sequence[str] = (),
    ) -> bytes:
        token = next(self._tokens)
        bearer = [f"Authorization: Bearer {token}"] if token else []
        return build_request(
            method,
            path,
            body,
            query,
            lines=[*bearer, *lines],
            content_type=TEXT,
            host=self.target.authority,
        )

    # -- before the clock runs -------------------------------------------------------------------

    async def create(self, path: str, body: bytes = b"", *, closed: bool = False) -> str:
        """A new stream; the offset of its tail."""
        lines = ["Stream-Closed: true"] if closed else []
        request = self.request("PUT", path, body=body, lines=lines)
        try:
            reply = await self.pool.ask(request, time.perf_counter(), timeout_s=SETUP_TIMEOUT_S)
        except Broken as error:
            raise SetupFailed(f"{self.target.authority}: {error}") from None
        if reply.status not in (200, 201):
            hint = "; --token says who is asking" if reply.status in (401, 403) else ""
            raise SetupFailed(f"creating {path} was answered with {reply.status}{hint}")
        self._created.append(path)
        return reply.headers.get(NEXT_OFFSET, "-1")

    async def create_all(self, name: str, *, closed: bool = True) -> list[str]:
        """As many streams as the knobs say, of as many bytes."""
        paths = [self.new_path(name) for _ in range(self.knobs.streams)]
        body = b"x" * self.knobs.size
        for start in range(0, len(paths), 64):
            group = paths[start : start + 64]
            await asyncio.gather(*(self.create(path, body, closed=closed) for path in group))
        return paths

    def want_tokens(self, count: float) -> None:
        """Say so if there are not as many as the scenario pretends."""
        if self._token_count < count:
            self.notes.append(f"there were only {self._token_count:,} tokens, so they came again")

    # -- while it runs ---------------------------------------------------------------------------

    async def due_times(self, rate: float) -> AsyncIterator[float]:
        """Until the end of the scenario, `rate` times a second, evenly; late ones all at once."""
        start = time.perf_counter()
        for number in count():
            due = start + number / rate
            if due >= self._until:
                return
            if (wait_s := due - time.perf_counter()) > 0:
                await asyncio.sleep(wait_s)
            yield due

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def finish(self) -> None:
        """Wait for what is under way when the time is over, but not for those who wait for news."""
        if self.left_s > 0:
            await asyncio.sleep(self.left_s)
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        for result in results:
            if isinstance(result, Exception):
                raise result

    async def drain(self) -> None:
        """Let paced requests that have left be answered, each within its own time."""
        while self._tasks:
            await asyncio.wait(self._tasks, timeout=ANSWER_TIMEOUT_S)

    async def ask(self, what: str, request: bytes, due: float, *statuses: int) -> Reply | None:
        """Ask and count; None if it went wrong."""
        try:
            reply = await self.pool.ask(request, due, timeout_s=ANSWER_TIMEOUT_S)
        except Broken as error:
            self.meter.failed(what, str(error))
            return None
        if reply.status not in statuses:
            self.meter.failed(what, str(reply.status))
            return None
        took_s = time.perf_counter() - due
        self.meter.done(what, took_s, reply.body_bytes, verdict_of(reply))
        return reply

    async def append(self, path: str, due: float) -> None:
        stamp = b"%020d" % int(due * 1e9)
        body = stamp.ljust(max(self.knobs.size, len(stamp) + 1) - 1, b"x") + MARK
        self._appending += 1
        try:
            await self.ask("append", self.request("POST", path, body=body), due, 200, 204)
        finally:
            self._appending -= 1

    async def append_paced(self, paths: Sequence[str]) -> None:
        async for due in self.due_times(self.knobs.rate):
            self.spawn(self.append(self.random.choice(paths), due))

    def note_delivery(self, data: bytes, at: float) -> None:
        """Messages that reached a reader."""
        for stamp in STAMP.findall(data):
            self.meter.done("delivered", at - int(stamp) / 1e9)

    async def await_deliveries(self) -> None:
        """Every reader is to have every message; a slow server must not lose them unseen."""
        deadline = self._until + DELIVERY_TIMEOUT_S
        while self._appending or self._undelivered > 0:
            if time.perf_counter() > deadline:
                self.meter.failed("delivered", "never arrived", max(self._undelivered, 0))
                return
            await asyncio.sleep(0.02)

    @property
    def _undelivered(self) -> int:
        sums = self.meter.sums
        return sums["append"] * self.knobs.readers - sums["delivered"]

    # -- afterwards ------------------------------------------------------------------------------

    async def remove_streams(self) -> None:
        """Leave nothing behind, where the token may delete and the server still answers."""
        unread = iter(self._created)

        async def remove() -> None:
            for path in unread:
                request = self.request("DELETE", path)
                reply = await self.pool.ask(request, None, timeout_s=ANSWER_TIMEOUT_S)
                if reply.status in (401, 403):
                    return

        with suppress(Broken, TimeoutError):
            async with asyncio.timeout(REMOVAL_TIMEOUT_S):
                await asyncio.gather(*(remove() for _ in range(8)))
        self.pool.close()


def reached_tail(reply: Reply) -> bool:
    return reply.headers.get(UP_TO_DATE) == "true"
