"""Snapshots and bootstraps over HTTP."""

from collections.abc import AsyncIterator

from aiohttp import web

from origin.calls import Answer, Call, Operations, Refused, open_response, write_in_time
from origin.config import OriginConfig
from origin.metrics import Metrics
from origin.streams import Stream
from protocol import replies
from protocol.errors import ProtocolError
from protocol.etags import matches
from protocol.offsets import START, Offset, parse_offset
from protocol.paths import Kind
from protocol.replies import RETRY_AFTER, Reply
from protocol.requests import check_bootstrap_query, parse_publish

MAX_GATHERED = 4  # uploads of the largest size in memory at a time


class SnapshotRoutes:
    def __init__(self, config: OriginConfig, metrics: Metrics) -> None:
        self._http = config.http
        self._limits = config.limits
        self._metrics = metrics
        self._gathered_bytes = 0
        self.operations: Operations = {
            Kind.LATEST_SNAPSHOT: {"GET": self._get_latest, "HEAD": self._get_latest},
            Kind.SNAPSHOT: {
                "GET": self._get,
                "HEAD": self._get,
                "PUT": self._put,
                "DELETE": self._delete,
            },
            Kind.BOOTSTRAP: {"GET": self._bootstrap, "HEAD": self._bootstrap},
        }

    async def _put(self, call: Call) -> Reply:
        publish = parse_publish(call.place.offset, call.headers)
        self._find(call)  # before the body is read
        most = self._limits.max_snapshot_bytes
        length = call.request.content_length
        size = most if length is None else min(length, most)
        if self._gathered_bytes + size > MAX_GATHERED * most:
            raise ProtocolError(503, "busy", "Too many snapshots are being uploaded.", RETRY_AFTER)
        self._gathered_bytes += size
        try:
            body = await call.body(self._limits, max_bytes=most)
            return await call.shard.snapshots.publish(call.place.name, publish, body)
        finally:
            self._gathered_bytes -= size

    async def _get_latest(self, call: Call) -> Reply:
        return call.shard.snapshots.latest(self._find(call), call.location(self._http))

    async def _get(self, call: Call) -> Answer:
        stream = self._find(call)
        found = call.shard.snapshots.at(stream, _offset(call.place.offset))
        if found is None:
            return replies.no_snapshot()
        snapshot, head = found
        if _is_known(call, head):
            return replies.not_modified(head)
        if call.method == "HEAD":
            return head
        blobs = call.shard.blobs
        with blobs.held(snapshot):
            head = Reply(200, (*head.headers, ("Content-Length", str(snapshot.size_bytes))))
            return await self._send(call, head, blobs.pieces(snapshot))

    async def _delete(self, call: Call) -> Reply:
        stream = self._find(call)
        if call.shard.snapshots.at(stream, _offset(call.place.offset)) is None:
            return replies.no_snapshot()
        return replies.snapshot_protected()

    async def _bootstrap(self, call: Call) -> Answer:
        check_bootstrap_query(call.query)
        snapshots = call.shard.snapshots
        plan = snapshots.bootstrap(self._find(call))
        if _is_known(call, plan.head):
            return replies.not_modified(plan.head)
        if call.method == "HEAD":
            return plan.head
        with call.shard.blobs.held(plan.snapshot):
            return await self._send(call, plan.head, snapshots.parts(plan))

    def _find(self, call: Call) -> Stream:
        stream = call.shard.lifetimes.find(call.place.name)
        if isinstance(stream, Reply):
            raise Refused(stream)
        if call.method in ("GET", "PUT"):  # HEAD does not renew (DS 5.1)
            call.shard.lifetimes.renew(stream)
        return stream

    async def _send(
        self, call: Call, head: Reply, pieces: AsyncIterator[bytes]
    ) -> web.StreamResponse:
        """In pieces, as the client reads them."""
        what = call.place.kind.name.lower()
        async with open_response(call, head, self._metrics, what) as response:
            async for piece in pieces:
                await write_in_time(response, piece)
        return response


def _offset(token: str) -> Offset:
    """The offset in a path; reserved offsets name no snapshot."""
    return Offset(-1) if token == START else parse_offset(token)


def _is_known(call: Call, head: Reply) -> bool:
    condition = call.headers.get("if-none-match")
    etag = next(value for name, value in head.headers if name == "ETag")
    return condition is not None and matches(condition, etag)
