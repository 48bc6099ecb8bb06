"""An origin that does what a test tells it, byte for byte, on a real socket in a thread of its own.

    with ScriptedOrigin() as origin:
        origin.on("GET", "/v1/stream/a", Answer(200, {"Content-Type": "text/plain"}, b"hello"))
        gate = origin.hold()  # every answer waits here
        ...
        await origin.reached(1)  # or, in a test without a loop, origin.wait_for_requests(1)
        gate.open()
        assert origin.count(path="/v1/stream/a") == 1

Scripts and streams run on the origin's own loop; everything a test calls may be called from any
thread. What no script names is answered 404.
"""

import asyncio
import socket
import ssl
import struct
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from inspect import isawaitable
from types import TracebackType
from typing import Self, TypeVar, cast
from urllib.parse import parse_qs

import uvloop

from protocol.media import media_type
from protocol.offsets import parse_offset
from tests.helpers.offsets import nameless

WAIT_S = 60.0  # ends a hang; a busy machine is none
POLL_S = 0.002
CHUNK_BYTES = 16 * 1024
MAX_REQUEST_BYTES = 64 * 1024 * 1024
RESET = struct.pack("ii", 1, 0)  # SO_LINGER of 0 s: closing sends RST

T = TypeVar("T")


async def until(condition: Callable[[], bool], seconds: float = WAIT_S) -> None:
    """Wait on the running loop for what happens in other threads or on other sockets."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        await asyncio.sleep(POLL_S)


class Gate:
    """Answers wait here until a test opens it, or until `after` of them do."""

    def __init__(self, after: int | None = None) -> None:
        self._after = after
        self._lock = threading.Lock()
        self._open = False
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def open(self) -> None:
        with self._lock:
            self._open = True
            waiting, self._waiting = self._waiting, []
        for loop, future in waiting:
            loop.call_soon_threadsafe(_resolve, future)

    async def reached(self, count: int = 1) -> None:
        await until(lambda: self.waiting >= count)

    async def passed(self) -> None:
        loop = asyncio.get_running_loop()
        entry = loop, loop.create_future()
        with self._lock:
            if self._open:
                return
            self._waiting.append(entry)
            last = self.waiting == self._after
        if last:
            self.open()
        try:
            await entry[1]
        finally:
            with self._lock, suppress(ValueError):
                self._waiting.remove(entry)


def _resolve(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


Piece = bytes | float | Gate


@dataclass(frozen=True, slots=True)
class Answer:
    """What is sent for one request; Content-Length is added where none is given."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    hold: float = 0.0  # seconds before the first byte
    wait_for: Gate | None = None  # before the first byte
    chunked: bool = False
    pieces: Sequence[Piece] | None = None  # a chunked body: bytes, pauses in seconds, gates
    cut_after: int | None = None  # the connection ends after that many bytes of the body ...
    reset: bool = True  # ... with RST, else with FIN
    raw: bytes | Sequence[Piece] | None = None  # these bytes and nothing else
    close: bool = False  # the connection ends after the answer


def dropped(*, reset: bool = False) -> Answer:
    """The connection ends without a byte of an answer."""
    return Answer(raw=b"", cut_after=0, reset=reset)


@dataclass(frozen=True, slots=True)
class Recorded:
    """A request as it came; `connection` numbers the connection that brought it."""

    method: str
    target: str
    headers: Mapping[str, str]  # lower-case names, the last of each
    fields: tuple[tuple[str, str], ...]  # as sent, in order
    body: bytes
    time: float
    connection: int

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]

    @property
    def query(self) -> str:
        return self.target.partition("?")[2]

    @property
    def parameters(self) -> dict[str, str]:
        return {key: values[-1] for key, values in parse_qs(self.query).items()}

    @property
    def live(self) -> bool:
        return "live" in self.parameters


Script = Answer | Sequence[Answer] | Callable[[Recorded], Answer | Awaitable[Answer]]


