"""Outcomes as responses: status, headers, body. `heads` reads them.

Headers common to all responses (CORS, nosniff) are added by the server.
"""

from collections.abc import Mapping
from http import HTTPStatus
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from protocol import names
from protocol.cursors import INTERVAL_SECS
from protocol.errors import ProtocolError
from protocol.etags import bootstrap_etag, matches, snapshot_etag, stream_etag
from protocol.media import media_type, text_like
from protocol.multipart import content_type_of
from protocol.names import PRODUCER_EPOCH, PRODUCER_SEQ, STREAM_NEXT_OFFSET  # for each append
from protocol.offsets import START, format_offset
from protocol.producers import Producer, expected_seq
from protocol.requests import Append, Create
from protocol.stream import Judgement, Snapshot, StreamState, known_producer
from protocol.timestamps import format_timestamp

Headers = tuple[tuple[str, str], ...]

NO_STORE: tuple[str, str] = ("Cache-Control", "no-store")
IMMUTABLE = "public, max-age=60, stale-while-revalidate=300, immutable"
REVALIDATE = "public, max-age=0, must-revalidate"
CLOSED: tuple[str, str] = (names.STREAM_CLOSED, "true")
UP_TO_DATE: tuple[str, str] = (names.STREAM_UP_TO_DATE, "true")
LIVE: tuple[str, str] = ("Cache-Control", f"public, max-age={INTERVAL_SECS}")
RETRY_AFTER: Headers = (("Retry-After", "1"),)
PROBLEM_TYPE: tuple[str, str] = ("Content-Type", "application/problem+json")


class Reply(NamedTuple):
    status: int
    headers: Headers
    body: bytes = b""


def json_reply(status: int, value: object) -> Reply:
    return Reply(
        status, (("Content-Type", "application/json"), NO_STORE), msgspec.json.encode(value)
    )


def problem(
    status: int,
    code: str,
    detail: str,
    headers: Headers = (),
    members: Mapping[str, object] = MappingProxyType({}),
) -> Reply:
    """An error as in RFC 9457; `code` is stable and meant for programs."""
    body = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "code": code,
        "detail": detail,
        **members,
    }
    return Reply(status, (PROBLEM_TYPE, NO_STORE, *headers), msgspec.json.encode(body))


def problem_of(error: ProtocolError) -> Reply:
    return problem(error.status, error.code, error.detail, error.headers, error.members)


def not_found() -> Reply:
    return problem(404, "not-found", "No stream exists at this path.")


def no_bucket() -> Reply:
    return problem(404, "bucket-not-found", "The bucket does not exist.")


def bucket_not_empty() -> Reply:
    return problem(409, "bucket-not-empty", "The bucket still contains streams.")


def gone() -> Reply:
    return problem(410, "gone", "The stream was deleted; only its forks still use the data.")


def offset_gone(state: StreamState, earliest: int) -> ProtocolError:
    """For a read before the snapshot; the client must use `/bootstrap`."""
    headers = ((names.STREAM_EARLIEST_OFFSET, format_offset(state.id, earliest)),)
    return ProtocolError(
        410, "offset-gone", "A snapshot replaced this offset; bootstrap again.", headers
    )


def trimmed(state: StreamState, earliest: int) -> Reply:
    return problem_of(offset_gone(state, earliest))


def foreign_offset(state: StreamState, tail: int, closed: bool) -> ProtocolError:
    """For an offset of another stream, usually the previous one of this name. The tag names the
    current one; a next offset would hide that it is different."""
    headers = (("ETag", stream_etag(state.incarnation, tail, closed)),)
    return ProtocolError(
        410, "foreign-offset", "The offset belongs to another stream; start over.", headers
    )


def precondition_failed(state: StreamState | None) -> Reply:
    headers: Headers = ()
    if state is not None:
        headers = (next_offset(state, state.tail), ("ETag", state.etag))
    return problem(412, "precondition-failed", "The stream does not match the condition.", headers)


def next_offset(state: StreamState, position: int) -> tuple[str, str]:
    return (STREAM_NEXT_OFFSET, format_offset(state.id, position))


def created(state: StreamState, request: Create, tail: int, location: str | None = None) -> Reply:
    """201 with `location` for a new stream, 200 without it for a repeated PUT."""
    headers: Headers = (
        ("Content-Type", state.content_type),
        next_offset(state, tail),
        ("ETag", stream_etag(state.incarnation, tail, state.closed)),
        NO_STORE,
    )
    if location is not None:
        headers += (("Location", location),)
    if state.closed:
        headers += (CLOSED,)
    if request.first is not None and request.first.producer is not None:
        known = known_producer(state, request.first.producer)
        headers += () if known is None else _producer_headers(*known)
    return Reply(200 if location is None else 201, headers)


