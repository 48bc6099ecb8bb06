"""Streams over HTTP: PUT, POST, GET in all its forms, HEAD, DELETE."""

import asyncio
import logging
import time

from aiohttp import web

from origin.calls import Answer, Call, Operations, open_response
from origin.config import OriginConfig
from origin.live import Live
from origin.metrics import Metrics
from origin.storage.base import BelowFloor
from origin.streams import Stream
from protocol import replies
from protocol.errors import ProtocolError
from protocol.names import STREAM_FORKED_FROM
from protocol.offsets import Offset
from protocol.paths import Kind
from protocol.replies import Reply
from protocol.requests import SSE, Create, Read, parse_append, parse_create, parse_read
from wire.sections import HttpConfig

log = logging.getLogger("weir.origin")


class StreamRoutes:
    def __init__(self, config: OriginConfig, live: Live, metrics: Metrics) -> None:
        self._http = config.http
        self._limits = config.limits
        self._live = live
        self._metrics = metrics
        self.operations: Operations = {
            Kind.STREAM: {
                "PUT": self._put,
                "POST": self._post,
                "GET": self._get,
                "HEAD": self._head,
                "DELETE": self._delete,
            }
        }

    async def _put(self, call: Call) -> Reply:
        create = parse_put(call, self._http)
        body = await call.body(self._limits)
        location = call.location(self._http)
        return await call.shard.creations.create(call.place.name, create, body, location)

    async def _post(self, call: Call) -> Reply:
        append = parse_append(call.headers)
        body = await call.body(self._limits)
        replied: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()

        def send(reply: Reply) -> None:
            if not replied.done():
                replied.set_result(reply)

        call.shard.appends.append(call.place.name, append, body, send)
        return await replied

    async def _delete(self, call: Call) -> Reply:
        return await call.shard.lifetimes.delete(call.place.name, call.headers.get("if-match"))

    async def _head(self, call: Call) -> Reply:
        stream = call.shard.lifetimes.find(call.place.name)
        if isinstance(stream, Reply):
            return stream
        condition = call.headers.get("if-none-match")
        return replies.head(stream.state, stream.tail, stream.closed, stream.snapshot, condition)

    # -- reading -------------------------------------------------------------------------------

    async def _get(self, call: Call) -> Answer:
        read = parse_read(call.query, call.headers.get("last-event-id", ""))
        shard = call.shard
        stream = shard.lifetimes.find(call.place.name)
        if isinstance(stream, Reply):
            return stream
        shard.lifetimes.renew(stream)
        if read.position is not None:
            shard.chunks.check_identity(stream, Offset(read.position, read.stream_id))
        try:
            if read.live == SSE:
                with self._live.admitted(shard, stream):
                    return await self._stream_events(stream, read, call)
            if read.live is not None:
                call.deadline.stop()
                with self._live.admitted(shard, stream):
                    return await self._live.long_poll(shard, stream, read, time.time())
            return await self._catch_up(stream, read, call)
        except BelowFloor:  # removed while it was read
            return replies.trimmed(stream.state, stream.earliest)

    async def _catch_up(self, stream: Stream, read: Read, call: Call) -> Reply:
        chunks = call.shard.chunks
        if read.position is None:
            body = b"[]" if stream.is_json else b""
            return replies.tail_only(stream.state, body, stream.tail, stream.closed)
        if read.max_bytes is None:
            chunk = await chunks.get(stream, read.position)
        else:
            chunk = await chunks.limited(stream, read.position, read.max_bytes)
        return chunk.answer(call.headers.get("if-none-match"))

    async def _stream_events(self, stream: Stream, read: Read, call: Call) -> web.StreamResponse:
        if read.position is not None:  # a bad offset is an error response, not an event
            await call.shard.chunks.check_position(stream, read.position)
        head = replies.event_stream(stream.state.content_type)
        async with open_response(call, head, self._metrics, "event stream") as response:
            try:
                await self._live.stream_events(call.shard, stream, read, time.time(), response)
            except (BelowFloor, ProtocolError):  # the next request gets the error
                log.info("event stream ended: a snapshot replaced its unread data")
        return response


def parse_put(call: Call, http: HttpConfig) -> Create:
    headers, name = call.headers, STREAM_FORKED_FROM.lower()
    source = headers.get(name)
    renamed = {} if source is None else {name: http.rename(source)}
    return parse_create({**headers, **renamed})
