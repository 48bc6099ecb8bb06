"""Notices from one gateway or worker to all others: what they may have cached has changed.

A notice is acknowledged after its receiver has acted on it, so that a writer is answered when
nobody holds old bytes any more. Nobody waits long for an acknowledgement, and nothing is lost in
silence: what could not be delivered is delivered later, and whoever may have missed something is
told of a gap, after which it must drop all that it has cached.

Three carriers: Redis between machines, unix sockets between the workers of one, and none.
"""

import asyncio
import logging
import os
import re
import secrets
import socket
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import accumulate, count, islice, takewhile
from pathlib import Path
from typing import Literal, Protocol

import msgspec
from redis.asyncio.connection import AbstractConnection

from gateway.redislink import FIRST_PAUSE_S, Batch, Command, Link

ACK_TIMEOUT_S = 0.25
START_TIMEOUT_S = 1.0
BEAT_S = 1.0  # how long a subscription may be silent before it is asked for a sign of life
LONGEST_PAUSE_S = 2.0
MAX_MESSAGE_BYTES = 16 * 1024
MAX_OWED = 1000  # undelivered notices; beyond that, everybody is told of a gap
MAX_ACKS = 10_000  # acknowledgements that wait to be sent
ACKS_EACH = 500  # in one message

NOTICES = "weir:notices"
ACKS = "weir:acks:"

SOCKET_NAME = re.compile(r"worker-([0-9]{1,6})\.sock")
DATAGRAM_BYTES = 32 * 1024
RESEND_S = 0.001  # to a worker whose queue is full
SLOW_RESEND_S = 0.05
RECEIVE_BATCH = 64

_log = logging.getLogger("weir.gateway")


class Notice(msgspec.Struct, frozen=True):
    kind: Literal["purge"]
    stream: str
    reason: Literal["deleted", "created", "changed", "snapshot"]
    earliest: str = ""  # of a snapshot: where the stream's data begins from now on
    incarnation: str = ""  # of a stream that changed: what it was found to be


OnNotice = Callable[[Notice], None]
OnGap = Callable[[], None]


@dataclass(slots=True)
class Counts:
    published: int = 0
    unacknowledged: int = 0  # of those, not acknowledged by everybody in time
    received: int = 0
    malformed: int = 0
    gaps: int = 0


class Notices(Protocol):
    counts: Counts

    @property
    def connected(self) -> bool:
        """Whether notices of others reach us."""

    async def start(self, on_notice: OnNotice, on_gap: OnGap) -> None:
        """Cache nothing before this has returned. Never fails: a carrier may come later."""

    async def publish(self, notice: Notice) -> bool:
        """Whether all others have acted on it; False after a short while if some have not."""

    async def stop(self) -> None: ...


class SilentNotices:
    """There is nobody else."""

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


# -- messages, whoever carries them --------------------------------------------------------------


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


class _Delivery:
    """One published notice: who has acknowledged it, and how many must."""

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

    def _look(self) -> None:
        known = self._expected is not None and len(self._acknowledged) >= self._expected
        if known and not self.complete.done():
            self.complete.set_result(None)


