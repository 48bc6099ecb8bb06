"""A Durable Streams server's information about its streams: heads, listings, chunks, snapshots, and
chunk boundaries.

Offsets are opaque and ordered as strings (DS 8). Our own origin's are byte positions, and its
entity tags start with the stream's incarnation, which is new for each creation. Other servers work
as well, with less information. Runs on executors.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import quote, unquote

from protocol.heads import ReplyHead
from protocol.media import media_type
from protocol.names import BUCKET_PREFIX, DEFAULT_CONTENT_TYPE, JSON_TYPE, STREAM_PREFIX
from protocol.offsets import START, is_offset, position_of
from spark.http import Client, Response, SourceError

_SAFE = "/!$&'()*+,;=:@~"


@dataclass(frozen=True, slots=True)
class Chunk:
    offset: str
    next_offset: str
    content_type: str
    body: bytes
    incarnation: str

    @property
    def is_json(self) -> bool:
        return media_type(self.content_type) == JSON_TYPE

    @property
    def position(self) -> int | None:
        """Position of the first byte, if this response's offsets are byte positions."""
        start, end = position_of(self.offset), position_of(self.next_offset)
        held = len(self.body) - self.is_json  # two brackets, but no comma after the last message
        return start if start is not None and end is not None and end - start == held else None


@dataclass(frozen=True, slots=True)
class Snapshot:
    offset: str
    content_type: str
    body: bytes


@dataclass(frozen=True, slots=True)
class OffsetGone:
    """The data here is no longer kept; `earliest` is empty if unknown."""

    earliest: str


@dataclass(frozen=True, slots=True)
class Listed:
    """One stream of a bucket. If this is unchanged, so is its head."""

    name: str
    created_at_ms: object
    tail: object


def stream_name(text: str) -> str:
    """The canonical name for a name, a path or an encoded path, as in access logs."""
    return unquote(text).removeprefix(STREAM_PREFIX)


def stream_path(name: str) -> str:
    prefix = "" if name.startswith(BUCKET_PREFIX) else STREAM_PREFIX
    return prefix + quote(name, safe=_SAFE)


def precedes(offset: str, other: str) -> bool:
    positions = position_of(offset), position_of(other)
    if positions[0] is not None and positions[1] is not None:
        return positions[0] < positions[1]
    return other != START and (offset == START or offset < other)


class Streams:
    """The streams behind one client."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def head(self, name: str) -> ReplyHead | None:
        """Its `next_offset` is the tail; None if there is no such stream."""
        response = self._client.head(_shown(name), stream_path(name))
        if response.status in (404, 410):
            return None
        _expect(response, _shown(name))
        return _checked(response.head, name)

    def listing(self, bucket: str, prefix: str) -> Iterator[Listed]:
        after = ""
        while True:
            query = f"prefix={quote(prefix, safe='')}&after={quote(after, safe='')}"
            target = f"{BUCKET_PREFIX}{quote(bucket, safe='')}/streams?{query}"
            response = self._client.get(f"bucket {bucket!r}", target)
            _expect(response, f"bucket {bucket!r}")
            try:
                page = json.loads(response.body)
                for row in page["streams"]:
                    name = f"{BUCKET_PREFIX}{bucket}/{row['stream_id']}"
                    yield Listed(name, row.get("created_at_ms"), row.get("tail_offset"))
                more, after = page.get("has_more"), page.get("next_cursor")
            except (ValueError, LookupError, TypeError, AttributeError):
                raise SourceError(f"bucket {bucket!r}: cannot read the listing") from None
            if not more or not after:
                return

    def read(self, name: str, offset: str) -> Chunk | OffsetGone | None:
        """None if there is no such stream, or the offset names another one."""
        response = self._client.get(_shown(name), _target(name, offset))
        head = response.head
        if response.status == 404 or (response.status == 410 and head.etag):
            return None
        if response.status == 410:
            return OffsetGone(head.earliest_offset)
        _expect(response, f"{_shown(name)} at {offset}")
        content_type = head.content_type or DEFAULT_CONTENT_TYPE
        next_offset = _checked(head, name).next_offset
        return Chunk(offset, next_offset, content_type, response.body, head.incarnation)

    def snapshot(self, name: str) -> Snapshot | None:
        """The latest; None if there is none, or no such stream."""
        target = stream_path(name) + "/snapshot"
        response = self._client.get(_shown(name), target)
        if response.status == 307:
            response = self._client.follow(_shown(name), target, response.head.location)
        if response.status in (404, 410):
            return None
        what = f"snapshot of {_shown(name)}"
        _expect(response, what)
        head = response.head
        if not is_offset(head.snapshot_offset):
            raise SourceError(f"{what}: no Stream-Snapshot-Offset in the response")
        content_type = head.content_type or DEFAULT_CONTENT_TYPE
        return Snapshot(head.snapshot_offset, content_type, response.body)

    def border(self, name: str, offset: str, max_bytes: int = 0) -> str | OffsetGone | None:
        """The end of the chunk at an offset, without its bytes; None if unknown.

        Our servers respond to `If-None-Match: *` with 304 and all headers of the chunk.
        """
        limit = f"&max_bytes={max_bytes}" if max_bytes else ""
        response = self._client.get(_shown(name), _target(name, offset) + limit, If_None_Match="*")
        head = response.head
        if response.status == 410 and head.earliest_offset:
            return OffsetGone(head.earliest_offset)
        border = head.next_offset
        known = response.status == 304 and position_of(border) is not None
        return border if known and precedes(offset, border) else None


def _target(name: str, offset: str) -> str:
    return f"{stream_path(name)}?offset={quote(offset, safe='')}"


def _shown(name: str) -> str:
    return f"stream {name!r}"


def _checked(head: ReplyHead, name: str) -> ReplyHead:
    if not is_offset(head.next_offset):
        raise SourceError(f"{_shown(name)}: no Stream-Next-Offset in the response: not a stream")
    return head


REASONS = {
    401: "the token is missing or invalid",
    403: "the token does not allow this",
    404: "not found",
}


def _expect(response: Response, what: str) -> None:
    if response.status != 200:
        said = response.detail() or REASONS.get(response.status, "")
        raise SourceError(f"{what}: status {response.status}{': ' if said else ''}{said}")