class ScriptedOrigin:
    """Listens from `with` to its end; `down` and `up` make it vanish and come back."""

    def __init__(self, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1") -> None:
        self._tls = tls
        self._host = host
        self.port = 0
        self._kept: socket.socket | None = None  # has the port while nobody listens
        self._scripts: dict[tuple[str, str], Script] = {}
        self._used: Counter[tuple[str, str]] = Counter()
        self._requests: list[Recorded] = []
        self._open: set[_Connection] = set()
        self._gate: Gate | None = None
        self.accepted = 0  # connections so far
        self.abandoned = 0  # answers whose client left first
        self.errors: list[BaseException] = []  # of scripts

    @property
    def url(self) -> str:
        scheme = "http" if self._tls is None else "https"
        return f"{scheme}://{self._host}:{self.port}"

    # -- life --------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="scripted origin")
        self._thread.start()
        self.up()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()
        self._give_back()
        self._await(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(WAIT_S)
        self._loop.close()
        if kind is None:
            assert self.errors == []

    def up(self) -> None:
        """Listen; after `down`, on the same port as before."""
        self._await(self._listen())

    def down(self) -> None:
        """Refuse new connections and reset those there are. Nobody else gets the port."""
        self._await(self._end())
        self._kept = socket.socket()
        self._kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._kept.bind((self._host, self.port))

    def _give_back(self) -> None:
        if self._kept is not None:
            self._kept.close()
            self._kept = None

    def drop_connections(self, *, reset: bool = False) -> None:
        """End every connection from this side, as an idle timeout of an origin does."""
        self._await(self._drop(reset))

    @property
    def connections(self) -> int:
        return len(self._open)

    # -- script ------------------------------------------------------------------------------------

    def on(self, method: str, path: str, script: Script) -> None:
        """`method` may be `*`, `path` may end in `*`; of a sequence the last answer repeats."""
        self._scripts[method, path] = script
        self._used[method, path] = 0

    def hold(self) -> Gate:
        """All answers wait from now on, until the gate is opened or `release` is called."""
        return self.barrier(None)

    def barrier(self, count: int | None) -> Gate:
        """All answers wait until `count` requests do."""
        self._gate = Gate(count)
        return self._gate

    def release(self) -> None:
        gate, self._gate = self._gate, None
        if gate is not None:
            gate.open()

    # -- what was seen -----------------------------------------------------------------------------

    @property
    def requests(self) -> list[Recorded]:
        return list(self._requests)

    def find(
        self, method: str | None = None, path: str | None = None, live: bool | None = None
    ) -> list[Recorded]:
        return [
            request
            for request in self.requests
            if method in (None, request.method)
            and path in (None, request.path)
            and live in (None, request.live)
        ]

    def count(
        self, method: str | None = None, path: str | None = None, live: bool | None = None
    ) -> int:
        return len(self.find(method, path, live))

    def wait_for_requests(
        self, count: int, method: str | None = None, path: str | None = None
    ) -> None:
        """Block this thread; a test whose own loop serves the requests awaits `reached`."""
        deadline = time.monotonic() + WAIT_S
        while self.count(method, path) < count:
            assert time.monotonic() < deadline, f"{self.count(method, path)} of {count} requests"
            time.sleep(POLL_S)

    async def reached(self, count: int, method: str | None = None, path: str | None = None) -> None:
        await until(lambda: self.count(method, path) >= count)

    def call(self, function: Callable[[], T]) -> T:
        """Run a function on the origin's loop."""
        if threading.current_thread() is self._thread:
            return function()
        result: Future[T] = Future()

        def run() -> None:
            try:
                result.set_result(function())
            except BaseException as error:
                result.set_exception(error)

        self._loop.call_soon_threadsafe(run)
        return result.result(WAIT_S)

    # -- on the origin's loop ----------------------------------------------------------------------

    async def answer(self, request: Recorded) -> Answer:
        self._requests.append(request)
        if self._gate is not None:
            await self._gate.passed()
        key = self._find_script(request)
        if key is None:
            return Answer(404, {"Content-Type": "text/plain"}, b"no script")
        script = self._scripts[key]
        self._used[key] += 1
        if isinstance(script, Answer):
            return script
        if isinstance(script, Sequence):
            return script[min(self._used[key], len(script)) - 1]
        found = script(request)
        return await found if isawaitable(found) else found

    def _find_script(self, request: Recorded) -> tuple[str, str] | None:
        exact = [(method, request.path) for method in (request.method, "*")]
        found = next((key for key in exact if key in self._scripts), None)
        if found is not None:
            return found
        for method, path in self._scripts:
            matches = path.endswith("*") and request.path.startswith(path[:-1])
            if matches and method in (request.method, "*"):
                return method, path
        return None

    def _await(self, work: Awaitable[None]) -> None:
        async def run() -> None:
            await work

        asyncio.run_coroutine_threadsafe(run(), self._loop).result(WAIT_S)

    async def _listen(self) -> None:
        self._give_back()
        listening = socket.create_server((self._host, self.port), backlog=4096)
        self.port = listening.getsockname()[1]
        self._server = await self._loop.create_server(
            lambda: _Connection(self), sock=listening, ssl=self._tls, backlog=4096
        )

    async def _end(self) -> None:
        self._server.close()
        await asyncio.sleep(0)  # a connection accepted just now is announced in the next turn
        while self._open:
            await self._drop(reset=True)

    async def _drop(self, reset: bool) -> None:
        leaving = list(self._open)
        for connection in leaving:
            connection.end(reset)
        await asyncio.gather(*(connection.gone for connection in leaving))
        tasks = [connection.task for connection in leaving if connection.task is not None]
        await asyncio.gather(*tasks, return_exceptions=True)

    def joined(self, connection: "_Connection") -> int:
        self._open.add(connection)
        self.accepted += 1
        return self.accepted

    def left(self, connection: "_Connection") -> None:
        self._open.discard(connection)


class _Connection(asyncio.Protocol):
    """One connection: requests in order, each answered before the next is looked at."""

    def __init__(self, origin: ScriptedOrigin) -> None:
        self._origin = origin
        self.gone: asyncio.Future[None]  # done when the connection has ended
        self._buffer = bytearray()
        self.task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.gone = asyncio.get_running_loop().create_future()
        self._number = self._origin.joined(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._origin.left(self)
        self.gone.set_result(None)
        if self.task is not None:
            self._origin.abandoned += 1
            self.task.cancel()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        self._go_on()

    def end(self, reset: bool) -> None:
        if reset:
            connected = self._transport.get_extra_info("socket")
            if connected is not None:  # TLS that the other side has just ended
                connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            self._transport.abort()
        else:
            self._transport.close()

    def _go_on(self) -> None:
        if self.task is None and (request := self._next_request()) is not None:
            self.task = asyncio.create_task(self._serve(request), name="scripted answer")

    def _next_request(self) -> Recorded | None:
        found = _parse(bytes(self._buffer))
        if found is None:
            assert len(self._buffer) < MAX_REQUEST_BYTES
            return None
        first, fields, body, size = found
        del self._buffer[:size]
        method, target, _ = first.split(" ", 2)
        headers = {name.lower(): value for name, value in fields}
        return Recorded(method, target, headers, fields, body, time.monotonic(), self._number)

    async def _serve(self, request: Recorded) -> None:
        try:
            await self._send(request, await self._origin.answer(request))
        except Exception as error:  # the test learns it at the end of its `with`
            self._origin.errors.append(error)
            self._transport.abort()
        self.task = None
        if not self._transport.is_closing():
            self._go_on()

    async def _send(self, request: Recorded, answer: Answer) -> None:
        if answer.wait_for is not None:
            await answer.wait_for.passed()
        if answer.hold:
            await asyncio.sleep(answer.hold)
        if answer.raw is not None:
            await self._send_raw(answer.raw)
        else:
            bodiless = request.method == "HEAD" or answer.status in (204, 304)
            await self._send_message(answer, bodiless)
        if answer.cut_after is not None:
            self.end(answer.reset)
        elif answer.close:
            self.end(reset=False)

    async def _send_message(self, answer: Answer, bodiless: bool) -> None:
        head = encode_head(answer)
        body = answer.body if answer.cut_after is None else answer.body[: answer.cut_after]
        if bodiless or not (answer.chunked or answer.pieces is not None):
            self._transport.write(head if bodiless else head + body)
            return
        self._transport.write(head)
        parts = [body[at : at + CHUNK_BYTES] for at in range(0, len(body), CHUNK_BYTES)]
        for piece in parts if answer.pieces is None else answer.pieces:
            size = len(piece) if isinstance(piece, bytes) else 0
            await self._send_piece(piece, b"%x\r\n%%b\r\n" % size)
        if answer.cut_after is None:
            self._transport.write(b"0\r\n\r\n")

    async def _send_raw(self, raw: bytes | Sequence[Piece]) -> None:
        for piece in [raw] if isinstance(raw, bytes) else raw:
            await self._send_piece(piece, b"%b")

    async def _send_piece(self, piece: Piece, form: bytes) -> None:
        if isinstance(piece, Gate):
            await piece.passed()
        elif isinstance(piece, bytes):
            self._transport.write(form % piece)
        else:
            await asyncio.sleep(piece)


def encode_head(answer: Answer) -> bytes:
    lines = [f"HTTP/1.1 {answer.status} {HTTPStatus(answer.status).phrase}"]
    lines += [f"{name}: {value}" for name, value in answer.headers.items()]
    given = {name.lower() for name in answer.headers}
    if answer.chunked or answer.pieces is not None:
        lines.append("Transfer-Encoding: chunked")
    elif "content-length" not in given and answer.status not in (204, 304):
        lines.append(f"Content-Length: {len(answer.body)}")
    if answer.close:
        lines.append("Connection: close")
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"


_Parsed = tuple[str, tuple[tuple[str, str], ...], bytes, int]


def _parse(data: bytes) -> _Parsed | None:
    """(request line, fields, body, bytes used) of the first request, if it is all there."""
    head, end, rest = data.partition(b"\r\n\r\n")
    if not end:
        return None
    first, *lines = head.decode("latin-1").split("\r\n")
    pairs = [line.partition(":") for line in lines]
    fields = tuple((name, value.strip()) for name, _, value in pairs)
    named = {name.lower(): value for name, value in fields}
    if named.get("transfer-encoding") == "chunked":
        chunked = _parse_chunks(rest)
        return None if chunked is None else (first, fields, chunked[0], len(data) - chunked[1])
    length = int(named.get("content-length", "0"))
    if len(rest) < length:
        return None
    return first, fields, rest[:length], len(head) + 4 + length


def _parse_chunks(data: bytes) -> tuple[bytes, int] | None:
    """(body, bytes left over)"""
    body = b""
    while True:
        size_text, end, data = data.partition(b"\r\n")
        if not end:
            return None
        size = int(size_text, 16)
        if len(data) < size + 2:
            return None
        body, data = body + data[:size], data[size + 2 :]
        if size == 0:
            return body, len(data)


class SimpleStream:
    """A small durable stream at one path: create, append, close, delete, catch-up, long-poll, HEAD.

    Offsets and chunks are as our own origin has them. `counts` says how many requests of each kind
    came; `waiting` how many long-polls wait now.
    """

    def __init__(
        self,
        origin: ScriptedOrigin,
        path: str,
        content_type: str = "text/plain",
        *,
        long_poll_s: float = 5.0,
        chunk_bytes: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._origin = origin
        self._path = path
        self._content_type = content_type
        self._long_poll_s = long_poll_s
        self._chunk_bytes = chunk_bytes
        self._headers = dict(headers or {})  # more headers of every 200
        self._news = asyncio.Event()
        self._incarnation = 1
        self.exists = True
        self.counts: Counter[str] = Counter()
        self.waiting = 0
        self._clear()
        origin.on("*", path, self._answer)

    # -- from any thread ---------------------------------------------------------------------------

    @property
    def tail(self) -> str:
        return nameless(self._ends[-1])

    def append(self, data: bytes) -> str:
        """One message; the new tail. Long-polls that wait get it."""
        return self._origin.call(lambda: self._append(data))

    def close(self) -> None:
        self._origin.call(lambda: self._close())

    def delete(self) -> None:
        self._origin.call(lambda: self._delete())

    def create(self) -> None:
        """After `delete`: the same path, a new stream."""
        self._origin.call(lambda: self._create())

    # -- state -------------------------------------------------------------------------------------

    def _clear(self) -> None:
        self._messages: list[bytes] = []
        self._ends = [0]  # positions between messages, the tail last
        self._closed = False
        self._producers: dict[str, tuple[str, str]] = {}

    def _append(self, data: bytes) -> str:
        assert data and self.exists and not self._closed
        self._messages.append(data)
        self._ends.append(self._ends[-1] + len(data))
        self._wake()
        return self.tail

    def _close(self) -> None:
        self._closed = True
        self._wake()

    def _delete(self) -> None:
        self.exists = False
        self._clear()
        self._wake()

    def _create(self) -> None:
        self._clear()
        self._incarnation += 1
        self.exists = True

    def _wake(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()

    # -- requests ----------------------------------------------------------------------------------

    async def _answer(self, request: Recorded) -> Answer:
        kind = self._kind(request)
        self.counts[kind] += 1
        if kind == "create":
            return self._answer_create()
        if not self.exists:
            return Answer(404)
        if kind == "long-poll":
            return await self._answer_long_poll(request)
        simple = {"head": self._answer_head, "delete": self._answer_delete, "now": self._answer_now}
        if kind in simple:
            return simple[kind]()
        return self._answer_append(request) if kind == "append" else self._answer_read(request)

    def _kind(self, request: Recorded) -> str:
        named = {"HEAD": "head", "POST": "append", "PUT": "create", "DELETE": "delete"}
        if request.method in named:
            return named[request.method]
        asked = request.parameters
        return asked.get("live") or ("now" if asked.get("offset") == "now" else "catch-up")

    def _answer_create(self) -> Answer:
        status = 200 if self.exists else 201
        if not self.exists:
            self._create()
        location = {"Location": self._origin.url + self._path}
        return Answer(status, location | self._named(self._ends[-1]))

    def _answer_head(self) -> Answer:
        return Answer(200, {"Cache-Control": "no-store"} | self._named(self._ends[-1], at_end=True))

    def _answer_now(self) -> Answer:
        up_to_date = {"Cache-Control": "no-store", "Stream-Up-To-Date": "true"}
        return Answer(200, up_to_date | self._named(self._ends[-1], at_end=True), self._frame([]))

    def _answer_delete(self) -> Answer:
        self._delete()
        return Answer(204)

    def _answer_append(self, request: Recorded) -> Answer:
        producer = request.headers.get("producer-id")
        key = request.headers.get("producer-epoch", ""), request.headers.get("producer-seq", "")
        if producer is not None and self._producers.get(producer) == key:
            return Answer(204, self._named(self._ends[-1]))
        if self._closed:
            return Answer(409, self._named(self._ends[-1], at_end=True))
        if request.body:
            self._append(request.body)
        if request.headers.get("stream-closed") == "true":
            self._close()
        if producer is not None:
            self._producers[producer] = key
        return Answer(204 if producer is None else 200, self._named(self._ends[-1], at_end=True))

    async def _answer_long_poll(self, request: Recorded) -> Answer:
        asked = request.parameters["offset"]
        start = self._ends[-1] if asked == "now" else parse_offset(asked).position
        incarnation = self._incarnation
        self.waiting += 1
        try:
            async with asyncio.timeout(self._long_poll_s):
                while start >= self._ends[-1] and not self._closed:
                    await self._news.wait()
                    if not self.exists or incarnation != self._incarnation:
                        return Answer(404)
        except TimeoutError:
            pass
        finally:
            self.waiting -= 1
        if start < self._ends[-1]:
            return self._read(start, {"Stream-Cursor": "1"})
        cursor = {} if self._closed else {"Stream-Cursor": "1"}
        up_to_date = {"Stream-Up-To-Date": "true"}
        return Answer(204, self._named(start, at_end=True) | up_to_date | cursor)

    def _answer_read(self, request: Recorded) -> Answer:
        answer = self._read(parse_offset(request.parameters.get("offset", "-1")).position, {})
        if request.headers.get("if-none-match") == answer.headers["ETag"]:
            kept = {k: v for k, v in answer.headers.items() if k != "Content-Type"}
            return Answer(304, kept)
        return answer

    def _read(self, start: int, more: Mapping[str, str]) -> Answer:
        end = self._chunk_end(start)
        at_tail = end == self._ends[-1]
        closed = at_tail and self._closed
        mark = ":c" if closed else ""
        headers = self._headers | {"ETag": f'"{self._incarnation}:{start}:{end}{mark}"'}
        if at_tail:
            headers["Stream-Up-To-Date"] = "true"
        fresh = "public, max-age=60, stale-while-revalidate=300, immutable"
        stale = "public, max-age=0, must-revalidate"
        headers.setdefault("Cache-Control", fresh if closed or not at_tail else stale)
        spans = zip(self._ends, self._ends[1:], self._messages, strict=False)
        bodies = [m[max(0, start - a) :] for a, b, m in spans if b > start and b <= end]
        named = {**headers, **self._named(end, at_tail), **more}
        return Answer(200, named, self._frame(bodies))

    def _chunk_end(self, start: int) -> int:
        """The first end of a message at or after the next multiple of the chunk size."""
        tail = self._ends[-1]
        if self._chunk_bytes is None:
            return tail
        boundary = (start // self._chunk_bytes + 1) * self._chunk_bytes
        return next((end for end in self._ends if end >= boundary), tail)

    def _named(self, position: int, at_end: bool = False) -> dict[str, str]:
        closed = {"Stream-Closed": "true"} if at_end and self._closed else {}
        kind = {"Content-Type": self._content_type}
        return kind | {"Stream-Next-Offset": nameless(position)} | closed

    def _frame(self, messages: list[bytes]) -> bytes:
        if media_type(self._content_type) == "application/json":
            return b"[" + b",".join(messages) + b"]"
        return b"".join(messages)


def simple_stream(
    origin: ScriptedOrigin, path: str, content_type: str = "text/plain", *messages: bytes
) -> SimpleStream:
    """A stream that holds these messages, with the usual times and one chunk for everything."""
    stream = SimpleStream(origin, path, content_type)
    for message in messages:
        stream.append(message)
    return stream
