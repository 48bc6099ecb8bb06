"""From headers and query to one frozen value per operation, or a ProtocolError.

Headers are mappings of lower-case names. Nothing here knows the stream's state: `stream` judges
requests against it.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from urllib.parse import unquote_plus

from msgspec import Struct

from protocol.cursors import checked_cursor
from protocol.errors import ProtocolError
from protocol.media import media_type
from protocol.names import DEFAULT_CONTENT_TYPE, MAX_SAFE_INTEGER, is_true
from protocol.offsets import NOW, START, Offset, is_event_id, parse_offset, position_of
from protocol.paths import parse_source
from protocol.producers import Producer
from protocol.timestamps import timestamp_ms

LONG_POLL = "long-poll"
SSE = "sse"
READ_PARAMETERS = ("offset", "live", "cursor", "max_bytes")

_CANONICAL_INTEGER = re.compile(r"0|[1-9][0-9]{0,15}")
_DIGITS = re.compile(r"[0-9]{1,16}")
# RFC 9110 8.3.1, parameters left loose; no control characters can pass.
_CONTENT_TYPE = re.compile(
    r"[!#$%&'*+.^_`|~0-9A-Za-z-]+/[!#$%&'*+.^_`|~0-9A-Za-z-]+[ \t]*(;[\t -~]*)?"
)
_VISIBLE = re.compile(r"[!-~]([ -~]*[!-~])?")
MAX_TOKEN_LENGTH = 256
# Years 1 to 9999 in UTC, which responses can express; timestamps may exceed them by a day.
EXPIRIES_MS = range(-62_135_596_800_000, 253_402_300_800_000)
MAX_LISTED = 1000
MAX_PARAMETERS = 64  # of a query, known or not


class ForkOf(Struct, frozen=True, gc=False):
    """The fork headers of a PUT, with the source as a stream name."""

    source_name: str
    offset: Offset | None
    sub_offset: int


class Create(Struct, frozen=True, gc=False):
    content_type: str | None
    ttl_s: int | None
    expires_at_ms: int | None
    closed: bool
    fork: ForkOf | None
    strict_state: bool = False
    if_match: str | None = None
    if_none_match: str | None = None
    first: "Append | None" = None  # the body, if it has a producer or sequence

    @property
    def content_type_or_default(self) -> str:
        return self.content_type or DEFAULT_CONTENT_TYPE


class Append(Struct, frozen=True, gc=False):
    media_type: str | None
    producer: Producer | None
    seq: str | None
    close: bool
    if_match: str | None = None


class Read(Struct, frozen=True, gc=False):
    """`position` None is the current tail (`offset=now`). `stream_id` is the stream that the offset
    names, if any."""

    position: int | None
    live: str | None
    cursor: str | None
    max_bytes: int | None = None
    stream_id: int | None = None


class Publish(Struct, frozen=True, gc=False):
    """A snapshot to publish."""

    offset: Offset
    content_type: str


class Listing(Struct, frozen=True, gc=False):
    prefix: str
    after: str
    limit: int


def parse_create(headers: Mapping[str, str]) -> Create:
    ttl, expires = headers.get("stream-ttl"), headers.get("stream-expires-at")
    if ttl is not None and expires is not None:
        raise ProtocolError(
            400, "ttl-and-expiry", "Stream-TTL and Stream-Expires-At are mutually exclusive."
        )
    return Create(
        content_type=_content_type(headers),
        ttl_s=None if ttl is None else _canonical_integer("Stream-TTL", ttl),
        expires_at_ms=None if expires is None else _expiry_ms(expires),
        closed=is_true(headers.get("stream-closed")),
        fork=_fork(headers),
        strict_state=_strict_state(headers.get("stream-state")),
        if_match=headers.get("if-match"),
        if_none_match=headers.get("if-none-match"),
        first=_first_append(headers),
    )


def _first_append(headers: Mapping[str, str]) -> Append | None:
    producer, seq = _producer(headers), _seq(headers)
    if producer is None and seq is None:
        return None
    return Append(None, producer, seq, close=False)


def parse_append(headers: Mapping[str, str]) -> Append:
    content_type = headers.get("content-type")
    return Append(
        media_type=None if content_type is None else _checked_media_type(content_type),
        producer=_producer(headers),
        seq=_seq(headers),
        close=is_true(headers.get("stream-closed")),
        if_match=headers.get("if-match"),
    )


def parse_publish(offset: str, headers: Mapping[str, str]) -> Publish:
    """`offset` comes from the path; reserved offsets are not allowed."""
    if offset in (START, NOW):
        raise ProtocolError(400, "invalid-offset", "A snapshot needs an actual offset.")
    return Publish(parse_offset(offset), _content_type(headers) or DEFAULT_CONTENT_TYPE)


def parse_listing(query: str) -> Listing:
    values = known_values(query, ("prefix", "after", "limit"))
    limit = values.get("limit", str(MAX_LISTED))
    if not _CANONICAL_INTEGER.fullmatch(limit) or not 1 <= int(limit) <= MAX_LISTED:
        raise ProtocolError(400, "invalid-limit", f"`limit` must be 1 to {MAX_LISTED}.")
    return Listing(values.get("prefix", ""), values.get("after", ""), int(limit))


def check_bootstrap_query(query: str) -> None:
    """A bootstrap is not live; later data is read from the stream."""
    if "live" in known_values(query, ("live",)):
        raise ProtocolError(400, "bootstrap-is-not-live", "Continue live from Stream-Next-Offset.")


@lru_cache(maxsize=8192)
def parse_read(query: str, last_event_id: str = "") -> Read:
    """From the raw query string: dict-like access would hide a repeated `offset`. The last event id
    takes precedence, because a reconnecting browser repeats the original URL."""
    values = read_values(query)
    offset, live = values.get("offset"), values.get("live")
    cursor = None if live is None else checked_cursor(values.get("cursor"))
    max_bytes = parse_max_bytes(values.get("max_bytes"))
    if live == SSE and is_event_id(last_event_id) and position_of(last_event_id) is not None:
        offset = last_event_id
    if offset == NOW:
        return Read(None, live, cursor, max_bytes)
    position, stream_id = parse_offset(START if offset is None else offset)
    return Read(position, live, cursor, max_bytes, stream_id)


def read_values(query: str) -> dict[str, str]:
    """The parameters of a read; a live one needs `offset`."""
    values = known_values(query, READ_PARAMETERS)
    live = values.get("live")
    if live is not None and live not in (LONG_POLL, SSE):
        raise ProtocolError(400, "invalid-live", "`live` must be `long-poll` or `sse`.")
    if live is not None and "offset" not in values:
        raise ProtocolError(400, "offset-required", "A live read needs an `offset`.")
    return values


def query_pairs(query: str) -> list[str]:
    """Bounded, because they are parsed before the token is checked."""
    if query.count("&") >= MAX_PARAMETERS:
        raise ProtocolError(400, "invalid-query", "Too many query parameters.")
    return query.split("&")


def known_values(query: str, known: tuple[str, ...]) -> dict[str, str]:
    """Values of the known parameters; others are ignored."""
    values: dict[str, str] = {}
    for pair in query_pairs(query):
        key, _, value = pair.partition("=")
        key = unquote_plus(key)
        if key in known:
            if key in values:
                raise ProtocolError(400, "repeated-parameter", f"`{key}` is repeated.")
            try:
                values[key] = unquote_plus(value, errors="strict")
            except UnicodeDecodeError:
                raise ProtocolError(400, "invalid-query", f"`{key}` is not UTF-8.") from None
    return values


def parse_max_bytes(text: str | None) -> int | None:
    if text is None:
        return None
    if not _CANONICAL_INTEGER.fullmatch(text) or text == "0":
        raise ProtocolError(400, "invalid-max-bytes", "`max_bytes` must be a number above 0.")
    return int(text)


def _strict_state(value: str | None) -> bool:
    if value is None:
        return False
    if value.strip().lower() != "strict":
        raise ProtocolError(400, "invalid-state-mode", "Stream-State must be `strict` or absent.")
    return True


@lru_cache(maxsize=1024)
def _checked_media_type(content_type: str) -> str:
    if len(content_type) > MAX_TOKEN_LENGTH or not _CONTENT_TYPE.fullmatch(content_type):
        raise ProtocolError(400, "invalid-content-type", "Content-Type is not a media type.")
    return media_type(content_type)


def _content_type(headers: Mapping[str, str]) -> str | None:
    value = headers.get("content-type")
    if value is not None:
        _checked_media_type(value)
    return value


def _canonical_integer(name: str, text: str) -> int:
    if not _CANONICAL_INTEGER.fullmatch(text) or int(text) > MAX_SAFE_INTEGER:
        raise ProtocolError(
            400,
            "invalid-integer",
            f"{name} must be a decimal integer without sign or leading zero.",
        )
    return int(text)


def _expiry_ms(text: str) -> int:
    expiry_ms = timestamp_ms(text)
    if expiry_ms is None or expiry_ms not in EXPIRIES_MS:
        raise ProtocolError(
            400, "invalid-expiry", "Stream-Expires-At must be an RFC 3339 timestamp."
        )
    return expiry_ms


@lru_cache(maxsize=4096)
def _check_token(name: str, value: str) -> None:
    if len(value) > MAX_TOKEN_LENGTH or not _VISIBLE.fullmatch(value):
        raise ProtocolError(
            400, "invalid-header", f"{name} must be 1 to {MAX_TOKEN_LENGTH} visible characters."
        )


def _seq(headers: Mapping[str, str]) -> str | None:
    seq = headers.get("stream-seq")
    if seq is not None:
        _check_token("Stream-Seq", seq)
    return seq


def _producer(headers: Mapping[str, str]) -> Producer | None:
    producer_id = headers.get("producer-id")
    epoch, seq = headers.get("producer-epoch"), headers.get("producer-seq")
    if producer_id is None and epoch is None and seq is None:
        return None
    if producer_id is None or epoch is None or seq is None:
        raise ProtocolError(
            400, "partial-producer", "Send Producer-Id, Producer-Epoch and Producer-Seq together."
        )
    _check_token("Producer-Id", producer_id)
    return Producer(
        producer_id,
        _producer_integer("Producer-Epoch", epoch),
        _producer_integer("Producer-Seq", seq),
    )


def _producer_integer(name: str, text: str) -> int:
    if not _DIGITS.fullmatch(text) or int(text) > MAX_SAFE_INTEGER:
        raise ProtocolError(400, "invalid-producer", f"{name} must be an integer from 0 to 2^53-1.")
    return int(text)


def _fork(headers: Mapping[str, str]) -> ForkOf | None:
    source = headers.get("stream-forked-from")
    offset, sub_offset = headers.get("stream-fork-offset"), headers.get("stream-fork-sub-offset")
    sub = 0 if sub_offset is None else _canonical_integer("Stream-Fork-Sub-Offset", sub_offset)
    if source is None:
        if offset is not None or sub_offset is not None:
            raise ProtocolError(
                400, "fork-source-required", "Stream-Fork-* headers need Stream-Forked-From."
            )
        return None
    source_name = parse_source(source)
    if source_name is None:
        raise ProtocolError(400, "invalid-fork-source", "Stream-Forked-From must be a stream path.")
    if sub and offset is None:
        raise ProtocolError(
            400, "fork-offset-required", "A sub-offset above 0 needs Stream-Fork-Offset."
        )
    if offset in (START, NOW):
        raise ProtocolError(400, "invalid-offset", "Stream-Fork-Offset must be an actual offset.")
    return ForkOf(
        source_name=source_name,
        offset=None if offset is None else parse_offset(offset),
        sub_offset=sub,
    )
