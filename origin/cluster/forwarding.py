"""One hop to the owner of a shard: the request as it came, the answer as it comes.

`Weir-Hop` says how many nodes a request has passed. A request is passed on once; a second time only
by the owner of a stream's home shard, which knows by an alias where the stream is. So an old map
costs a 503 and never a loop.

A request that was sent and not answered may have been executed, so a write is then an unknown
outcome, and only a read is repeated.
"""

import asyncio
import io
import logging
import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, nullcontext
from typing import NamedTuple

import aiohttp
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from origin.calls import STALLED_SECS, Answer, write_in_time
from origin.cluster.following import Following
from origin.cluster.peers import CONNECT_SECS, Peers
from origin.cluster.view import ClusterView
from origin.config import OriginConfig
from origin.freshness import no_owner
from origin.outcomes import unknown_outcome
from origin.shards import Elsewhere
from protocol.errors import ProtocolError
from protocol.names import WEIR_HOP, WEIR_HOST, WEIR_MAP, WEIR_SCHEME, WEIR_SHARD
from protocol.paths import Kind
from protocol.replies import NO_STORE, RETRY_AFTER, Reply
from protocol.requests import LONG_POLL, SSE, known_values
from wire.requests import read_body

log = logging.getLogger("weir.cluster")

ANSWER_SECS = 5.0  # more than the owner waits for an outcome
LIVE_SPARE_SECS = 5.0  # that an owner may be late with a long-poll or a heartbeat
MAX_GATHERED = 4  # bodies of the largest size in memory at a time
READS = ("GET", "HEAD")

_HOP_BY_HOP = frozenset(
    {
        *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization"),
        *("proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"),
    }
)
_READ = re.compile(r"(?:content|if|producer|stream)-.+|last-event-id", re.IGNORECASE)
_ASCII = re.compile(r"[\t -~]*")
_REPLACED = frozenset({"host", "content-length", "expect"})  # of a request


class _Hop(NamedTuple):
    request: web.BaseRequest
    to: Elsewhere
    live: str | None  # the kind of a live read