def created_before(judgement: Judgement, state: StreamState, request: Create) -> Reply:
    """For a PUT of an existing stream."""
    match judgement:
        case Judgement.SAME | Judgement.DUPLICATE:
            return created(state, request, state.tail)
        case Judgement.CONFIG_MISMATCH:
            return problem(409, "config-mismatch", "The stream's configuration is different.")
        case Judgement.EXISTS:
            return problem(409, "stream-exists", "The stream already exists; append with POST.")
        case Judgement.PRECONDITION:
            return precondition_failed(state)
    assert request.first is not None
    return refused(judgement, state, request.first)


def head(
    state: StreamState,
    tail: int,
    closed: bool,
    snapshot: Snapshot | None,
    if_none_match: str | None = None,
) -> Reply:
    etag = stream_etag(state.incarnation, tail, closed)
    headers: Headers = (
        ("Content-Type", state.content_type),
        next_offset(state, tail),
        ("ETag", etag),
        NO_STORE,
    )
    if state.ttl_s is not None:
        headers += ((names.STREAM_TTL, str(state.ttl_s)),)
    if state.expires_at_ms is not None:
        headers += ((names.STREAM_EXPIRES_AT, format_timestamp(state.expires_at_ms)),)
    if snapshot is not None:
        headers += (snapshot_offset(state, snapshot), earliest_offset(state, snapshot))
    if state.strict_state:
        headers += ((names.STREAM_STATE, "strict"),)
    reply = Reply(200, (*headers, CLOSED) if closed else headers)
    if if_none_match is not None and matches(if_none_match, etag):
        return not_modified(reply)
    return reply


def deleted() -> Reply:
    return Reply(204, (NO_STORE,))


def accepted(state: StreamState, request: Append, tail: int) -> Reply:
    """For a producer, 200 means new and 204 duplicate; a plain append or close is always 204."""
    etag = stream_etag(state.incarnation, tail, request.close)
    headers: Headers = (next_offset(state, tail), ("ETag", etag), NO_STORE)
    if request.close:
        headers += (CLOSED,)
    producer = request.producer
    if producer is None:
        return Reply(204, headers)
    return Reply(200, headers + _producer_headers(producer.epoch, producer.seq))


def close_accepted(state: StreamState, request: Append, tail: int) -> Reply:
    """A close without data gets 204, with or without a producer."""
    return Reply(204, accepted(state, request, tail).headers)


def refused(judgement: Judgement, state: StreamState, request: Append) -> Reply:
    """Everything but ACCEPT; a duplicate and a repeated close are successes."""
    producer = request.producer
    match judgement:
        case Judgement.ALREADY_CLOSED:
            return Reply(
                204, (next_offset(state, state.tail), ("ETag", state.etag), NO_STORE, CLOSED)
            )
        case Judgement.CLOSED:
            return problem(
                409, "closed", "The stream is closed.", (next_offset(state, state.tail), CLOSED)
            )
        case Judgement.TYPE_MISMATCH:
            return problem(
                409, "content-type-mismatch", f"The stream holds {media_type(state.content_type)}."
            )
        case Judgement.SEQ_REGRESSION:
            return problem(
                409, "seq-regression", "The sequence in Stream-Seq must increase with each append."
            )
        case Judgement.PRECONDITION:
            return precondition_failed(state)
    assert producer is not None
    return _refused_producer(judgement, state, producer)


def _refused_producer(judgement: Judgement, state: StreamState, producer: Producer) -> Reply:
    known = known_producer(state, producer)
    if judgement is Judgement.BAD_EPOCH_START:
        return problem(400, "bad-epoch-start", "A new epoch starts at Producer-Seq 0.")
    if judgement is Judgement.GAP:
        wanted = expected_seq(known, producer)
        return problem(
            409,
            "sequence-gap",
            f"Expected Producer-Seq {wanted}, received {producer.seq}.",
            (
                (names.PRODUCER_EXPECTED_SEQ, str(wanted)),
                (names.PRODUCER_RECEIVED_SEQ, str(producer.seq)),
            ),
        )
    assert known is not None
    if judgement is Judgement.STALE_EPOCH:
        return problem(
            403,
            "stale-epoch",
            f"Epoch {producer.epoch} was replaced by {known[0]}.",
            ((PRODUCER_EPOCH, str(known[0])),),
        )
    headers: Headers = (next_offset(state, state.tail), ("ETag", state.etag), NO_STORE)
    headers += _producer_headers(*known)
    return Reply(204, (*headers, CLOSED) if state.closed else headers)


def chunk(
    state: StreamState, body: bytes, end: int, etag: str, at_tail: bool, closed: bool
) -> Reply:
    """A catch-up response; below the tail, or at the end of a closed stream, it never changes."""
    headers: Headers = (
        ("Content-Type", state.content_type),
        next_offset(state, end),
        ("ETag", etag),
        ("Cache-Control", cache_control(state, immutable=closed or not at_tail)),
    )
    if at_tail:
        headers += (UP_TO_DATE,)
    return Reply(200, (*headers, CLOSED) if closed else headers, body)


def can_expire(state: StreamState) -> bool:
    return state.ttl_s is not None or state.expires_at_ms is not None


