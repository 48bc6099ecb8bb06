"""Reads one JSON stream from any Durable Streams server: existing data, then new data.

A reader starts with `/bootstrap`, with the snapshot alone if there is too much data for that, or
with a replay from the start if the server has neither. It reads to the tail, then follows it by
long-polls. If a position is gone (410), a snapshot has replaced it and the reader starts over.
Network errors become `RequestFailed` here.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

import aiohttp
import msgspec
from yarl import URL

from protocol.heads import ReplyHead, parse_head
from protocol.media import media_type
from protocol.multipart import MultipartError, Part, PartDecoder, boundary_of
from protocol.names import JSON_TYPE, STREAM_NEXT_OFFSET
from protocol.offsets import START, is_offset
from protocol.state import split_array
from weir.client.access import access_headers
from weir.client.escapes import shown
from weir.exits import RequestFailed
from wire.settings import SettingsError

TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=120)
NO_BOOTSTRAP = (400, 404, 405, 501)
TOO_LARGE = 413
TRANSIENT = (429, 502, 503, 504)
MAX_FRUITLESS = 3  # restarts without reaching the tail
FIRST_PAUSE_SECS, LAST_PAUSE_SECS = 0.5, 15.0
MAX_PROBLEM_BYTES = 16 * 1024
MAX_DETAIL = 300  # characters


@dataclass(frozen=True, slots=True)
class Begun:
    """Reading starts, or starts over: discard everything before."""

    snapshot_offset: str | None
    by_replay: bool = False  # the server has no bootstrap, and so no snapshots


@dataclass(frozen=True, slots=True)
class Batch:
    """Some messages, unchanged; `first` numbers them from 1 after the place."""

    messages: list[bytes]
    place: str
    first: int = 1


@dataclass(frozen=True, slots=True)
class CaughtUp:
    offset: str


Event = Begun | Batch | CaughtUp


class Unavailable(RequestFailed):
    """A temporary failure."""


class _Gone(RequestFailed):
    """410: the position is no longer available."""


@asynccontextmanager
async def open_stream(
    url: str, token: str | None, complain: Callable[[str], None]
) -> AsyncIterator["StreamClient"]:
    """`complain` is called for errors that do not stop reading."""
    headers = access_headers() | ({"Authorization": f"Bearer {token}"} if token else {})
    async with aiohttp.ClientSession(timeout=TIMEOUT, headers=headers) as session:
        yield StreamClient(session, parse_url(url), complain)


def parse_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise SettingsError("URL", f"{shown(url)!r} is not an http or https URL")
    if parts.query or parts.fragment or "@" in parts.netloc:
        raise SettingsError("URL", "a stream URL must have no query, fragment or password")
    return url.rstrip("/")


class StreamClient:
    """One stream, and the position reached."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        url: str,
        complain: Callable[[str], None],
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._session = session
        self._complain = complain
        self._pause = pause
        self.url = url
        self.offset = START
        self._cursor = ""
        self._up_to_date = False
        self._closed = False

    async def events(self, *, follow: bool) -> AsyncGenerator[Event, None]:
        """Everything up to the tail; with `follow` also new data, until the stream is closed."""
        fruitless = 0
        while True:
            try:
                async for event in self._events(follow):
                    if isinstance(event, CaughtUp):
                        fruitless = 0
                    yield event
                return
            except _Gone as error:
                fruitless += 1
                if fruitless == MAX_FRUITLESS:
                    raise
                self._complain(f"{error}; starting over")
                await self._pause(FIRST_PAUSE_SECS)

    async def publish(self, offset: str, snapshot: bytes) -> None:
        """Make the snapshot the beginning of the stream."""
        address, headers = self._snapshot_url(offset), {"Content-Type": JSON_TYPE}
        async with self._request("PUT", address, data=snapshot, headers=headers) as response:
            if response.status != 204:  # a 201 would mean a stream of that name
                raise await _refusal(response)

    def _snapshot_url(self, offset: str) -> str:
        return f"{self.url}/snapshot/{quote(offset, safe='')}"

    # -- reading ---------------------------------------------------------------------------------

    async def _events(self, follow: bool) -> AsyncIterator[Event]:
        async for event in self._begin():
            yield event
        while not self._up_to_date:
            yield await self._read()
        yield CaughtUp(self.offset)
        while follow and not self._closed:
            batch = await self._wait()
            if batch.messages:
                yield batch

    async def _begin(self) -> AsyncIterator[Event]:
        self.offset, self._cursor = START, ""
        self._up_to_date = self._closed = False
        async with self._request("GET", f"{self.url}/bootstrap") as response:
            head = parse_head(response.headers)
            boundary = boundary_of(head.content_type)
            is_too_large = response.status == TOO_LARGE
            if response.status in NO_BOOTSTRAP or (response.status == 200 and boundary is None):
                yield Begun(None, by_replay=True)
                return
            if boundary is not None and response.status == 200:
                told = head.snapshot_offset
                snapshot_offset = None if told in ("", START) else told
                yield Begun(snapshot_offset)
                async for batch in _bootstrap_batches(response, boundary, snapshot_offset):
                    yield batch
                self._move(head)
            elif not is_too_large:
                raise RequestFailed(str(await _refusal(response)))  # starting over would not help
        if is_too_large:
            async for event in self._begin_with_snapshot():
                yield event

    async def _begin_with_snapshot(self) -> AsyncIterator[Event]:
        """Too much for one response: read the snapshot alone, then the rest."""
        async with self._request("HEAD", self.url) as response:
            if response.status != 200:
                raise RequestFailed(str(await _refusal(response)))
            snapshot_offset = parse_head(response.headers).snapshot_offset or None
        yield Begun(snapshot_offset)
        if snapshot_offset is None:
            return
        async with self._request("GET", self._snapshot_url(snapshot_offset)) as response:
            if response.status == 404:
                raise _Gone(f"{self.url}: another snapshot has replaced {shown(snapshot_offset)}")
            if response.status == 410:  # another stream has this name now
                raise await _refusal(response)
            if response.status != 200:
                raise RequestFailed(str(await _refusal(response)))
            head = parse_head(response.headers)
            part = Part(head.content_type, await response.read())
            yield Batch(_snapshot_messages(part), f"of the snapshot at {snapshot_offset}")
            self._move(head)

    async def _read(self, **live: str) -> Batch:
        """The data after the offset; live reads wait for it, possibly without result."""
        asked = {"offset": self.offset} | live
        query = "&".join(f"{name}={quote(value, safe='')}" for name, value in asked.items())
        async with self._request("GET", f"{self.url}?{query}") as response:
            if response.status not in (200, 204):
                raise await _refusal(response)
            head, body = parse_head(response.headers), b"[]"
            if response.status == 200:
                _check_json("the stream", head.content_type)
                body = await response.read()
            batch = Batch(_split(body, self.url), f"after offset {self.offset}")
            self._move(head)
        return batch

    async def _wait(self) -> Batch:
        """One long-poll; retries with increasing delays if the server is unavailable."""
        pause = FIRST_PAUSE_SECS
        live = {"live": "long-poll"} | ({"cursor": self._cursor} if self._cursor else {})
        while True:
            try:
                return await self._read(**live)
            except Unavailable as error:
                self._complain(f"{error}; retrying in {pause:g} s")
                await self._pause(pause)
                pause = min(2 * pause, LAST_PAUSE_SECS)

    def _move(self, head: ReplyHead) -> None:
        if not is_offset(head.next_offset):
            raise RequestFailed(f"{self.url} is not a durable stream: no {STREAM_NEXT_OFFSET}")
        # A server that neither advances nor says that it is up to date would cause an endless loop.
        self._up_to_date = head.up_to_date or head.next_offset == self.offset
        self._closed = head.closed
        self.offset, self._cursor = head.next_offset, head.cursor

    @asynccontextmanager
    async def _request(
        self,
        method: str,
        address: str,
        data: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        try:
            async with self._session.request(
                method,
                URL(address, encoded=True),
                data=data,
                headers=headers,
                allow_redirects=False,
            ) as response:
                yield response
        except (aiohttp.ClientError, TimeoutError) as error:
            said = shown(str(error)) or type(error).__name__
            raise Unavailable(f"{self.url}: {said[:MAX_DETAIL]}") from error


async def _bootstrap_batches(
    response: aiohttp.ClientResponse, boundary: str, snapshot_offset: str | None
) -> AsyncIterator[Batch]:
    """The snapshot's messages, then the others, one batch per read."""
    decoder = PartDecoder(boundary)
    place = f"after offset {snapshot_offset or START}"
    number = 0  # of parts so far; the first is the snapshot
    try:
        async for data in response.content.iter_any():
            parts = decoder.feed(data)
            if parts and number == 0:
                messages = _snapshot_messages(parts[0])
                yield Batch(messages, f"of the snapshot at {snapshot_offset or START}")
            rest = parts if number else parts[1:]
            if rest:
                yield Batch([_update(part) for part in rest], place, max(number, 1))
            number += len(parts)
    except MultipartError as error:
        raise RequestFailed(f"cannot read the bootstrap: {error}") from None
    if not decoder.complete or not number:
        raise RequestFailed("the bootstrap was truncated")


def _snapshot_messages(part: Part) -> list[bytes]:
    if not part.body:
        return []
    if media_type(part.content_type) != JSON_TYPE:
        kind = shown(part.content_type) or "an unknown type"
        raise RequestFailed(f"the stream's snapshot is {kind}, not JSON with State messages")
    return _split(part.body, "the snapshot")


def _update(part: Part) -> bytes:
    _check_json("the stream", part.content_type)
    return part.body


def _split(body: bytes, what: str) -> list[bytes]:
    try:
        return split_array(body)
    except ValueError as error:
        raise RequestFailed(f"{what}: not a JSON array of messages: {shown(str(error))}") from None


def _check_json(what: str, content_type: str) -> None:
    if media_type(content_type) != JSON_TYPE:
        kind = shown(content_type) or "of an unknown type"
        raise RequestFailed(f"{what} is {kind}, not {JSON_TYPE}: it has no State messages")


async def _refusal(response: aiohttp.ClientResponse) -> RequestFailed:
    """The server's response as the error that fits its status."""
    said = _detail_of(await response.content.read(MAX_PROBLEM_BYTES))
    reason = f"{response.status} {shown(response.reason or '')}".strip()
    path = shown(response.url.raw_path)
    kinds = {410: _Gone} | dict.fromkeys(TRANSIENT, Unavailable)
    kind = kinds.get(response.status, RequestFailed)
    return kind(f"{response.method} {path}: {reason}" + (f": {said}" if said else ""))


def _detail_of(body: bytes) -> str:
    """The detail of a problem (RFC 9457), or the plain text."""
    try:
        problem = msgspec.json.decode(body)
        said = problem.get("detail") or problem.get("title") if isinstance(problem, dict) else ""
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        said = body.decode("utf-8", "replace").partition("\n")[0].strip()
    return shown(str(said or ""))[:MAX_DETAIL]
