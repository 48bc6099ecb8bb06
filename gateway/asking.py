"""What is asked of the origin, what comes back, and how that can fail."""

import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field

import aiohttp
from aiohttp.http_exceptions import HttpProcessingError

from gateway.connections import NoConnection, NoConnectionInTime
from gateway.rules.forwarding import BadAnswer
from protocol.errors import ProtocolError
from protocol.heads import ReplyHead, parse_head

UNREACHABLE = "origin-unreachable"
TIMEOUT = "origin-timeout"
UNAVAILABLE = "origin-unavailable"
BUSY = "origin-busy"
BUSY_FOR_SUBJECT = "origin-busy-for-subject"
BAD_ANSWER = "bad-origin-answer"
FAILURES = (UNREACHABLE, TIMEOUT, UNAVAILABLE, BUSY, BUSY_FOR_SUBJECT, BAD_ANSWER)

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
    attempts: int = 1
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
    attempts: int = 1


class UpstreamError(ProtocolError):
    """No answer that can be passed on; `sent` when the origin may have carried out the request."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        headers: tuple[tuple[str, str], ...] = (),
        *,
        sent: bool = False,
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
