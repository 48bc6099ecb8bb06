"""Buckets, snapshots and bootstraps over HTTP. What a stream itself does is in `handlers`."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import NamedTuple

from aiohttp import web

from origin.buckets import local_name
from origin.config import OriginConfig
from origin.live import write_in_time
from origin.metrics import Metrics
from origin.service import Service
from origin.snapshots import Snapshots
from origin.storage.base import BelowFloor, DamagedData, UnknownStream
from origin.streams import Stream
from protocol import replies
from protocol.errors import ProtocolError
from protocol.etags import matches
from protocol.offsets import START, Offset, parse_offset
from protocol.paths import Kind, Resource, stream_url
from protocol.replies import NO_STORE, RETRY_AFTER, Headers, Reply, problem
from protocol.requests import (
    Create,
    check_bootstrap_query,
    parse_listing,
    parse_publish,
)
from wire.http import base_url, fill_headers
from wire.requests import read_body

log = logging.getLogger("weir.origin")

MAX_GATHERED = 4  # publications of the largest size that may be in memory at a time

_BUCKET = Create(content_type=None, ttl_s=None, expires_at_ms=None, closed=False, fork=None)


class Asked(NamedTuple):
    """A request for something that is not a stream."""

    place: Resource
    query: str
    headers: Mapping[str, str]
    request: web.BaseRequest
    stamp: Headers


Answer = Reply | web.StreamResponse
Operation = Callable[[Asked], Awaitable[Answer]]


class Extension:
    def __init__(
        self, config: OriginConfig, service: Service, snapshots: Snapshots, metrics: Metrics
    ) -> None:
        self._config = config
        self._service = service
        self._snapshots = snapshots
        self._metrics = metrics
        self._gathered_bytes = 0
        self._operations: dict[Kind, dict[str, Operation]] = {
            Kind.BUCKET: {
                "GET": self._get_bucket,
                "HEAD": self._get_bucket,
                "PUT": self._put_bucket,
                "DELETE": self._delete_bucket,
            },
            Kind.LISTING: {"GET": self._list, "HEAD": self._list},
            Kind.LATEST_SNAPSHOT: {"GET": self._get_latest, "HEAD": self._get_latest},
            Kind.SNAPSHOT: {
                "GET": self._get_snapshot,
                "HEAD": self._get_snapshot,
                "PUT": self._put_snapshot,
                "DELETE": self._delete_snapshot,
            },
            Kind.BOOTSTRAP: {"GET": self._bootstrap, "HEAD": self._bootstrap},
        }

    async def answer(self, asked: Asked) -> Answer:
        operations = self._operations[asked.place.kind]
        operation = operations.get(asked.request.method)
        if operation is None:
            allowed = ", ".join((*operations, "OPTIONS"))
            return problem(405, "method-not-allowed", f"Use {allowed}.", (("Allow", allowed),))
        answer = await operation(asked)
        if asked.request.method == "HEAD" and isinstance(answer, Reply):
            return Reply(answer.status, answer.headers)
        return answer

    # -- buckets -------------------------------------------------------------------------------

    async def _put_bucket(self, asked: Asked) -> Reply:
        location = self._url(asked)
        reply = await self._service.create(asked.place.name, _BUCKET, b"", location)
        if reply.status == 201:
            return Reply(201, (("Location", location), NO_STORE))
        return problem(409, "bucket-exists", "The bucket is there already.")

    async def _get_bucket(self, asked: Asked) -> Reply:
        if isinstance(self._service.find(asked.place.name), Reply):
            return _no_bucket()
        return replies.json_reply(
            200,
            {
                "bucket_id": local_name(asked.place.name),
                "streams": self._service.buckets.count(asked.place.name),
            },
        )

    async def _delete_bucket(self, asked: Asked) -> Reply:
        reply = await self._service.delete(asked.place.name)
        return _no_bucket() if reply.status == 404 else reply

    async def _list(self, asked: Asked) -> Reply:
        wanted = parse_listing(asked.query)
        bucket = asked.place.name
        if isinstance(self._service.find(bucket), Reply):
            return _no_bucket()
        names, has_more = self._service.buckets.page(bucket, wanted)
        found = [(name, self._service.find(f"{bucket}/{name}")) for name in names]
        rows = [_row(name, stream) for name, stream in found if isinstance(stream, Stream)]
        return replies.json_reply(
            200,
            {
                "bucket_id": local_name(bucket),
                "prefix": wanted.prefix,
                "stream_count": len(rows),
                "streams": rows,
                "next_cursor": names[-1] if names else None,
                "has_more": has_more,
            },
        )

    # -- snapshots -----------------------------------------------------------------------------

    async def _put_snapshot(self, asked: Asked) -> Reply:
        publish = parse_publish(asked.place.offset, asked.headers)
        self._find(asked)  # before its body is taken in
        limits = self._config.limits
        most = limits.max_snapshot_bytes
        length = asked.request.content_length
        size = most if length is None else min(length, most)
        if self._gathered_bytes + size > MAX_GATHERED * most:
            raise ProtocolError(503, "busy", "Too many snapshots are arriving.", RETRY_AFTER)
        self._gathered_bytes += size
        try:
            body = await read_body(asked.request, asked.headers, limits, max_bytes=most)
            return await self._snapshots.publish(asked.place.name, publish, body)
        finally:
            self._gathered_bytes -= size

    async def _get_latest(self, asked: Asked) -> Reply:
        stream = self._find(asked)
        return self._snapshots.latest(stream, self._url(asked))

    async def _get_snapshot(self, asked: Asked) -> Answer:
        stream = self._find(asked)
        found = self._snapshots.at(stream, _offset(asked.place.offset))
        if found is None:
            return replies.no_snapshot()
        snapshot, head = found
        if _is_known(asked, head):
            return replies.not_modified(head)
        if asked.request.method == "HEAD":
            return head
        with self._snapshots.holding(snapshot):
            head = Reply(200, (*head.headers, ("Content-Length", str(snapshot.size_bytes))))
            return await self._send(asked, head, self._snapshots.pieces(snapshot))

    async def _delete_snapshot(self, asked: Asked) -> Reply:
        stream = self._find(asked)
        if self._snapshots.at(stream, _offset(asked.place.offset)) is None:
            return replies.no_snapshot()
        return replies.snapshot_protected()

    async def _bootstrap(self, asked: Asked) -> Answer:
        check_bootstrap_query(asked.query)
        plan = self._snapshots.bootstrap(self._find(asked))
        if _is_known(asked, plan.head):
            return replies.not_modified(plan.head)
        if asked.request.method == "HEAD":
            return plan.head
        with self._snapshots.holding(plan.snapshot):
            return await self._send(asked, plan.head, self._snapshots.parts(plan))

    # -- pieces --------------------------------------------------------------------------------

    def _find(self, asked: Asked) -> Stream:
        stream = self._service.find(asked.place.name)
        if isinstance(stream, Reply):
            raise Refused(stream)
        if asked.request.method in ("GET", "PUT"):  # a look alone keeps nothing alive (DS 5.1)
            self._service.renew(stream)
        return stream

    def _url(self, asked: Asked) -> str:
        host = asked.headers.get("host", "")
        base = base_url(self._config.http, host, asked.request.scheme)
        return base + stream_url(asked.place.name)

    async def _send(
        self, asked: Asked, head: Reply, pieces: AsyncIterator[bytes]
    ) -> web.StreamResponse:
        """Piece by piece, as the client takes them. A body that cannot be finished is cut off."""
        response = web.StreamResponse()
        fill_headers(response, head, asked.stamp)
        self._metrics.count(asked.request.method, head.status)
        await response.prepare(asked.request)
        try:
            async for piece in pieces:
                await write_in_time(response, piece)
            await response.write_eof()
        except (ConnectionError, TimeoutError, BelowFloor, DamagedData, UnknownStream) as error:
            level = logging.ERROR if isinstance(error, DamagedData) else logging.INFO
            log.log(level, "%s cut: %r", asked.place.kind.name.lower(), error)
            response.force_close()
            if asked.request.transport is not None:
                asked.request.transport.abort()
        return response


class Refused(Exception):
    """The answer is known: there is no such stream."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(reply.status)
        self.reply = reply


def _offset(token: str) -> Offset:
    """Of a path; the reserved ones name no snapshot."""
    return Offset(-1) if token == START else parse_offset(token)


def _is_known(asked: Asked, head: Reply) -> bool:
    condition = asked.headers.get("if-none-match")
    etag = next(value for name, value in head.headers if name == "ETag")
    return condition is not None and matches(condition, etag)


def _row(name: str, stream: Stream) -> dict[str, object]:
    state = stream.state
    return {
        "stream_id": name,
        "status": "Closed" if stream.closed else "Open",
        "content_type": state.content_type,
        "tail_offset": stream.tail,
        "created_at_ms": state.created_at_ms,
        "last_write_at_ms": state.written_at_ms,
    }


def _no_bucket() -> Reply:
    return problem(404, "bucket-not-found", "There is no such bucket.")
