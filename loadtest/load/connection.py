"""Connections of the load: HTTP/1.1 by hand, because a client library would be the limit.

A connection carries one request at a time. Its answer is taken whole, or piece by piece while it
goes on (SSE). What breaks raises `Broken` with a reason short enough to be counted by.
"""

import asyncio
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast
from urllib.parse import urlsplit

from loadtest.load.meter import Meter
from loadtest.load.replies import BadReplyError, Reply, ReplyReader

CONNECT_TIMEOUT_S = 10.0

OnBody = Callable[[bytes], None]


class Broken(Exception):
    """No whole answer: refused, reset, cut off, too late."""


@dataclass(frozen=True, slots=True)
class Target:
    host: str
    port: int
    tls: ssl.SSLContext | None = None

    @classmethod
    def parse(cls, url: str, *, insecure: bool = False) -> "Target":
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/"):
            raise ValueError(f"{url}: http://HOST:PORT is what a target looks like")
        if parts.scheme == "http":
            return cls(parts.hostname, parts.port or 80)
        context = ssl.create_default_context()
        if insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return cls(parts.hostname, parts.port or 443, context)

    @property
    def authority(self) -> str:
        return f"{self.host}:{self.port}"


class Connection(asyncio.Protocol):
    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._reader: ReplyReader | None = None
        self._answer: asyncio.Future[Reply] | None = None
        self._on_body: OnBody | None = None
        self._unseen: list[bytes] = []
        self.read_at = 0.0
        """When bytes were last read, whenever somebody gets to look at them."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's own class is none

    def data_received(self, data: bytes) -> None:
        """Only note it: when a thousand answers arrive at once, all are read before one is seen."""
        self.read_at = time.perf_counter()
        self._unseen.append(data)
        if len(self._unseen) == 1:
            asyncio.get_running_loop().call_soon(self._look)

    def _look(self) -> None:
        data = b"".join(self._unseen)
        self._unseen.clear()
        if data:
            self._take_in(data)

    def _take_in(self, data: bytes) -> None:
        reader, answer = self._reader, self._answer
        if reader is None or answer is None or answer.done():
            self.close()
            return
        try:
            whole = reader.feed(memoryview(data))
        except BadReplyError as error:
            answer.set_exception(Broken(str(error)))
            self.close()
            return
        if self._on_body is not None and reader.reply.body:
            piece = bytes(reader.reply.body)
            reader.reply.body.clear()
            self._on_body(piece)
        if whole:
            answer.set_result(reader.reply)

    def connection_lost(self, error: Exception | None) -> None:
        self._look()
        self._transport = None
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(Broken("reset" if error else "cut off"))

    @property
    def usable(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    async def ask(
        self, request: bytes, *, keep_body: bool = False, on_body: OnBody | None = None
    ) -> Reply:
        if self._transport is None:
            raise Broken("closed")
        self._on_body = on_body
        keep = keep_body or on_body is not None
        self._reader = ReplyReader(head_only=request.startswith(b"HEAD "), keep_body=keep)
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        try:
            reply = await self._answer
        except asyncio.CancelledError:
            self.close()  # an answer may still come, and would be taken for the next one's
            raise
        if reply.headers.get("connection", "").lower() == "close":
            self.close()
        return reply

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()


async def connect(target: Target) -> Connection:
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            _, connection = await loop.create_connection(
                Connection, target.host, target.port, ssl=target.tls
            )
    except TimeoutError:
        raise Broken("no connection in time") from None
    except OSError:
        raise Broken("refused") from None
    return connection


class Pool:
    """Kept-alive connections, as many as there are requests under way."""

    def __init__(self, target: Target, meter: Meter) -> None:
        self._target = target
        self._meter = meter
        self._idle: list[Connection] = []

    async def ask(self, request: bytes, due: float | None, *, timeout_s: float) -> Reply:
        """`due` is when we should have begun, by `time.perf_counter`; None for what follows on."""
        if due is not None:
            self._meter.left(time.perf_counter() - due)
        connection = await self._take()
        try:
            async with asyncio.timeout(timeout_s):
                reply = await connection.ask(request)
        except TimeoutError:
            raise Broken("no answer in time") from None
        if connection.usable:
            self._idle.append(connection)
        return reply

    async def _take(self) -> Connection:
        while self._idle:
            connection = self._idle.pop()
            if connection.usable:
                return connection
        return await connect(self._target)

    def close(self) -> None:
        for connection in self._idle:
            connection.close()


def verdict_of(reply: Reply) -> str:
    """The last cache's word of `Cache-Status`: hit, collapsed, hub, or why it went on."""
    members = reply.headers.get("cache-status", "").rpartition(",")[2].split(";")[1:]
    words = dict(member.strip().partition("=")[::2] for member in members)
    return words.get("detail") or ("hit" if "hit" in words else words.get("fwd", ""))
