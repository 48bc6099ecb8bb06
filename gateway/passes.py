"""Requests forwarded to the origin unchanged: writes, HEAD, `offset=now`, `max_bytes`, the redirect
to the latest snapshot, buckets, subscriptions, very large bodies.

A write is completed even if its client disconnects, because the origin may already have it.
Everything it makes obsolete is purged, here and on all other gateways, before the response is sent;
also if it is not known whether it was executed: its connection was lost, or the origin failed.
"""

import time

from gateway.answers import LARGE_BYTES, Answers
from gateway.asking import TooLarge, UpstreamError, UpstreamRequest, UpstreamResponse
from gateway.calls import Call
from gateway.config import GatewayConfig
from gateway.notices import Notice
from gateway.outcomes import PASSED, WRITTEN
from gateway.purges import Purges
from gateway.rules.forwarding import client_headers, condition, upstream_headers
from gateway.rules.routes import Route, long_poll_target
from gateway.slots import Payers
from gateway.spool import Outlet, Spools
from gateway.streams import Streams
from gateway.upstream import Upstream
from protocol.heads import ReplyHead, parse_head
from protocol.offsets import START
from protocol.replies import Reply
from wire.encoding import LAST_CHUNK, frame_chunk

LOOK_BYTES = 2 * 1024 * 1024  # more than a chunk; larger bodies are streamed
_REPLACING = ("create", "delete", "publish", "withdraw")  # writes that make chunks obsolete
_OF_STREAM = ("head", "now", "catch-up")  # reads whose 404 means that the stream is gone
_OF_OTHERS = ("bucket", "list", "other")  # responses that concern no stream


