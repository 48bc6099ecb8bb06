"""Connections of the load: HTTP/1.1 on bare sockets, because a client library would be the limit.

A connection carries one request at a time. Its answer is taken whole, or piece by piece while it
goes on (SSE), or as bytes that nobody looks at yet (`tap`). Bodies that are only counted are
dropped by the kernel. What breaks raises `Broken` with a reason short enough to be counted by.
"""

import asyncio
import socket
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any
from urllib.parse import urlsplit

from loadtest.errors import RunFailedError
from loadtest.load.replies import BadReplyError, Reply, ReplyReader

CONNECT_TIMEOUT_SECS = 10.0
BUFFER = memoryview(bytearray(4 << 20))
"""Of all connections: what has been read is taken out of it at once."""
WOULD_BLOCK = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)

OnBytes = Callable[[bytes], None]


class Broken(RunFailedError):
    """No whole answer: refused, reset, cut off, too late."""


@dataclass(frozen=True, slots=True)
class Target:
    host: str
    port: int
    tls: ssl.SSLContext | None = None

    @classmethod
    def local(cls, port: int) -> "Target":
        return cls("127.0.0.1", port)

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


class Connection:
    def __init__(self, sock: socket.socket) -> None:
        self._loop = asyncio.get_running_loop()
        self._sock: socket.socket | None = sock
        self._reader: ReplyReader | None = None
        self._answer: asyncio.Future[Reply] | None = None
        self._on_body: OnBytes | None = None
        self._unseen: list[bytes] = []
        self._unsent = memoryview(b"")
        self.read_at = 0.0
        """When bytes were last read, whenever somebody gets to look at them."""
        self.tap: OnBytes | None = None
        """Gets all that arrives, unread, and nothing (`b""`) at the end."""
        self._loop.add_reader(sock, self._readable)

    @property
    def usable(self) -> bool:
        return self._sock is not None

    async def ask(
        self, request: bytes, *, keep_body: bool = False, on_body: OnBytes | None = None
    ) -> Reply:
        self._on_body = on_body
        keep = keep_body or on_body is not None
        self._reader = ReplyReader(head_only=request.startswith(b"HEAD "), keep_body=keep)
        self._answer = self._loop.create_future()
        self.send(request)
        try:
            reply = await self._answer
        except asyncio.CancelledError:
            self.close()  # an answer may still come, and would be taken for the next one's
            raise
        if reply.headers.get("connection", "").lower() == "close":
            self.close()
        return reply

    def send(self, data: bytes) -> None:
        if self._sock is None:
            raise Broken("closed")
        if self._unsent:
            self._unsent = memoryview(bytes(self._unsent) + data)
            return
        self._unsent = memoryview(data)
        self._flush()
        if self._unsent and self._sock is not None:
            self._loop.add_writer(self._sock, self._writable)

    def close(self) -> None:
        if self._sock is not None:
            self._loop.remove_reader(self._sock)
            self._loop.remove_writer(self._sock)
            self._sock.close()
            self._sock = None

    # -- called by the loop ----------------------------------------------------------------------

    def _writable(self) -> None:
        self._flush()
        if not self._unsent and self._sock is not None:
            self._loop.remove_writer(self._sock)

    def _flush(self) -> None:
        assert self._sock is not None
        try:
            self._unsent = self._unsent[self._sock.send(self._unsent) :]
        except WOULD_BLOCK:
            pass
        except OSError:
            self._lose("reset")

    def _readable(self) -> None:
        self._read()
        while isinstance(self._sock, ssl.SSLSocket) and self._sock.pending():
            self._read()

    def _read(self) -> None:
        assert self._sock is not None
        plain = not isinstance(self._sock, ssl.SSLSocket) and not self._unseen
        unwanted = min(self._reader.skippable, len(BUFFER)) if plain and self._reader else 0
        try:
            count = self._sock.recv_into(BUFFER, unwanted, socket.MSG_TRUNC if unwanted else 0)
        except WOULD_BLOCK:
            return
        except OSError:
            self._lose("reset")
            return
        self.read_at = time.perf_counter()
        if not count:
            self._lose("cut off")
        elif self.tap is not None:
            self.tap(bytes(BUFFER[:count]))
        elif unwanted:
            assert self._reader is not None
            if self._reader.skip(count):
                self._finish(self._reader.reply)
        else:
            self._note(bytes(BUFFER[:count]))

    def _note(self, data: bytes) -> None:
        """Look later: when a thousand answers arrive at once, all are read before one is seen."""
        self._unseen.append(data)
        if len(self._unseen) == 1:
            self._loop.call_soon(self._look)

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
            self._finish(reader.reply)

    def _finish(self, reply: Reply) -> None:
        reply.read_at = self.read_at
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(reply)

    def _lose(self, reason: str) -> None:
        self._look()
        self.close()
        if self.tap is not None:
            self.tap(b"")
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(Broken(reason))


async def connect(target: Target) -> Connection:
    return Connection(await open_socket(target))


async def open_socket(target: Target) -> socket.socket:
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_SECS):
            return await _open(target)
    except TimeoutError:
        raise Broken("no connection in time") from None
    except OSError:
        raise Broken("refused") from None


async def _open(target: Target) -> socket.socket:
    """At the first of the host's addresses that takes it."""
    *others, last = _addresses(target.host, target.port)
    for family, address in others:
        try:
            return await _open_at(family, address, target)
        except OSError:
            continue
    return await _open_at(*last, target)


@cache
def _addresses(host: str, port: int) -> list[tuple[socket.AddressFamily, Any]]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [(family, address) for family, _, _, _, address in found]


async def _open_at(family: socket.AddressFamily, address: Any, target: Target) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.get_running_loop().sock_connect(sock, address)
        if target.tls is not None:
            sock = target.tls.wrap_socket(
                sock, server_hostname=target.host, do_handshake_on_connect=False
            )
            await _shake_hands(sock)
    except BaseException:
        sock.close()
        raise
    return sock


async def _shake_hands(sock: ssl.SSLSocket) -> None:
    loop = asyncio.get_running_loop()
    while True:
        ready = asyncio.Event()
        try:
            sock.do_handshake()
            return
        except ssl.SSLWantReadError:
            add, remove = loop.add_reader, loop.remove_reader
        except ssl.SSLWantWriteError:
            add, remove = loop.add_writer, loop.remove_writer
        add(sock, ready.set)
        try:
            await ready.wait()
        finally:
            remove(sock)
