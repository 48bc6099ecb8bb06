"""One request parsed by aiohttp, and the forms of its response."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import NamedTuple

from aiohttp import web

from origin.freshness import is_lasting, no_owner
from origin.metrics import Metrics
from origin.outcomes import Deadline
from origin.shard import Shard
from origin.storage.base import BelowFloor, DamagedData, StorageFailed, UnknownStream
from protocol.paths import Kind, Resource, stream_url
from protocol.replies import Headers, Reply
from wire.http import base_url, fill_headers
from wire.requests import Limits, read_body
from wire.sections import HttpConfig

log = logging.getLogger("weir.origin")

STALLED_SECS = 30.0
# What ends a response in the middle: the client, or data that is not there any more.
CUTS = (ConnectionError, TimeoutError, BelowFloor, DamagedData, StorageFailed, UnknownStream)


class Call(NamedTuple):
    place: Resource
    query: str
    headers: Mapping[str, str]
    request: web.BaseRequest
    stamp: Headers
    shard: Shard
    deadline: Deadline

    @property
    def method(self) -> str:
        return self.request.method

    def location(self, http: HttpConfig) -> str:
        """The URL of its stream or bucket, as the client addressed us or the first node."""
        headers = self.headers
        host, scheme = headers.get("host", ""), self.request.scheme
        if "weir-hop" in headers:
            host = headers.get("weir-host", host)
            scheme = "https" if headers.get("weir-scheme") == "https" else "http"
        return base_url(http, host, scheme) + stream_url(self.place.name)

    async def body(self, limits: Limits, *, max_bytes: int | None = None) -> bytes:
        """The complete body. Its arrival has its own times, and may outlast the shard."""
        self.deadline.stop()
        body = await read_body(self.request, self.headers, limits, max_bytes=max_bytes)
        self.deadline.restart()
        if self.shard.is_lost:
            raise no_owner()
        return body


Answer = Reply | web.StreamResponse
Operation = Callable[[Call], Awaitable[Answer]]
Operations = dict[Kind, dict[str, Operation]]


class Refused(Exception):
    """The answer is known: no such stream."""

    def __init__(self, reply: Reply) -> None:
        super().__init__(reply.status)
        self.reply = reply


@asynccontextmanager
async def open_response(
    call: Call, head: Reply, metrics: Metrics, what: str
) -> AsyncIterator[web.StreamResponse]:
    """A response whose body is written inside the block. On failure, it is cut off."""
    if not (call.shard.fresh() or is_lasting(call.method, head)):
        raise no_owner()
    call.deadline.stop()
    response = web.StreamResponse()
    fill_headers(response, head, call.stamp)
    metrics.count(call.method, head.status)
    await response.prepare(call.request)
    try:
        yield response
        await response.write_eof()
    except CUTS as error:
        level = logging.ERROR if isinstance(error, DamagedData) else logging.INFO
        log.log(level, "%s cut: %r", what, error)
        response.force_close()
        if call.request.transport is not None:
            call.request.transport.abort()


async def write_in_time(response: web.StreamResponse, data: bytes) -> None:
    if data:
        async with asyncio.timeout(STALLED_SECS):
            await response.write(data)
