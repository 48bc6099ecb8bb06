"""Readers who wait for what is appended next: long-polls and Server-Sent Events, by the thousand.

Next to nothing is done for a reader while the clock runs: answers are kept as bytes, and checked
afterwards.
"""

import asyncio
import re
import select
import socket
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from loadtest.load.client import Client, WrongAnswerError, expect
from loadtest.load.connection import Broken, Connection, Target, connect, open_socket
from loadtest.load.replies import ReplyReader
from protocol.offsets import START

MARK = b"#"
"""The end of every message and nowhere else: what a reader has received is counted by it."""
MESSAGE_BYTES = 256
RECEIVE_BYTES = 1 << 16
REPLY_TIMEOUT_SECS = 30.0
EVENT = re.compile(rb"data: ?\d{9}x")
"""How an event begins. Messages that come close together may share one."""
STATUS_LINE = b"HTTP/1.1 "
CUT = "the server closed the connection of a waiting reader"

Came = Sequence[tuple[int, bytes]]
"""Whose bytes; none at the end of a connection."""
Take = Callable[[Came], bool]
"""Whether that was all."""


def build_message(number: int) -> bytes:
    return (b"%09d" % number).ljust(MESSAGE_BYTES - 1, b"x") + MARK


class Crowd:
    """What has arrived for each reader. One epoll of its own has them all, so that a thousand
    answers are one turn of the loop."""

    def __init__(self, readers: int) -> None:
        self.received = [b""] * readers
        self._poll = select.epoll()
        self._sockets: dict[int, tuple[int, socket.socket]] = {}
        self._take: Take = self._keep
        self._done: asyncio.Future[None] | None = None
        self._is_cut = False
        asyncio.get_running_loop().add_reader(self._poll.fileno(), self._ready)

    def join(self, number: int, sock: socket.socket) -> None:
        self._sockets[sock.fileno()] = number, sock
        self._poll.register(sock, select.EPOLLIN)

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._poll.fileno())
        self._poll.close()
        for _, sock in self._sockets.values():
            sock.close()

    def _ready(self) -> None:
        came = []
        for descriptor, _ in self._poll.poll(0):
            number, sock = self._sockets[descriptor]
            try:
                came.append((number, sock.recv(RECEIVE_BYTES)))
            except OSError:
                came.append((number, b""))
        self.arrive(came)

    def arrive(self, came: Came) -> None:
        is_all = self._take(came)
        done, self._is_cut = self._done, self._is_cut or not all(data for _, data in came)
        if self._is_cut:  # nobody is to wait for the others
            asyncio.get_running_loop().remove_reader(self._poll.fileno())
        if done is None or done.done():
            return
        if self._is_cut:
            done.set_exception(Broken(CUT))
        elif is_all:
            done.set_result(None)

    def _keep(self, came: Came) -> bool:
        for number, data in came:
            self.received[number] += data
        return False

    async def receive(self, take: Take, timeout_s: float = REPLY_TIMEOUT_SECS) -> None:
        """Hand what arrives to `take` until it says that this was all."""
        if self._is_cut:
            raise Broken(CUT)
        self._take, self._done = take, asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(timeout_s):
                await self._done
        except TimeoutError:
            raise Broken("readers waited in vain") from None
        finally:
            self._take, self._done = self._keep, None

    async def gather(self, is_whole: Callable[[bytes], bool]) -> None:
        """Until everyone has received something whole."""
        missing = {number for number, data in enumerate(self.received) if not is_whole(data)}

        def take(came: Came) -> bool:
            for number, data in came:
                self.received[number] += data
                if is_whole(self.received[number]):
                    missing.discard(number)
            return not missing

        if missing:
            await self.receive(take)


@asynccontextmanager
async def open_crowd(
    target: Target, requests: Sequence[bytes], within_s: float = 0.0
) -> AsyncIterator[Crowd]:
    """Readers who have each sent one request, spread over a time."""
    crowd, start = Crowd(len(requests)), time.perf_counter()
    try:
        for number, request in enumerate(requests):
            due = start + within_s * number / len(requests)
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            sock = await open_socket(target)
            crowd.join(number, sock)
            sock.send(request)
        yield crowd
    finally:
        crowd.close()


