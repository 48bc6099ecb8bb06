"""Connections to one origin: the idle ones, and one request and response over one of them.

Only aiohttp's connection, parser and stream reader are used. Its session is slow, retries requests
that must not be repeated, and does not say when a request is sent.
"""

import asyncio
import math
import re
import select
import socket
import ssl
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import aiohappyeyeballs
from aiohttp import ClientConnectionResetError, StreamReader
from aiohttp.client_proto import ResponseHandler
from aiohttp.http import RawResponseMessage
from aiohttp.http_exceptions import HttpProcessingError
from yarl import URL

REST_SECS = 4.0  # below the shortest idle timeout in use (Node: 5 s)
KNOWN_SECS = 10.0  # how long an address is cached
MAX_LINE_BYTES = 8 * 1024
MAX_FIELD_BYTES = 8 * 1024
MAX_FIELDS = 100
READ_BYTES = 256 * 1024  # up to twice as much is buffered for a response ...
PIECEWISE_BYTES = 64 * 1024  # ... that is read as a whole, or piece by piece
PIECE_BYTES = 256 * 1024  # of a body that is sent

_ANSWERED = select.POLLIN | select.POLLHUP | select.POLLERR
_HEAD = re.compile(r"[A-Z]+ [!-~]+ HTTP/1\.1\r\n(?:[a-z0-9-]+: [\t -~]*\r\n)+\r\n")

AddressInfo = tuple[Any, Any, int, str, Any]  # as getaddrinfo has it


class NoConnection(Exception):
    """No connection could be made: nothing was sent."""


class NoConnectionInTime(NoConnection):
    pass


class AnswerHead(NamedTuple):
    """A response whose head has arrived."""

    message: RawResponseMessage
    body: StreamReader


class _Protocol(ResponseHandler):
    """Fixes aiohttp's protocol: it does not tell body readers that the rest is not HTTP or that we
    closed the connection, and its parser accepts part of an unsolicited response."""

    def set_exception(self, exc: BaseException, *cause: BaseException) -> None:
        if isinstance(exc, HttpProcessingError):
            self.end_body(exc)
        super().set_exception(exc, *cause)

    def end_body(self, error: BaseException) -> None:
        if self._payload is not None and not self._payload.is_eof():
            self._payload.set_exception(error)

    def rest(self) -> None:
        """Without a parser, incoming bytes are kept, and `should_close` sees them."""
        self._parser = None


class Connection:
    """Carries one request at a time."""

    def __init__(self, protocol: _Protocol) -> None:
        self._protocol = protocol
        self._upload: asyncio.Task[None] | None = None
        self.rested_at = 0.0

    async def ask(
        self,
        head: bytes,
        body: bytes,
        *,
        is_head: bool,
        read_bytes: int = READ_BYTES,
        on_progress: Callable[[], None] = lambda: None,
    ) -> AnswerHead:
        """`on_progress` is called when the origin has taken a piece of a large body, perhaps even
        after its response."""
        protocol = self._protocol
        protocol.set_response_params(
            skip_payload=is_head,
            read_until_eof=True,
            auto_decompress=False,
            read_bufsize=read_bytes,
            max_line_size=MAX_LINE_BYTES,
            max_field_size=MAX_FIELD_BYTES,
            max_headers=MAX_FIELDS,
        )
        transport = protocol.transport
        if transport is None:
            raise ConnectionResetError("the connection has ended")
        if len(body) <= PIECE_BYTES:
            transport.write(head + body)
        else:  # the response may arrive before the body is sent
            transport.write(head)
            self._upload = asyncio.create_task(self._send(body, on_progress), name="upload")
        while True:
            message, payload = await protocol.read()
            if not 100 <= message.code < 200 or message.code == 101:
                return AnswerHead(message, payload)

    async def _send(self, body: bytes, on_progress: Callable[[], None]) -> None:
        """As fast as the origin reads it. A disconnect is noticed by the response's reader."""
        whole = memoryview(body)
        for start in range(0, len(body), PIECE_BYTES):
            transport = self._protocol.transport
            if transport is None:
                return
            transport.write(whole[start : start + PIECE_BYTES])
            try:
                await self._protocol._drain_helper()
            except ConnectionError:
                return
            on_progress()

    @property
    def is_done(self) -> bool:
        """Whether request and response are complete, so that the connection can be reused."""
        protocol = self._protocol
        uploaded = self._upload is None or self._upload.done()
        if not uploaded or protocol.should_close or not protocol.is_connected():
            return False
        assert protocol.transport is not None
        return not protocol.transport.get_write_buffer_size()

    def rest(self, now: float) -> None:
        self._protocol.rest()
        self.rested_at = now

    @property
    def has_ended(self) -> bool:
        """Whether anything arrived while it was idle: its end, or unsolicited bytes."""
        transport = self._protocol.transport
        if transport is None or not self.is_done:
            return True
        poll = select.poll()
        poll.register(transport.get_extra_info("socket").fileno(), _ANSWERED)
        return bool(poll.poll(0))

    def close(self) -> None:
        if self._upload is not None:
            self._upload.cancel()
        self._protocol.end_body(ClientConnectionResetError("closed"))
        self._protocol.abort()


@dataclass(frozen=True, slots=True)
class Address:
    """Where the origin listens."""

    host: str
    port: int
    tls: ssl.SSLContext | None

    @classmethod
    def of(cls, url: URL, tls: ssl.SSLContext | None) -> "Address":
        assert url.raw_host is not None and url.port is not None
        if url.scheme != "https":
            return cls(url.raw_host, url.port, None)
        context = tls or ssl.create_default_context()
        context.set_alpn_protocols(["http/1.1"])
        return cls(url.raw_host, url.port, context)