class Mailbox:
    """What every carrier does with messages: number them, act on them, match acknowledgements."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.counts = Counts()
        self.on_notice: OnNotice = lambda notice: None
        self.on_gap: OnGap = lambda: None
        # From anywhere: an acknowledgement for a former process of our name must not count.
        self._numbers = count(secrets.randbits(48))
        self._deliveries: dict[int, _Delivery] = {}

    @contextmanager
    def delivery(self, notice: Notice) -> Iterator[tuple[bytes, _Delivery]]:
        """The message to send, and what becomes of it."""
        number, delivery = next(self._numbers), _Delivery()
        self._deliveries[number] = delivery
        self.counts.published += 1
        try:
            yield _encode(_Told(self.name, number, notice)), delivery
        finally:
            del self._deliveries[number]
            done = delivery.complete.done() and not delivery.complete.cancelled()
            self.counts.unacknowledged += not done

    def take(self, message: bytes) -> tuple[str, int] | None:
        """Act on a message; the sender and number to acknowledge, if it wants that."""
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
            self.on_gap()
        except Exception:
            _log.exception("a gap in the notices could not be dealt with")

    def encode_acks(self, numbers: list[int]) -> bytes:
        return _encode(_Acks(self.name, numbers))

    def encode_gap(self) -> bytes:
        return _encode(_Gap(self.name))

    def _take_notice(self, told: _Told) -> tuple[str, int] | None:
        if told.sender == self.name:  # our own comes back to us: counted, so we are one of many
            self._take_acks(_Acks(self.name, [told.number]))
            return None
        self.counts.received += 1
        try:
            self.on_notice(told.notice)
        except Exception:
            _log.exception("a notice could not be dealt with")
            return None
        return told.sender, told.number

    def _take_acks(self, acks: _Acks) -> None:
        for number in acks.numbers:
            if delivery := self._deliveries.get(number):
                delivery.acknowledge(acks.sender)


# -- Redis ---------------------------------------------------------------------------------------


class RedisNotices:
    """Publishes on one channel, takes acknowledgements on a channel of its own.

    Redis says how many subscribers got a notice, ourselves included as long as we are subscribed;
    our own echo counts as our acknowledgement. Notices that could not be published are published
    when Redis is back.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout_s: float = ACK_TIMEOUT_S,
        beat_s: float = BEAT_S,
        first_pause_s: float = FIRST_PAUSE_S,
    ) -> None:
        self._timeout_s = timeout_s
        self._beat_s = beat_s
        self._link = Link(url, timeout_s, repair=self._repay, first_pause_s=first_pause_s)
        self._batch = Batch(self._link)
        self._mailbox = Mailbox(secrets.token_hex(8))
        self.counts = self._mailbox.counts
        self._subscribed = asyncio.Event()
        self._started = False
        self._tasks: list[asyncio.Task[None]] = []
        self._owed: dict[Notice, None] = {}
        self._owes_gap = False
        self._acks: dict[str, list[int]] = {}
        self._acks_waiting = 0
        self._acks_wanted = asyncio.Event()

    @property
    def connected(self) -> bool:
        return self._subscribed.is_set()

    async def start(self, on_notice: OnNotice, on_gap: OnGap) -> None:
        self._mailbox.on_notice, self._mailbox.on_gap = on_notice, on_gap
        self._tasks = [
            asyncio.create_task(self._stay_subscribed(), name="notices"),
            asyncio.create_task(self._send_acks(), name="notices acks"),
        ]
        with suppress(TimeoutError):
            async with asyncio.timeout(START_TIMEOUT_S):
                await self._subscribed.wait()
        self._started = True

    async def publish(self, notice: Notice) -> bool:
        deadline = asyncio.get_running_loop().time() + self._timeout_s
        with self._mailbox.delivery(notice) as (message, delivery):
            receivers = await self._send(notice, message)
            if receivers is None:
                return False
            delivery.expect(receivers)
            if receivers and not self.connected:
                return False  # acknowledgements cannot reach us
            try:
                async with asyncio.timeout_at(deadline):
                    await delivery.complete
            except TimeoutError:
                return False
            return True

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._subscribed.clear()
        await self._link.close()
        await self._batch.close()

    async def _send(self, notice: Notice, message: bytes) -> int | None:
        """How many got it; None when Redis could not be reached, and then it is owed."""
        receivers = None
        try:
            replies = await self._batch.call(("PUBLISH", NOTICES, message))
            if replies is not None and isinstance(replies[0], int):
                receivers = replies[0]
        finally:  # also when the writer left in the middle
            if receivers is None:
                self._owe(notice)
                self._link.leave_alone()
        return receivers

    def _owe(self, notice: Notice) -> None:
        if len(self._owed) < MAX_OWED:
            self._owed[notice] = None
        else:
            self._owes_gap = True

    async def _repay(self) -> bool:
        """Publish what could not be published. Nobody waits for it any more."""
        while self._owes_gap or self._owed:
            paid, gap = list(self._owed), self._owes_gap
            messages = [] if gap else [_encode(_Told(self._mailbox.name, 0, n)) for n in paid]
            commands: list[Command] = [
                ("PUBLISH", NOTICES, message)
                for message in messages or [self._mailbox.encode_gap()]
            ]
            replies = await self._link.attempt(*commands)
            if replies is None or not all(isinstance(reply, int) for reply in replies):
                return False
            self._owes_gap = self._owes_gap and not gap
            for notice in paid:
                del self._owed[notice]
        return True

    async def _stay_subscribed(self) -> None:
        pause_s = first_pause_s = self._beat_s / 20
        while True:
            try:
                await self._listen()
            except Exception as error:  # whatever a dying or foreign server makes the client raise
                _log.debug("subscription lost: %s", type(error).__name__)
            pause_s = first_pause_s if self.connected else min(2 * pause_s, LONGEST_PAUSE_S)
            self._subscribed.clear()
            await asyncio.sleep(pause_s)

    async def _listen(self) -> None:
        """Subscribe, then take messages until the connection breaks or falls silent."""
        connection = self._link.make_connection()
        try:
            async with asyncio.timeout(max(self._beat_s, self._timeout_s)):
                await self._subscribe(connection)
            self._subscribed.set()
            if self._started:
                self._mailbox.tell_gap()
            while True:
                self._take(await self._next(connection))
        finally:
            await connection.disconnect(nowait=True)

    async def _subscribe(self, connection: AbstractConnection) -> None:
        channels = NOTICES, ACKS + self._mailbox.name
        await connection.connect()  # type: ignore[no-untyped-call]
        await connection.send_command("SUBSCRIBE", *channels, check_health=False)
        for _ in channels:
            await connection.read_response(disable_decoding=True)

    async def _next(self, connection: AbstractConnection) -> list[bytes]:
        """The next message; asks for a sign of life when there has been none for a while."""
        message = await connection.read_response(timeout=self._beat_s, disable_decoding=True)
        if message is None:
            await connection.send_command("PING", check_health=False)
            message = await connection.read_response(timeout=self._beat_s, disable_decoding=True)
        if not isinstance(message, list):
            raise ConnectionError("the subscription is silent")
        return message

    def _take(self, message: list[bytes]) -> None:
        if message[0] != b"message":
            return
        if wanted := self._mailbox.take(message[2]):
            sender, number = wanted
            if self._acks_waiting < MAX_ACKS:
                self._acks.setdefault(sender, []).append(number)
                self._acks_waiting += 1
                self._acks_wanted.set()

    async def _send_acks(self) -> None:
        """All that wait leave together, one message to each publisher."""
        while True:
            await self._acks_wanted.wait()
            self._acks_wanted.clear()
            acks, self._acks, self._acks_waiting = self._acks, {}, 0
            commands: list[Command] = [
                ("PUBLISH", ACKS + sender, self._mailbox.encode_acks(numbers[at : at + ACKS_EACH]))
                for sender, numbers in acks.items()
                for at in range(0, len(numbers), ACKS_EACH)
            ]
            await self._link.call(*commands)


