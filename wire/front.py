"""The connection: plain requests are offered to a fast path, all others are aiohttp's.

One object per connection, a subclass of aiohttp's own protocol. Incoming bytes are cut at request
boundaries as long as heads are plain. A request goes to the fast path only while aiohttp has
nothing of this connection in hand, and to aiohttp in any case the fast path does not want it: so
answers stay in order, and both ways give the same answer. From the first head that is not plain,
the connection is aiohttp's for good.

States: reading a head (`_buffer`), gathering a body (`_head` set), waiting for a fast answer
(`_answering`), passing a body on to aiohttp (`_owed` > 0), handed over (`_handed_over`).

A connection is also the `Exchange` of the request it carries: a service may keep it and answer much
later, or write to it for a minute, without a task of its own.
"""

import asyncio
import os
import ssl
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from protocol.aliases import Rename
from wire.descriptors import Descriptors
from wire.handshakes import Handshake
from wire.heads import END, Head, HeadMemo

PROGRESS_BYTES = 4096  # what a body must bring in each `body_timeout_secs` to be waited for
REQUESTS_A_TURN = 4  # of one pipeline, before other connections have theirs
LINGER_SECS = 2.0  # a refused upload may go on this long, so that its client reads the answer


class FastPath(Protocol):
    """What a service can answer without a task."""

    def hit(self, head: Head, peer: str) -> bytes | None:
        """The whole response to a request without a body, if it is at hand and small."""

    def wants(self, head: Head, here: int) -> bool:
        """Whether `answer` may be called for this head once its body is there, of which so many
        bytes have come. The rest is waited for only then, with the admission that may be granted
        to the head here."""

    def answer(self, head: Head, body: bytes, exchange: "Exchange") -> bool:
        """Answer by `exchange`, now or later; False hands the request to aiohttp."""


class Exchange(Protocol):
    """One request's way back: one `send`, or any number of `write` and a `finish`."""

    def send(self, parts: Sequence[bytes]) -> None:
        """The whole response."""

    def write(self, data: bytes | memoryview) -> None:
        """A part of a response that goes on, its head first."""

    def write_now(self, data: bytes | memoryview) -> int:
        """As much of it as goes out at once, while nothing waits before it: so many bytes."""

    def finish(self, last: bytes = b"") -> None:
        """The response is complete; the connection may carry the next."""

    def abort(self) -> None:
        """End the connection at once, in the middle of whatever it is."""

    def backlog(self) -> int:
        """Bytes that the client has not taken yet."""

    async def drain(self) -> None:
        """Wait until the client takes more; raises ConnectionError when it has left."""

    @property
    def is_full(self) -> bool:
        """Whether more should wait until the client has taken what there is."""

    def when_writable(self, callback: Callable[[], None]) -> None:
        """Called once when the connection is no longer full."""

    def when_gone(self, callback: Callable[[], None]) -> None:
        """Called if the connection ends before the response is complete."""

    @property
    def peer(self) -> str:
        """The address at the other end."""


class Limits(Protocol):
    @property
    def max_header_bytes(self) -> int: ...
    @property
    def max_body_bytes(self) -> int: ...
    @property
    def max_connections(self) -> int: ...
    @property
    def header_timeout_secs(self) -> float: ...
    @property
    def body_timeout_secs(self) -> float: ...
    @property
    def idle_timeout_secs(self) -> float: ...


