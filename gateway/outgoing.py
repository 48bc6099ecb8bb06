"""Unsent data: large events and large bodies are kept once for all readers, and passed to each
connection in slices as its client reads them.

A connection that is given a whole message holds all of it until the client has read it. So it only
gets as much as it has room for; the rest is a view of shared bytes. Those bytes are counted, in
total and per subject, so that a client that does not read can make the gateway keep only so much.
If an event is not identical to its body, it is made from it in pieces, each when the first client
has room for it.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress

from gateway.entries import EventLines, Lines, Piece
from wire.exchange import Exchange

SLICE_BYTES = 64 * 1024
WAIT_SECS = 10.0
RECENT_BYTES = 4 * 1024 * 1024  # of event pieces; readers need each at about the same time
PIECES_AT_ONCE = 8  # made for one client before others get their turn


class Unsent:
    """Bytes kept for readers that have not received them yet."""

    def __init__(self, most: int, most_of_subject: int) -> None:
        self._most = most
        self._most_of_subject = most_of_subject
        self._holders: Counter[Hashable] = Counter()  # of bytes, and of bytes by a subject
        self._of_subject: Counter[str] = Counter()
        self._freed: asyncio.Event | None = None  # if anyone is waiting for it
        self.total = 0
        self.recent = Recent()

    def hold(self, subject: str, lines: Lines) -> bool:
        """Whether there is room; if so, one `release` is due."""
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
        """Whether there is room for more data of a subject's readers."""
        is_left = self._of_subject[subject] < self._most_of_subject
        return is_left and self.total < self._most

    async def room(self, subject: str) -> None:
        """Wait for room for a while, rather than fetch data that cannot be sent."""
        if self.has_room(subject):
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(WAIT_SECS):
                while not self.has_room(subject):
                    await self._next_release()

    async def taken(self, seconds: float) -> None:
        """Wait until everything is sent, or time is up."""
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
    """A single item always fits, or the largest could never be sent."""
    return held > 0 and held + more > most


def _was_last(holders: "Counter[Hashable]", key: Hashable) -> bool:
    holders[key] -= 1
    if holders[key]:
        return False
    del holders[key]
    return True


class Recent:
    """The most recent pieces, for the next reader of the same event."""

    def __init__(self) -> None:
        self._pieces: deque[Piece] = deque()
        self._bytes = 0

    def piece(self, lines: EventLines, start: int, end: int, framed: bool) -> Piece:
        piece = lines.known_piece(start, end, framed)
        if piece is None:
            piece = lines.make_piece(start, end, framed)
            self._keep(piece)
        return piece

    def _keep(self, piece: Piece) -> None:
        self._pieces.append(piece)
        self._bytes += len(piece.data)
        while self._bytes > RECENT_BYTES:
            self._bytes -= len(self._pieces.popleft().data)


class Slices:
    """The lines of a large event on their way to one client, up to `end` of its body; `made` is
    called with the size of each piece."""

    def __init__(
        self, lines: EventLines, end: int, *, framed: bool, made: Callable[[int], None]
    ) -> None:
        self.lines = lines
        self._end = end
        self._framed = framed
        self._made = made
        self._next = 0
        self._piece: Piece | None = None  # kept while the connection may refer to it

    @property
    def left(self) -> int:
        return self._end - self._next

    def next(self, recent: Recent) -> memoryview:
        self._piece = recent.piece(self.lines, self._next, self._end, self._framed)
        self._next = self._piece.next
        self._made(self._piece.size)
        return memoryview(self._piece.data)


Part = bytes | memoryview | Slices


class Outgoing:
    """Parts on their way to one client, in order. `taken` is called whenever some were sent."""

    def __init__(
        self, exchange: Exchange, unsent: Unsent, subject: str, taken: Callable[[], None]
    ) -> None:
        self._exchange = exchange
        self._unsent = unsent
        self._subject = subject
        self._taken = taken
        self._parts: deque[memoryview | Slices] = deque()
        self._held: list[Lines] = []
        self._turn: asyncio.Handle | None = None
        self.size = 0  # bytes not passed to the connection yet
        self.unmade = 0  # body bytes in it without a piece yet

    def hold(self, shared: Lines) -> bool:
        """Whether there is room for shared bytes, before any of them are added."""
        has_room = self._unsent.hold(self._subject, shared)
        if has_room:
            self._held.append(shared)
        return has_room

    def add(self, parts: Sequence[Part]) -> None:
        for part in parts:
            self._append(part)
        self.pump()

    def _append(self, part: Part) -> None:
        if isinstance(part, Slices):
            self._parts.append(part)
            self.size += part.left
            self.unmade += part.left
        else:
            self._parts.append(memoryview(part))
            self.size += len(part)

    def pump(self) -> None:
        """Send as much as the connection has room for; the rest when it becomes writable."""
        pieces = 0
        while self._parts and not self._exchange.is_full and pieces < PIECES_AT_ONCE:
            part = self._parts.popleft()
            if isinstance(part, Slices):
                self._cut(part)
                pieces += 1
            else:
                self._give(part)
        if not self._parts:
            self.clear()
        elif self._exchange.is_full:
            self._exchange.when_writable(self._go_on)
        elif self._turn is None:
            self._turn = asyncio.get_running_loop().call_soon(self._take_turn)

    def _cut(self, slices: Slices) -> None:
        """Put the next piece before the rest, which is made later."""
        before = slices.left
        if not before:
            return
        piece = slices.next(self._unsent.recent)
        self._parts.extendleft((slices, piece))
        self.unmade -= before - slices.left
        self.size += len(piece) - (before - slices.left)

    def _give(self, part: memoryview) -> None:
        sent = self._exchange.write_now(part)
        if not sent:
            sent = min(len(part), SLICE_BYTES)
            self._exchange.write(part[:sent])
        if sent < len(part):
            self._parts.appendleft(part[sent:])
        self.size -= sent

    def _take_turn(self) -> None:
        self._turn = None
        self._go_on()

    def _go_on(self) -> None:
        self.pump()
        self._taken()

    async def drain(self) -> None:
        """Wait until the connection has everything, and room for more."""
        await self._exchange.drain()
        while self._parts:
            self.pump()
            await asyncio.sleep(0)  # with a fast client we would never yield otherwise
            await self._exchange.drain()

    def clear(self) -> None:
        self._parts.clear()
        self.size = self.unmade = 0
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None
        for shared in self._held:
            self._unsent.release(self._subject, shared)
        self._held.clear()


def send_large(exchange: Exchange, unsent: Unsent, subject: str, head: bytes, body: Lines) -> bool:
    """Send a complete response, if there is room for what the client does not read at once."""

    def taken() -> None:
        if not outgoing.size:
            exchange.finish()

    outgoing = Outgoing(exchange, unsent, subject, taken)
    exchange.when_gone(outgoing.clear)
    if not outgoing.hold(body):
        return False
    outgoing.add((head, body.data))
    taken()
    return True
