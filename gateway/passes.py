"""What goes to the origin as it is: writes, HEAD, `offset=now`, subscriptions, very large bodies.

A write is carried through even when its client leaves, because the origin may have it already; and
whatever it makes obsolete is purged, here and at all other gateways, before the writer is answered.
"""

import time
from collections.abc import Mapping
from functools import lru_cache
from typing import Literal

from gateway.answers import CLIENT_LEFT, Answers
from gateway.calls import PASS_STATUS, WRITE_STATUS, Call
from gateway.cdn import PurgeHook, is_public
from gateway.chunks import Chunks
from gateway.config import GatewayConfig
from gateway.notices import Notice, Notices
from gateway.rules.downstream import passed_headers
from gateway.rules.forwarding import client_headers, public_location, upstream_headers
from gateway.rules.routes import catch_up_target, long_poll_target
from gateway.shared import SharedStore
from gateway.streams import Streams
from gateway.upstream import Upstream, UpstreamError, UpstreamRequest, UpstreamResponse
from protocol.offsets import NOW
from protocol.replies import Headers, Reply
from wire.encoding import LAST_CHUNK, frame_chunk
from wire.http import base_url

_WHEN_DONE = {"PUT": 201, "DELETE": 204}


class Passes:
    def __init__(
        self,
        config: GatewayConfig,
        upstream: Upstream,
        chunks: Chunks,
        streams: Streams,
        shared: SharedStore | None,
        notices: Notices,
        hook: PurgeHook,
        answers: Answers,
    ) -> None:
        self._http = config.http
        self._public = config.cdn.public
        self._scheme = "https" if config.gateway.tls_cert_path else "http"
        self._upstream = upstream
        self._chunks = chunks
        self._streams = streams
        self._shared = shared
        self._notices = notices
        self._hook = hook
        self._answers = answers

    # -- writes --------------------------------------------------------------------------------

    async def write(self, call: Call) -> None:
        call.cache_status = WRITE_STATUS
        method, stream = call.head.method, call.stream
        try:
            response = await self._fetch(call, call.route.path)
        except UpstreamError as error:
            if error.sent:  # it may have been carried out
                await self._settle(method, stream, _WHEN_DONE.get(method, 0))
            raise
        await self._settle(method, stream, response.status)
        forks = "stream-forked-from" in call.head.headers  # and may inherit an expiry
        if method == "PUT" and response.status == 201 and not forks:
            self._streams.learn_expiry(stream, call.head.headers)
        self._answers.send_reply(call, self._reply(call, response), error=_error_of(response))

    async def _settle(self, method: str, stream: str, status: int) -> None:
        if method == "DELETE" and (status < 300 or status in (404, 410)):
            await self.purge(stream, "deleted")
        elif method == "PUT" and status == 201:
            await self.purge(stream, "created")
        elif status in (404, 410):
            self._chunks.doubt(stream)
        else:
            self._chunks.drop_tails(stream)

    async def purge(self, stream: str, reason: Literal["deleted", "created"]) -> None:
        """Nothing that anyone has of the stream may be served again."""
        if self._shared is not None:
            await self._shared.purge(stream)  # first, or the old chunks would come back from there
        self._chunks.replaced(stream)
        await self._notices.publish(Notice("purge", stream, reason))
        self._hook.purge(stream)

    # -- reads that nobody shares --------------------------------------------------------------

    async def look(self, call: Call) -> None:
        call.cache_status = PASS_STATUS
        target = call.route.path
        if call.route.mode == "now":
            target = catch_up_target(call.route.path, NOW)
            self._streams.get(call.stream).touched_at = time.time()
        response = await self._fetch(call, target)
        if call.route.mode == "head" and response.status == 200:
            self._streams.learn_expiry(call.stream, response.headers)
        elif response.status in (404, 410) and call.route.mode != "other":
            self._chunks.doubt(call.stream)
        self._answers.send_reply(call, self._reply(call, response), error=_error_of(response))

    async def stream(self, call: Call) -> None:
        """A body that is too large to be kept, piece by piece as the client takes it."""
        read, path = call.read, call.route.path
        live = read.live is not None
        target = long_poll_target(path, read.offset) if live else catch_up_target(path, read.offset)
        call.cache_status = PASS_STATUS
        request = UpstreamRequest("GET", target, self._headers(call))
        exchange, sent = call.exchange, 0
        async with self._upstream.open(request, live=live) as answer:
            call.upstream_requests += 1
            headers = self._downstream(call, answer.status, answer.headers)
            exchange.write(self._answers.begin(call, Reply(answer.status, headers)))
            try:
                async for piece in answer.pieces:
                    exchange.write(frame_chunk(piece) if call.knows_chunks else piece)
                    sent += len(piece)
                    await exchange.drain()
            except BaseException as error:
                exchange.abort()  # a clean end would make it look complete
                self._answers.finish(call, answer.status, sent, error="cut-short")
                if isinstance(error, (UpstreamError, ConnectionError)):
                    return
                raise
        exchange.finish(LAST_CHUNK if call.knows_chunks else b"")
        self._answers.finish(call, answer.status, sent)

    # -- pieces --------------------------------------------------------------------------------

    async def _fetch(self, call: Call, target: str) -> UpstreamResponse:
        body = call.body if call.head.method in ("PUT", "POST") else b""
        request = UpstreamRequest(call.head.method, target, self._headers(call), body)
        started = time.monotonic()
        try:
            response = await self._upstream.fetch(request)
        finally:
            call.upstream_s += time.monotonic() - started
            call.upstream_requests += 1
        return response

    def _headers(self, call: Call) -> dict[str, str]:
        headers = client_headers(call.head.method, call.head.headers)
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
            base = base_url(self._http, call.head.headers.get("host", ""), self._scheme)
            location = ("Location", public_location(headers["location"], base))
            kept = tuple(location if name == "Location" else (name, v) for name, v in kept)
        return passed_headers(status, kept, public=is_public(self._public, call.stream))

    def abandoned(self, call: Call) -> None:
        self._answers.finish(call, CLIENT_LEFT, 0, ended="client-left")


@lru_cache(maxsize=256)
def shown_name(name: str) -> str:
    """Lower case is right as well, but people read these."""
    special = {"etag": "ETag", "stream-ttl": "Stream-TTL"}
    special["stream-sse-data-encoding"] = "Stream-SSE-Data-Encoding"
    return special.get(name) or "-".join(part.capitalize() for part in name.split("-"))


def _error_of(response: UpstreamResponse) -> str:
    return "" if response.status < 400 else "upstream-refused"
