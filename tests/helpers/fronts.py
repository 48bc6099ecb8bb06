"""A connection without a socket."""

import asyncio
from collections.abc import Awaitable, Callable

from aiohttp import web

from origin.config import LimitsConfig
from wire.exchange import Exchange, FastPath
from wire.front import Front, FrontServer
from wire.heads import Head
from wire.http import Refusals, Stamp

NO_CONTENT = b"HTTP/1.1 204 No Content\r\n\r\n"


class KeptTransport(asyncio.Transport):
    """Keeps what is written; `unread` is what its client has not taken."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.unread = 0
        self.reads = True
        self.closing = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def get_write_buffer_size(self) -> int:
        return self.unread

    def is_closing(self) -> bool:
        return self.closing

    def is_reading(self) -> bool:
        return self.reads

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True

    def close(self) -> None:
        self.closing = True

    abort = close


class AnswersAll:
    """A fast path that counts, too."""

    answered = 0

    def hit(self, head: Head, peer: str) -> bytes | None:
        self.answered += 1
        return NO_CONTENT

    def wants(self, head: Head, here: int) -> bool:
        return True

    def answer(self, head: Head, body: bytes, exchange: Exchange) -> bool:
        self.answered += 1
        exchange.send((NO_CONTENT,))
        return True


async def no_handler(request: web.BaseRequest) -> web.StreamResponse:
    raise AssertionError("not for aiohttp")


def connect_front(
    transport: KeptTransport,
    fast: FastPath,
    handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]] = no_handler,
) -> Front:
    front = FrontServer(handler, fast, LimitsConfig(), Refusals(Stamp(())))()
    assert isinstance(front, Front)
    front.connection_made(transport)
    return front
