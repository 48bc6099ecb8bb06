"""The client to the origin: two pools of connections, timeouts, retries, the circuit breaker.

Live tails have their own pool, so a thousand waiting long-polls never delay a catch-up read. A
response is either complete and checked, or an UpstreamError: a body that is truncated, encoded, or
of unknown length is never passed on as a 200. No aiohttp exceptions leave this module.

Retries: a request that was never sent, because there was no connection, can always be retried. A
request that was sent may have been executed, so only GET, HEAD and appends with producer headers
are repeated, and only before a response head. A connection that the origin closed while idle is
detected before use: an idle connection with something to read has ended. What remains is a close
that is still in transit. It fails a plain append (502, `sent`), and is rare, because our idle
timeout is shorter than the servers'.

A timeout is not retried: the time is used up.
"""

import asyncio
import logging
import math
import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple

import aiohttp
from yarl import URL

from gateway.asking import (
    BAD_ANSWER,
    BUSY,
    BUSY_FOR_SUBJECT,
    NO_BODY,
    UNAVAILABLE,
    BegunAnswer,
    TooLarge,
    UpstreamError,
    UpstreamRequest,
    UpstreamResponse,
    UpstreamStream,
    check_head,
    explain,
    gather_body,
)
from gateway.breaker import Attempt, Breaker, Shut, State
from gateway.config import GatewayConfig
from gateway.connections import (
    PIECEWISE_BYTES,
    READ_BYTES,
    Address,
    Connections,
    NoConnection,
    NoConnectionInTime,
    encode_head,
)
from gateway.rules.forwarding import REPEATABLE_METHODS, is_repeatable
from gateway.slots import Payers, Slots
from protocol.names import ACCESS_KEY

log = logging.getLogger("weir.gateway.upstream")

LARGE_BYTES = 2 * 1024 * 1024  # more than a chunk: only a few such responses ...
LARGE_AT_ONCE = 4  # ... are read into memory at a time
UPLOAD_BYTES_PER_S = 2 * 1024 * 1024  # a body adds its time at this rate to the response timeout

_OWN_HEADERS = {"accept": "*/*", "accept-encoding": "identity", "user-agent": "weir"}


