"""The connection: plain requests are offered to a fast path, all others go to aiohttp.

One object per connection, a subclass of aiohttp's protocol. Incoming bytes are split into requests
as long as heads are plain. A request goes to the fast path only while aiohttp is idle on this
connection, so that responses stay in order, and to aiohttp if the fast path declines it. Both give
the same response. From the first head that is not plain, aiohttp keeps the connection.
"""

import asyncio
import ssl
from enum import Enum, auto
from typing import Any, cast

from aiohttp import web

from protocol.paths import Rename
from wire.descriptors import Descriptors
from wire.exchange import Exchange, FastPath
from wire.heads import END, Head, HeadMemo
from wire.http import Refusals
from wire.ordinary import OrdinaryConnection
from wire.requests import Gathering, Limits
from wire.tls import Handshake

REQUESTS_A_TURN = 4  # of one pipeline, before other connections get their turn
LINGER_SECS = 2.0  # a refused upload may continue this long, so that its client reads the response


class State(Enum):
    """What a connection does with the next bytes."""

    READING = auto()  # a head starts or continues
    GATHERING = auto()  # the body of a request for the fast path
    PASSING = auto()  # a body that aiohttp reads
    ANSWERING = auto()  # kept: the fast path owes a response
    WAITING = auto()  # kept: other connections get their turn first
    STALLED = auto()  # kept: the client does not read its responses
    ORDINARY = auto()  # everything goes to aiohttp from now on
    ENDING = auto()  # dropped by aiohttp: the last response is sent
    CLOSED = auto()  # dropped


# Enum's attribute access is slower than the rest of a state check.
READING, GATHERING, PASSING, ANSWERING, WAITING, STALLED, ORDINARY, ENDING, CLOSED = State
KEEPING = (ANSWERING, WAITING, STALLED)


