"""Requests to the origin, its responses (head checked, body complete), and how requests fail."""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from io import BytesIO
from typing import NamedTuple

import aiohttp
from aiohttp.http_exceptions import HttpProcessingError

from gateway.connections import (
    AnswerHead,
    Connection,
    Connections,
    NoConnection,
    NoConnectionInTime,
)
from gateway.rules.forwarding import BadAnswer, response_headers
from protocol.errors import ProtocolError
from protocol.heads import ReplyHead, parse_head
from protocol.names import ACCESS_KEY
from protocol.replies import RETRY_AFTER, Headers

UNREACHABLE = "origin-unreachable"
TIMEOUT = "origin-timeout"
UNAVAILABLE = "origin-unavailable"
BUSY = "origin-busy"
BUSY_FOR_SUBJECT = "origin-busy-for-subject"
BAD_ANSWER = "bad-origin-answer"
FAILURES = (UNREACHABLE, TIMEOUT, UNAVAILABLE, BUSY, BUSY_FOR_SUBJECT, BAD_ANSWER)

NO_BODY = frozenset({204, 304})
PROGRESS_BYTES = 1024  # minimum progress of a body in each idle timeout

_STATUSES = frozenset(s.value for s in HTTPStatus if s.value >= 200) - {206}  # no Range is sent
_TARGET = re.compile(r"/[!\"$-~]*")  # visible ASCII without a fragment


@dataclass(frozen=True, slots=True)
class UpstreamRequest:
    """`target` is the canonical path, encoded, with its query; `headers` as rules.forwarding.
    `of_stream` is set for reads whose response must have a next offset. `name` is the stream or
    bucket, and decides the node of a cluster; without one, any node will do."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes = b""
    of_stream: bool = False
    name: str = ""

    def __post_init__(self) -> None:
        if not _TARGET.fullmatch(self.target):
            raise ValueError("the target is not an encoded path")


@dataclass(frozen=True, slots=True)
class UpstreamResponse:
    """`headers` are those that may be forwarded, with lower-case names; `head` is their parsed
    form."""

    status: int
    headers: dict[str, str]
    body: bytes
    head: ReplyHead = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "head", parse_head(self.headers))


@dataclass(frozen=True, slots=True)
class UpstreamStream:
    """A response whose body follows; `length` is None if unknown."""

    status: int
    headers: dict[str, str]
    pieces: AsyncIterator[bytes]
    length: int | None = None


class UpstreamError(ProtocolError):
    """No usable response; `sent` if the origin may have executed the request."""

    def __init__(
        self, status: int, code: str, detail: str, headers: Headers = (), *, sent: bool = False
    ) -> None:
        super().__init__(status, code, detail, headers)
        self.sent = sent


class TooLarge(UpstreamError):
    """The body exceeds the limit; `open` accepts a body of any size."""

    def __init__(self) -> None:
        super().__init__(502, "answer-too-large", "The origin's response is too large.", sent=True)


# The first matching row is used; the details do not reveal the origin's address.
_EXPLAINED: tuple[tuple[type[Exception], int, str, str], ...] = (
    (NoConnectionInTime, 504, TIMEOUT, "The origin did not accept a connection in time."),
    (NoConnection, 502, UNREACHABLE, "The gateway cannot connect to the origin."),
    (HttpProcessingError, 502, BAD_ANSWER, "The origin's response is not valid HTTP."),
    (aiohttp.ClientPayloadError, 502, BAD_ANSWER, "The origin's response was cut off."),
    (aiohttp.ClientError, 502, UNREACHABLE, "The origin closed the connection."),
    (ConnectionError, 502, UNREACHABLE, "The origin closed the connection."),
    (TimeoutError, 504, TIMEOUT, "The origin did not respond in time."),
)


def explain(error: Exception, sent: bool) -> UpstreamError:
    """Convert a network exception; any other exception is a bug and is raised unchanged."""
    if isinstance(error, UpstreamError):
        return error
    if isinstance(error, BadAnswer):
        detail = f"The origin's response is not usable: {error}."
        return UpstreamError(502, BAD_ANSWER, detail, sent=sent)
    for kind, status, code, detail in _EXPLAINED:
        if isinstance(error, kind):
            return UpstreamError(status, code, detail, sent=sent)
    raise error


def come_again(error: UpstreamError) -> UpstreamError:
    """A node of a cluster was lost, as its clients hear of it: soon another one will answer."""
    return UpstreamError(503, error.code, error.detail, RETRY_AFTER, sent=error.sent)


class BegunAnswer(NamedTuple):
    """A response whose head was read and checked: `headers` are those that may be forwarded, `told`
    are all; `length` is None if unknown."""

    connection: Connection
    status: int
    headers: dict[str, str]
    length: int | None
    body: aiohttp.StreamReader
    told: Mapping[str, str]
    pool: Connections  # to give the connection back to


def check_head(
    request: UpstreamRequest,
    pool: Connections,
    connection: Connection,
    answer: AnswerHead,
    origin_path: str,
) -> BegunAnswer:
    status, told = answer.message.code, answer.message.headers
    if status not in _STATUSES:
        raise BadAnswer(f"unexpected status {status}")
    if status == 401 and told.get("WWW-Authenticate") == ACCESS_KEY:
        raise BadAnswer("it requires a different upstream.access_key")
    if status == 421:
        raise BadAnswer("it does not accept the host in gateway.origin_url")
    if status == 304 and "if-none-match" not in request.headers:
        raise BadAnswer("304 to an unconditional request")
    length = told.get("Content-Length")
    framed = length is not None or answer.message.chunked
    if not framed and request.method != "HEAD" and status not in NO_BODY:
        raise BadAnswer("without a length, a cut-off body cannot be detected")
    headers = response_headers(told.items(), origin_path)
    if request.of_stream and status in (200, 204) and "stream-next-offset" not in headers:
        raise BadAnswer("it has no Stream-Next-Offset")
    size = None if length is None else int(length)
    return BegunAnswer(connection, status, headers, size, answer.body, told, pool)


async def gather_body(content: aiohttp.StreamReader, max_bytes: int, idle_s: float) -> bytes:
    if content.is_eof():  # arrived with the head, so it needs no timeout
        return _within(content.read_nowait(), max_bytes)
    whole = BytesIO()  # joining all parts would need twice the memory
    size = mark = 0
    now = asyncio.get_running_loop().time
    async with asyncio.timeout(idle_s) as timeout:
        while part := await content.readany():
            size += whole.write(part)
            if size > max_bytes:
                raise TooLarge
            if size - mark >= PROGRESS_BYTES:
                mark = size
                timeout.reschedule(now() + idle_s)
    return whole.getvalue()


def _within(body: bytes, max_bytes: int) -> bytes:
    if len(body) > max_bytes:
        raise TooLarge
    return body
