"""The ordinary path: requests parsed by aiohttp enter by the same door as all others.

Only aiohttp's parser is used. The response is written to the transport as on the fast path, and
aiohttp gets a response object for bytes that are already sent.
"""

import asyncio
from contextlib import ExitStack
from typing import cast

from aiohttp import HttpVersion11, web
from aiohttp.abc import AbstractStreamWriter

from gateway.admission import Admission
from gateway.config import ServingConfig
from gateway.door import Door
from protocol.errors import ProtocolError
from protocol.paths import Rename
from wire.exchange import Exchange
from wire.front import Front
from wire.heads import make_head
from wire.requests import check_body, read_body, unique_headers


class Handlers:
    def __init__(self, serving: ServingConfig, door: Door, rename: Rename = str) -> None:
        self._serving = serving
        self._door = door
        self._rename = rename

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        with ExitStack() as held:
            return await self._handle(request, held)

    async def _handle(self, request: web.BaseRequest, held: ExitStack) -> web.StreamResponse:
        path, _, query = request.raw_path.partition("?")
        exchange = cast(Front, request.protocol).exchange
        try:
            headers = unique_headers(request)
            repeated = len(request.headers.getall("Authorization", ())) > 1
            path = self._rename(path)
            head = make_head(request.method, path, query, headers, request.content_length or 0)
            most, grow = None, None
            if request.body_exists:
                most = self._door.max_body_bytes(head)
                check_body(request, headers, self._serving, max_bytes=most)
                await self._door.screen(head, exchange.peer, repeated=repeated)
                admission = cast(Admission, head.admission)
                held.callback(admission.release)
                if request.content_length is None:  # else it is counted by now
                    grow = admission.grow
            body = await read_body(request, headers, self._serving, max_bytes=most, grow=grow)
            head.fields.content_length = len(body)
        except ProtocolError as error:
            return self._refuse(request, exchange, error)
        call = self._door.call(head, body, exchange)
        call.knows_chunks = request.version >= HttpVersion11
        # A body with neither a length nor chunks ends with its connection.
        goes_on = request.keep_alive and call.knows_chunks and self._door.is_open
        call.last_of_connection = not goes_on
        call.repeated_authorization = repeated
        done = asyncio.Event()
        exchange.begin(done.set)
        self._door.begin(call)
        try:
            await done.wait()
        finally:
            exchange.leave()
        return Written(goes_on=goes_on)

    def _refuse(
        self, request: web.BaseRequest, exchange: Exchange, error: ProtocolError
    ) -> web.StreamResponse:
        """Refuse a request unread: its body may still be arriving, so the connection is closed."""
        path, _, query = request.raw_path.partition("?")
        path = self._rename(path)
        headers = {name.lower(): value for name, value in request.headers.items()}
        call = self._door.call(make_head(request.method, path, query, headers, 0), b"", exchange)
        call.last_of_connection = True
        self._door.refuse(call, error)
        return Written(goes_on=False)


class Written(web.StreamResponse):
    """A response whose bytes are already sent."""

    def __init__(self, *, goes_on: bool) -> None:
        super().__init__()
        self._goes_on = goes_on

    @property
    def keep_alive(self) -> bool:
        return self._goes_on

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        return None

    async def write_eof(self, data: bytes = b"") -> None:
        pass
