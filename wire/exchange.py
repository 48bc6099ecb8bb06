"""How a service answers on a connection: writing, backpressure, clients that stop reading.

A service may keep an exchange and answer much later, or write to it for a minute, without a task
of its own.
"""

import asyncio
import os
from collections.abc import Callable, Sequence
from typing import Protocol

from wire.heads import Head


class Exchange:
    """One response: one `send`, or any number of `write` and a `finish`.

    A connection has one exchange and uses it for all its requests, one after another.
    """

    __slots__ = (
        "_complete",
        "_file",
        "_gone",
        "_idle_secs",
        "_room",
        "_transport",
        "_unread",
        "_watch",
        "_writable",
        "is_full",
        "peer",
    )

    def __init__(self, transport: asyncio.Transport, idle_secs: float) -> None:
        self._transport: asyncio.Transport | None = transport
        self._idle_secs = idle_secs
        self._complete: Callable[[], None] | None = None
        self._gone: Callable[[], None] | None = None
        self._writable: Callable[[], None] | None = None
        self._room: asyncio.Event | None = None  # if anyone waits for it
        self._unread = 0  # what the client had still to take when we last looked
        self._watch: asyncio.TimerHandle | None = None
        self.is_full = False  # more should wait until the client has taken what there is
        address = transport.get_extra_info("peername")
        self.peer: str = address[0] if isinstance(address, tuple) else ""
        socket = transport.get_extra_info("socket")
        # Of the socket, unless what we write must be encrypted first.
        is_plain = socket is not None and transport.get_extra_info("sslcontext") is None
        self._file = socket.fileno() if is_plain else -1

    # -- for services --------------------------------------------------------------------------

    def send(self, parts: Sequence[bytes]) -> None:
        """The whole response."""
        for part in parts:
            self.push(part)
        self._gone = self._writable = None
        complete, self._complete = self._complete, None
        if complete is not None:
            complete()

    def finish(self, last: bytes = b"") -> None:
        """The response is complete; the connection may carry the next."""
        self.send((last,) if last else ())

    def write(self, data: bytes | memoryview) -> None:
        """A part of a response that goes on, its head first."""
        if self._transport is not None:
            self._transport.write(data)

    def write_now(self, data: bytes | memoryview) -> int:
        """As much of it as goes out at once, while nothing waits before it: so many bytes."""
        transport = self._transport
        if transport is None or self._file < 0:
            return 0
        if transport.get_write_buffer_size() or transport.is_closing():
            return 0
        try:
            return os.write(self._file, data)
        except OSError:  # no room, or a connection that has ended: the transport's business
            return 0

    def abort(self) -> None:
        """End the connection at once, in the middle of whatever it is."""
        if self._transport is not None:
            self._transport.abort()

    def backlog(self) -> int:
        """Bytes that the client has not taken yet."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    async def drain(self) -> None:
        """Wait until the client takes more; raises ConnectionError when it has left."""
        if self.is_full and self._transport is not None:
            self._room = self._room or asyncio.Event()
            await self._room.wait()
        if self._transport is None or self._transport.is_closing():
            raise ConnectionResetError("the client has left")

    def when_writable(self, callback: Callable[[], None]) -> None:
        """Called once when the connection is no longer full."""
        self._writable = callback

    def when_gone(self, callback: Callable[[], None]) -> None:
        """Called if the connection ends before the response is complete."""
        self._gone = callback

    # -- for the connection --------------------------------------------------------------------

    def begin(self, complete: Callable[[], None]) -> None:
        """The next request; `complete` is called when its response is."""
        self._complete = complete

    def push(self, data: bytes) -> None:
        """At once where possible: the transport would put a write off to the end of the loop's
        turn, which is early for a crowd, late for one."""
        sent = self.write_now(data)
        if sent < len(data) and self._transport is not None:
            self._transport.write(memoryview(data)[sent:] if sent else data)

    def pause(self) -> None:
        """The client takes less than we send."""
        self.is_full = True
        self._unread = 0
        self._watch_reader()

    def resume(self) -> None:
        self.is_full = False
        self._stop_watching()
        self._wake_drains()
        if self._writable is not None:
            asyncio.get_running_loop().call_soon(self._writable)
            self._writable = None

    def lost(self) -> None:
        """The connection has ended."""
        self._transport = None
        self._file = -1  # the number may be another connection's from now on
        self._stop_watching()
        self._wake_drains()
        self.leave()

    def leave(self) -> None:
        """Nobody will answer or be answered any more."""
        gone, self._gone = self._gone, None
        self._complete = self._writable = None
        if gone is not None:
            gone()

    def _wake_drains(self) -> None:
        room, self._room = self._room, None
        if room is not None:
            room.set()

    def _watch_reader(self) -> None:
        """Look now and then whether the client takes anything."""
        loop = asyncio.get_running_loop()
        self._watch = loop.call_later(self._idle_secs, self._check_reader)

    def _check_reader(self) -> None:
        if self._transport is None:
            return
        unread, self._unread = self._unread, self._transport.get_write_buffer_size()
        if not unread or self._unread < unread:
            self._watch_reader()
        else:
            self._transport.abort()  # close() would wait for it to take what it never takes

    def _stop_watching(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None


class FastPath(Protocol):
    """What a service can answer without a task."""

    def hit(self, head: Head, peer: str) -> bytes | None:
        """The whole response to a request without a body, if it is at hand and small."""

    def wants(self, head: Head, here: int) -> bool:
        """Whether `answer` may be called for this head once its body is there, of which so many
        bytes have come. The rest is waited for only then, with the admission that may be granted
        to the head here."""

    def answer(self, head: Head, body: bytes, exchange: Exchange) -> bool:
        """Answer by `exchange`, now or later; False hands the request to aiohttp."""
