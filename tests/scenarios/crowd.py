"""Many clients at once on the test's own loop: each is a socket, what it sent and what it got.

callers = await connect(gateway.port, 1000)
for caller, token in zip(callers, tokens(1000)):
    caller.ask("a", "offset=-1", token=token)
answers = await all_answers(callers)
"""

import asyncio
import json
import socket
import struct
import time
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, cast

from protocol.sse import Decoder, Event
from tests.helpers.gateway import KEY, bearer
from tests.helpers.keys import make_token
from tests.helpers.rawhttp import PREFIX, Response, encode_request

WAIT_S = 30.0
TTL_S = 86_400  # modules make their tokens long before their tests run
AT_ONCE = 100  # connections that are being made
RESET = struct.pack("ii", 1, 0)  # SO_LINGER of 0 s: closing sends RST

Fields = tuple[tuple[str, str], ...]


@cache
def tokens(count: int) -> tuple[str, ...]:
    """A token of its own for each client, each of another subject."""
    return tuple(make_token(KEY, sub=f"user-{number}", ttl=TTL_S) for number in range(count))


async def connect(port: int, count: int) -> list["Caller"]:
    """Open connections; the caller closes them with `close_all`."""
    loop = asyncio.get_running_loop()
    callers: list[Caller] = []
    while len(callers) < count:
        some = min(AT_ONCE, count - len(callers))
        made = (loop.create_connection(Caller, "127.0.0.1", port) for _ in range(some))
        callers += [caller for _, caller in await asyncio.gather(*made)]
    return callers


async def close_all(callers: Sequence["Caller"]) -> None:
    for caller in callers:
        caller.close()
    await asyncio.gather(*(caller.gone for caller in callers))


async def all_answers(callers: Sequence["Caller"]) -> list[Response]:
    return await asyncio.gather(*(caller.answer() for caller in callers))


class Caller(asyncio.Protocol):
    """One connection. Events of an event stream are decoded as they come."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        connected = transport.get_extra_info("socket")
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []
        self._buffer = b""
        self.answered_at = 0.0
        self._begin()

    def _begin(self) -> None:
        self.answers: list[Response] = []
        self.status = 0
        self.fields: Fields = ()
        self.body = bytearray()
        self.events: list[Event] = []
        self.writes = 0  # chunks of the body
        self.comments = 0
        self.torn = False  # a data event came without its control event
        self.ended = False  # the chunked body came to its terminator
        self._decoder = Decoder()
        self._take: Callable[[], bool] = self._take_head

    # -- asking --------------------------------------------------------------------------------

    def ask(
        self,
        name: str,
        query: str = "",
        *,
        token: str | None,
        method: str = "GET",
        body: bytes = b"",
        **headers: str,
    ) -> None:
        target = PREFIX + name + (f"?{query}" if query else "")
        fields = bearer(token) | {key.replace("_", "-"): value for key, value in headers.items()}
        self._begin()
        self._transport.write(encode_request(method, target, fields, body))

    async def answer(self, seconds: float = WAIT_S) -> Response:
        """The next whole response."""
        await self.until(lambda: bool(self.answers), seconds)
        return self.answers.pop(0)

    async def until(self, condition: Callable[[], bool], seconds: float = WAIT_S) -> None:
        """Wait until something that arrived made the condition true."""
        if condition():
            return
        changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((condition, changed))
        try:
            async with asyncio.timeout(seconds):
                await changed
        except TimeoutError:
            raise AssertionError(f"not within {seconds} s: {self!r}") from None

    async def shown(self, offset: str, seconds: float = WAIT_S) -> None:
        """Wait for the control event that says this offset."""
        await self.until(lambda: self.offset == offset, seconds)

    async def caught_up(self, seconds: float = WAIT_S) -> None:
        """Wait for a control event that says up to date."""
        await self.until(lambda: bool(self.control.get("upToDate")), seconds)

    async def finished(self, seconds: float = WAIT_S) -> None:
        """Wait for the clean end of an event stream."""
        await self.until(lambda: self.ended, seconds)

    def close(self, *, reset: bool = False) -> None:
        if reset and not self._transport.is_closing():
            connected = self._transport.get_extra_info("socket")
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self._transport.abort() if reset else self._transport.close()

    def pause(self) -> None:
        """Read nothing more, as a client that hangs."""
        self._transport.pause_reading()

    def resume(self) -> None:
        self._transport.resume_reading()

    # -- what came -----------------------------------------------------------------------------

    @property
    def control(self) -> dict[str, Any]:
        """The last control event."""
        for event in reversed(self.events):
            if event.kind == "control":
                return cast(dict[str, Any], json.loads(event.data))
        return {}

    @property
    def offset(self) -> str | None:
        return self.control.get("streamNextOffset")

    @property
    def data(self) -> str:
        return "".join(event.data for event in self.events if event.kind == "data")

    def __repr__(self) -> str:
        tail = bytes(self.body[-200:])
        return f"<Caller {self.status} {self.fields} {tail!r} {self.events[-2:]} {self.gone}>"

    # -- bytes ---------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while self._buffer and self._take():
            pass
        self._tell()

    def connection_lost(self, error: Exception | None) -> None:
        self.gone.set_result(None)
        self._tell()

    def _tell(self) -> None:
        still = []
        for condition, changed in self._waiting:
            if changed.done():
                continue
            if condition():
                changed.set_result(None)
            else:
                still.append((condition, changed))
        self._waiting = still

    def _take_head(self) -> bool:
        head, end, rest = self._buffer.partition(b"\r\n\r\n")
        if not end:
            return False
        self._buffer = rest
        first, *lines = head.decode("latin-1").split("\r\n")
        pairs = (line.partition(":") for line in lines)
        self.status = int(first.split(" ")[1])
        self.fields = tuple((name.lower(), value.strip()) for name, _, value in pairs)
        named = dict(self.fields)
        self._streams = named.get("content-type") == "text/event-stream"
        if named.get("transfer-encoding") == "chunked":
            self._take = self._take_chunk
        else:
            self._length = int(named.get("content-length", "0"))
            self._take = self._take_body
            if not self._length:
                self._complete()
        return True

    def _take_body(self) -> bool:
        if len(self._buffer) < self._length:
            return False
        self.body += self._buffer[: self._length]
        self._buffer = self._buffer[self._length :]
        self._complete()
        return True

    def _take_chunk(self) -> bool:
        size_text, end, rest = self._buffer.partition(b"\r\n")
        if not end or len(rest) < int(size_text, 16) + 2:
            return False
        size = int(size_text, 16)
        chunk, self._buffer = rest[:size], rest[size + 2 :]
        if not size:
            self.ended = True
            self._complete()
            return True
        self.writes += 1
        self.body += chunk
        if self._streams:
            self.comments += chunk.startswith(b":")
            events = self._decoder.feed(chunk)
            self.torn |= bool(events) and events[-1].kind != "control"
            self.events += events
        return True

    def _complete(self) -> None:
        self.answered_at = time.monotonic()
        self.answers.append(Response(self.status, self.fields, bytes(self.body)))
        self._take = self._take_head