def cache_control(state: StreamState, immutable: bool) -> str:
    """Streams that can expire are always revalidated."""
    return IMMUTABLE if immutable and not can_expire(state) else REVALIDATE


def not_modified(reply: Reply) -> Reply:
    """304 keeps the Stream-* headers, so that caches that merge them stay correct."""
    return Reply(304, tuple(h for h in reply.headers if h[0] != "Content-Type"))


def tail_only(state: StreamState, body: bytes, tail: int, closed: bool) -> Reply:
    """`offset=now` without `live`."""
    headers: Headers = (
        ("Content-Type", state.content_type),
        next_offset(state, tail),
        UP_TO_DATE,
        NO_STORE,
    )
    return Reply(200, (*headers, CLOSED) if closed else headers, body)


def with_cursor(state: StreamState, reply: Reply, cursor: int | None) -> Reply:
    """A long-poll response: keyed by offset and cursor, so caches may keep it for an interval."""
    headers = tuple(h for h in reply.headers if h[0] != "Cache-Control")
    headers += (NO_STORE if can_expire(state) else LIVE,)
    if cursor is not None:
        headers += ((names.STREAM_CURSOR, str(cursor)),)
    return Reply(reply.status, headers, reply.body)


def nothing_new(state: StreamState, tail: int, cursor: int | None, closed: bool) -> Reply:
    """The end of a long-poll without data."""
    headers: Headers = (next_offset(state, tail), UP_TO_DATE, NO_STORE)
    if cursor is not None:
        headers += ((names.STREAM_CURSOR, str(cursor)),)
    return Reply(204, (*headers, CLOSED) if closed else headers)


def event_stream(content_type: str) -> Reply:
    """The head of an SSE response for a stream of this type; events follow."""
    headers: Headers = (
        ("Content-Type", "text/event-stream"),
        ("Cache-Control", "no-cache"),
        ("X-Accel-Buffering", "no"),
    )
    if not text_like(content_type):
        headers += ((names.STREAM_SSE_DATA_ENCODING, "base64"),)
    return Reply(200, headers)


# -- snapshots and bootstrap -----------------------------------------------------------------------


def snapshot_offset(state: StreamState, snapshot: Snapshot) -> tuple[str, str]:
    return (names.STREAM_SNAPSHOT_OFFSET, format_offset(state.id, snapshot.offset))


def earliest_offset(state: StreamState, snapshot: Snapshot) -> tuple[str, str]:
    return (names.STREAM_EARLIEST_OFFSET, format_offset(state.id, snapshot.offset))


def published(state: StreamState, snapshot: Snapshot, tail: int) -> Reply:
    return Reply(204, (snapshot_offset(state, snapshot), next_offset(state, tail), NO_STORE))


def no_snapshot() -> Reply:
    return problem(404, "no-snapshot", "The snapshot does not exist.")


def snapshot_protected() -> Reply:
    return problem(409, "latest-snapshot", "The latest snapshot cannot be deleted.")


def snapshot_redirect(state: StreamState, snapshot: Snapshot, tail: int, location: str) -> Reply:
    headers = (
        snapshot_offset(state, snapshot),
        next_offset(state, snapshot.offset),
        ("Location", location),
    )
    return Reply(307, (*headers, _up_to_date(snapshot.offset == tail), NO_STORE))


def snapshot_head(state: StreamState, snapshot: Snapshot, tail: int, closed: bool) -> Reply:
    """The head for a snapshot's bytes, which never change; only the data after it does."""
    at_tail = snapshot.offset == tail
    headers: Headers = (
        ("Content-Type", snapshot.content_type),
        snapshot_offset(state, snapshot),
        next_offset(state, snapshot.offset),
        _up_to_date(at_tail),
        ("ETag", snapshot_etag(state.incarnation, snapshot.blob, at_tail)),
        ("Cache-Control", cache_control(state, immutable=closed or not at_tail)),
    )
    return Reply(200, (*headers, CLOSED) if closed and at_tail else headers)


def bootstrap_head(
    state: StreamState, snapshot: Snapshot | None, tail: int, closed: bool, boundary: str
) -> Reply:
    """The head of a bootstrap, which reaches the tail."""
    blob = 0 if snapshot is None else snapshot.blob
    headers: Headers = (
        ("Content-Type", content_type_of(boundary)),
        (names.STREAM_SNAPSHOT_OFFSET, START)
        if snapshot is None
        else snapshot_offset(state, snapshot),
        next_offset(state, tail),
        UP_TO_DATE,
        ("ETag", bootstrap_etag(state.incarnation, blob, tail, closed)),
        ("Cache-Control", REVALIDATE),
    )
    return Reply(200, (*headers, CLOSED) if closed else headers)


def _up_to_date(value: bool) -> tuple[str, str]:
    """Where the specification requires a boolean instead of a flag."""
    return (names.STREAM_UP_TO_DATE, "true" if value else "false")


def _producer_headers(epoch: int, seq: int) -> Headers:
    return ((PRODUCER_EPOCH, str(epoch)), (PRODUCER_SEQ, str(seq)))
