"""Notices from one gateway or worker to all others: something they may have cached has changed.

A receiver acknowledges a notice after acting on it, so when a writer gets its response, no gateway
serves old bytes. The wait for acknowledgements is short, and nothing is lost silently: undelivered
notices are delivered later, and a receiver that may have missed some is told of a gap and must
drop its whole cache.

Three carriers: Redis between machines (`redisnotices`), unix sockets between the workers of one
(`localnotices`), and none.
"""

import asyncio
import logging
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Literal, Protocol

import msgspec

ACK_TIMEOUT_SECS = 0.25
MAX_OWED = 1000  # undelivered notices; beyond that, all receivers are told of a gap
MAX_MESSAGE_BYTES = 16 * 1024


_log = logging.getLogger("weir.gateway")


class Notice(msgspec.Struct, frozen=True):
    kind: Literal["purge"]
    stream: str
    reason: Literal["deleted", "created", "changed", "snapshot"]
    earliest: str = ""  # of a snapshot: the new beginning of the stream's data, if it is known
    incarnation: str = ""  # of a re-created stream: its new incarnation


OnNotice = Callable[[Notice], None]
OnGap = Callable[[], None]


@dataclass(slots=True)
class Counts:
    published: int = 0
    unacknowledged: int = 0  # of those, not acknowledged by all in time
    received: int = 0
    malformed: int = 0
    gaps: int = 0


class Notices(Protocol):
    counts: Counts

    @property
    def connected(self) -> bool:
        """Whether notices from others arrive."""

    async def start(self, on_notice: OnNotice, on_gap: OnGap) -> None:
        """Cache nothing before this returns. Never fails: a carrier may connect later."""

    async def publish(self, notice: Notice) -> bool:
        """Whether all others have acted on it; False after a short wait if some have not."""

    async def stop(self) -> None: ...


class SilentNotices:
    """For a gateway that runs alone."""

    connected = True

    def __init__(self) -> None:
        self.counts = Counts()

    async def start(self, on_notice: OnNotice, on_gap: OnGap) -> None:
        pass

    async def publish(self, notice: Notice) -> bool:
        self.counts.published += 1
        return True

    async def stop(self) -> None:
        pass


# -- messages, independent of the carrier --------------------------------------------------------


class _Told(msgspec.Struct, tag="notice", frozen=True):
    sender: str
    number: int
    notice: Notice


class _Acks(msgspec.Struct, tag="acks", frozen=True):
    sender: str
    numbers: list[int]


class _Gap(msgspec.Struct, tag="gap", frozen=True):
    sender: str


_decoder = msgspec.json.Decoder(_Told | _Acks | _Gap)
_encode = msgspec.json.Encoder().encode


class Delivery:
    """One published notice: its acknowledgements, and how many are expected."""

    def __init__(self) -> None:
        self.complete: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._acknowledged: set[str] = set()
        self._expected: int | None = None

    def expect(self, receivers: int) -> None:
        self._expected = receivers
        self._look()

    def acknowledge(self, receiver: str) -> None:
        self._acknowledged.add(receiver)
        self._look()

    async def confirmed(self, until: float) -> bool:
        """Whether all have acknowledged it before this time of the loop."""
        try:
            async with asyncio.timeout_at(until):
                await self.complete
        except TimeoutError:
            return False
        return True

    def _look(self) -> None:
        known = self._expected is not None and len(self._acknowledged) >= self._expected
        if known and not self.complete.done():
            self.complete.set_result(None)


class Mailbox:
    """What every carrier does with messages: number them, act on them, match acknowledgements."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.counts = Counts()
        self._on_notice: OnNotice = lambda notice: None
        self._on_gap: OnGap = lambda: None
        # A random start: acknowledgements for an earlier process of this name must not count.
        self._numbers = count(secrets.randbits(48))
        self._deliveries: dict[int, Delivery] = {}

    def listen(self, on_notice: OnNotice, on_gap: OnGap) -> None:
        """Messages that arrive before this are ignored."""
        self._on_notice, self._on_gap = on_notice, on_gap

    @contextmanager
    def delivery(self, notice: Notice) -> Iterator[tuple[bytes, Delivery]]:
        """The message to send, and its delivery."""
        number, delivery = next(self._numbers), Delivery()
        self._deliveries[number] = delivery
        self.counts.published += 1
        try:
            yield _encode(_Told(self.name, number, notice)), delivery
        finally:
            del self._deliveries[number]
            done = delivery.complete.done() and not delivery.complete.cancelled()
            self.counts.unacknowledged += not done

    def take(self, message: bytes) -> tuple[str, int] | None:
        """Act on a message; returns the sender and number to acknowledge, if any."""
        try:
            taken = _decoder.decode(message) if len(message) <= MAX_MESSAGE_BYTES else None
        except msgspec.MsgspecError:
            taken = None
        match taken:
            case _Told():
                return self._take_notice(taken)
            case _Acks():
                self._take_acks(taken)
            case _Gap(sender) if sender != self.name:
                self.tell_gap()
            case None:
                self.counts.malformed += 1
        return None

    def tell_gap(self) -> None:
        self.counts.gaps += 1
        try:
            self._on_gap()
        except Exception:
            _log.exception("failed to handle a gap in the notices")

    def encode(self, notice: Notice) -> bytes:
        """A message whose acknowledgement nobody waits for."""
        return _encode(_Told(self.name, 0, notice))

    def encode_acks(self, numbers: list[int]) -> bytes:
        return _encode(_Acks(self.name, numbers))

    def encode_gap(self) -> bytes:
        return _encode(_Gap(self.name))

    def _take_notice(self, told: _Told) -> tuple[str, int] | None:
        if told.sender == self.name:  # our own echo counts as our acknowledgement
            self._take_acks(_Acks(self.name, [told.number]))
            return None
        self.counts.received += 1
        try:
            self._on_notice(told.notice)
        except Exception:
            _log.exception("failed to handle a notice")
            return None
        return told.sender, told.number

    def _take_acks(self, acks: _Acks) -> None:
        for number in acks.numbers:
            if delivery := self._deliveries.get(number):
                delivery.acknowledge(acks.sender)