@asynccontextmanager
async def open_events(client: Client, path: str, readers: int) -> AsyncIterator[Crowd]:
    """Event streams that have all begun."""
    query, lines = f"?offset={START}&live=sse", ["Accept: text/event-stream"]
    requests = [client.request("GET", path, query, lines=lines) for _ in range(readers)]
    async with open_crowd(client.target, requests) as crowd:
        await crowd.gather(lambda data: b"\r\n\r\n" in data)
        for head in crowd.received:
            if not head.startswith(STATUS_LINE + b"200") or b"text/event-stream" not in head:
                raise WrongAnswerError(f"no event stream: {head[:80]!r}")
        yield crowd


def check_answer(data: bytes, message: bytes) -> None:
    """A whole response with the message."""
    reader = ReplyReader(keep_body=True)
    reader.feed(memoryview(data))
    if expect(reader.reply, 200).body != message:
        raise WrongAnswerError("a long-poll was answered with something else")


class Writer:
    """Appends to one stream without waiting for the answers, which are looked at later."""

    def __init__(self, client: Client, path: str, connection: Connection) -> None:
        self._client = client
        self._path = path
        self._connection = connection
        self._sent = 0
        self._answers = bytearray()
        connection.tap = self._answers.extend

    @classmethod
    async def open(cls, client: Client, path: str) -> "Writer":
        return cls(client, path, await connect(client.target))

    def append(self, message: bytes) -> None:
        self._connection.send(self._client.request("POST", self._path, body=message))
        self._sent += 1

    async def finish(self) -> None:
        """Every append must have been taken."""
        deadline = time.perf_counter() + REPLY_TIMEOUT_SECS
        while self._answers.count(STATUS_LINE) < self._sent:
            if time.perf_counter() > deadline:
                break
            await asyncio.sleep(0.001)
        self._connection.close()
        taken = self._answers.count(STATUS_LINE + b"2")
        if taken < self._sent:
            raise WrongAnswerError(f"{taken} of {self._sent} appends were taken")


class Fan:
    """Messages published to a crowd of event streams and counted by their marks."""

    def __init__(self, crowd: Crowd, writer: Writer) -> None:
        self._crowd = crowd
        self._writer = writer
        self._readers = len(crowd.received)
        self._counts = [0] * self._readers
        self._seen = bytearray()  # by the first reader
        self._deadline = 0.0
        self._window = 1
        self.published = 0
        self.received = 0

    async def run(self, seconds: float, window: int) -> None:
        """Publish once at least and until the time is over; return when everything arrived.

        With a window of 1 the next message waits until the last one has reached everyone.
        """
        self._deadline, self._window = time.perf_counter() + seconds, window
        self._publish()
        await self._crowd.receive(self.take, seconds + REPLY_TIMEOUT_SECS)

    def take(self, came: Came) -> bool:
        for number, data in came:
            marks = data.count(MARK)
            self._counts[number] += marks
            self.received += marks
            if not number:
                self._seen += data
        under_way = self.published * self._readers - self.received
        while under_way <= (self._window - 1) * self._readers:
            if time.perf_counter() >= self._deadline:
                return under_way <= 0
            self._publish()
            under_way += self._readers
        return False

    def _publish(self) -> None:
        self.published += 1
        self._writer.append(build_message(self.published))

    @property
    def events(self) -> int:
        """How many events the first reader got: at most as many as messages."""
        return len(EVENT.findall(self._seen))

    def check(self) -> None:
        """Everyone got as many as were published, and one of them in order."""
        if set(self._counts) != {self.published}:
            raise WrongAnswerError("readers received another number of messages than was published")
        numbers = [int(number) for number in re.findall(rb"(\d{9})x+#", self._seen)]
        if numbers != list(range(1, self.published + 1)):
            raise WrongAnswerError("a reader received messages out of order")
