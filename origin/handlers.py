"""Requests as aiohttp brings them: parse, ask the service, reply.

Dispatch is by the raw target, never by a decoded or normalised one, so that `%2e%2e` and its kin
are judged in one place (`protocol.paths`) and nowhere else.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping

from aiohttp import web

from origin.admission import Admission
from origin.chunks import Chunks
from origin.config import OriginConfig
from origin.extension import Asked, Extension, Refused
from origin.live import Live
from origin.metrics import Metrics
from origin.problems import storage_problem
from origin.service import Service
from origin.storage.base import (
    BelowFloor,
    DamagedData,
    StorageFailed,
    StorageFull,
    UnknownStream,
)
from origin.streams import Stream
from protocol import replies
from protocol.errors import ProtocolError
from protocol.names import BUCKET_PREFIX, METHODS, STREAM_FORKED_FROM, STREAM_PREFIX
from protocol.offsets import Offset
from protocol.paths import Kind, parse_path, stream_url
from protocol.replies import Headers, Reply, problem
from protocol.requests import (
    SSE,
    Read,
    parse_append,
    parse_create,
    parse_read,
)
from wire.http import Stamp, base_url, fill_headers, preflight, to_response
from wire.requests import read_body, unique_headers

log = logging.getLogger("weir.origin")

_TEXT: tuple[str, str] = ("Content-Type", "text/plain; charset=utf-8")

Operation = Callable[[str, Mapping[str, str], web.BaseRequest], Awaitable[Reply]]


class Handlers:
    def __init__(
        self,
        config: OriginConfig,
        service: Service,
        chunks: Chunks,
        live: Live,
        extension: Extension,
        metrics: Metrics,
        stamp: Stamp,
        admission: Admission,
    ) -> None:
        self._config = config
        self._service = service
        self._chunks = chunks
        self._live = live
        self._extension = extension
        self._metrics = metrics
        self._stamp = stamp
        self._admission = admission
        self._rename = config.http.rename
        self._operations: dict[str, Operation] = {
            "PUT": self._put,
            "POST": self._post,
            "DELETE": self._delete,
            "HEAD": self._head,
        }

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        stamp = self._stamp.headers(request.headers.get("Origin"))
        try:
            reply_or_response = await self._answer(request, stamp)
        except ProtocolError as error:
            reply_or_response = replies.problem_of(error)
        except (StorageFailed, StorageFull) as error:
            reply_or_response = storage_problem(error)
        except DamagedData as error:
            log.error("refused to serve damaged data: %s", error)
            reply_or_response = storage_problem(error)
        except UnknownStream:
            reply_or_response = replies.not_found()  # removed while it was read
        except Refused as refused:
            reply_or_response = refused.reply
        if isinstance(reply_or_response, Reply):
            self._metrics.count(request.method, reply_or_response.status)
            return to_response(reply_or_response, stamp)
        return reply_or_response

    async def _answer(self, request: web.BaseRequest, stamp: Headers) -> Reply | web.StreamResponse:
        path, _, query = request.raw_path.partition("?")
        path = self._rename(path)
        of_streams = path.startswith((STREAM_PREFIX, BUCKET_PREFIX))
        self._admission.check(request.method, request.headers, needs_key=of_streams)
        if not of_streams:
            return self._service_page(request.method, path)
        if request.method == "OPTIONS":
            return preflight()
        operation = self._operations.get(request.method)
        if operation is None and request.method != "GET":
            return problem(405, "method-not-allowed", f"Use {METHODS}.", (("Allow", METHODS),))
        headers = unique_headers(request)
        place = parse_path(path, self._config.limits.max_path_bytes)
        assert place is not None
        if place.kind is not Kind.STREAM:
            return await self._extension.answer(Asked(place, query, headers, request, stamp))
        if operation is not None:
            return await operation(place.name, headers, request)
        read = parse_read(query, headers.get("last-event-id", ""))
        return await self._get(place.name, read, headers, request, stamp)

    async def _get(
        self,
        name: str,
        read: Read,
        headers: Mapping[str, str],
        request: web.BaseRequest,
        stamp: Headers,
    ) -> Reply | web.StreamResponse:
        stream = self._service.find(name)
        if isinstance(stream, Reply):
            return stream
        self._service.renew(stream)
        if read.position is not None:
            self._chunks.check_identity(stream, Offset(read.position, read.stream_id))
        try:
            if read.live == SSE:
                with self._live.admitted(stream):
                    return await self._stream_events(stream, read, request, stamp)
            return await self._read(stream, read, headers)
        except BelowFloor:  # given back while it was read
            return replies.trimmed(stream.state, stream.earliest)

    def _service_page(self, method: str, path: str) -> Reply:
        if path not in ("/healthz", "/readyz", "/metrics"):
            return problem(404, "not-found", f"Streams are under {STREAM_PREFIX}.")
        if method not in ("GET", "HEAD"):
            return problem(405, "method-not-allowed", "Use GET.", (("Allow", "GET, HEAD"),))
        if path == "/healthz":
            return Reply(200, (_TEXT, replies.NO_STORE), b"ok")
        if path == "/metrics":
            return Reply(
                200, (self._metrics.content_type, replies.NO_STORE), self._metrics.render()
            )
        if self._live.draining or self._service.failure is not None:
            return problem(503, "not-ready", "The server does not take writes.")
        return Reply(200, (_TEXT, replies.NO_STORE), b"ready")

    # -- operations ----------------------------------------------------------------------------

    async def _put(self, name: str, headers: Mapping[str, str], request: web.BaseRequest) -> Reply:
        source = headers.get(STREAM_FORKED_FROM.lower())
        renamed = {} if source is None else {STREAM_FORKED_FROM.lower(): self._rename(source)}
        create = parse_create({**headers, **renamed})
        body = await read_body(request, headers, self._config.limits)
        base = base_url(self._config.http, headers.get("host", ""), request.scheme)
        location = base + stream_url(name)
        return await self._service.create(name, create, body, location)

    async def _post(self, name: str, headers: Mapping[str, str], request: web.BaseRequest) -> Reply:
        append = parse_append(headers)
        body = await read_body(request, headers, self._config.limits)
        answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()

        def send(reply: Reply) -> None:
            if not answer.done():
                answer.set_result(reply)

        self._service.append(name, append, body, send)
        return await answer

    async def _delete(
        self, name: str, headers: Mapping[str, str], request: web.BaseRequest
    ) -> Reply:
        return await self._service.delete(name, headers.get("if-match"))

    async def _head(self, name: str, headers: Mapping[str, str], request: web.BaseRequest) -> Reply:
        stream = self._service.find(name)
        if isinstance(stream, Reply):
            return Reply(stream.status, stream.headers)
        return replies.head(
            stream.state,
            stream.tail,
            stream.closed,
            stream.snapshot,
            headers.get("if-none-match"),
        )

    async def _read(self, stream: Stream, read: Read, headers: Mapping[str, str]) -> Reply:
        if read.live is not None:
            with self._live.admitted(stream):
                return await self._live.long_poll(stream, read, time.time())
        if read.position is None:
            body = b"[]" if stream.is_json else b""
            return replies.tail_only(stream.state, body, stream.tail, stream.closed)
        if read.max_bytes is None:
            chunk = await self._chunks.get(stream, read.position)
        else:
            chunk = await self._chunks.limited(stream, read.position, read.max_bytes)
        return chunk.answer(headers.get("if-none-match"))

    async def _stream_events(
        self, stream: Stream, read: Read, request: web.BaseRequest, stamp: Headers
    ) -> web.StreamResponse:
        if read.position is not None:  # a bad offset is an answer, not an event
            await self._chunks.check_position(stream, read.position)
        response = web.StreamResponse()
        fill_headers(response, replies.event_stream(stream.state.content_type), stamp)
        self._metrics.count("GET", 200)
        await response.prepare(request)
        try:
            try:
                await self._live.stream_events(stream, read, time.time(), response)
            except (BelowFloor, ProtocolError):  # the next request is told so
                log.info("event stream ended: a snapshot replaced what it had yet to read")
            await response.write_eof()
        except (ConnectionError, TimeoutError, DamagedData, UnknownStream) as error:
            log.info("event stream cut: %r", error)
            response.force_close()
            if request.transport is not None:
                request.transport.abort()
        return response

    # -- pieces --------------------------------------------------------------------------------