class _Addresses:
    """The origin's addresses: concurrent and recent callers share one lookup."""

    def __init__(self, place: Address) -> None:
        self._place = place
        self._lookup: asyncio.Task[list[AddressInfo]] | None = None
        self._found: list[AddressInfo] = []
        self._good_until = 0.0

    async def find(self) -> list[AddressInfo]:
        if asyncio.get_running_loop().time() < self._good_until:
            return self._found
        if self._lookup is None:
            self._lookup = asyncio.create_task(self._look_up(), name="look-up")
            self._lookup.add_done_callback(self._end)
        return await asyncio.shield(self._lookup)  # a cancelled caller does not cancel it

    async def _look_up(self) -> list[AddressInfo]:
        loop, place = asyncio.get_running_loop(), self._place
        self._found = await loop.getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM)
        self._good_until = loop.time() + KNOWN_SECS
        return self._found

    def forget(self) -> None:
        self._good_until = 0.0

    def _end(self, lookup: "asyncio.Task[list[AddressInfo]]") -> None:
        self._lookup = None
        if not lookup.cancelled():
            lookup.exception()  # the waiters have it too; there may be none


class Room:
    """A limit on the connections of several pools together: idle ones make room for new ones. The
    busy ones are limited by whoever takes them."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._pools: list[Connections] = []

    def add(self, pool: "Connections") -> None:
        self._pools.append(pool)

    def make(self) -> None:
        self._pools = [pool for pool in self._pools if pool.size or not pool.closed]
        excess = sum(pool.size for pool in self._pools) + 1 - self._most
        while excess > 0 and (idle := [pool for pool in self._pools if pool.is_idle]):
            min(idle, key=lambda pool: pool.idle_since).close_eldest()
            excess -= 1


class Connections:
    """Idle connections are closed after REST_SECS; the most recently used is reused first."""

    def __init__(self, place: Address, connect_timeout_s: float, room: Room | None = None) -> None:
        self._place = place
        self._connect_timeout_s = connect_timeout_s
        self._room = room
        self._connecting = 0
        self._resting: deque[Connection] = deque()
        self._busy: set[Connection] = set()
        self._sweeper: asyncio.TimerHandle | None = None
        self._addresses = _Addresses(place)
        self._loop = asyncio.get_running_loop()
        self.closed = False
        if room is not None:
            room.add(self)

    @property
    def size(self) -> int:
        return len(self._resting) + len(self._busy) + self._connecting

    @property
    def is_idle(self) -> bool:
        """Whether a connection is."""
        return len(self._resting) > 0

    @property
    def idle_since(self) -> float:
        return self._resting[0].rested_at

    def close_eldest(self) -> None:
        self._resting.popleft().close()

    async def take(self, within_s: float = math.inf) -> Connection:
        """An open connection or a new one; the caller gives it back."""
        connection = self._wake()
        while connection is not None and connection.has_ended:
            connection.close()
            connection = self._wake()
        if connection is None:
            connection = await self._connect(min(within_s, self._connect_timeout_s))
        if self.closed:
            connection.close()
            raise NoConnection("closed")
        self._busy.add(connection)
        return connection

    def _wake(self) -> Connection | None:
        return self._resting.pop() if self._resting else None

    def give_back(self, connection: Connection) -> None:
        self._busy.discard(connection)
        if self.closed or not connection.is_done:
            connection.close()
            return
        connection.rest(self._loop.time())
        self._resting.append(connection)
        if self._sweeper is None:
            self._sweeper = self._loop.call_later(REST_SECS, self._sweep)

    def _sweep(self) -> None:
        now = self._loop.time()
        while self._resting and now - self._resting[0].rested_at >= REST_SECS:
            self._resting.popleft().close()
        self._sweeper = None
        if self._resting:
            rest = self._resting[0].rested_at + REST_SECS
            self._sweeper = self._loop.call_at(rest, self._sweep)

    async def _connect(self, timeout_s: float) -> Connection:
        if self._room is not None:
            self._room.make()
        self._connecting += 1
        try:
            async with asyncio.timeout(timeout_s):
                return Connection(await self._open())
        except TimeoutError as error:
            raise NoConnectionInTime from error
        except (OSError, UnicodeError) as error:
            raise NoConnection(str(error)) from error
        finally:
            self._connecting -= 1

    async def _open(self) -> _Protocol:
        """Connect to the address that responds first."""
        place, loop = self._place, self._loop
        found = await self._addresses.find()
        try:
            sock = await aiohappyeyeballs.start_connection(
                found, happy_eyeballs_delay=0.25, interleave=1, loop=loop
            )
        except BaseException:
            self._addresses.forget()  # it may have moved
            raise
        try:
            _, protocol = await loop.create_connection(
                lambda: _Protocol(loop),
                sock=sock,
                ssl=place.tls,
                server_hostname=place.host.rstrip(".") if place.tls is not None else None,
            )
        except BaseException:
            sock.close()
            raise
        return protocol

    def close(self) -> None:
        self.retire()
        for connection in self._busy:
            connection.close()

    def retire(self) -> None:
        """Close the idle connections; the others end when they are given back."""
        self.closed = True
        if self._sweeper is not None:
            self._sweeper.cancel()
        for connection in self._resting:
            connection.close()
        self._resting.clear()


def encode_head(method: str, target: str, headers: Mapping[str, str]) -> bytes:
    """Raises ValueError if any part contains a line break."""
    lines = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    text = f"{method} {target} HTTP/1.1\r\n{lines}\r\n"
    if not _HEAD.fullmatch(text) or len(text.split("\r\n")) != len(headers) + 3:
        raise ValueError("not a request head")
    return text.encode("ascii")
