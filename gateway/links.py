"""The link to one origin, or to one node of a cluster: two pools of connections, the circuit
breaker, and the attempts of a request.

Live tails have their own pool, so a thousand waiting long-polls never delay a catch-up read.

Retries: a request that was never sent, because there was no connection, can always be retried. A
request that was sent may have been executed, so only GET, HEAD and appends with producer headers
are repeated, and only before a response head. A connection that the origin closed while idle is
detected before use: an idle connection with something to read has ended. What remains is a close
that is still in transit. It fails a plain append (502, `sent`), and is rare, because our idle
timeout is shorter than the servers'.

A timeout is not retried: the time is used up. A large body may take as long as the origin goes on
reading it; then the time for the response begins.
"""

import asyncio
import logging
import math
import ssl
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

import aiohttp
from yarl import URL

from gateway.asking import (
    BAD_ANSWER,
    UNAVAILABLE,
    BegunAnswer,
    UpstreamError,
    UpstreamRequest,
    check_head,
    explain,
)
from gateway.breaker import Attempt, Breaker, Shut, State
from gateway.config import UpstreamConfig
from gateway.connections import (
    READ_BYTES,
    Address,
    Connection,
    Connections,
    NoConnection,
    NoConnectionInTime,
    Room,
    encode_head,
)
from gateway.rules.forwarding import REPEATABLE_METHODS, is_repeatable
from gateway.slots import Held
from protocol.names import ACCESS_KEY

log = logging.getLogger("weir.gateway.upstream")

MAP_KIND = "map"  # of the requests that ask a node for its cluster's map
RESPONSE_SECS = 1.0  # of a deadline that are kept for the response

_OWN_HEADERS = {"accept": "*/*", "accept-encoding": "identity", "user-agent": "weir"}


@dataclass(slots=True)
class Counts:
    """For the metrics, over all links."""

    requests: Counter[str] = field(default_factory=Counter)  # by kind; each attempt that was sent
    failures: Counter[str] = field(default_factory=Counter)  # by code
    retries: int = 0

    def failed(self, error: UpstreamError) -> UpstreamError:
        self.failures[error.code] += 1
        return error


class Rooms(NamedTuple):
    """For connections of either kind."""

    ordinary: Room | None = None
    live: Room | None = None


UNSHARED = Rooms()


class Errand:
    """One request with all its attempts. `deadline` is the loop's time by which its response must
    have begun, whatever the attempts; only requests to a cluster have one."""

    __slots__ = (
        *("_kind", "_on_departure", "connection", "cuts", "deadline", "departures", "live"),
        *("read_bytes", "request", "share"),
    )

    def __init__(
        self,
        request: UpstreamRequest,
        live: bool = False,
        on_departure: Callable[[], None] | None = None,
        read_bytes: int = READ_BYTES,
        deadline: float | None = None,
        kind: str = "",
    ) -> None:
        self.request = request
        self.live = live
        self.read_bytes = read_bytes
        self.deadline = deadline
        self._on_departure = on_departure
        self._kind = kind
        self.departures = 0
        self.cuts = 0  # of them, how many we ended ourselves
        self.connection: Connection | None = None  # of the last departure, if that was not cut
        self.share: Held | None = None  # of its owner's connections

    @property
    def sent(self) -> bool:
        """By any attempt."""
        return self.departures > 0

    @property
    def kind(self) -> str:
        if self.live:
            return "live"
        return self._kind or {"GET": "read", "HEAD": "head"}.get(self.request.method, "write")

    def depart(self, connection: Connection) -> None:
        """The request is about to be written to a connection."""
        self.connection = connection
        if self._on_departure is not None and not self.departures:
            self._on_departure()
        self.departures += 1

    @property
    def is_lenient(self) -> bool:
        """Whether only a failed connection speaks against the origin: a restart cuts all live tails
        at once, and a node may wait for other servers. The map does not wait for any."""
        return self.live or (self.deadline is not None and self._kind != MAP_KIND)

    def within(self, seconds: float, spare_s: float = 0.0) -> float:
        """As long, but so that `spare_s` are left before the deadline."""
        if self.deadline is None:
            return seconds
        left_s = self.deadline - spare_s - asyncio.get_running_loop().time()
        return max(0.0, min(seconds, left_s))

    def may_repeat(self, error: Exception) -> bool:
        if isinstance(error, NoConnection):
            return not isinstance(error, NoConnectionInTime)
        if not isinstance(error, (aiohttp.ClientConnectionError, ConnectionError)):
            return False
        return is_repeatable(self.request.method, self.request.headers)

    def cut(self) -> None:
        """End the attempt that waits for its response."""
        if self.connection is not None:
            self.connection.close()
            self.connection = None
            self.cuts += 1


