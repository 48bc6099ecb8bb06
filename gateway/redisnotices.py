"""Notices between machines, carried by Redis."""

import asyncio
import logging
import secrets
from contextlib import suppress

from redis.asyncio.connection import AbstractConnection

from gateway.notices import ACK_TIMEOUT_SECS, MAX_OWED, Mailbox, Notice, OnGap, OnNotice
from gateway.redislink import FIRST_PAUSE_SECS, Batch, Command, Link
from gateway.tasks import cancel

START_TIMEOUT_SECS = 1.0
BEAT_SECS = 1.0  # how long a subscription may be silent before it is pinged
LONGEST_PAUSE_SECS = 2.0
MAX_ACKS = 10_000  # acknowledgements that wait to be sent
ACKS_EACH = 500  # per message

NOTICES = "weir:notices"
ACKS = "weir:acks:"

_log = logging.getLogger("weir.gateway")


class RedisNotices:
    """Publishes on a shared channel, receives acknowledgements on its own channel.

    Redis returns the number of subscribers that got a notice, including us while we are subscribed;
    our own echo counts as our acknowledgement. Notices that could not be published are published
    when Redis is back.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout_s: float = ACK_TIMEOUT_SECS,
        beat_s: float = BEAT_SECS,
        first_pause_s: float = FIRST_PAUSE_SECS,
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
        self._mailbox.listen(on_notice, on_gap)
        self._tasks = [
            asyncio.create_task(self._stay_subscribed(), name="notices"),
            asyncio.create_task(self._send_acks(), name="notices acks"),
        ]
        with suppress(TimeoutError):
            async with asyncio.timeout(START_TIMEOUT_SECS):
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
            return await delivery.confirmed(deadline)

    async def stop(self) -> None:
        await cancel(*self._tasks)
        self._subscribed.clear()
        await self._link.close()
        await self._batch.close()

    async def _send(self, notice: Notice, message: bytes) -> int | None:
        """How many got it; None if Redis could not be reached: then it is published later."""
        receivers = None
        try:
            replies = await self._batch.call(("PUBLISH", NOTICES, message))
            if replies is not None and isinstance(replies[0], int):
                receivers = replies[0]
        finally:  # also if the writer disconnected meanwhile
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
        """Publish delayed notices. Nobody waits for them any more."""
        while self._owes_gap or self._owed:
            paid, gap = list(self._owed), self._owes_gap
            messages = [] if gap else [self._mailbox.encode(n) for n in paid]
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
            pause_s = first_pause_s if self.connected else min(2 * pause_s, LONGEST_PAUSE_SECS)
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
        """The next message; pings the server after a period of silence."""
        message = await connection.read_response(timeout=self._beat_s, disable_decoding=True)
        if message is None:
            await connection.send_command("PING", check_health=False)
            message = await connection.read_response(timeout=self._beat_s, disable_decoding=True)
        if not isinstance(message, list):
            raise ConnectionError("no sign of life from the subscription")
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
        """Send all pending acknowledgements, one message per publisher."""
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