class Forwarding:
    """`forwarded` and `failed` are counters for the metrics."""

    def __init__(
        self, config: OriginConfig, view: ClusterView, peers: Peers, following: Following
    ) -> None:
        self._limits = config.limits
        self._server = config.server
        self._view = view
        self._peers = peers
        self._following = following
        self._gathered_bytes = 0
        self.forwarded = 0
        self.failed = 0

    def can_forward(self, headers: Mapping[str, str], to: Elsewhere) -> bool:
        hops = headers.get("weir-hop", "0")
        return to.url is not None and (hops == "0" or (hops == "1" and to.by_alias))

    async def forward(
        self,
        request: web.BaseRequest,
        kind: Kind,
        headers: Mapping[str, str],
        to: Elsewhere,
        waited_secs: float,
    ) -> Answer:
        """The owner's answer, or a redirection to it; raises ProtocolError. The request has waited
        for an owner before."""
        if not self.can_forward(headers, to):
            raise no_owner()
        assert to.url is not None
        if headers.get("weir-routing") == "redirect" and not to.by_alias:
            return Reply(307, (("Location", to.url + request.raw_path), self._map(), NO_STORE))
        self.forwarded += 1
        hop = _Hop(request, to, _live(request))
        with self._admitted(hop), self._body_room() as take:
            body = None
            if request.method not in READS:
                limits, of_snapshot = self._limits, kind is Kind.SNAPSHOT
                most = limits.max_snapshot_bytes if of_snapshot else limits.max_body_bytes
                body = await read_body(request, headers, limits, max_bytes=most, grow=take)
            marks = {WEIR_HOP: "2" if to.by_alias else "1", WEIR_SHARD: str(to.shard)}
            async with self._opened(hop, marks, body, waited_secs) as answer:
                return await self._pass_back(hop, answer)

    async def fetch(
        self, request: web.BaseRequest, to: Elsewhere, marks: Mapping[str, str], body: bytes
    ) -> Reply:
        """The complete answer to a request on behalf of this one."""
        async with self._opened(_Hop(request, to, None), marks, body) as answer:
            try:
                data = await answer.read()
            except (aiohttp.ClientError, TimeoutError):
                raise self._no_answer(request.method) from None
            headers = tuple(_passed(answer.headers.items(), {"content-length", "date", "server"}))
            return Reply(answer.status, headers, data)

    def _map(self) -> tuple[str, str]:
        return (WEIR_MAP, str(self._view.map.version))

    # -- the request -------------------------------------------------------------------------------

    @contextmanager
    def _body_room(self) -> Iterator[Callable[[int], None]]:
        """Bodies are gathered: what arrives slowly must not occupy the owner. Each takes room as it
        comes: what is only declared must not stop others."""
        most = MAX_GATHERED * max(self._limits.max_snapshot_bytes, self._limits.max_body_bytes)
        taken = 0

        def take(size: int) -> None:
            nonlocal taken
            if self._gathered_bytes + size > most:
                raise ProtocolError(
                    503, "busy", "Too many large requests are passed on.", RETRY_AFTER
                )
            self._gathered_bytes += size
            taken += size

        try:
            yield take
        finally:
            self._gathered_bytes -= taken

    @asynccontextmanager
    async def _opened(
        self,
        hop: _Hop,
        marks: Mapping[str, str],
        body: bytes | None,
        waited_secs: float = 0.0,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """The head of the answer has come; raises ProtocolError if it does not come in time."""
        request = hop.request
        target = URL(f"{hop.to.url}{request.raw_path}", encoded=True)
        headers = CIMultiDict(_checked(_passed(request.headers.items(), _REPLACED)))
        if WEIR_HOP not in headers:  # else the first node has said so
            headers[WEIR_HOST] = request.headers.get("Host", "")
            headers[WEIR_SCHEME] = request.scheme
        headers.update(marks)
        headers.update(self._peers.headers)
        head_secs, idle_secs = self._times(hop.live)
        timeout = aiohttp.ClientTimeout(total=None, connect=CONNECT_SECS, sock_read=idle_secs)
        session = self._peers.requests if hop.live is None else self._peers.live
        until = asyncio.get_running_loop().time() + head_secs - waited_secs
        tries = 2 if request.method in READS else 1  # an idle connection may have been closed
        while True:
            tries -= 1
            try:
                async with asyncio.timeout_at(until) as wait:
                    with self._watched(hop, wait):
                        answer = await session.request(
                            request.method,
                            target,
                            headers=headers,
                            data=None if body is None else io.BytesIO(body),  # sent in pieces
                            timeout=timeout,
                            allow_redirects=False,
                        )
                break
            except (
                aiohttp.ClientConnectorError,
                aiohttp.ConnectionTimeoutError,
            ):  # it was not sent
                self.failed += 1
                raise no_owner() from None
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                if tries and isinstance(error, aiohttp.ServerDisconnectedError):
                    continue
                raise self._no_answer(request.method) from None
        try:
            yield answer
        finally:
            answer.close()  # the connection, unless the answer is complete

    def _no_answer(self, method: str) -> ProtocolError:
        self.failed += 1
        return no_owner() if method in READS else unknown_outcome()

    def _times(self, live: str | None) -> tuple[float, float]:
        """How long the head may take, and then the next piece."""
        if live == SSE:
            return ANSWER_SECS, self._server.sse_heartbeat_secs + LIVE_SPARE_SECS
        if live == LONG_POLL:
            long_poll_secs = self._server.long_poll_timeout_secs + LIVE_SPARE_SECS
            return long_poll_secs, long_poll_secs
        return ANSWER_SECS, ANSWER_SECS

    def _admitted(self, hop: _Hop) -> AbstractContextManager[None]:
        return nullcontext() if hop.live is None else self._following.admitted()

    def _watched(self, hop: _Hop, wait: asyncio.Timeout) -> AbstractContextManager[None]:
        return nullcontext() if hop.live is None else self._following.watched(hop.to, wait)

    # -- the answer --------------------------------------------------------------------------------

    async def _pass_back(self, hop: _Hop, answer: aiohttp.ClientResponse) -> web.StreamResponse:
        request = hop.request
        response = web.StreamResponse(status=answer.status, reason=answer.reason)
        response.headers.clear()
        response.headers.extend(_passed(answer.headers.items(), ()))
        name, version = self._map()
        response.headers[name] = version
        await response.prepare(request)
        try:
            await self._pass_body(hop, answer, response)
            async with asyncio.timeout(STALLED_SECS):
                await response.write_eof()
        except (aiohttp.ClientError, ConnectionError, TimeoutError) as error:
            log.info("forwarded answer cut: %r", error)
            response.force_close()
            if request.transport is not None:
                request.transport.abort()
        return response

    async def _pass_body(
        self, hop: _Hop, answer: aiohttp.ClientResponse, response: web.StreamResponse
    ) -> None:
        """An event stream whose shard moves ends as it would at its owner; no other body may."""
        try:
            async with asyncio.timeout(None) as wait:
                with self._watched(hop, wait):
                    async for piece in answer.content.iter_any():
                        await write_in_time(response, piece)
        except TimeoutError:
            if not wait.expired() or answer.content_type != "text/event-stream":
                raise


def _live(request: web.BaseRequest) -> str | None:
    if request.method != "GET":
        return None
    try:
        live = known_values(request.raw_path.partition("?")[2], ("live",)).get("live")
    except ProtocolError:  # the owner refuses it
        return None
    return live if live in (LONG_POLL, SSE) else None


def _passed(
    fields: Iterable[tuple[str, str]], replaced: Iterable[str]
) -> Iterator[tuple[str, str]]:
    """Headers that cross a hop."""
    fields = list(fields)
    listed = ",".join(value for name, value in fields if name.lower() == "connection")
    dropped = {name.strip().lower() for name in listed.split(",")} | _HOP_BY_HOP | set(replaced)
    return (field for field in fields if field[0].lower() not in dropped)


def _checked(fields: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """aiohttp would change other characters. An origin accepts them in no header that it reads."""
    for name, value in fields:
        if _ASCII.fullmatch(value):
            yield name, value
        elif _READ.fullmatch(name):
            raise ProtocolError(400, "invalid-header", f"{name} contains non-ASCII characters.")
