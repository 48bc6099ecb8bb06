"""A client of Durable Streams on kept-alive connections to one target."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from itertools import cycle
from typing import Self

from loadtest.errors import RunFailedError
from loadtest.load.connection import Broken, Connection, Target, connect
from loadtest.load.replies import Reply
from protocol.names import ACCESS_KEY, STREAM_CLOSED
from protocol.offsets import START

ROOT = "/v1/stream/"
BINARY, TEXT = "application/octet-stream", "text/plain"
NEXT_OFFSET = "stream-next-offset"
UP_TO_DATE = "stream-up-to-date"
ANSWER_TIMEOUT_SECS = 60.0
LANES = 64
METRICS = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
READS = re.compile(r'^weir_origin_requests_total\{method="GET".*\} (\S+)$', re.MULTILINE)


class WrongAnswerError(RunFailedError):
    """The server answered, but not what a correct server answers."""


class RefusedError(WrongAnswerError):
    def __init__(self, status: int) -> None:
        super().__init__(f"answered with {status}")
        self.status = status


def expect(reply: Reply, *statuses: int) -> Reply:
    if reply.status not in statuses:
        raise RefusedError(reply.status)
    return reply


class Client:
    """Requests take turns with the tokens; there are as many connections as requests under way."""

    def __init__(
        self,
        target: Target,
        tokens: Sequence[str] = (),
        *,
        content_type: str = BINARY,
        access_key: str = "",
    ) -> None:
        self.target = target
        self._tokens = cycle(tokens or [""])
        self._content_type = content_type
        self._always = [f"{ACCESS_KEY}: {access_key}"] if access_key else []
        self._idle: list[Connection] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for connection in self._idle:
            connection.close()

    def request(
        self,
        method: str,
        path: str,
        query: str = "",
        body: bytes | None = None,
        lines: Sequence[str] = (),
        content_type: str = "",
    ) -> bytes:
        """`lines` are further header lines."""
        head = [f"{method} {ROOT}{path}{query} HTTP/1.1", f"Host: {self.target.authority}"]
        head += [*self._always, *lines]
        if token := next(self._tokens):
            head.append(f"Authorization: Bearer {token}")
        if body is not None:
            head.append(f"Content-Type: {content_type or self._content_type}")
            head.append(f"Content-Length: {len(body)}")
        return "\r\n".join([*head, "", ""]).encode("ascii") + (body or b"")

    async def open_idle(self, count: int) -> None:
        """So that the first requests need not connect."""
        self._idle += [await connect(self.target) for _ in range(count)]

    async def fetch(
        self, request: bytes, *, timeout_s: float = ANSWER_TIMEOUT_SECS, keep_body: bool = False
    ) -> Reply:
        connection = await self._take()
        try:
            async with asyncio.timeout(timeout_s):
                reply = await connection.ask(request, keep_body=keep_body)
        except TimeoutError:
            raise Broken("no answer in time") from None
        if connection.usable:
            self._idle.append(connection)
        return reply

    async def _take(self) -> Connection:
        while self._idle:
            connection = self._idle.pop()
            if connection.usable:
                return connection
        return await connect(self.target)

    # -- what clients do ---------------------------------------------------------------------------

    async def create(self, path: str, body: bytes = b"", *, closed: bool = False) -> str:
        """A new stream; the offset of its tail."""
        lines = [f"{STREAM_CLOSED}: true"] if closed else []
        reply = await self.fetch(self.request("PUT", path, body=body, lines=lines))
        # nchan has no streams to create, but does not mind.
        return expect(reply, 200, 201, 202).headers.get(NEXT_OFFSET, "")

    async def create_all(
        self, paths: Iterable[str], body: bytes = b"", *, closed: bool = False
    ) -> None:
        async def create(paths: Iterator[str]) -> None:
            for path in paths:
                await self.create(path, body, closed=closed)

        left = iter(paths)
        await asyncio.gather(*(create(left) for _ in range(LANES)))

    async def append(self, path: str, body: bytes, content_type: str = "") -> None:
        request = self.request("POST", path, body=body, content_type=content_type)
        expect(await self.fetch(request), 200, 204)

    async def fill(self, path: str, bodies: Iterable[bytes]) -> None:
        await self.create(path)
        for body in bodies:
            await self.append(path, body)

    async def follow(self, path: str, *, keep_body: bool = False) -> AsyncIterator[Reply]:
        """Answers from the start of a stream to its tail."""
        offset = START
        while True:
            request = self.request("GET", path, f"?offset={offset}")
            reply = expect(await self.fetch(request, keep_body=keep_body), 200)
            yield reply
            if reached_tail(reply):
                return
            if reply.headers.get(NEXT_OFFSET, offset) == offset:
                raise WrongAnswerError(f"no way on from offset {offset}")
            offset = reply.headers[NEXT_OFFSET]

    async def check_content(self, path: str, content: bytes) -> None:
        found = b"".join([bytes(reply.body) async for reply in self.follow(path, keep_body=True)])
        if found != content:
            raise WrongAnswerError("the bytes read are not the bytes written")

    async def tails(self, paths: Iterable[str]) -> list[int]:
        """Positions in bytes. The reference adds 5 bytes a message: at least the data."""
        replies = [expect(await self.fetch(self.request("HEAD", path)), 200) for path in paths]
        return [int(reply.headers[NEXT_OFFSET].rpartition("_")[2]) for reply in replies]


def reached_tail(reply: Reply) -> bool:
    return reply.headers.get(UP_TO_DATE) == "true"


async def fetch_metrics(target: Target) -> str:
    async with Client(target) as client:
        reply = await client.fetch(METRICS, timeout_s=10.0, keep_body=True)
    return reply.body.decode()


def parse_reads(metrics: str) -> int:
    """GET requests that an origin has answered."""
    return sum(int(float(value)) for value in READS.findall(metrics))
