"""Requests that get no outcome in time. Only a cluster has them: its storage waits for others.

Staged work goes on without its request: completion callbacks of the storage finish it. So a request
can be answered before its outcome is known, and a client that repeats it is judged by the outcome.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from types import TracebackType

from protocol.errors import ProtocolError
from protocol.replies import RETRY_AFTER, Reply, problem_of

Send = Callable[[Reply], None]


def unknown_outcome() -> ProtocolError:
    return ProtocolError(
        503, "unknown-outcome", "It is not known yet whether this is stored.", RETRY_AFTER
    )


def slow_storage() -> ProtocolError:
    return ProtocolError(503, "slow-storage", "The storage did not answer in time.", RETRY_AFTER)


UNKNOWN_OUTCOME = problem_of(unknown_outcome())


class Deadline:
    """How long one request may wait for its shard; inside the block, `expire` ends the wait.

    It is stopped while a body arrives and once a response has begun: these have their own times.
    """

    def __init__(self, secs: float | None) -> None:
        self._secs = secs
        self._clock = asyncio.timeout(secs)
        self._can_end = True

    async def __aenter__(self) -> None:
        await self._clock.__aenter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._clock.__aexit__(kind, error, trace)

    @property
    def has_passed(self) -> bool:
        return self._clock.expired()

    def stop(self) -> None:
        self._can_end = False
        self._clock.reschedule(None)

    def restart(self) -> None:
        self._can_end = True
        if self._secs is not None:
            self._clock.reschedule(asyncio.get_running_loop().time() + self._secs)

    def expire(self) -> None:
        """Nothing will come: wait no longer."""
        if self._can_end and not self.has_passed:
            self._clock.reschedule(asyncio.get_running_loop().time())


class _Awaited:
    """A reply that is sent once."""

    __slots__ = ("is_sent", "send", "until")

    def __init__(self, send: Send, until: float) -> None:
        self.send = send
        self.until = until
        self.is_sent = False


class Outcomes:
    """The same for requests without a task. All wait equally long, so a queue and one timer do."""

    def __init__(self, secs: float) -> None:
        self._secs = secs
        self._queue: deque[_Awaited] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._queue)

    def awaited(self, send: Send) -> Send:
        """Calls `send` once: with the reply, or when time is up."""
        loop = asyncio.get_running_loop()
        entry = _Awaited(send, loop.time() + self._secs)
        self._queue.append(entry)
        if self._timer is None:
            self._timer = loop.call_at(entry.until, self._look)

        def send_once(reply: Reply) -> None:
            if not entry.is_sent:
                entry.is_sent = True
                self._drop_sent()
                send(reply)

        return send_once

    def _drop_sent(self) -> None:
        queue = self._queue
        while queue and queue[0].is_sent:
            queue.popleft()

    def _look(self) -> None:
        loop, queue = asyncio.get_running_loop(), self._queue
        self._timer = None
        while queue and (queue[0].is_sent or queue[0].until <= loop.time()):
            entry = queue.popleft()
            if not entry.is_sent:
                entry.is_sent = True
                entry.send(UNKNOWN_OUTCOME)
        if queue:
            self._timer = loop.call_at(queue[0].until, self._look)