class Passes:
    def __init__(
        self,
        config: GatewayConfig,
        upstream: Upstream,
        streams: Streams,
        purges: Purges,
        answers: Answers,
        spools: Spools,
    ) -> None:
        self._look_bytes = min(LOOK_BYTES, config.cache.max_object_bytes)
        self._upstream = upstream
        self._streams = streams
        self._purges = purges
        self._answers = answers
        self._spools = spools

    # -- writes --------------------------------------------------------------------------------

    async def write(self, call: Call) -> None:
        call.settle(WRITTEN)
        mode, stream = call.route.mode, call.stream
        departure = next(self._streams.stamps)
        try:
            response = await self._fetch(call, call.route.target)
        except UpstreamError as error:
            if error.sent:
                await self._settle_unknown(call)
            raise
        if response.status >= 500:
            await self._settle_unknown(call)
        else:
            await self._settle(call, response.status, response.head)
        if mode != "delete":
            await self._learn_incarnation(call.route, response.head, departure)
        forks = "stream-forked-from" in call.head.headers  # and may inherit an expiry
        if mode == "create" and response.status == 201 and not forks:
            self._streams.learn_expiry(stream, parse_head(call.head.headers))
        self._answers.send_reply(call, self._reply(call, response), error=_error_of(response))

    async def _settle(self, call: Call, status: int, told: ReplyHead) -> None:
        """Purge what a write with this outcome makes obsolete."""
        route, done, missing = call.route, status < 300, _is_missing(call, status)
        match route.mode:
            case "bucket":  # empty when created and when deleted
                pass
            case "delete" if done or missing:
                await self._purges.publish(Notice("purge", route.stream, "deleted"))
            case "create" if status == 201:
                await self._purges.publish(Notice("purge", route.stream, "created"))
            case "publish" if done:
                earliest = told.snapshot_offset or route.offset
                await self._purges.publish(Notice("purge", route.stream, "snapshot", earliest))
            case "withdraw" if done:
                await self._purges.publish(Notice("purge", route.stream, "snapshot"))
            case "publish" | "withdraw":
                self._learn_earliest(route, status, told)
            case _ if missing:
                await self._doubt(route.stream)
            case _:
                self._purges.drop_tails(route.stream)

    async def _settle_unknown(self, call: Call) -> None:
        """It may have been executed, or not. So nothing stored is served, and nothing is learned:
        hubs find out for themselves, and a write that was only refused ends no reader."""
        if call.route.mode in _REPLACING:
            await self._purges.publish(Notice("purge", call.route.stream, "snapshot"))
        else:
            await self._settle(call, 0, ReplyHead())

    # -- reads that are not shared -------------------------------------------------------------

    async def look(self, call: Call) -> None:
        call.settle(PASSED)
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
        head, body, status = self._answers.heads.of_pieces(call, reply), [reply.body], reply.status
        del reply
        await self._answers.give(call, head, body, status, error=error)

    async def _ask(self, call: Call) -> tuple[Reply, str] | None:
        """None if it is too large. The exception refers to the bytes received so far and must not
        outlive this call: streaming may take an hour."""
        departure = next(self._streams.stamps)
        try:
            response = await self._fetch(call, call.route.target)
        except TooLarge:
            if call.head.method != "GET":  # of a subscription: must not be sent twice
                raise
            return None
        await self._learn(call, response, departure)
        return self._reply(call, response), _error_of(response)

    async def _learn(self, call: Call, response: UpstreamResponse, departure: int) -> None:
        """Learn about the stream from the response to a read."""
        route = call.route
        await self._learn_incarnation(route, response.head, departure)
        if route.mode not in _OF_STREAM:
            return
        if route.mode == "head" and response.status == 200:
            self._streams.learn_expiry(route.stream, response.head)
        begins = self._learn_earliest(route, response.status, response.head)
        if not begins and _is_missing(call, response.status):
            await self._doubt(route.stream)

    async def _learn_incarnation(self, route: Route, told: ReplyHead, departure: int) -> None:
        """Before a client sees the new stream, the old one is purged on all gateways."""
        if route.mode in _OF_OTHERS:
            return
        await self._purges.learn_everywhere(route.stream, told.incarnation, departure)

    async def _doubt(self, stream: str) -> None:
        if self._purges.doubt(stream):
            await self._purges.tell(stream)

    def _learn_earliest(self, route: Route, status: int, told: ReplyHead) -> bool:
        """Whether the response says where the stream begins, and so that it exists."""
        if not told.earliest_offset or status not in (200, 410):
            return False
        self._purges.learn_earliest(route.stream, told.earliest_offset)
        return True

    async def stream(self, call: Call, live_offset: str = "") -> None:
        """A body too large to store: read at the origin's pace, sent at the client's."""
        route, target, live = call.route, call.route.target, live_offset != ""
        if live:
            target = long_poll_target(route.path, live_offset, call.read.max_bytes)
        call.settle(PASSED)
        of_stream = live or route.mode == "catch-up"
        headers, name = self._headers(call), route.stream
        request = UpstreamRequest("GET", target, headers, of_stream=of_stream, name=name)
        departure = next(self._streams.stamps)
        with self._spools.open(call.principal.subject) as spool:
            outlet = Outlet(call.exchange, spool, frame_chunk if call.knows_chunks else bytes)
            payers = Payers(call.principal.subject)
            async with self._upstream.open(request, live=live, payers=payers) as answer:
                call.upstream_requests += 1
                head = parse_head(answer.headers)
                await self._learn_incarnation(route, head, departure)
                begins = head.snapshot_offset
                if route.mode == "bootstrap" and begins not in ("", START):
                    self._purges.learn_earliest(call.stream, begins)  # the next one is smaller
                passed = self._answers.heads.passed(call, answer.status, answer.headers)
                reply = Reply(answer.status, passed)
                if answer.status in (204, 304):  # nothing new after all
                    self._answers.send_reply(call, reply)
                    return
                spool.reserve(answer.length)
                call.exchange.write(self._answers.heads.of_pieces(call, reply))
                with self._answers.honest_end(call, answer.status, outlet):
                    async for piece in answer.pieces:
                        await outlet.take(piece)
            if not call.done:
                with self._answers.honest_end(call, answer.status, outlet):
                    await outlet.empty()
        self._answers.end(call, answer.status, outlet, LAST_CHUNK if call.knows_chunks else b"")

    # -- pieces --------------------------------------------------------------------------------

    async def _fetch(self, call: Call, target: str) -> UpstreamResponse:
        body = call.body if call.head.method in ("PUT", "POST") else b""
        of_stream = call.route.mode in ("now", "catch-up")
        most = self._look_bytes if call.head.method == "GET" else None
        headers, name = self._headers(call), call.stream
        request = UpstreamRequest(call.head.method, target, headers, body, of_stream, name)
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
            headers, subject=call.principal.subject, request_id=call.request_id, token=call.token
        )

    def _reply(self, call: Call, response: UpstreamResponse) -> Reply:
        headers = self._answers.heads.passed(call, response.status, response.headers)
        return Reply(response.status, headers, response.body)


def _has_origins_tag(route: Route) -> bool:
    """Whether a reader's condition refers to the origin's tag; for chunks it refers to ours."""
    if route.mode == "catch-up":
        return not route.cacheable
    return route.mode in ("snapshot", "bootstrap")


def _is_missing(call: Call, status: int) -> bool:
    """Whether it is missing for everyone: with a forwarded token, it may be for that one only."""
    return status in (404, 410) and call.token is None


def _error_of(response: UpstreamResponse) -> str:
    return "" if response.status < 400 else "upstream-refused"
