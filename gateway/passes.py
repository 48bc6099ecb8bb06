"""What goes to the origin as it is: writes, HEAD, `offset=now`, `max_bytes`, the redirect to the
latest snapshot, buckets, subscriptions, very large bodies.

A write is carried through even when its client leaves, because the origin may have it already; and
whatever it makes obsolete is purged, here and at all other gateways, before the writer is answered.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache

from gateway.answers import CLIENT_LEFT, LARGE_BYTES, Answers
from gateway.cache import OTHERS, Cache
from gateway.calls import PASS_STATUS, WRITE_STATUS, Call
from gateway.cdn import PurgeHook, cdn_headers, is_public
from gateway.config import GatewayConfig
from gateway.entries import incarnation_told
from gateway.notices import Notice, Notices
from gateway.rediscache import RedisCache
from gateway.rules.downstream import passed_headers
from gateway.rules.forwarding import (
    client_headers,
    condition,
    public_location,
    upstream_headers,
)
from gateway.rules.routes import Route, long_poll_target
from gateway.slots import Payers
from gateway.spool import Outlet, Overflow, Spools
from gateway.streams import Streams
from gateway.upstream import (
    TooLarge,
    Upstream,
    UpstreamError,
    UpstreamRequest,
    UpstreamResponse,
    UpstreamStream,
)
from protocol.offsets import START
from protocol.replies import Headers, Reply
from wire.encoding import LAST_CHUNK, frame_chunk
from wire.http import base_url

LOOK_BYTES = 2 * 1024 * 1024  # a chunk and more; what is larger does not even pass through memory
_WHEN_DONE = {"create": 201, "delete": 204, "publish": 204, "withdraw": 204}
_OF_STREAM = ("head", "now", "catch-up")  # looks whose 404 is the stream's
_OF_OTHERS = ("bucket", "list", "other")  # whose answers tell of no stream
_SHOWN = ("catch-up", "long-poll", "snapshot", "bootstrap")  # what a CDN may have kept


class Passes:
    def __init__(
        self,
        config: GatewayConfig,
        upstream: Upstream,
        cache: Cache,
        streams: Streams,
        shared: RedisCache | None,
        notices: Notices,
        hook: PurgeHook,
        answers: Answers,
        spools: Spools,
    ) -> None:
        self._look_bytes = min(LOOK_BYTES, config.cache.max_object_bytes)
        self._http = config.http
        self._cdn = config.cdn
        self._scheme = "https" if config.gateway.tls_cert_path else "http"
        self._hops = config.gateway.trusted_hops
        self._upstream = upstream
        self._cache = cache
        self._streams = streams
        self._shared = shared
        self._notices = notices
        self._hook = hook
        self._answers = answers
        self._spools = spools

    # -- writes --------------------------------------------------------------------------------

    async def write(self, call: Call) -> None:
        call.cache_status = WRITE_STATUS
        mode, stream = call.route.mode, call.stream
        departure = next(self._streams.stamps)
        try:
            response = await self._fetch(call, call.route.target)
        except UpstreamError as error:
            if error.sent:  # it may have been carried out
                await self._settle(call, _WHEN_DONE.get(mode, 0), {})
            raise
        await self._settle(call, response.status, response.headers)
        if mode != "delete":
            await self._learn_incarnation(call.route, response.headers, departure)
        forks = "stream-forked-from" in call.head.headers  # and may inherit an expiry
        if mode == "create" and response.status == 201 and not forks:
            self._streams.learn_expiry(stream, call.head.headers)
        self._answers.send_reply(call, self._reply(call, response), error=_error_of(response))

    async def _settle(self, call: Call, status: int, told: Mapping[str, str]) -> None:
        """What a write with this outcome makes obsolete."""
        route, done, missing = call.route, status < 300, _is_missing(call, status)
        match route.mode:
            case "bucket":  # is empty when it comes and when it goes
                pass
            case "delete" if done or missing:
                await self.purge(Notice("purge", route.stream, "deleted"))
            case "create" if status == 201:
                await self.purge(Notice("purge", route.stream, "created"))
            case "publish" if done:
                earliest = told.get("stream-snapshot-offset", route.offset)
                await self.purge(Notice("purge", route.stream, "snapshot", earliest))
            case "withdraw" if done:
                await self.purge(Notice("purge", route.stream, "snapshot"))
            case "publish" | "withdraw":
                self._learn_earliest(route, status, told)
            case _ if missing:
                await self._doubt(route.stream)
            case _:
                self._cache.drop_tails(route.stream)

    async def purge(self, notice: Notice) -> None:
        """Nothing that anyone has of what is obsolete may be served again."""
        if self._shared is not None:  # first, or the old chunks would come back from there
            await self._shared.purge(notice.stream)
        self.act(notice)
        await self._notices.publish(notice)
        self._hook.purge(notice.stream)

    def act(self, notice: Notice) -> None:
        """In this process, now."""
        if notice.reason == "snapshot":
            self._cache.trimmed(notice.stream, notice.earliest)
        elif not self._is_known(notice):
            self._cache.replaced(notice.stream)

    def _is_known(self, notice: Notice) -> bool:
        """Others find out as we do, and all of them tell."""
        known = self._streams.peek(notice.stream)
        if known is None or not notice.incarnation:
            return False
        return known.incarnation == notice.incarnation

    async def tell(self, stream: str) -> None:
        """Everyone else who may hold something of a stream that is gone or another one."""
        incarnation = self._streams.get(stream).incarnation
        await self._notices.publish(Notice("purge", stream, "changed", incarnation=incarnation))
        self._hook.purge(stream)

    # -- reads that nobody shares --------------------------------------------------------------

    async def look(self, call: Call) -> None:
        call.cache_status = PASS_STATUS
        if call.route.mode in ("now", "catch-up"):
            self._streams.get(call.stream).touched_at = time.time()
        found = await self._ask(call)
        if found is None:
            await self.stream(call)
            return
        reply, error = found
        del found
        if call.head.method != "GET" or len(reply.body) <= LARGE_BYTES:
            self._answers.send_reply(call, reply, error=error)
            return
        head, body, status = self._answers.begin(call, reply), [reply.body], reply.status
        del reply
        await self.give(call, head, body, status, error=error)

    async def give(
        self, call: Call, head: bytes, body: list[bytes], status: int = 200, *, error: str = ""
    ) -> None:
        """A body that is whole, but does not stay in memory until a slow reader has it: so it is
        taken out of its list."""
        with self._spools.open(call.principal.subject) as spool:
            spool.reserve(len(body[0]))
            outlet = Outlet(call.exchange, spool, bytes)
            call.exchange.write(head)
            with self._honest_end(call, status, outlet):
                await outlet.take(body.pop())
                await outlet.empty()
        self._end(call, status, outlet, error=error)

    async def _ask(self, call: Call) -> tuple[Reply, str] | None:
        """None if it is too large. The exception, which has hold of the bytes that came, ends here:
        who streams for an hour must not do so while it is handled."""
        departure = next(self._streams.stamps)
        try:
            response = await self._fetch(call, call.route.target)
        except TooLarge:
            if call.head.method != "GET":  # a subscription's: it is not sent twice
                raise
            return None
        await self._learn(call, response, departure)
        return self._reply(call, response), _error_of(response)

    async def _learn(self, call: Call, response: UpstreamResponse, departure: int) -> None:
        """What a look tells about the stream."""
        route = call.route
        await self._learn_incarnation(route, response.headers, departure)
        if route.mode not in _OF_STREAM:
            return
        if route.mode == "head" and response.status == 200:
            self._streams.learn_expiry(route.stream, response.headers)
        begins = self._learn_earliest(route, response.status, response.headers)
        if not begins and _is_missing(call, response.status):
            await self._doubt(route.stream)

    async def _learn_incarnation(
        self, route: Route, told: Mapping[str, str], departure: int
    ) -> None:
        """Whoever sees the new stream by our answer finds nothing of the old one here or there."""
        if route.mode in _OF_OTHERS:
            return
        if self._cache.learn(route.stream, incarnation_told(told), departure) in OTHERS:
            await self.tell(route.stream)

    async def _doubt(self, stream: str) -> None:
        held = self._cache.holds(stream)
        self._cache.doubt(stream)
        if held:
            await self.tell(stream)

    def _learn_earliest(self, route: Route, status: int, told: Mapping[str, str]) -> bool:
        """Whether the answer says where the stream begins; then the stream is there."""
        earliest = told.get("stream-earliest-offset")
        if earliest is None or status not in (200, 410):
            return False
        self._cache.learn_earliest(route.stream, earliest)
        return True

    async def stream(self, call: Call, live_offset: str = "") -> None:
        """A body that is too large to be kept: taken in at the origin's pace, given out at the
        client's."""
        route, target, live = call.route, call.route.target, live_offset != ""
        if live:
            target = long_poll_target(route.path, live_offset, call.read.max_bytes)
        call.verdict, call.cache_status = "pass", PASS_STATUS
        of_stream = live or route.mode == "catch-up"
        request = UpstreamRequest("GET", target, self._headers(call), of_stream=of_stream)
        departure = next(self._streams.stamps)
        with self._spools.open(call.principal.subject) as spool:
            outlet = Outlet(call.exchange, spool, frame_chunk if call.knows_chunks else bytes)
            payers = Payers(call.principal.subject)
            async with self._upstream.open(request, live=live, payers=payers) as answer:
                call.upstream_requests += 1
                await self._learn_incarnation(route, answer.headers, departure)
                reply = self._begun(call, answer)
                if answer.status in (204, 304):  # nothing new after all
                    self._answers.send_reply(call, reply)
                    return
                spool.reserve(answer.length)
                call.exchange.write(self._answers.begin(call, reply))
                with self._honest_end(call, answer.status, outlet):
                    async for piece in answer.pieces:
                        await outlet.take(piece)
            if not call.done:
                with self._honest_end(call, answer.status, outlet):
                    await outlet.empty()
        self._end(call, answer.status, outlet, LAST_CHUNK if call.knows_chunks else b"")

    def _begun(self, call: Call, answer: UpstreamStream) -> Reply:
        begins = answer.headers.get("stream-snapshot-offset", START)
        if call.route.mode == "bootstrap" and begins != START:  # and is smaller from now on
            self._cache.learn_earliest(call.stream, begins)
        return Reply(answer.status, self._downstream(call, answer.status, answer.headers))

    def _end(
        self, call: Call, status: int, outlet: Outlet, last: bytes = b"", *, error: str = ""
    ) -> None:
        if not call.done:  # else it was cut
            call.exchange.finish(last)
            self._answers.finish(call, status, outlet.sent, error=error)

    @contextmanager
    def _honest_end(self, call: Call, status: int, outlet: Outlet) -> Iterator[None]:
        """What cannot be completed is cut: a clean end would make it look complete."""
        try:
            yield
        except BaseException as error:
            call.exchange.abort()
            self._answers.finish(call, status, outlet.sent, error="cut-short")
            if not isinstance(error, (UpstreamError, ConnectionError, Overflow)):
                raise

    # -- pieces --------------------------------------------------------------------------------

    async def _fetch(self, call: Call, target: str) -> UpstreamResponse:
        body = call.body if call.head.method in ("PUT", "POST") else b""
        of_stream = call.route.mode in ("now", "catch-up")
        most = self._look_bytes if call.head.method == "GET" else None
        request = UpstreamRequest(
            call.head.method, target, self._headers(call), body, of_stream=of_stream
        )
        started = time.monotonic()
        try:
            payers = Payers(call.principal.subject)
            response = await self._upstream.fetch(request, max_bytes=most, payers=payers)
        finally:
            call.upstream_s += time.monotonic() - started
            call.upstream_requests += 1
        return response

    def _headers(self, call: Call) -> dict[str, str]:
        headers = client_headers(call.head.method, call.head.headers)
        if call.head.method == "GET" and _has_origins_tag(call.route):
            headers |= condition(call.head.headers)
        if headers.pop("stream-forked-from", None) is not None and call.fork_source:
            headers["stream-forked-from"] = call.fork_source  # as authorised, not as spelled
        return upstream_headers(
            headers,
            subject=call.principal.subject,
            request_id=call.request_id,
            token=call.token,
        )

    def _reply(self, call: Call, response: UpstreamResponse) -> Reply:
        headers = self._downstream(call, response.status, response.headers)
        return Reply(response.status, headers, response.body)

    def _downstream(self, call: Call, status: int, headers: Mapping[str, str]) -> Headers:
        kept = tuple((shown_name(name), value) for name, value in headers.items())
        if "location" in headers:
            base = base_url(self._http, call.head.headers.get("host", ""), self._scheme_of(call))
            location = ("Location", public_location(headers["location"], base))
            kept = tuple(location if name == "Location" else (name, v) for name, v in kept)
        found = passed_headers(status, kept, public=is_public(self._cdn.public, call.stream))
        if status == 200 and call.route.mode in _SHOWN:
            found += cdn_headers(self._cdn, call.stream, "")
        return found

    def _scheme_of(self, call: Call) -> str:
        """How the client came; a proxy in front that ends TLS says so."""
        told = call.head.headers.get("x-forwarded-proto")
        return told if self._hops and told in ("http", "https") else self._scheme

    def abandoned(self, call: Call) -> None:
        self._answers.finish(call, CLIENT_LEFT, 0, ended="client-left")


@lru_cache(maxsize=256)
def shown_name(name: str) -> str:
    """Lower case is right as well, but people read these."""
    special = {"etag": "ETag", "stream-ttl": "Stream-TTL"}
    special["stream-sse-data-encoding"] = "Stream-SSE-Data-Encoding"
    return special.get(name) or "-".join(part.capitalize() for part in name.split("-"))


def _has_origins_tag(route: Route) -> bool:
    """Whether a reader's condition is about the origin's tag; that of a chunk is about ours."""
    if route.mode == "catch-up":
        return not route.cacheable
    return route.mode in ("snapshot", "bootstrap")


def _is_missing(call: Call, status: int) -> bool:
    """For everyone: what the origin says to a token that we forward is for that one alone."""
    return status in (404, 410) and call.token is None


def _error_of(response: UpstreamResponse) -> str:
    return "" if response.status < 400 else "upstream-refused"
