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
from itertools import count
from typing import Any

from loadtest.errors import RunFailedError
from loadtest.load.client import TEXT, Client, RefusedError
from loadtest.load.connection import Broken, Target
from loadtest.load.meter import Meter
from loadtest.load.replies import Reply, verdict_of
from protocol.offsets import START

MARK = b"#"
STAMP = re.compile(rb"(\d{20})x*" + MARK)
"""Messages carry the time at which they were due, in nanoseconds."""
ANSWER_TIMEOUT_SECS = 30.0
DELIVERY_TIMEOUT_SECS = 10.0
"""After the last append: what has not arrived by then never will."""
REMOVAL_TIMEOUT_SECS = 20.0
HOLD_TIMEOUT_SECS = 90.0
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


class SetupFailed(RunFailedError):
    """The scenario could not begin."""


class Session(Client):
    def __init__(
        self,
        target: Target,
        tokens: Sequence[str],
        knobs: Knobs,
        *,
        prefix: str,
        restart: Restart | None = None,
    ) -> None:
        super().__init__(target, tokens, content_type=TEXT)
        self.knobs = knobs
        self.meter = Meter()
        self.random = random.Random(7)
        self.restart = restart
        self._on_begin: Callable[[], Awaitable[None]] = _nothing
        self.notes: list[str] = []
        """Why the figures may not be what they seem."""
        self.waiting = 0
        """Readers who wait for something new right now."""
        self._token_count = len(tokens)
        self._prefix = prefix
        self._numbers = count()
        self._until = 0.0
        self._created: list[str] = []
        self._appending = 0
        self._tasks: set[asyncio.Task[object]] = set()

    def when_begun(self, act: Callable[[], Awaitable[None]]) -> None:
        self._on_begin = act

    async def begin(self) -> None:
        """What was set up is not measured; from here on it is."""
        await self._on_begin()
        self._until = time.perf_counter() + self.knobs.seconds

    @property
    def left_s(self) -> float:
        return self._until - time.perf_counter()

    def new_path(self, name: str) -> str:
        return f"{self._prefix}/{name}-{next(self._numbers)}"

    # -- before the clock runs -------------------------------------------------------------------

    async def create(self, path: str, body: bytes = b"", *, closed: bool = False) -> str:
        try:
            offset = await super().create(path, body, closed=closed)
        except Broken as error:
            raise SetupFailed(f"{self.target.authority}: {error}") from None
        except RefusedError as error:
            hint = "; --token says who is asking" if error.status in (401, 403) else ""
            raise SetupFailed(f"creating {path} was {error}{hint}") from None
        self._created.append(path)
        return offset or START

    async def create_streams(self, name: str, *, closed: bool = False) -> list[str]:
        """As many as the knobs say; closed ones have as many bytes as they say."""
        paths = [self.new_path(name) for _ in range(self.knobs.streams)]
        await self.create_all(paths, b"x" * self.knobs.size if closed else b"", closed=closed)
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

    def spawn(self, work: Coroutine[Any, Any, object]) -> None:
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
            await asyncio.wait(self._tasks, timeout=ANSWER_TIMEOUT_SECS)

    async def ask(
        self, what: str, request: bytes, due: float, *statuses: int, late: bool = True
    ) -> Reply | None:
        """Ask and count; None if it went wrong. `late` is false for what follows on."""
        if late:
            self.meter.left(time.perf_counter() - due)
        try:
            reply = await self.fetch(request, timeout_s=ANSWER_TIMEOUT_SECS)
        except Broken as error:
            self.meter.failed(what, str(error))
            return None
        if reply.status not in statuses:
            self.meter.failed(what, str(reply.status))
            return None
        self.meter.done(what, reply.read_at - due, reply.body_bytes, verdict_of(reply))
        return reply

    async def append_stamped(self, path: str, due: float) -> None:
        stamp = b"%020d" % int(due * 1e9)
        body = stamp.ljust(max(self.knobs.size, len(stamp) + 1) - 1, b"x") + MARK
        self._appending += 1
        try:
            await self.ask("append", self.request("POST", path, body=body), due, 200, 204)
        finally:
            self._appending -= 1

    async def append_paced(self, paths: Sequence[str]) -> None:
        async for due in self.due_times(self.knobs.rate):
            self.spawn(self.append_stamped(self.random.choice(paths), due))

    def note_delivery(self, data: bytes, at: float) -> None:
        """Messages that reached a reader."""
        for stamp in STAMP.findall(data):
            self.meter.done("delivered", at - int(stamp) / 1e9)

    async def await_deliveries(self) -> None:
        """Every reader is to have every message; a slow server must not lose them unseen."""
        deadline = self._until + DELIVERY_TIMEOUT_SECS
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
                reply = await self.fetch(
                    self.request("DELETE", path), timeout_s=ANSWER_TIMEOUT_SECS
                )
                if reply.status in (401, 403):
                    return

        with suppress(Broken, TimeoutError):
            async with asyncio.timeout(REMOVAL_TIMEOUT_SECS):
                await asyncio.gather(*(remove() for _ in range(8)))
        self.close()
