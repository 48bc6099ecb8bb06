"""Requests to one server over one connection: with retries, and with errors that name the request
but never show the token.

Only GET and HEAD are sent, so retries are always safe. Runs on executors: standard library
and `protocol` only.
"""

import json
import random
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any, Self, TypeVar
from urllib.parse import SplitResult, urljoin, urlsplit

from protocol.heads import ReplyHead, parse_head
from protocol.names import ACCESS_KEY

TRANSIENT = frozenset({429, 500, 502, 503, 504})
FIRST_PAUSE_SECS = 0.1
LAST_PAUSE_SECS = 10.0
LAST_WAIT_SECS = 60.0  # longest Retry-After to follow
MAX_DETAIL = 300
MAX_CONNECTIONS = 8
ASKED_PER_CONNECTION = 16
_PORTS = {"http": 80, "https": 443}

T = TypeVar("T")


class SourceError(Exception):
    """For users: which stream, and what went wrong."""


@dataclass(frozen=True, slots=True)
class Address:
    """A server and how to ask it: credentials, timeout, retries."""

    url: str
    token: str = field(default="", repr=False)
    timeout_s: float = 30.0
    retries: int = 5
    access_key: str = field(default="", repr=False)

    @property
    def parts(self) -> SplitResult:
        return urlsplit(self.url)

    @property
    def origin(self) -> tuple[str, str, int]:
        return origin_of(self.url)


@dataclass(frozen=True, slots=True)
class Response:
    """Header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def head(self) -> ReplyHead:
        return parse_head(self.headers)

    def detail(self) -> str:
        """The server's explanation of a refusal (RFC 9457), in one line."""
        try:
            problem = json.loads(self.body)
            said = problem.get("detail") or problem.get("title") or ""
        except (ValueError, AttributeError, RecursionError):
            said = self.body[: 4 * MAX_DETAIL].decode("utf-8", "replace").partition("\n")[0]
        shown = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in str(said))
        return shown.strip()[:MAX_DETAIL]


def origin_of(url: str) -> tuple[str, str, int]:
    """Scheme, host, port: must be equal for a token to be sent there."""
    parts = urlsplit(url)
    return parts.scheme, parts.hostname or "", parts.port or _PORTS.get(parts.scheme, 0)


class Client:
    """One connection, opened when needed and closed at the end of a `with`."""

    def __init__(
        self,
        address: Address,
        *,
        sleep: Callable[[float], None] = time.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._address = address
        self._sleep = sleep
        self._chance = chance
        self._connection: HTTPConnection | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def get(self, what: str, target: str, **headers: str) -> Response:
        """`what` names the resource in errors, `target` is path and query."""
        return self._insist("GET", what, self._address.parts.path.rstrip("/") + target, headers)

    def head(self, what: str, target: str) -> Response:
        return self._insist("HEAD", what, self._address.parts.path.rstrip("/") + target, {})

    def follow(self, what: str, target: str, location: str) -> Response:
        """Follow a redirect of `target`, if it stays on the same server."""
        base = self._address.url.rstrip("/") + target
        url = urljoin(base, location)
        if origin_of(url) != self._address.origin:
            host = urlsplit(url).netloc.rpartition("@")[2]
            raise SourceError(f"{what}: redirect to another server ({host!r}) not followed")
        parts = urlsplit(url)
        return self._insist("GET", what, parts.path + (f"?{parts.query}" if parts.query else ""))

    def _insist(
        self, method: str, what: str, target: str, headers: Mapping[str, str] | None = None
    ) -> Response:
        pause_s, tries_left = FIRST_PAUSE_SECS, self._address.retries
        while True:
            reused = self._connection is not None
            wait_s = pause_s * (0.5 + self._chance() / 2)
            try:
                response = self._send(method, target, headers or {})
            except (OSError, HTTPException) as error:
                self.close()
                if reused:  # it may have been closed while idle, which is not a failure
                    continue
                if not tries_left:
                    server = self._address.parts.netloc
                    raise SourceError(f"{what}: {server} failed: {_said(error)}") from None
            else:
                if response.status not in TRANSIENT or not tries_left:
                    return response
                wait_s = max(wait_s, _retry_after_s(response.headers))
            self._sleep(wait_s)
            tries_left -= 1
            pause_s = min(2 * pause_s, LAST_PAUSE_SECS)

    def _send(self, method: str, target: str, headers: Mapping[str, str]) -> Response:
        connection = self._connection = self._connection or self._connect()
        token, key = self._address.token, self._address.access_key
        mine = {"User-Agent": "weir-spark"}
        mine |= {"Authorization": f"Bearer {token}"} if token else {}
        mine |= {ACCESS_KEY: key} if key else {}
        asked = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, target, headers=mine | asked)
        received = connection.getresponse()
        named = {name.lower(): value for name, value in received.getheaders()}
        response = Response(received.status, named, received.read())
        if received.will_close:
            self.close()
        return response

    def _connect(self) -> HTTPConnection:
        parts = self._address.parts
        kinds: dict[str, Any] = {"http": HTTPConnection, "https": HTTPSConnection}
        made: HTTPConnection = kinds[parts.scheme](
            parts.hostname, parts.port, timeout=self._address.timeout_s
        )
        return made


def ask_each(address: Address, names: Sequence[str], ask: Callable[[Client, str], T]) -> list[T]:
    """In any order, over several connections if there are many names."""
    count = min(MAX_CONNECTIONS, 1 + len(names) // ASKED_PER_CONNECTION)

    def ask_some(first: int) -> list[T]:
        with Client(address) as client:
            return [ask(client, name) for name in names[first::count]]

    with ThreadPoolExecutor(count) as threads:
        return [answer for part in threads.map(ask_some, range(count)) for answer in part]


def _said(error: Exception) -> str:
    return f"{type(error).__name__} {error}".strip()[:MAX_DETAIL]


def _retry_after_s(headers: Mapping[str, str]) -> float:
    """In seconds only: a date would need synchronised clocks."""
    value = headers.get("retry-after", "")
    return min(float(value), LAST_WAIT_SECS) if value.isascii() and value.isdigit() else 0.0