class Link:
    """`name` is for the log; `rooms` are shared with other links."""

    def __init__(
        self,
        url: str,
        config: UpstreamConfig,
        counts: Counts,
        clock: Callable[[], float],
        tls: ssl.SSLContext | None,
        *,
        name: str = "the origin",
        rooms: Rooms = UNSHARED,
    ) -> None:
        self.name = name
        self._config = config
        self._counts = counts
        self._clock = clock
        self._rooms = rooms
        parsed = URL(url)
        self._place = Address.of(parsed, tls)
        self._path = parsed.raw_path.rstrip("/")
        self._own_headers = {
            "host": parsed.host_port_subcomponent or "",
            **_OWN_HEADERS,
            **_basic_auth(parsed),
            **_access_key(config.access_key),
        }
        self.breaker = Breaker(config.breaker_failures, config.breaker_secs)
        self.closed = False

    def start(self) -> None:
        place, timeout_s = self._place, self._config.connect_timeout_secs
        self._ordinary = Connections(place, timeout_s, self._rooms.ordinary)
        self._live = Connections(place, timeout_s, self._rooms.live)

    async def close(self) -> None:
        self.closed = True
        self._ordinary.close()
        self._live.close()

    def retire(self) -> None:
        """Requests on their way may end; others are refused."""
        self._ordinary.retire()
        self._live.retire()

    @property
    def state(self) -> State:
        return self.breaker.state(self._clock())

    @property
    def is_up(self) -> bool:
        """False from when the breaker opens until the origin responds again."""
        return self.breaker.is_closed

    @property
    def wait_s(self) -> float:
        """0.0 if a request may be sent now, else the time to wait."""
        return self.breaker.wait_s(self._clock())

    async def begin(self, errand: Errand) -> BegunAnswer:
        """Send until a usable head arrives; report to the breaker."""
        try:
            with self.breaker.attempt(self._clock()) as attempt:
                return await self._attempt(errand, attempt)
        except Shut as shut:
            raise self._counts.failed(away(shut.wait_s)) from None

    async def _attempt(self, errand: Errand, attempt: Attempt) -> BegunAnswer:
        before = errand.departures
        try:
            begun = await self._send_repeatedly(errand)
        except UpstreamError as error:
            is_sent = errand.departures > before
            self._report(attempt, error, is_excused=is_sent and errand.is_lenient)
            raise
        self._succeed()
        return begun

    async def _send_repeatedly(self, errand: Errand) -> BegunAnswer:
        connections = self._live if errand.live else self._ordinary
        repeats = 0
        while True:
            try:
                return await self._send(errand, connections)
            except Exception as error:
                repeat = repeats < self._config.retries and errand.may_repeat(error)
                if not repeat or connections.closed:
                    raise self._counts.failed(explain(error, errand.sent)) from error
                repeats += 1
                self._counts.retries += 1

    async def _send(self, errand: Errand, connections: Connections) -> BegunAnswer:
        request = errand.request
        head = encode_head(request.method, self._path + request.target, self._headers(request))
        if errand.deadline is None:
            connection = await connections.take()
        else:
            connection = await connections.take(errand.within(math.inf, RESPONSE_SECS))
        try:
            seconds = self._depart(errand, connection)
            async with asyncio.timeout(seconds) as timeout:
                answer = await connection.ask(
                    head,
                    request.body,
                    is_head=request.method == "HEAD",
                    read_bytes=errand.read_bytes,
                    on_progress=lambda: _begin_anew(timeout, seconds),
                )
            return check_head(request, connections, connection, answer, self._path)
        except BaseException:
            connection.close()
            connections.give_back(connection)
            raise

    def _headers(self, request: UpstreamRequest) -> dict[str, str]:
        headers = {**self._own_headers, **request.headers}
        if request.method not in REPEATABLE_METHODS:
            headers["content-length"] = str(len(request.body))
        return headers

    def _depart(self, errand: Errand, connection: Connection) -> float:
        """Returns the timeout for the response head, from now or the last progress of an upload."""
        self._counts.requests[errand.kind] += 1
        config, live = self._config, errand.live
        if live:  # the response may take long, but the origin is up
            self._succeed()
        errand.depart(connection)
        seconds = config.live_timeout_secs if live else config.first_byte_timeout_secs
        if errand.deadline is not None:
            seconds = errand.within(seconds)
        return seconds

    # -- reporting ---------------------------------------------------------------------------------

    def _succeed(self) -> None:
        if not self.breaker.is_closed:
            log.warning("%s is back", self.name)
        self.breaker.succeed()

    def _report(self, attempt: Attempt, error: UpstreamError, *, is_excused: bool) -> None:
        if error.code == BAD_ANSWER:  # the origin responded, so it is up
            self._succeed()
        elif not is_excused:
            before = self.breaker.opened
            attempt.fail(self._clock())
            if self.breaker.opened > before:
                log.warning("%s is unavailable: %s", self.name, error.detail)


def _begin_anew(timeout: asyncio.Timeout, seconds: float) -> None:
    with suppress(RuntimeError):  # it has ended: the response came, or did not come in time
        timeout.reschedule(asyncio.get_running_loop().time() + seconds)


def away(wait_s: float) -> UpstreamError:
    wait = ("Retry-After", str(math.ceil(wait_s)))
    text = "The origin is unavailable: the circuit breaker is open."
    return UpstreamError(503, UNAVAILABLE, text, (wait,))


def _basic_auth(url: URL) -> dict[str, str]:
    """Credentials in the origin's URL; a forwarded token overrides them."""
    if url.user is None:
        return {}
    return {"authorization": aiohttp.encode_basic_auth(url.user, url.password or "")}


def _access_key(key: str) -> dict[str, str]:
    """Identifies us to our own origin; clients cannot set this header."""
    return {ACCESS_KEY.lower(): key} if key else {}