class Front(OrdinaryConnection):
    __slots__ = (
        "_buffer",
        "_deadline",
        "_gathering",
        "_head_size",
        "_owed",
        "_server",
        "exchange",
        "state",
    )

    def __init__(self, server: "FrontServer", **options: Any) -> None:
        super().__init__(server, server.refusals, **options)
        self._server = server
        self.state = READING
        self._buffer = b""  # of a head, or kept until earlier responses are sent
        self._gathering: Gathering | None = None
        self._owed = 0  # remaining bytes of the body for aiohttp
        self._head_size = 0  # of the head that aiohttp gathers
        self._deadline: asyncio.TimerHandle | None = None

    # -- life of the connection ----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        limits = self._server.limits
        self.exchange = Exchange(cast(asyncio.Transport, transport), limits.idle_timeout_secs)
        if not self._server.enter(transport):
            self._refuse(503, "too-many-connections", "The server has too many connections.")

    def connection_lost(self, exc: BaseException | None) -> None:
        self._server.leave()
        self._forget()
        super().connection_lost(exc)
        self.exchange.lost()

    def force_close(self) -> None:
        self._forget()
        super().force_close()

    def _forget(self) -> None:
        """Drop the data of a request that will not be answered."""
        self.state = CLOSED
        self._stop_clock()
        self._buffer = b""
        gathering, self._gathering = self._gathering, None
        if gathering is not None:
            gathering.release()

    def pause_writing(self) -> None:
        super().pause_writing()
        self.exchange.pause()

    def resume_writing(self) -> None:
        super().resume_writing()
        self.exchange.resume()
        if self.state is STALLED:
            self._wait_for_turn()

    # -- cutting bytes into requests -----------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        state = self.state
        if state is READING and not self._buffer and self.is_idle and self._hit(data):
            return
        if not data or state is ENDING:  # aiohttp calls without data when its queue has room
            super().data_received(data)
        elif state is ORDINARY:
            self._feed(data)
        else:
            self._consume(self._buffer + data)

    def _hit(self, data: bytes) -> bool:
        """The shortcut for one request without a body whose parts were all seen before."""
        server = self._server
        head = server.heads.recall(data)
        if head is None or head.fields.content_length or server.fast is None:
            return False
        response = server.fast.hit(head, self.exchange.peer)
        if response is None:
            return False
        self.exchange.push(response)
        self._answer_is_out()
        return True

    def _consume(self, data: bytes) -> None:
        """Take requests from `data` until it is used up, a response is pending, or it is the turn
        of other connections. The rest is sliced only once: a pipeline may be long."""
        self._buffer = b""
        at = begun = 0
        while at < len(data):
            state = self.state
            if state is READING and begun == REQUESTS_A_TURN:
                self._wait_for_turn()
            elif state is READING:
                at = self._begin(data, at)
                begun += 1
            elif state is GATHERING:
                at = self._gather(data, at)
            elif state is PASSING:
                at = self._pass_on(data, at, at + self._owed)
            else:
                if state in KEEPING:
                    self._keep(data[at:])
                return

    def _keep(self, data: bytes) -> None:
        """Pipelined requests wait here, within limits, until earlier responses are sent."""
        self._buffer = data
        if len(data) > self._server.limits.max_header_bytes and self.transport is not None:
            self.transport.pause_reading()

    def _begin(self, data: bytes, at: int) -> int:
        """Handle the request at `at`; returns where the next one may start."""
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
        self._stop_clock()
        if head is None:
            self.state = ORDINARY
            super().data_received(data[at:])
            return len(data)
        whole = end + head.content_length
        fast = self._server.fast
        if fast is None or not self.is_idle:
            return self._pass_on(data, at, whole)
        if whole == end and (response := fast.hit(head, self.exchange.peer)) is not None:
            self.exchange.push(response)
            self._answer_is_out()
            return end
        is_large = head.content_length > self._server.limits.max_body_bytes
        if is_large or not fast.wants(head, len(data) - end):
            return self._pass_on(data, at, whole)
        if len(data) < whole:
            self.state = GATHERING
            self._gathering = Gathering(head, raw)
            self._start_clock(self._server.limits.body_timeout_secs)
            return self._gather(data, end)
        self._offer(head, raw, data[end:whole])
        return whole

    def _gather(self, data: bytes, at: int) -> int:
        gathering = self._gathering
        assert gathering is not None
        at = gathering.take(data, at)
        if gathering.is_whole:
            self._stop_clock()
            self._gathering = None
            try:
                self._offer(gathering.head, gathering.raw, bytes(gathering.body))
            finally:
                gathering.release()
        return at

    def _offer(self, head: Head, raw: bytes, body: bytes) -> None:
        self.state = ANSWERING
        self.exchange.begin(self._answer_is_out)
        fast = self._server.fast  # None while draining
        if fast is None or not fast.answer(head, body, self.exchange):
            self._pass_on(raw + body, 0, len(raw) + len(body))

    def _pass_on(self, data: bytes, at: int, end: int) -> int:
        """Pass aiohttp the available part of one request."""
        self._owed = max(0, end - len(data))
        self.state = PASSING if self._owed else READING
        super().data_received(data[at:end])
        return end

    # -- after a response ----------------------------------------------------------------------

    def _answer_is_out(self) -> None:
        if self.state is CLOSED:
            return
        self.answered_at = self.loop.time()
        if self.exchange.is_full:  # no further response until the client reads
            self.state = STALLED
        elif self._buffer:  # bytes that wait go first: new ones must queue behind them
            self._wait_for_turn()
        else:
            self.state = READING

    def _wait_for_turn(self) -> None:
        """Also prevents deep recursion on a long pipeline."""
        self.state = WAITING
        self.loop.call_soon(self._resume)

    def _resume(self) -> None:
        if self.state is not WAITING:
            return
        self.state = READING
        self._consume(self._buffer)
        if len(self._buffer) <= self._server.limits.max_header_bytes:
            if self.transport is not None and not self.has_enough:
                self.transport.resume_reading()

    # -- aiohttp's side ------------------------------------------------------------------------

    def is_busy(self) -> bool:
        return bool(self._buffer) or self.state is GATHERING or self.state in KEEPING

    def last_answer_is_out(self) -> None:
        if self.state is not CLOSED:
            self.state = ENDING  # for LINGER_SECS

    def _feed(self, data: bytes) -> None:
        """On aiohttp's connections, our limits still apply to the heads it collects."""
        if self.is_idle:
            end = data.find(END)
            self._head_size += len(data) if end < 0 else end
            if self._head_size > self._server.limits.max_header_bytes:
                self._refuse(431, "header-too-large", "The request head is too large.")
                return
        super().data_received(data)
        if self.is_idle:
            self._start_clock(self._server.limits.header_timeout_secs)
        else:
            self._stop_clock()
            self._head_size = 0

    # -- deadlines -----------------------------------------------------------------------------

    def _start_clock(self, seconds: float) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(seconds, self._too_slow)

    def _stop_clock(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_slow(self) -> None:
        """Time is up, unless a body made enough progress for another period."""
        self._deadline = None
        if self._gathering is not None and self._gathering.has_progressed():
            self._start_clock(self._server.limits.body_timeout_secs)
        else:
            self._refuse(408, "timeout", "The request took too long to arrive.")

    def _refuse(self, status: int, code: str, detail: str) -> None:
        self.exchange.write(self._server.refusals.encode(status, code, detail))
        self.force_close()


class FrontServer(web.Server):
    """aiohttp's low-level server with our connection class; `fast` is None while it drains."""

    def __init__(
        self,
        handler: Any,
        fast: FastPath,
        limits: Limits,
        refusals: Refusals,
        rename: Rename = str,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(handler, handler_cancellation=True)
        self.fast: FastPath | None = fast
        self.limits = limits
        self.refusals = refusals
        self.heads = HeadMemo(rename)
        self.open_connections = 0
        self.handshakes: set[asyncio.Task[None]] = set()
        self._tls = tls
        self._descriptors = Descriptors()

    def __call__(self) -> asyncio.Protocol:  # type: ignore[override]
        """The listener does no TLS: `Handshake` does it, if any, and then makes the connection."""
        if self._tls is None:
            return self._make()
        return Handshake(self, self._tls, self.limits.header_timeout_secs, self._make)

    def _make(self) -> Front:
        return Front(
            self,
            keepalive_timeout=self.limits.idle_timeout_secs,
            access_log=None,
            max_line_size=self.limits.max_header_bytes,
            max_field_size=self.limits.max_header_bytes,
            auto_decompress=False,
            lingering_time=LINGER_SECS,
        )

    def enter(self, transport: asyncio.BaseTransport) -> bool:
        self.open_connections += 1
        socket = transport.get_extra_info("socket")
        if socket is not None:
            self._descriptors.note(socket.fileno())
        return self.open_connections <= self.limits.max_connections

    def leave(self) -> None:
        self.open_connections -= 1

    def drain(self) -> None:
        """From now on aiohttp answers everything, and closes each connection after a response that
        tells the client so."""
        self.fast = None

    async def shutdown(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 (aiohttp's)
        for handshake in list(self.handshakes):
            handshake.cancel()
        await super().shutdown(timeout)
