"""One request parsed by aiohttp, and the forms of its response."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import NamedTuple

from aiohttp import web

from origin.metrics import Metrics
from origin.storage.base import BelowFloor, DamagedData, UnknownStream
from protocol.paths import Kind, Resource, stream_url
from protocol.replies import Headers, Reply
from wire.http import base_url, fill_headers
from wire.sections import HttpConfig

log = logging.getLogger("weir.origin")

STALLED_SECS = 30.0


class Call(NamedTuple):
    place: Resource
    query: str
    headers: Mapping[str, str]
    request: web.BaseRequest
    stamp: Headers

    @property
    def method(self) -> str:
        return self.request.method

    def location(self, http: HttpConfig) -> str:
        """The URL of its stream or bucket, as the client addressed us."""
        base = base_url(http, self.headers.get("host", ""), self.request.scheme)
        return base + stream_url(self.place.name)


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
    response = web.StreamResponse()
    fill_headers(response, head, call.stamp)
    metrics.count(call.method, head.status)
    await response.prepare(call.request)
    try:
        yield response
        await response.write_eof()
    except (ConnectionError, TimeoutError, BelowFloor, DamagedData, UnknownStream) as error:
        level = logging.ERROR if isinstance(error, DamagedData) else logging.INFO
        log.log(level, "%s cut: %r", what, error)
        response.force_close()
        if call.request.transport is not None:
            call.request.transport.abort()


async def write_in_time(response: web.StreamResponse, data: bytes) -> None:
    if data:
        async with asyncio.timeout(STALLED_SECS):
            await response.write(data)
