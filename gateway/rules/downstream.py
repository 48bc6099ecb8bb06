"""Response headers for clients and the caches in between.

`private` unless a stream is configured as public: requests carry tokens, and a shared cache could
not check them.
"""

from collections.abc import Mapping

from gateway.entries import Entry, Form
from gateway.rules.freshness import parse_cache_control
from protocol import names
from protocol.cursors import INTERVAL_SECS
from protocol.media import media_type
from protocol.replies import NO_STORE, Headers, Reply

_TRUE = "true"
_INERT = frozenset(
    {"application/json", "application/octet-stream", "application/problem+json", "text/plain", ""}
)
_SANDBOX: Headers = (("Content-Security-Policy", "sandbox"),)
_NOT_KEPT = frozenset({"no-store", "no-cache", "private"})
_NOT_PRIVATE = ("public", "private", "s-maxage", "proxy-revalidate")


def cache_control(entry: Entry) -> str:
    """No cache may keep a chunk longer than we do."""
    scope = "public" if entry.public else "private"
    if not entry.immutable:
        return f"{scope}, max-age=0, must-revalidate"
    fresh_s = _whole_seconds(entry.fresh_until - entry.stored_at)
    stale_s = _whole_seconds(entry.stale_until - entry.fresh_until)
    swr = f", stale-while-revalidate={stale_s}" if stale_s else ""
    return f"{scope}, max-age={fresh_s}{swr}, immutable"


def _whole_seconds(seconds: float) -> int:
    """Rounded down, with tolerance for rounding errors."""
    return int(seconds + 0.001)


def live_control(told: str) -> str:
    """For live data on a CDN: `told` is meant for chunks, but the URL of a live read changes with
    each cursor interval."""
    values = parse_cache_control(told)
    if not told or not _NOT_KEPT.isdisjoint(values):
        return told
    lifetime = values.get("s-maxage", values.get("max-age"))
    return f"max-age={INTERVAL_SECS if lifetime is None else min(INTERVAL_SECS, lifetime)}"


def vary(entry: Entry, compressible: bool) -> str:
    varies = [] if entry.public else ["Authorization"]
    if compressible:
        varies.append("Accept-Encoding")
    return ", ".join(varies)


def sandbox(content_type: str) -> Headers:
    """The creator chooses a stream's type, so active content is sandboxed in browsers."""
    return () if media_type(content_type) in _INERT else _SANDBOX


def passed_headers(status: int, headers: Headers, *, public: bool) -> Headers:
    """For a forwarded response: shared caches may store only public streams, and no cache may store
    errors or redirects. Origins say `public`, because they see no tokens."""
    told = next((v.lower() for name, v in headers if name.lower() == "cache-control"), "")
    rest = tuple(header for header in headers if header[0].lower() != "cache-control")
    rest += sandbox(next((v for name, v in headers if name.lower() == "content-type"), ""))
    if not told or status > 304:
        return (*rest, NO_STORE)
    if public:
        return (*rest, ("Cache-Control", told))
    parts = [part.strip() for part in told.split(",")]
    if "no-store" in parts:
        return (*rest, NO_STORE)
    kept = [part for part in parts if part and not part.startswith(_NOT_PRIVATE)]
    control = ", ".join(("private", *kept))
    return (*rest, ("Cache-Control", control), ("Vary", "Authorization"))


def passed_reply(status: int, headers: Mapping[str, str], body: bytes, *, public: bool) -> Reply:
    return Reply(status, passed_headers(status, tuple(headers.items()), public=public), body)


def stream_headers(entry: Entry, *, up_to_date: bool) -> Headers:
    headers: Headers = ((names.STREAM_NEXT_OFFSET, entry.next_offset),)
    if entry.snapshot_offset:  # then Stream-Up-To-Date is always sent, true or false
        value = _TRUE if up_to_date else "false"
        headers += (
            (names.STREAM_SNAPSHOT_OFFSET, entry.snapshot_offset),
            (names.STREAM_UP_TO_DATE, value),
        )
    elif up_to_date:
        headers += ((names.STREAM_UP_TO_DATE, _TRUE),)
    if entry.closed:
        headers += ((names.STREAM_CLOSED, _TRUE),)
    return headers


def chunk_headers(entry: Entry, form: Form, *, control: str, varies: str, cdn: Headers) -> Headers:
    """The headers of a stored response that do not change between requests."""
    headers: Headers = (
        ("Content-Type", entry.content_type),
        *stream_headers(entry, up_to_date=entry.up_to_date),
        ("ETag", form.etag),
        ("Cache-Control", control),
        *sandbox(entry.content_type),
    )
    if varies:
        headers += (("Vary", varies),)
    if form.encoding:
        headers += (("Content-Encoding", form.encoding),)
    return headers + cdn


def not_modified_headers(headers: Headers) -> Headers:
    """The chunk's headers, without those that describe a body (RFC 9110 15.4.5)."""
    return tuple(h for h in headers if h[0] not in ("Content-Type", "Content-Encoding"))


def live_headers(
    entry: Entry, etag: str, *, cursor: int | None, up_to_date: bool, may_keep: bool, cdn: Headers
) -> Headers:
    """The headers of a long-poll response with data."""
    scope = "public" if entry.public else "private"
    kept = ("Cache-Control", f"{scope}, max-age={INTERVAL_SECS}") if may_keep else NO_STORE
    headers: Headers = (
        ("Content-Type", entry.content_type),
        *stream_headers(entry, up_to_date=up_to_date),
        ("ETag", etag),
        kept,
        *sandbox(entry.content_type),
    )
    if not entry.public:
        headers += (("Vary", "Authorization"),)
    if cursor is not None and not entry.closed:
        headers += ((names.STREAM_CURSOR, str(cursor)),)
    return headers + (cdn if may_keep else ())