class FrontServer(web.Server):
    """aiohttp's low-level server with our connection class."""

    def __init__(
        self,
        handler: Any,
        fast: FastPath,
        limits: Limits,
        refuse: "Refusals",
        rename: Rename = str,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(
            handler,
            handler_cancellation=True,
            keepalive_timeout=limits.idle_timeout_secs,
            access_log=None,
            max_line_size=limits.max_header_bytes,
            max_field_size=limits.max_header_bytes,
            auto_decompress=False,
            lingering_time=LINGER_SECS,
        )
        self.fast: FastPath | None = fast
        self.limits = limits
        self.refusals = refuse
        self.heads = HeadMemo(rename)
        self.open_connections = 0
        self.handshakes: set[asyncio.Task[None]] = set()
        self._tls = tls
        self._descriptors = Descriptors()

    def __call__(self) -> asyncio.Protocol:  # type: ignore[override]
        """For a listener without TLS: where there is some, it is done behind it."""
        if self._tls is None:
            return self._make()
        return Handshake(self, self._tls, self.limits.header_timeout_secs, self._make)

    def _make(self) -> "Front":
        return Front(self, loop=asyncio.get_running_loop(), **self._kwargs)

    def enter(self, transport: asyncio.BaseTransport) -> bool:
        self.open_connections += 1
        socket = transport.get_extra_info("socket")
        if socket is not None:
            self._descriptors.note(socket.fileno())
        return self.open_connections <= self.limits.max_connections

    def leave(self) -> None:
        self.open_connections -= 1

    def drain(self) -> None:
        """From now on aiohttp answers everything, and closes connections behind its answers."""
        self.fast = None

    async def shutdown(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 (aiohttp's)
        for handshake in list(self.handshakes):
            handshake.cancel()
        await super().shutdown(timeout)


class Refusals(Protocol):
    """Responses for what never becomes a request."""

    def encode(self, status: int, code: str, detail: str) -> bytes:
        """A complete response that closes the connection."""

    def response(self, status: int) -> web.StreamResponse:
        """The same for aiohttp's path."""


class Front(RequestHandler):
    __slots__ = (
        "_answered",
        "_answering",
        "_body",
        "_body_mark",
        "_buffer",
        "_deadline",
        "_ending",
        "_file",
        "_gone",
        "_handed_over",
        "_head",
        "_head_bytes",
        "_head_size",
        "_held_back",
        "_owed",
        "_peer",
        "_server",
        "_stalled",
        "_unread",
        "_watch",
        "_writable",
    )

    def __init__(self, server: FrontServer, **kwargs: Any) -> None:
        super().__init__(server, **kwargs)
        self._server = server
        self._buffer = b""
        self._head: Head | None = None
        self._head_bytes = b""
        self._body = bytearray()  # a list of pieces would cost many times their bytes
        self._body_mark = 0
        self._answering = False
        self._owed = 0
        self._answered = 0  # requests that aiohttp is done with
        self._handed_over = False
        self._ending = False  # the last answer is out; the rest of a body may still come
        self._head_size = 0  # of the head that aiohttp gathers, once handed over
        self._held_back = False
        self._stalled = False
        self._unread = 0  # what the client had still to take when we last looked
        self._watch: asyncio.TimerHandle | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._gone: Callable[[], None] | None = None
        self._writable: Callable[[], None] | None = None
        self._peer = ""
        self._file = -1  # of the socket, unless what we write must be encrypted first

    # -- life of the connection ----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        address = transport.get_extra_info("peername")
        self._peer = address[0] if isinstance(address, tuple) else ""
        socket = transport.get_extra_info("socket")
        if socket is not None and transport.get_extra_info("sslcontext") is None:
            self._file = socket.fileno()
        if not self._server.enter(transport):
            self._refuse(503, "too-many-connections", "The server has too many connections.")

    def connection_lost(self, exc: BaseException | None) -> None:
        self._server.leave()
        self._file = -1  # the number may be another connection's from now on
        self._stop_clock()
        self._stop_watching()
        self._forget()
        self._writable = None
        gone, self._gone = self._gone, None
        super().connection_lost(exc)
        if gone is not None:
            gone()

    def data_received(self, data: bytes) -> None:
        if self._is_free() and self._hit(data):
            return
        if not data:  # aiohttp calls without data when its queue has room
            super().data_received(data)
        elif self._handed_over or self._ending:
            self._feed(data)
        elif self._answering:
            self._hold(data)
        else:
            self._consume(self._buffer + data if self._buffer else data)

    def _is_free(self) -> bool:
        """Between two requests, with nothing in hand on either side."""
        if self._answering or self._handed_over or self._owed or self._buffer or self._ending:
            return False
        return self._head is None and self._answered == self._request_count

    def _hit(self, data: bytes) -> bool:
        """The short way for one request without a body whose parts were all seen before."""
        server = self._server
        head = server.heads.recall(data)
        if head is None or head.fields.content_length or server.fast is None:
            return False
        response = server.fast.hit(head, self._peer)
        if response is None:
            return False
        self._push(response)
        self._answer_is_out()
        return True

    def _hold(self, data: bytes) -> None:
        """Requests sent ahead wait here, within bounds, until the answer before them is out."""
        self._buffer += data
        if len(self._buffer) > self._server.limits.max_header_bytes and self.transport is not None:
            self._held_back = True
            self.transport.pause_reading()

    # -- cutting bytes into requests -----------------------------------------------------------

    def _consume(self, data: bytes) -> None:
        """Take requests from `data` until it is used up, an answer is on its way, or others must
        have their turn. What is left is cut off once: a pipeline may be long."""
        self._buffer = b""
        at = begun = 0
        while at < len(data) and not self._handed_over:
            if self._force_close or self.transport is None:
                return
            if begun == REQUESTS_A_TURN and not self._answering:
                self._answering = True
                self._loop.call_soon(self._resume)
            if self._answering:
                self._hold(data[at:])
                return
            if self._owed:
                at = self._pass_body(data, at)
            elif self._head is not None:
                at = self._gather(data, at)
            else:
                at = self._begin(data, at)
                begun += 1

    def _begin(self, data: bytes, at: int) -> int:
        """The request that begins there; where the next one may."""
        end = data.find(END, at)
        if (len(data) if end < 0 else end) - at > self._server.limits.max_header_bytes:
            self._refuse(431, "header-too-large", "The request head is too large.")
            return len(data)
        if end < 0:
            self._buffer = data[at:]
            self._start_clock(self._server.limits.header_timeout_secs)
            return len(data)
        end += len(END)
        raw = data[at:end]
        head = self._server.heads.parse(raw)
        if head is None:
            self._hand_over(data[at:])
            return len(data)
        if self._deadline is not None:
            self._stop_clock()
        fast = self._server.fast
        if fast is None or not self._aiohttp_is_idle():
            return self._pass_on(data, at, end + head.content_length)
        if not head.content_length and (response := fast.hit(head, self._peer)) is not None:
            self.send((response,))
            return end
        is_large = head.content_length > self._server.limits.max_body_bytes
        if is_large or not fast.wants(head, len(data) - end):
            return self._pass_on(data, at, end + head.content_length)
        if len(data) - end < head.content_length:
            self._head, self._head_bytes = head, raw
            self._start_clock(self._server.limits.body_timeout_secs)
            return self._gather(data, end)
        whole = end + head.content_length
        self._offer(head, raw, data[end:whole])
        return whole

    def _gather(self, data: bytes, at: int) -> int:
        """Collect a body that comes in pieces."""
        assert self._head is not None
        end = at + self._head.content_length - len(self._body)
        self._body += data[at:end]
        if len(self._body) < self._head.content_length:
            return len(data)
        self._stop_clock()
        head, raw, body = self._head, self._head_bytes, bytes(self._body)
        self._head, self._head_bytes, self._body = None, b"", bytearray()
        self._body_mark = 0
        try:
            self._offer(head, raw, body)
        finally:
            _let_go(head)
        return end

    def _offer(self, head: Head, raw: bytes, body: bytes) -> None:
        self._answering = True
        fast = self._server.fast  # None while draining
        if fast is None or not fast.answer(head, body, self):
            self._answering = False
            self._pass_on(raw + body, 0, len(raw) + len(body))

    # -- the exchange --------------------------------------------------------------------------

    def send(self, parts: Sequence[bytes]) -> None:
        if not self._force_close:
            for part in parts:
                self._push(part)
        self._answer_is_out()

    def _push(self, data: bytes) -> None:
        """Straight to the socket while nothing waits before it. The transport would gather what
        it is given until the end of the loop's turn: right for a crowd, late for one."""
        sent = self.write_now(data)
        if sent < len(data) and self.transport is not None:
            self.transport.write(memoryview(data)[sent:] if sent else data)

    def write_now(self, data: bytes | memoryview) -> int:
        transport = self.transport
        if transport is None or self._file < 0:
            return 0
        if transport.get_write_buffer_size() or transport.is_closing():
            return 0
        try:
            return os.write(self._file, data)
        except OSError:  # no room, or a connection that has ended: the transport's business
            return 0

    def write(self, data: bytes | memoryview) -> None:
        if self.transport is not None:
            self.transport.write(data)

    def finish(self, last: bytes = b"") -> None:
        self.send((last,) if last else ())

    def abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    def backlog(self) -> int:
        return 0 if self.transport is None else self.transport.get_write_buffer_size()

    async def drain(self) -> None:
        if self.transport is None:
            raise ConnectionResetError("the client has left")
        await self._drain_helper()

    @property
    def is_full(self) -> bool:
        return self._paused

    def when_writable(self, callback: Callable[[], None]) -> None:
        self._writable = callback

    def when_gone(self, callback: Callable[[], None]) -> None:
        self._gone = callback

    @property
    def peer(self) -> str:
        return self._peer

    def _answer_is_out(self) -> None:
        self._gone = self._writable = None
        # Bytes that wait go first: until `_resume` took them, new ones must queue behind them.
        self._answering = bool(self._buffer)
        if self.transport is None or self._force_close:
            return
        # aiohttp's idle clock does not see fast answers.
        self._next_keepalive_close_time = self._loop.time() + self._keepalive_timeout
        if self._paused:  # the client does not read: it gets no further answer until it does
            self._answering = self._stalled = True
        elif self._buffer:
            self._loop.call_soon(self._resume)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = 0
        self._watch_reader()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_watching()
        if self._writable is not None:
            self._loop.call_soon(self._writable)
            self._writable = None
        if self._stalled:
            self._stalled = False
            self._loop.call_soon(self._resume)

    def _resume(self) -> None:
        """Not from within `send`: a long pipeline must not become a deep recursion."""
        self._answering = False
        if self.transport is None:
            return
        self._consume(self._buffer)
        if self._held_back and len(self._buffer) <= self._server.limits.max_header_bytes:
            self._held_back = False
            if self.transport is not None and not (self._reading_paused or self._buffer_paused):
                self.transport.resume_reading()  # else aiohttp does, which has enough for now

    # -- aiohttp's side ------------------------------------------------------------------------

    def _aiohttp_is_idle(self) -> bool:
        """It has answered every request that it found in what it was given."""
        return self._answered == self._request_count

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        try:
            return await super().finish_response(request, resp, start_time)
        finally:
            self._answered += 1
            self._ending = resp.keep_alive is False
            if isinstance(resp, web.Response):
                resp.body = None  # aiohttp holds the last answer until it has the next

    def _pass_on(self, data: bytes, at: int, end: int) -> int:
        """Give aiohttp one whole request, as far as it is here."""
        super().data_received(data[at:end])
        self._owed = max(0, end - len(data))
        return end

    def _pass_body(self, data: bytes, at: int) -> int:
        piece = data[at : at + self._owed]
        self._owed -= len(piece)
        super().data_received(piece)
        return at + len(piece)

    def _hand_over(self, data: bytes) -> None:
        self._stop_clock()
        self._handed_over = True
        super().data_received(data)

    def _feed(self, data: bytes) -> None:
        """On a connection that is aiohttp's, our limits still hold for the heads it gathers."""
        if self._ending:  # aiohttp takes it in for LINGER_SECS and drops it
            super().data_received(data)
            return
        if self._aiohttp_is_idle():
            end = data.find(END)
            self._head_size += len(data) if end < 0 else end
            if self._head_size > self._server.limits.max_header_bytes:
                self._refuse(431, "header-too-large", "The request head is too large.")
                return
        super().data_received(data)
        if self._aiohttp_is_idle():
            self._start_clock(self._server.limits.header_timeout_secs)
        else:
            self._stop_clock()
            self._head_size = 0

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """aiohttp's own error pages would echo what the client sent."""
        if status == 500 and not self._has_left(exc):
            self.log_exception("unhandled error", exc_info=exc)
        if request.writer.output_size > 0:
            raise ConnectionError("the response had begun")
        return self._server.refusals.response(status)

    def _has_left(self, exc: BaseException | None) -> bool:
        """Whether it failed because there is nobody to write to any more."""
        is_gone = self.transport is None or self.transport.is_closing()
        return is_gone and isinstance(exc, ConnectionResetError)

    # -- deadlines -----------------------------------------------------------------------------

    def _start_clock(self, seconds: float) -> None:
        if self._deadline is None:
            self._deadline = self._loop.call_later(seconds, self._too_slow)

    def _stop_clock(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _process_keepalive(self) -> None:
        """Requests under way here are not idleness."""
        if self._answering or self._head is not None or self._buffer:
            self._next_keepalive_close_time = self._loop.time() + self._keepalive_timeout
        super()._process_keepalive()

    def _watch_reader(self) -> None:
        """The client takes less than we send: look now and then whether it takes any."""
        seconds = self._server.limits.idle_timeout_secs
        self._watch = self._loop.call_later(seconds, self._check_reader)

    def _check_reader(self) -> None:
        if self.transport is None:
            return
        unread, self._unread = self._unread, self.transport.get_write_buffer_size()
        if not unread or self._unread < unread:
            self._watch_reader()
        else:
            self.transport.abort()  # close() would wait for it to take what it never takes

    def _stop_watching(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    def _too_slow(self) -> None:
        """Time is up, unless a body came on well enough to be given another term."""
        self._deadline = None
        if self._head is not None and len(self._body) - self._body_mark >= PROGRESS_BYTES:
            self._body_mark = len(self._body)
            self._start_clock(self._server.limits.body_timeout_secs)
            return
        self._refuse(408, "timeout", "The request took too long to arrive.")

    def _refuse(self, status: int, code: str, detail: str) -> None:
        if self.transport is not None:
            self.transport.write(self._server.refusals.encode(status, code, detail))
        self._forget()
        self.force_close()

    def _forget(self) -> None:
        """What was gathered of a request that will not be answered."""
        head, self._head = self._head, None
        self._buffer, self._body = b"", bytearray()
        if head is not None:
            _let_go(head)


def _let_go(head: Head) -> None:
    if head.admission is not None:
        head.admission.release()
