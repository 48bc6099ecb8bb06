"""The ordinary path: what aiohttp had to parse enters by the same door as everything else.

aiohttp is used for its parser. The answer is written to the transport as on the fast path, and
aiohttp gets a response object that stands for bytes which are out already.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import cast

from aiohttp import HttpVersion11, web
from aiohttp.abc import AbstractStreamWriter

from gateway.config import ServingConfig
from gateway.door import Door
from protocol.errors import ProtocolError
from protocol.replies import RETRY_AFTER
from wire.front import Front
from wire.heads import make_head
from wire.requests import check_body, read_body, unique_headers

LARGE_BODIES = 8  # at a time: what may be larger than an append is held in memory as well


class Handlers:
    def __init__(self, serving: ServingConfig, door: Door) -> None:
        self._serving = serving
        self._door = door
        self._large = 0

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        with ExitStack() as held:
            return await self._handle(request, held)

    async def _handle(self, request: web.BaseRequest, held: ExitStack) -> web.StreamResponse:
        path, _, query = request.raw_path.partition("?")
        exchange = HandlerExchange(request)
        try:
            headers = unique_headers(request)
            repeated = len(request.headers.getall("Authorization", ())) > 1
            most = None
            if request.body_exists:
                head = make_head(request.method, path, query, headers, 0)
                most = self._door.max_body_bytes(head)
                check_body(request, headers, self._serving, max_bytes=most)
                await self._door.screen(head, repeated=repeated)
                if (request.content_length or most) > self._serving.max_body_bytes:
                    held.enter_context(self._room_for_large())
            body = await read_body(request, headers, self._serving, max_bytes=most)
        except ProtocolError as error:
            return self._refuse(request, exchange, error)
        head = make_head(request.method, path, query, headers, len(body))
        call = self._door.call(head, body, exchange)
        call.knows_chunks = request.version >= HttpVersion11
        # What has neither a length nor chunks ends with its connection.
        goes_on = request.keep_alive and call.knows_chunks and self._door.ready
        call.last_of_connection = not goes_on
        call.repeated_authorization = repeated
        self._door.begin(call)
        try:
            await exchange.done
        finally:
            exchange.left()
        return Written(keep_alive=goes_on)

    @contextmanager
    def _room_for_large(self) -> Iterator[None]:
        """Until its answer is out. Nobody waits for room, or slow uploads would block everyone."""
        if self._large >= LARGE_BODIES:
            text = "Too many large bodies are on their way."
            raise ProtocolError(503, "too-many-uploads", text, RETRY_AFTER)
        self._large += 1
        try:
            yield
        finally:
            self._large -= 1

    def _refuse(
        self, request: web.BaseRequest, exchange: "HandlerExchange", error: ProtocolError
    ) -> web.StreamResponse:
        """It is not fit to be looked at, and the rest of its body may still be on its way."""
        path, _, query = request.raw_path.partition("?")
        headers = {name.lower(): value for name, value in request.headers.items()}
        call = self._door.call(make_head(request.method, path, query, headers, 0), b"", exchange)
        call.last_of_connection = True
        self._door.refuse(call, error)
        return Written(keep_alive=False)


class Written(web.StreamResponse):
    """A response whose bytes are on the wire."""

    def __init__(self, *, keep_alive: bool) -> None:
        super().__init__()
        self._keep_alive = keep_alive

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        return None

    async def write_eof(self, data: bytes = b"") -> None:
        pass


class HandlerExchange:
    """An exchange whose handler waits until the answer is out."""

    def __init__(self, request: web.BaseRequest) -> None:
        self._front = cast(Front, request.protocol)
        self._gone: Callable[[], None] | None = None
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def send(self, parts: Sequence[bytes]) -> None:
        for part in parts:
            self._front.write(part)
        self._complete()

    def write(self, data: bytes) -> None:
        self._front.write(data)

    def finish(self, last: bytes = b"") -> None:
        self.send((last,) if last else ())

    def abort(self) -> None:
        self._front.abort()

    def backlog(self) -> int:
        return self._front.backlog()

    async def drain(self) -> None:
        await self._front.drain()

    def when_gone(self, callback: Callable[[], None]) -> None:
        self._gone = callback

    def left(self) -> None:
        """The handler was cancelled, or is done."""
        gone, self._gone = self._gone, None
        if gone is not None:
            gone()

    @property
    def peer(self) -> str:
        return self._front.peer

    def _complete(self) -> None:
        self._gone = None
        if not self.done.done():
            self.done.set_result(None)
