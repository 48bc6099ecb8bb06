"""How a service responds on a connection: writing, backpressure, clients that stop reading.

A service may keep an exchange and respond much later, or write to it for a minute, without a task.
"""

import asyncio
import os
from collections.abc import Callable, Sequence
from typing import Protocol

from wire.heads import Head


class Exchange:
    """One response: one `send`, or any number of `write` and a `finish`.

    A connection has one exchange and reuses it for all its requests.
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
        self._room: asyncio.Event | None = None  # if anyone is waiting for it
        self._unread = 0  # unread bytes at the last check
        self._watch: asyncio.TimerHandle | None = None
        self.is_full = False  # writes should wait until the client has read more
        address = transport.get_extra_info("peername")
        self.peer: str = address[0] if isinstance(address, tuple) else ""
        socket = transport.get_extra_info("socket")
        # The socket's descriptor, unless TLS must encrypt the data first.
        is_plain = socket is not None and transport.get_extra_info("sslcontext") is None
        self._file = socket.fileno() if is_plain else -1

    # -- for services --------------------------------------------------------------------------

    def send(self, parts: Sequence[bytes]) -> None:
        """The whole response."""
        for part in parts:
            self.push(part)
        self._end()

    def _end(self) -> None:
        self._gone = self._writable = None
        complete, self._complete = self._complete, None
        if complete is not None:
            complete()

    def finish(self, last: bytes = b"") -> None:
        """The response is complete; the connection may carry the next."""
        self.send((last,) if last else ())

    def write(self, data: bytes | memoryview) -> None:
        """Part of a longer response, starting with its head."""
        if self._transport is not None:
            self._transport.write(data)

    def write_last(self, data: bytes) -> None:
        """The rest of a response, sent together with other writes of this turn of the loop."""
        if self._transport is not None:
            self._transport.write(data)
        self._end()

    def write_now(self, data: bytes | memoryview) -> int:
        """Write as much as possible at once if nothing is queued; returns the number of bytes."""
        transport = self._transport
        if transport is None or self._file < 0:
            return 0
        if transport.get_write_buffer_size() or transport.is_closing():
            return 0
        try:
            return os.write(self._file, data)
        except OSError:  # no room, or the connection ended: left to the transport
            return 0

    def abort(self) -> None:
        """Close the connection at once, even during a response."""
        if self._transport is not None:
            self._transport.abort()

    def backlog(self) -> int:
        """Bytes that the client has not read yet."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    async def drain(self) -> None:
        """Wait until the client reads more; raises ConnectionError if it disconnected."""
        if self.is_full and self._transport is not None:
            self._room = self._room or asyncio.Event()
            await self._room.wait()
        if self._transport is None or self._transport.is_closing():
            raise ConnectionResetError("the client disconnected")

    def when_writable(self, callback: Callable[[], None]) -> None:
        """Called once when the connection is no longer full."""
        self._writable = callback

    def when_gone(self, callback: Callable[[], None]) -> None:
        """Called if the connection ends before the response is complete."""
        self._gone = callback

    # -- for the connection --------------------------------------------------------------------

    def begin(self, complete: Callable[[], None]) -> None:
        """Start the next request; `complete` is called when its response is complete."""
        self._complete = complete

    def push(self, data: bytes) -> None:
        """Immediately if possible: the transport would delay the write to the end of the loop
        iteration, which is good for many readers but slow for one."""
        sent = self.write_now(data)
        if sent < len(data) and self._transport is not None:
            self._transport.write(memoryview(data)[sent:] if sent else data)

    def pause(self) -> None:
        """The client reads more slowly than we send."""
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
        self._file = -1  # the number may now belong to another connection
        self._stop_watching()
        self._wake_drains()
        self.leave()

    def leave(self) -> None:
        """No more responses will be sent."""
        gone, self._gone = self._gone, None
        self._complete = self._writable = None
        if gone is not None:
            gone()

    def _wake_drains(self) -> None:
        room, self._room = self._room, None
        if room is not None:
            room.set()

    def _watch_reader(self) -> None:
        """Check periodically whether the client reads anything."""
        loop = asyncio.get_running_loop()
        self._watch = loop.call_later(self._idle_secs, self._check_reader)

    def _check_reader(self) -> None:
        if self._transport is None:
            return
        unread, self._unread = self._unread, self._transport.get_write_buffer_size()
        if not unread or self._unread < unread:
            self._watch_reader()
        else:
            self._transport.abort()  # close() would wait for the client to read the rest

    def _stop_watching(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None


class FastPath(Protocol):
    """Requests that a service can answer without a task."""

    def hit(self, head: Head, peer: str) -> bytes | None:
        """The complete response to a request without a body, if it is small and available."""

    def wants(self, head: Head, here: int) -> bool:
        """Whether `answer` may be called for this head once its body is complete; `here` bytes
        have arrived. If so, the rest is awaited; the head may be granted an admission for it."""

    def answer(self, head: Head, body: bytes, exchange: Exchange) -> bool:
        """Respond through `exchange`, now or later; False passes the request to aiohttp."""
