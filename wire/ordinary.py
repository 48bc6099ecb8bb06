"""aiohttp's connection with the changes we need.

The only module of this package that uses aiohttp's private names (tests/wire/test_private_names.py
lists them). Our connection (`wire.front`) builds on the public ones below.
"""

import asyncio
from typing import Any

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from wire.http import Refusals


class OrdinaryConnection(RequestHandler):
    __slots__ = ("_answered", "_refusals", "answered_at", "loop")

    def __init__(self, server: web.Server, refusals: Refusals, **options: Any) -> None:
        self.loop = asyncio.get_running_loop()
        super().__init__(server, loop=self.loop, **options)
        self._refusals = refusals
        self._answered = 0  # requests that aiohttp is done with
        self.answered_at = 0.0  # by others: aiohttp's idle clock does not see their answers

    def is_busy(self) -> bool:
        """Whether a request is in progress that aiohttp does not know of."""
        raise NotImplementedError

    def last_answer_is_out(self) -> None:
        """aiohttp will close the connection; the rest of a body may still arrive."""
        raise NotImplementedError

    @property
    def is_idle(self) -> bool:
        """Whether aiohttp has answered every request it received."""
        return self._answered == self._request_count

    @property
    def has_enough(self) -> bool:
        """Whether aiohttp has paused reading, and will resume by itself."""
        return self._reading_paused or self._buffer_paused

    def _process_keepalive(self) -> None:
        last = self.loop.time() if self.is_busy() else self.answered_at
        self._next_keepalive_close_time = max(
            self._next_keepalive_close_time, last + self.keepalive_timeout
        )
        super()._process_keepalive()

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        try:
            return await super().finish_response(request, resp, start_time)
        finally:
            self._answered += 1
            if resp.keep_alive is False:
                self.last_answer_is_out()
            if isinstance(resp, web.Response):
                resp.body = None  # aiohttp keeps the last response until the next

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """aiohttp's own error pages would echo the client's input."""
        if status == 500 and not self._has_left(exc):
            self.log_exception("unhandled error", exc_info=exc)
        if request.writer.output_size > 0:
            raise ConnectionError("the response had already started")
        return self._refusals.response(status)

    def _has_left(self, exc: BaseException | None) -> bool:
        """Whether it failed because the client disconnected."""
        is_gone = self.transport is None or self.transport.is_closing()
        return is_gone and isinstance(exc, ConnectionResetError)
