"""HTTP to the fleet: one try, and all that is known about how it ended.

`outcome` is about the request: `refused` means that it certainly did not happen. Whether that is
bad, and what to do, is the client's business; nothing is repeated here.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

import aiohttp
from yarl import URL

from loadtest.verify.history import Outcome
from protocol.heads import ReplyHead, parse_head
from protocol.names import ACCESS_KEY
from protocol.paths import stream_url

PLAIN_SECS = 8.0
LIVE_SECS = 15.0  # in which a waiting request shows a sign of life
CONNECT_SECS = 2.0

REFUSED, TIMEOUT, RESET, CUT, BUSY = "refused", "timeout", "reset", "cut", "busy"


@dataclass(frozen=True, slots=True)
class Door:
    """A way in: Envoy, one of the gateways, or the origin itself, which asks for its key."""

    name: str
    url: str
    key: str = ""

    def headers(self, more: Mapping[str, str]) -> Mapping[str, str]:
        return {**more, ACCESS_KEY: self.key} if self.key else more


@dataclass(slots=True)
class Answer:
    began: float
    ended: float = 0.0
    status: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)  # names in lower case
    body: bytes = b""
    trouble: str = ""

    @property
    def head(self) -> ReplyHead:
        return parse_head(self.headers)

    def as_operation(self, door: Door, key: str) -> dict[str, Any]:
        """What the history has of every request."""
        return {
            "door": door.name,
            "key": key,
            "began": self.began,
            "ended": self.ended,
            "outcome": self.outcome,
            "status": self.status,
            "trouble": self.trouble,
        }

    @property
    def outcome(self) -> Outcome:
        if self.trouble == REFUSED or 300 <= self.status < 500:
            return "refused"
        return "ok" if 200 <= self.status < 300 and not self.trouble else "unknown"


class Doors:
    """Asks; times are seconds since it was made."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session
        self._zero = time.monotonic()

    def now(self) -> float:
        return round(time.monotonic() - self._zero, 6)

    async def ask(
        self,
        door: Door,
        method: str,
        stream: str,
        headers: Mapping[str, str],
        *,
        part: str = "",
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        timeout_s: float = PLAIN_SECS,
    ) -> Answer:
        answer = Answer(self.now())
        url = _url(door, stream, part, query)
        try:
            async with (
                asyncio.timeout(timeout_s),
                self._session.request(
                    method, url, headers=door.headers(headers), data=body, allow_redirects=False
                ) as reply,
            ):
                _take_head(answer, reply)
                answer.body = await reply.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            answer.trouble = classify(error, answer.status)
        answer.ended = self.now()
        if not answer.trouble:
            answer.trouble = _trouble_of(answer.status)
        return answer

    @asynccontextmanager
    async def open(
        self, door: Door, stream: str, headers: Mapping[str, str], query: Mapping[str, str]
    ) -> AsyncIterator[tuple[Answer, AsyncIterator[bytes]]]:
        """A body that comes piece by piece; when it breaks, the answer says so."""
        answer = Answer(self.now())
        try:
            async with self._session.get(
                _url(door, stream, "", query), headers=door.headers(headers), allow_redirects=False
            ) as reply:
                _take_head(answer, reply)
                answer.trouble = _trouble_of(answer.status)
                yield answer, reply.content.iter_any()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            if answer.status:
                answer.trouble = classify(error, answer.status)
            else:
                answer.trouble = classify(error, 0)
                answer.ended = self.now()
                yield answer, _nothing()
        answer.ended = self.now()


def make_session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, ssl=False),  # our own certificate, made just now
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECS, sock_read=LIVE_SECS),
    )


def classify(error: BaseException, status: int) -> str:
    """What went wrong, in the words of the history."""
    if isinstance(error, aiohttp.ClientConnectorError):
        return REFUSED
    if isinstance(error, TimeoutError):
        return TIMEOUT
    return CUT if status else RESET


def _trouble_of(status: int) -> str:
    if status == 429:
        return BUSY
    return str(status) if status >= 500 else ""


def _url(door: Door, stream: str, part: str, query: Mapping[str, str] | None) -> URL:
    asked = f"?{urlencode(query)}" if query else ""
    return URL(f"{door.url}{stream_url(stream)}{part}{asked}", encoded=True)


def _take_head(answer: Answer, reply: aiohttp.ClientResponse) -> None:
    answer.status = reply.status
    answer.headers = {name.lower(): value for name, value in reply.headers.items()}


async def _nothing() -> AsyncIterator[bytes]:
    return
    yield b""
