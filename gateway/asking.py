"""What is asked of the origin, what comes back (its head checked, its body whole), and how that can
fail."""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from io import BytesIO
from typing import NamedTuple

import aiohttp
from aiohttp.http_exceptions import HttpProcessingError

from gateway.connections import AnswerHead, Connection, NoConnection, NoConnectionInTime
from gateway.rules.forwarding import BadAnswer, response_headers
from protocol.errors import ProtocolError
from protocol.heads import ReplyHead, parse_head
from protocol.names import ACCESS_KEY
from protocol.replies import Headers

UNREACHABLE = "origin-unreachable"
TIMEOUT = "origin-timeout"
UNAVAILABLE = "origin-unavailable"
BUSY = "origin-busy"
BUSY_FOR_SUBJECT = "origin-busy-for-subject"
BAD_ANSWER = "bad-origin-answer"
FAILURES = (UNREACHABLE, TIMEOUT, UNAVAILABLE, BUSY, BUSY_FOR_SUBJECT, BAD_ANSWER)

NO_BODY = frozenset({204, 304})
PROGRESS_BYTES = 1024  # a whole body brings at least this much in each idle time

_STATUSES = frozenset(s.value for s in HTTPStatus if s.value >= 200) - {206}  # no Range is asked
_TARGET = re.compile(r"/[!\"$-~]*")  # visible ASCII without a fragment


@dataclass(frozen=True, slots=True)
class UpstreamRequest:
    """`target` is the canonical path, encoded, with its query; `headers` as rules.forwarding.
    `of_stream` is set for reads whose answer is of use only with an offset to go on from."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes = b""
    of_stream: bool = False

    def __post_init__(self) -> None:
        if not _TARGET.fullmatch(self.target):
            raise ValueError("the target is not an encoded path")


@dataclass(frozen=True, slots=True)
class UpstreamResponse:
    """`headers` have lower-case names, and only those that may be passed on; `head` is their
    meaning."""

    status: int
    headers: dict[str, str]
    body: bytes
    head: ReplyHead = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "head", parse_head(self.headers))


@dataclass(frozen=True, slots=True)
class UpstreamStream:
    """A response whose body has yet to come; `length` is None where the origin does not say."""

    status: int
    headers: dict[str, str]
    pieces: AsyncIterator[bytes]
    length: int | None = None


class UpstreamError(ProtocolError):
    """No answer that can be passed on; `sent` when the origin may have carried out the request."""

    def __init__(
        self, status: int, code: str, detail: str, headers: Headers = (), *, sent: bool = False
    ) -> None:
        super().__init__(status, code, detail, headers)
        self.sent = sent


class TooLarge(UpstreamError):
    """The body has more bytes than were asked for; `open` passes on a body of any size."""

    def __init__(self) -> None:
        super().__init__(502, "answer-too-large", "The origin's answer is too large.", sent=True)


# The first row that fits; the details name no address of the origin.
_EXPLAINED: tuple[tuple[type[Exception], int, str, str], ...] = (
    (NoConnectionInTime, 504, TIMEOUT, "The origin took no connection in time."),
    (NoConnection, 502, UNREACHABLE, "There is no connection to the origin."),
    (HttpProcessingError, 502, BAD_ANSWER, "The origin's answer is not valid HTTP."),
    (aiohttp.ClientPayloadError, 502, BAD_ANSWER, "The origin's answer was cut short."),
    (aiohttp.ClientError, 502, UNREACHABLE, "The origin ended the connection."),
    (ConnectionError, 502, UNREACHABLE, "The origin ended the connection."),
    (TimeoutError, 504, TIMEOUT, "The origin did not answer in time."),
)


def explain(error: Exception, sent: bool) -> UpstreamError:
    """A foreign exception as ours; what is not of the network is a mistake and stays as it is."""
    if isinstance(error, UpstreamError):
        return error
    if isinstance(error, BadAnswer):
        detail = f"The origin's answer cannot be passed on: {error}."
        return UpstreamError(502, BAD_ANSWER, detail, sent=sent)
    for kind, status, code, detail in _EXPLAINED:
        if isinstance(error, kind):
            return UpstreamError(status, code, detail, sent=sent)
    raise error


class BegunAnswer(NamedTuple):
    """A response whose head was read and checked; `length` is None where nobody has said."""

    connection: Connection
    status: int
    headers: dict[str, str]
    length: int | None
    body: aiohttp.StreamReader


def check_head(
    request: UpstreamRequest, connection: Connection, answer: AnswerHead, origin_path: str
) -> BegunAnswer:
    status, told = answer.message.code, answer.message.headers
    if status not in _STATUSES:
        raise BadAnswer(f"status {status} was not asked for")
    if status == 401 and told.get("WWW-Authenticate") == ACCESS_KEY:
        raise BadAnswer("it wants another upstream.access_key than this gateway has")
    if status == 421:
        raise BadAnswer("it does not go by the name in gateway.origin_url")
    if status == 304 and "if-none-match" not in request.headers:
        raise BadAnswer("304 without a condition")
    length = told.get("Content-Length")
    framed = length is not None or answer.message.chunked
    if not framed and request.method != "HEAD" and status not in NO_BODY:
        raise BadAnswer("without a length, a whole body looks like half of one")
    headers = response_headers(told.items(), origin_path)
    if request.of_stream and status in (200, 204) and "stream-next-offset" not in headers:
        raise BadAnswer("it does not say where it ends")
    return BegunAnswer(
        connection, status, headers, None if length is None else int(length), answer.body
    )


async def gather_body(content: aiohttp.StreamReader, max_bytes: int, idle_s: float) -> bytes:
    if content.is_eof():  # it came with the head, and needs no clock
        return _within(content.read_nowait(), max_bytes)
    whole = BytesIO()  # which a join of all parts would hold twice
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
