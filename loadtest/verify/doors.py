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

import aiohttp

from loadtest.verify.history import NO_SPACE, Outcome
from loadtest.verify.keyring import Token
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

    @property
    def is_origin(self) -> bool:
        return self.key != ""

    def headers(self, token: Token | None) -> dict[str, str]:
        bearer = {"Authorization": f"Bearer {token.text}"} if token else {}
        return bearer | ({ACCESS_KEY: self.key} if self.key else {})


@dataclass(frozen=True, slots=True)
class Request:
    path: str  # the stream's, and what may follow it
    method: str = "GET"
    headers: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None


@dataclass(slots=True)
class Answer:
    door: Door
    token: Token | None
    began: float
    ended: float = 0.0
    answered: float = 0.0  # when its head came
    status: int = 0
    head: ReplyHead = ReplyHead()
    body: bytes = b""
    trouble: str = ""

    def as_operation(self) -> dict[str, Any]:
        """What the history has of every request."""
        return {
            "door": self.door.name,
            "key": self.token.key if self.token else "",
            "began": self.began,
            "ended": self.ended,
            "answered": self.answered,
            "outcome": self.outcome,
            "status": self.status,
            "trouble": self.trouble,
        }

    @property
    def outcome(self) -> Outcome:
        if self.trouble == REFUSED or 300 <= self.status < 500:
            return "refused"
        if self.status == NO_SPACE and self.door.is_origin:
            return "refused"
        return "ok" if 200 <= self.status < 300 and not self.trouble else "unknown"


class Doors:
    """Asks; times are seconds since it was made."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session
        self._zero = time.monotonic()

    def now(self) -> float:
        return time.monotonic() - self._zero

    async def ask(
        self, door: Door, token: Token | None, request: Request, timeout_s: float = PLAIN_SECS
    ) -> Answer:
        async with self.open(door, token, request, timeout_s) as (answer, pieces):
            answer.body = b"".join([piece async for piece in pieces])
        return answer

    @asynccontextmanager
    async def open(
        self, door: Door, token: Token | None, request: Request, timeout_s: float | None = None
    ) -> AsyncIterator[tuple[Answer, AsyncIterator[bytes]]]:
        """A body that comes piece by piece; when it breaks, the answer says so."""
        answer = Answer(door, token, self.now())
        try:
            async with (
                asyncio.timeout(timeout_s),
                self._session.request(
                    request.method,
                    door.url + stream_url(request.path),
                    headers={**door.headers(token), **request.headers},
                    params=request.query,
                    data=request.body,
                    allow_redirects=False,
                ) as reply,
            ):
                answer.answered = self.now()
                answer.status, answer.head = reply.status, parse_head(reply.headers)
                answer.trouble = _trouble_of(reply.status)
                yield answer, reply.content.iter_any()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            answer.trouble = _classify(error, answer.status)
            if not answer.status:
                yield answer, _nothing()
        answer.ended = self.now()


@asynccontextmanager
async def open_doors() -> AsyncIterator[Doors]:
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECS, sock_read=LIVE_SECS)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        yield Doors(session)


def _classify(error: BaseException, status: int) -> str:
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


async def _nothing() -> AsyncIterator[bytes]:
    return
    yield b""
