"""The client to the origin: whose turn it is for a connection, and what became of a request.

A response is either complete and checked, or an UpstreamError: a body that is truncated, encoded,
or of unknown length is never passed on as a 200. No aiohttp exceptions leave this module.

`links` has the way to one origin, `origins` the ways to the nodes of a cluster. The connections are
counted here, for all nodes together.
"""

import asyncio
import ssl
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from gateway.asking import (
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
    come_again,
    explain,
    gather_body,
)
from gateway.breaker import State
from gateway.config import GatewayConfig
from gateway.connections import PIECEWISE_BYTES, READ_BYTES
from gateway.links import Counts, Errand, Link, away
from gateway.origins import ANSWER_SECS, Origins, shorten
from gateway.slots import Held, Payers, Slots

LARGE_BYTES = 2 * 1024 * 1024  # more than a chunk: only a few such responses ...
LARGE_AT_ONCE = 4  # ... are read into memory at a time
SENT_SECS = 2.5  # before its deadline a request must have got a connection


class Upstream:
    """`cluster` is None in front of one origin."""

    def __init__(
        self,
        config: GatewayConfig,
        *,
        clock: Callable[[], float] = time.monotonic,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        urls, ours = config.gateway.origin_urls, config.upstream
        self._config = shorten(ours) if urls else ours
        self._share = 1.0 if config.auth.mode == "off" else ours.subject_share
        self._max_bytes = config.cache.max_object_bytes
        self._counts = counts = Counts()
        self.cluster = Origins(urls, ours, counts, clock, tls, self._share) if urls else None
        self._origin: Link | Origins
        if self.cluster is not None:
            self._origin = self.cluster
        else:
            self._origin = Link(config.gateway.origin_url, ours, counts, clock, tls)

    async def start(self) -> None:
        config, share = self._config, self._share
        self._ordinary = Slots.shared(config.connections, share)
        self._live = Slots.shared(config.live_connections, share)
        self._large = Slots.shared(LARGE_AT_ONCE, share)
        self._origin.start()

    async def close(self) -> None:
        await self._origin.close()

    @property
    def is_known(self) -> bool:
        """Whether we know where to send requests."""
        return self.cluster is None or self.cluster.is_known

    @property
    def state(self) -> State:
        return self._origin.state

    @property
    def is_up(self) -> bool:
        return self._origin.is_up

    @property
    def requests(self) -> Counter[str]:
        return self._counts.requests

    @property
    def failures(self) -> Counter[str]:
        return self._counts.failures

    @property
    def retries(self) -> int:
        return self._counts.retries

    async def fetch(
        self,
        request: UpstreamRequest,
        *,
        live: bool = False,
        max_bytes: int | None = None,
        payers: Payers | None = None,
        on_departure: Callable[[], None] | None = None,
        on_begun: Callable[[], None] | None = None,
    ) -> UpstreamResponse:
        """The complete response. `on_departure` is called once, before the first byte is sent,
        `on_begun` when the head has come."""
        limit = self._max_bytes if max_bytes is None else max_bytes
        errand = Errand(request, live, on_departure, READ_BYTES, self.deadline(live))
        slots = self._live if live else self._ordinary
        payers = payers or Payers()
        payer = await self._take_slot(errand, slots, payers)
        try:
            begun = await self._origin.begin(errand)
            if on_begun is not None:
                on_begun()
            try:
                body = await self._read_whole(request, begun, limit, payers)
            except UpstreamError:
                raise
            except Exception as error:
                raise self._failed(error) from error
            finally:
                begun.pool.give_back(begun.connection)
        finally:
            _release(errand, slots, payer)
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
        idle_s = self._config.idle_timeout_secs
        if live and self.cluster is None:
            idle_s = self._config.live_timeout_secs
        errand = Errand(request, live, on_departure, PIECEWISE_BYTES, self.deadline(live))
        slots = self._live if live else self._ordinary
        payer = await self._take_slot(errand, slots, payers or Payers())
        try:
            begun = await self._origin.begin(errand)
            try:
                pieces = self._pieces(begun, idle_s)
                yield UpstreamStream(begun.status, begun.headers, pieces, begun.length)
            finally:
                begun.pool.give_back(begun.connection)
        finally:
            _release(errand, slots, payer)

    # -- one request -------------------------------------------------------------------------------

    def deadline(self, live: bool = False) -> float | None:
        """In a cluster, every response has to begin in time, except news for live reads."""
        if live or self.cluster is None:
            return None
        return asyncio.get_running_loop().time() + ANSWER_SECS

    async def _take_slot(self, errand: Errand, slots: Slots, payers: Payers) -> str:
        """Wait for a free connection; returns the paying subject."""
        origin = self._origin
        if origin.closed:
            raise _stopping()
        if wait_s := origin.wait_s:  # a connection would be useless
            raise self._counts.failed(away(wait_s))
        if self.cluster is not None and not errand.live:
            await self._take_share(errand, payers, self.cluster)
        try:
            payer = await self._take_turn(slots, payers, errand)
        except BaseException:
            if errand.share is not None:
                errand.share.release()
            raise
        if origin.closed:
            _release(errand, slots, payer)
            raise _stopping()
        return payer

    async def _take_share(self, errand: Errand, payers: Payers, cluster: Origins) -> None:
        """A node that does not answer holds some connections, not all."""
        share = cluster.share_of(errand.request.name)
        if share is not None:
            errand.share = Held(share, await self._take_turn(share, payers, errand))

    async def _take_turn(self, slots: Slots, payers: Payers, errand: Errand | None = None) -> str:
        payer = slots.take_now(payers)
        if payer is not None:
            return payer
        timeout_s = self._config.first_byte_timeout_secs
        if errand is not None:
            timeout_s = errand.within(timeout_s, SENT_SECS)
        try:
            async with asyncio.timeout(timeout_s):
                return await slots.take(payers)
        except TimeoutError:
            raise self._counts.failed(_busy(slots, payers)) from None

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

    async def _pieces(self, begun: BegunAnswer, idle_s: float) -> AsyncIterator[bytes]:
        while True:
            try:
                async with asyncio.timeout(idle_s):
                    piece = await begun.body.readany()
            except Exception as error:
                raise self._failed(error) from error
            if not piece:
                return
            yield piece

    # -- failures ----------------------------------------------------------------------------------

    def late(self) -> UpstreamError:
        """For whoever waited for the requests of others until the `deadline`."""
        return self._failed(TimeoutError())

    def _failed(self, error: Exception) -> UpstreamError:
        """While the body was read."""
        ours = explain(error, sent=True)
        return self._counts.failed(ours if self.cluster is None else come_again(ours))


def _release(errand: Errand, slots: Slots, payer: str) -> None:
    slots.release(payer)
    if errand.share is not None:
        errand.share.release()


def _stopping() -> UpstreamError:
    return UpstreamError(503, UNAVAILABLE, "The gateway is stopping.")


def _busy(slots: Slots, payers: Payers) -> UpstreamError:
    status, code, text = 503, BUSY, "All connections to the origin are in use."
    if slots.are_used_up_by(payers):
        status, code = 429, BUSY_FOR_SUBJECT
        text = "You are using your share of the origin's connections."
    return UpstreamError(status, code, text, (("Retry-After", "1"),))