# -- unix sockets --------------------------------------------------------------------------------


class LocalNotices:
    """Datagrams between the sockets `worker-<n>.sock` of one folder, which only we may enter.

    A worker that died leaves a socket that refuses at once, and nobody waits for it. One whose
    queue is full gets its messages as soon as there is room.
    """

    def __init__(self, run_dir: Path, worker: int, *, timeout_s: float = ACK_TIMEOUT_S) -> None:
        self._run_dir = run_dir
        self._path = run_dir / f"worker-{worker}.sock"
        self._timeout_s = timeout_s
        self._mailbox = Mailbox(str(worker))
        self.counts = self._mailbox.counts
        self._socket: socket.socket | None = None
        self._unsent: dict[str, deque[bytes]] = {}
        self._resending: asyncio.Task[None] | None = None

    @property
    def connected(self) -> bool:
        return self._socket is not None

    async def start(self, on_notice: OnNotice, on_gap: OnGap) -> None:
        self._mailbox.on_notice, self._mailbox.on_gap = on_notice, on_gap
        self._path.unlink(missing_ok=True)  # of the worker whose place we take
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._socket.bind(str(self._path))
        asyncio.get_running_loop().add_reader(self._socket, self._receive)

    async def publish(self, notice: Notice) -> bool:
        with self._mailbox.delivery(notice) as (message, delivery):
            delivery.expect(sum(self._send(peer, message) for peer in self._peers()))
            try:
                async with asyncio.timeout(self._timeout_s):
                    await delivery.complete
            except TimeoutError:
                return False
            return True

    async def stop(self) -> None:
        if self._resending is not None:
            self._resending.cancel()
            await asyncio.gather(self._resending, return_exceptions=True)
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
            self._socket = None
            self._path.unlink(missing_ok=True)

    def _peers(self) -> list[str]:
        names = map(SOCKET_NAME.fullmatch, os.listdir(self._run_dir))
        return [found[1] for found in names if found and found[1] != self._mailbox.name]

    def _receive(self) -> None:
        with suppress(BlockingIOError):
            for _ in range(RECEIVE_BATCH):
                if self._socket is None:  # stopped by what a message made us do
                    return
                self._take(self._socket.recv(2 * DATAGRAM_BYTES))

    def _take(self, datagram: bytes) -> None:
        """One message a line; what is to be acknowledged is acknowledged together."""
        acks: dict[str, list[int]] = {}
        for message in datagram.split(b"\n"):
            if wanted := self._mailbox.take(message):
                acks.setdefault(wanted[0], []).append(wanted[1])
        for sender, numbers in acks.items():
            self._send(sender, self._mailbox.encode_acks(numbers))

    def _send(self, peer: str, message: bytes) -> bool:
        """Send it now, or later if the peer has no room; False when the peer is no more."""
        waiting = self._unsent.get(peer)
        if waiting is None:
            sent = self._try_send(peer, message)
            if sent is not None:
                return sent
            waiting = self._unsent[peer] = deque()
        if len(waiting) >= MAX_OWED:
            waiting.clear()
            message = self._mailbox.encode_gap()
        waiting.append(message)
        if self._resending is None or self._resending.done():
            self._resending = asyncio.create_task(self._resend(), name="notices resend")
        return True

    def _try_send(self, peer: str, message: bytes) -> bool | None:
        """None when the peer's queue is full."""
        if self._socket is None or not peer.isdigit():
            return False
        try:
            self._socket.sendto(message, str(self._run_dir / f"worker-{peer}.sock"))
        except BlockingIOError:
            return None
        except OSError:  # refused, or no such socket
            return False
        return True

    async def _resend(self) -> None:
        pause_s = RESEND_S
        while self._unsent:
            await asyncio.sleep(pause_s)
            progress = [self._resend_to(peer) for peer in list(self._unsent)]
            pause_s = RESEND_S if any(progress) else min(2 * pause_s, SLOW_RESEND_S)

    def _resend_to(self, peer: str) -> bool:
        """Send what waits, many messages in one datagram: queues hold few. False if still full."""
        waiting, progress = self._unsent[peer], False
        while waiting:
            bundle = _bundle(waiting)
            sent = self._try_send(peer, b"\n".join(bundle))
            if sent is None:
                return progress
            if not sent:
                break
            progress = True
            for _ in bundle:
                waiting.popleft()
        del self._unsent[peer]
        return True


def _bundle(messages: deque[bytes]) -> list[bytes]:
    """As many of the first messages as one datagram takes, at least one."""
    sizes = accumulate(len(message) + 1 for message in messages)
    fitting = sum(1 for _ in takewhile(lambda size: size <= DATAGRAM_BYTES, sizes))
    return list(islice(messages, max(1, fitting)))
