"""The connection to Redis: time limits, batching, and pauses after failures.

Calls never exceed the time limit and never raise. After a failure, calls return None at once while
a task probes Redis at growing intervals. When Redis is back, the owner first repairs what it
missed, then calls pass again. This module knows nothing about keys and values.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from itertools import islice
from typing import Any

from redis.asyncio.connection import AbstractConnection, ConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as LostConnection
from redis.exceptions import ResponseError

from gateway.tasks import cancel

FIRST_PAUSE_SECS = 0.5
LONGEST_PAUSE_SECS = 5.0
MAX_CONNECTIONS = 16
MAX_WAITING = 10_000  # calls for a place in a batch
BATCH_CALLS = 100  # per round trip: few enough for its time limit on a busy machine

Command = tuple[str | bytes | int, ...]
Reply = bytes | int | None | list[Any] | ResponseError
Repair = Callable[[], Awaitable[bool]]

_log = logging.getLogger("weir.gateway")


class Link:
    """`repair` runs before Redis is used again; while it returns False, Redis stays unused."""

    def __init__(
        self,
        url: str,
        timeout_s: float,
        *,
        repair: Repair | None = None,
        first_pause_s: float = FIRST_PAUSE_SECS,
        max_connections: int = MAX_CONNECTIONS,
    ) -> None:
        self._timeout_s = timeout_s
        self._repair = repair
        self._first_pause_s = first_pause_s
        # Only used to parse URLs: the pool's own waiting and retrying is not used.
        self._pool = ConnectionPool.from_url(
            url, protocol=2, socket_timeout=None, retry=Retry(NoBackoff(), 0), driver_info=None
        )
        self._idle: list[AbstractConnection] = []
        self._slots = asyncio.Semaphore(max_connections)
        self._recovery: asyncio.Task[None] | None = None
        self._closed = False
        self.available = True
        self.failures = 0  # calls that failed or took too long
        self.outages = 0  # times that Redis became unavailable
        self.busy = 0  # calls that timed out waiting for a free connection

    async def call(self, *commands: Command) -> list[Reply] | None:
        """Send commands in one round trip; one reply each, or None if Redis is unavailable.

        An error that Redis returns for one command is a reply like any other.
        """
        if not self.available:
            return None
        deadline = asyncio.get_running_loop().time() + self._timeout_s
        if not await self._take_slot(deadline):
            self.busy += 1
            return None
        try:
            if not self.available:  # failed while we waited
                return None
            replies = await self._attempt(commands, deadline)
        finally:
            self._slots.release()
        if replies is None:
            self.leave_alone()
        return replies

    async def attempt(self, *commands: Command) -> list[Reply] | None:
        """Like `call`, but also while Redis is unavailable: for `repair`."""
        return await self._attempt(commands, asyncio.get_running_loop().time() + self._timeout_s)

    def leave_alone(self) -> None:
        """Stop using Redis until it responds and `repair` succeeds."""
        if self.available:
            self.available = False
            self.outages += 1
            _log.warning("Redis is not responding correctly; continuing without it")
            self._recovery = asyncio.create_task(self._recover(), name="redis recovery")

    async def close(self) -> None:
        self._closed = True
        self.available = False
        await cancel(self._recovery)
        await self._drop_idle()

    def make_connection(self) -> AbstractConnection:
        """A connection owned by the caller, not yet connected."""
        connection: AbstractConnection = self._pool.make_connection()  # type: ignore[no-untyped-call]
        return connection

    async def _take_slot(self, deadline: float) -> bool:
        try:
            async with asyncio.timeout_at(deadline):
                return await self._slots.acquire()
        except TimeoutError:
            return False

    async def _attempt(self, commands: tuple[Command, ...], deadline: float) -> list[Reply] | None:
        try:
            async with asyncio.timeout_at(deadline):
                return await self._exchange(commands)
        except Exception as error:  # whatever a dying or foreign server makes the client raise
            self.failures += 1
            _log.debug("Redis call failed: %s", type(error).__name__)
            return None

    async def _exchange(self, commands: tuple[Command, ...]) -> list[Reply]:
        if self._idle:
            try:
                return await self._use(self._idle.pop(), commands)
            except (LostConnection, OSError):
                # Redis closes idle connections, and all on a restart: not a failure yet.
                await self._drop_idle()
        return await self._use(self.make_connection(), commands)

    async def _use(
        self, connection: AbstractConnection, commands: tuple[Command, ...]
    ) -> list[Reply]:
        """A connection that was interrupted during an exchange is not reused."""
        kept = False
        try:
            replies = await exchange(connection, commands)
            kept = not self._closed
        finally:
            if not kept:
                await connection.disconnect(nowait=True)
        self._idle.append(connection)
        return replies

    async def _drop_idle(self) -> None:
        while self._idle:
            await self._idle.pop().disconnect(nowait=True)

    async def _recover(self) -> None:
        await self._drop_idle()
        pause_s = self._first_pause_s
        await asyncio.sleep(pause_s)
        while not await self._is_well():
            pause_s = min(2 * pause_s, LONGEST_PAUSE_SECS)
            await asyncio.sleep(pause_s)
        self.available = True
        _log.info("Redis is back")

    async def _is_well(self) -> bool:
        if await self.attempt(("PING",)) != [b"PONG"]:
            return False
        return self._repair is None or await self._repair()


class Batch:
    """Small concurrent commands share a round trip."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._waiting: list[tuple[tuple[Command, ...], asyncio.Future[list[Reply] | None]]] = []
        self._task: asyncio.Task[None] | None = None

    async def call(self, *commands: Command) -> list[Reply] | None:
        """Like `Link.call`, but under load a caller waits for the round trips before its own.

        A cancelled caller's commands are still sent.
        """
        if not self._link.available or len(self._waiting) >= MAX_WAITING:
            return None
        future: asyncio.Future[list[Reply] | None] = asyncio.get_running_loop().create_future()
        self._waiting.append((commands, future))
        if self._task is None:
            self._task = asyncio.create_task(self._send(), name="redis batch")
        return await future

    async def close(self) -> None:
        """After the link was closed: release the remaining waiters."""
        if self._task is not None:
            await self._task

    async def _send(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting[:BATCH_CALLS], self._waiting[BATCH_CALLS:]
                replies = await self._link.call(*(c for commands, _ in batch for c in commands))
                rest = iter(replies or ())
                for commands, future in batch:
                    own = list(islice(rest, len(commands)))
                    if not future.done():
                        future.set_result(None if replies is None else own)
        finally:
            self._task = None


async def exchange(connection: AbstractConnection, commands: tuple[Command, ...]) -> list[Reply]:
    if not connection.is_connected:
        await connection.connect()  # type: ignore[no-untyped-call]
    packed = connection.pack_commands(commands)
    await connection.send_packed_command(packed, check_health=False)
    return [await _read_reply(connection) for _ in commands]


async def _read_reply(connection: AbstractConnection) -> Reply:
    try:
        reply: Reply = await connection.read_response(disable_decoding=True)
    except ResponseError as error:
        return error
    return reply
