"""What clients have still to take: large events and large bodies are kept once for all readers, and
given to a connection in slices as its client takes them.

A connection that is handed a whole message holds all of it for as long as the client likes. So it
gets no more than it says it has room for, and what waits is a view of bytes that everyone shares.
Those bytes are counted, once for all and once for each subject: who does not read can have the
gateway keep only so much.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress

from gateway.entries import Lines
from wire.front import Exchange

SLICE_BYTES = 64 * 1024
WAIT_SECS = 10.0


class Unsent:
    """Bytes that are kept for readers who have not taken them yet."""

    def __init__(self, most: int, most_of_subject: int) -> None:
        self._most = most
        self._most_of_subject = most_of_subject
        self._holders: Counter[Hashable] = Counter()  # of bytes, and of bytes by a subject
        self._of_subject: Counter[str] = Counter()
        self._freed: asyncio.Event | None = None  # if anyone waits for that
        self.total = 0

    def hold(self, subject: str, lines: Lines) -> bool:
        """Whether there is room. If so, it needs one `release`."""
        size = len(lines.data)
        more = 0 if self._holders[lines] else size
        more_of_subject = 0 if self._holders[subject, lines] else size
        if more and _is_over(self.total, more, self._most):
            return False
        held = self._of_subject[subject]
        if more_of_subject and _is_over(held, more_of_subject, self._most_of_subject):
            return False
        self._holders[lines] += 1
        self._holders[subject, lines] += 1
        self.total += more
        self._of_subject[subject] += more_of_subject
        return True

    def has_room(self, subject: str) -> bool:
        """Whether anything more may wait for a subject's readers."""
        is_left = self._of_subject[subject] < self._most_of_subject
        return is_left and self.total < self._most

    async def room(self, subject: str) -> None:
        """Wait for it, for a while: better than to fetch what then cannot be sent."""
        if self.has_room(subject):
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(WAIT_SECS):
                while not self.has_room(subject):
                    await self._next_release()

    async def taken(self, seconds: float) -> None:
        """Wait until everything is taken, or time is up."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self.total:
                    await self._next_release()

    async def _next_release(self) -> None:
        self._freed = self._freed or asyncio.Event()
        await self._freed.wait()

    def release(self, subject: str, lines: Lines) -> None:
        size = len(lines.data)
        if _was_last(self._holders, lines):
            self.total -= size
        if _was_last(self._holders, (subject, lines)):
            self._of_subject[subject] -= size
            if not self._of_subject[subject]:
                del self._of_subject[subject]
        freed, self._freed = self._freed, None
        if freed is not None:
            freed.set()


def _is_over(held: int, more: int, most: int) -> bool:
    """One always fits, or the largest could never be sent."""
    return held > 0 and held + more > most


def _was_last(holders: "Counter[Hashable]", key: Hashable) -> bool:
    holders[key] -= 1
    if holders[key]:
        return False
    del holders[key]
    return True


class Outgoing:
    """Parts on their way to one client, in order. `taken` is called whenever he took some."""

    def __init__(
        self, exchange: Exchange, unsent: Unsent, subject: str, taken: Callable[[], None]
    ) -> None:
        self._exchange = exchange
        self._unsent = unsent
        self._subject = subject
        self._taken = taken
        self._parts: deque[memoryview] = deque()
        self._held: list[Lines] = []
        self.size = 0  # of what is not with the connection yet

    def add(self, parts: Sequence[bytes | memoryview], shared: Lines | None = None) -> bool:
        """False when there is no room for what they share with others."""
        if shared is not None:
            if not self._unsent.hold(self._subject, shared):
                return False
            self._held.append(shared)
        for part in parts:
            self._parts.append(memoryview(part))
            self.size += len(part)
        self.pump()
        return True

    def pump(self) -> None:
        """As much as the connection has room for; the rest when it says that it has."""
        while self._parts and not self._exchange.is_full:
            part = self._parts.popleft()
            sent = self._exchange.write_now(part)
            if not sent:
                sent = min(len(part), SLICE_BYTES)
                self._exchange.write(part[:sent])
            if sent < len(part):
                self._parts.appendleft(part[sent:])
            self.size -= sent
        if self._parts:
            self._exchange.when_writable(self._go_on)
        else:
            self.clear()

    def _go_on(self) -> None:
        self.pump()
        self._taken()

    async def drain(self) -> None:
        """Until the connection has everything, and room for more."""
        await self._exchange.drain()
        while self._parts:
            self.pump()
            await self._exchange.drain()

    def clear(self) -> None:
        self._parts.clear()
        self.size = 0
        for shared in self._held:
            self._unsent.release(self._subject, shared)
        self._held.clear()


def send_large(exchange: Exchange, unsent: Unsent, subject: str, head: bytes, body: Lines) -> bool:
    """A whole answer, if there is room for what its client does not take at once."""

    def taken() -> None:
        if not outgoing.size:
            exchange.finish()

    outgoing = Outgoing(exchange, unsent, subject, taken)
    exchange.when_gone(outgoing.clear)
    if not outgoing.add((head, body.data), body):
        return False
    taken()
    return True