class Upstream:
    """`requests`, `failures` and `retries` are counters for the metrics."""

    def __init__(
        self,
        config: GatewayConfig,
        *,
        clock: Callable[[], float] = time.monotonic,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._config = config.upstream
        self._share = 1.0 if config.auth.mode == "off" else self._config.subject_share
        self._max_bytes = config.cache.max_object_bytes
        self._clock = clock
        url = URL(config.gateway.origin_url)
        self._place = Address.of(url, tls)
        self._path = url.raw_path.rstrip("/")
        self._own_headers = {
            "host": url.host_port_subcomponent or "",
            **_OWN_HEADERS,
            **_basic_auth(url),
            **_access_key(self._config.access_key),
        }
        self.breaker = Breaker(self._config.breaker_failures, self._config.breaker_secs)
        self.requests: Counter[str] = Counter()  # by kind; each attempt that was sent
        self.failures: Counter[str] = Counter()  # by code
        self.retries = 0

    async def start(self) -> None:
        config = self._config
        self._ordinary = self._make_pool(config.connections)
        self._live = self._make_pool(config.live_connections)
        self._large = self._make_slots(LARGE_AT_ONCE)

    def _make_pool(self, most: int) -> "_Pool":
        connections = Connections(self._place, self._config.connect_timeout_secs)
        return _Pool(self._make_slots(most), connections)

    def _make_slots(self, most: int) -> Slots:
        return Slots(most, max(1, int(most * self._share)))

    async def close(self) -> None:
        self._ordinary.connections.close()
        self._live.connections.close()

    @property
    def state(self) -> State:
        return self.breaker.state(self._clock())

    @property
    def is_up(self) -> bool:
        """False from when the breaker opens until the origin responds again."""
        return self.breaker.is_closed

    async def fetch(
        self,
        request: UpstreamRequest,
        *,
        live: bool = False,
        max_bytes: int | None = None,
        payers: Payers | None = None,
        on_departure: Callable[[], None] | None = None,
    ) -> UpstreamResponse:
        """The complete response. `on_departure` is called once, before the first byte is sent."""
        limit = self._max_bytes if max_bytes is None else max_bytes
        flight = _Attempts(self, request, live, on_departure)
        pool = self._live if live else self._ordinary
        payers = payers or Payers()
        payer = await self._take_slot(pool, payers)
        try:
            begun = await self._begin(flight, pool.connections)
            try:
                body = await self._read_whole(request, begun, limit, payers)
            except UpstreamError:
                raise
            except Exception as error:
                raise self._failed(error, sent=True) from error
            finally:
                pool.connections.give_back(begun.connection)
        finally:
            pool.slots.release(payer)
        return UpstreamResponse(begun.status, begun.headers, body)

    @asynccontextmanager
    async def open(
        self,
        request: UpstreamRequest,
        *,
        live: bool = False,
        payers: Payers | None = None,
        on_departure: Callable[[], None] | None = None,
    ) -> AsyncIterator[UpstreamStream]:
        """The head, and the body in pieces as they arrive; leaving early closes the connection. It
        occupies a connection while it is open, so do not wait for a client inside."""
        idle_s = self._config.live_timeout_secs if live else self._config.idle_timeout_secs
        flight = _Attempts(self, request, live, on_departure, PIECEWISE_BYTES)
        pool = self._live if live else self._ordinary
        payer = await self._take_slot(pool, payers or Payers())
        try:
            begun = await self._begin(flight, pool.connections)
            try:
                pieces = self._pieces(begun, idle_s)
                yield UpstreamStream(begun.status, begun.headers, pieces, begun.length)
            finally:
                pool.connections.give_back(begun.connection)
        finally:
            pool.slots.release(payer)

    # -- one request -------------------------------------------------------------------------------

    async def _take_slot(self, pool: "_Pool", payers: Payers) -> str:
        """Wait for a free connection of the pool; returns the paying subject."""
        if pool.connections.closed:
            raise UpstreamError(503, UNAVAILABLE, "The gateway is stopping.")
        if wait_s := self.breaker.wait_s(self._clock()):  # a connection would be useless
            raise self._away(wait_s)
        payer = await self._take_turn(pool.slots, payers)
        if pool.connections.closed:
            pool.slots.release(payer)
            raise UpstreamError(503, UNAVAILABLE, "The gateway is stopping.")
        return payer

    async def _take_turn(self, slots: Slots, payers: Payers) -> str:
        payer = slots.take_now(payers)
        if payer is not None:
            return payer
        try:
            async with asyncio.timeout(self._config.first_byte_timeout_secs):
                return await slots.take(payers)
        except TimeoutError:
            raise self._busy(slots, payers) from None

    async def _read_whole(
        self, request: UpstreamRequest, begun: BegunAnswer, max_bytes: int, payers: Payers
    ) -> bytes:
        """Only a few large responses are read at a time: each is buffered in memory."""
        if request.method == "HEAD" or begun.status in NO_BODY:
            return b""
        length, idle_s = begun.length or 0, self._config.idle_timeout_secs
        if length > max_bytes:
            raise TooLarge
        if length <= LARGE_BYTES:
            return await gather_body(begun.body, max_bytes, idle_s)
        payer = await self._take_turn(self._large, payers)
        try:
            return await gather_body(begun.body, max_bytes, idle_s)
        finally:
            self._large.release(payer)

    def _busy(self, slots: Slots, payers: Payers) -> UpstreamError:
        status, code, text = 503, BUSY, "All connections to the origin are in use."
        if slots.are_used_up_by(payers):
            status, code = 429, BUSY_FOR_SUBJECT
            text = "You are using your share of the origin's connections."
        self.failures[code] += 1
        return UpstreamError(status, code, text, (("Retry-After", "1"),))

    async def _begin(self, flight: "_Attempts", connections: Connections) -> BegunAnswer:
        """Send until a usable head arrives; report to the breaker."""
        try:
            with self.breaker.attempt(self._clock()) as attempt:
                return await self._attempt(flight, connections, attempt)
        except Shut as shut:
            raise self._away(shut.wait_s) from None

    async def _attempt(
        self, flight: "_Attempts", connections: Connections, attempt: Attempt
    ) -> BegunAnswer:
        try:
            begun = await self._send_repeatedly(flight, connections)
        except UpstreamError as error:
            self._report(attempt, error, flight.live)
            raise
        self._succeed()
        return begun

    async def _send_repeatedly(self, flight: "_Attempts", connections: Connections) -> BegunAnswer:
        while True:
            flight.attempts += 1
            try:
                return await self._send(flight, connections)
            except Exception as error:
                repeat = flight.attempts <= self._config.retries and flight.may_repeat(error)
                if not repeat or connections.closed:
                    raise self._failed(error, sent=flight.sent) from error
                self.retries += 1

    async def _send(self, flight: "_Attempts", connections: Connections) -> BegunAnswer:
        request = flight.request
        head = encode_head(request.method, self._path + request.target, self._headers(request))
        connection = await connections.take()
        try:
            async with asyncio.timeout(flight.depart()):
                is_head = request.method == "HEAD"
                size = flight.read_bytes
                answer = await connection.ask(head, request.body, is_head=is_head, read_bytes=size)
            return check_head(request, connection, answer, self._path)
        except BaseException:
            connection.close()
            connections.give_back(connection)
            raise

    def _headers(self, request: UpstreamRequest) -> dict[str, str]:
        headers = {**self._own_headers, **request.headers}
        if request.method not in REPEATABLE_METHODS:
            headers["content-length"] = str(len(request.body))
        return headers

    async def _pieces(self, begun: BegunAnswer, idle_s: float) -> AsyncIterator[bytes]:
        while True:
            try:
                async with asyncio.timeout(idle_s):
                    piece = await begun.body.readany()
            except Exception as error:
                raise self._failed(error, sent=True) from error
            if not piece:
                return
            yield piece

    # -- reporting ---------------------------------------------------------------------------------

    def departing(self, flight: "_Attempts") -> None:
        """The request is about to be written to a connection."""
        self.requests[_kind(flight.request, flight.live)] += 1
        if flight.live:  # the response may take long, but the origin is up
            self._succeed()

    def first_byte_s(self, live: bool) -> float:
        return self._config.live_timeout_secs if live else self._config.first_byte_timeout_secs

    def _away(self, wait_s: float) -> UpstreamError:
        self.failures[UNAVAILABLE] += 1
        wait = ("Retry-After", str(math.ceil(wait_s)))
        text = "The origin is unavailable: the circuit breaker is open."
        return UpstreamError(503, UNAVAILABLE, text, (wait,))

    def _succeed(self) -> None:
        if not self.breaker.is_closed:
            log.warning("the origin is back")
        self.breaker.succeed()

    def _report(self, attempt: Attempt, error: UpstreamError, live: bool) -> None:
        """For live tails only a failed connection counts: a restart cuts all of them at once."""
        if error.code == BAD_ANSWER:  # the origin responded, so it is up
            self._succeed()
        elif not (live and error.sent):
            before = self.breaker.opened
            attempt.fail(self._clock())
            if self.breaker.opened > before:
                log.warning("the origin is unavailable: %s", error.detail)

    def _failed(self, error: Exception, *, sent: bool) -> UpstreamError:
        ours = explain(error, sent)
        self.failures[ours.code] += 1
        return ours


class _Pool(NamedTuple):
    """Connections of one kind, and how many may be busy at a time."""

    slots: Slots
    connections: Connections


class _Attempts:
    """One request with all its attempts."""

    def __init__(
        self,
        upstream: Upstream,
        request: UpstreamRequest,
        live: bool,
        on_departure: Callable[[], None] | None,
        read_bytes: int = READ_BYTES,
    ) -> None:
        self._upstream = upstream
        self.read_bytes = read_bytes
        self.request = request
        self.live = live
        self._on_departure = on_departure
        self.attempts = 0
        self.sent = False  # by any attempt

    def depart(self) -> float:
        """A connection is available. Returns the timeout for the response head."""
        self._upstream.departing(self)
        if self._on_departure is not None and not self.sent:
            self._on_departure()
        self.sent = True
        upload_s = len(self.request.body) / UPLOAD_BYTES_PER_S
        return self._upstream.first_byte_s(self.live) + upload_s

    def may_repeat(self, error: Exception) -> bool:
        if isinstance(error, NoConnection):
            return not isinstance(error, NoConnectionInTime)
        if not isinstance(error, (aiohttp.ClientConnectionError, ConnectionError)):
            return False
        return is_repeatable(self.request.method, self.request.headers)


def _basic_auth(url: URL) -> dict[str, str]:
    """Credentials in the origin's URL; a forwarded token overrides them."""
    if url.user is None:
        return {}
    return {"authorization": aiohttp.encode_basic_auth(url.user, url.password or "")}


def _access_key(key: str) -> dict[str, str]:
    """Identifies us to our own origin; clients cannot set this header."""
    return {ACCESS_KEY.lower(): key} if key else {}


def _kind(request: UpstreamRequest, live: bool) -> str:
    if live:
        return "live"
    return {"GET": "read", "HEAD": "head"}.get(request.method, "write")
