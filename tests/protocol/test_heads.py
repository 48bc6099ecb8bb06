"""Heads of replies: what our origin writes is read back, and what others write is taken kindly."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol import replies
from protocol.etags import bootstrap_etag, format_etag, snapshot_etag, stream_etag
from protocol.heads import ReplyHead, parse_head
from protocol.names import MAX_SAFE_INTEGER
from protocol.offsets import START, format_offset
from protocol.producers import Known, Producer
from protocol.replies import IMMUTABLE, REVALIDATE, Reply
from protocol.requests import EXPIRIES_MS, Append, Create
from protocol.stream import Judgement, Snapshot, StreamState

TYPES = st.sampled_from(["application/json", "text/plain; charset=utf-8", "image/png"])
NUMBERS = st.integers(0, MAX_SAFE_INTEGER)
CURSORS = st.none() | st.integers(0, 10**12)
LIFETIMES = st.one_of(
    st.tuples(st.none(), st.none()),
    st.tuples(NUMBERS, st.none()),
    st.tuples(st.none(), st.sampled_from(EXPIRIES_MS)),
)


@st.composite
def streams(draw: st.DrawFn) -> StreamState:
    ttl_s, expires_at_ms = draw(LIFETIMES)
    tail = draw(st.integers(0, 10**15))
    snapshot = draw(
        st.none() | st.builds(Snapshot, st.integers(0, tail), TYPES, NUMBERS, NUMBERS, NUMBERS)
    )
    return StreamState(
        draw(st.integers(0, 2**64 - 1)),
        "s",
        draw(TYPES),
        0,
        tail=tail,
        closed=draw(st.booleans()),
        ttl_s=ttl_s,
        expires_at_ms=expires_at_ms,
        snapshot=snapshot,
    )


STREAMS = streams()


def head_of(reply: Reply) -> ReplyHead:
    return parse_head({name.lower(): value for name, value in reply.headers})


def at(state: StreamState, position: int) -> str:
    return format_offset(state.id, position)


def at_tail(state: StreamState, closed: bool) -> ReplyHead:
    """What every reply about the stream itself says."""
    return ReplyHead(
        next_offset=at(state, state.tail),
        etag=stream_etag(state.incarnation, state.tail, closed),
        incarnation=state.incarnation,
        closed=closed,
        cache_control="no-store",
    )


# -- what our origin writes ------------------------------------------------------------------------


@given(STREAMS)
def test_head(state: StreamState) -> None:
    earliest = "" if state.snapshot is None else at(state, state.snapshot.offset)
    assert head_of(replies.head(state, state.tail, state.closed, state.snapshot)) == replace(
        at_tail(state, state.closed),
        content_type=state.content_type,
        can_expire=state.ttl_s is not None or state.expires_at_ms is not None,
        ttl_s=state.ttl_s,
        expires_at_ms=state.expires_at_ms,
        earliest_offset=earliest,
        snapshot_offset=earliest,
    )


@given(STREAMS, NUMBERS, NUMBERS)
def test_created(state: StreamState, epoch: int, seq: int) -> None:
    state.producers = {"p": Known(epoch, seq, 0)}
    first = Append(None, Producer("p", epoch, seq), None, close=False)
    request = Create(state.content_type, None, None, state.closed, None, first=first)
    told = replace(
        at_tail(state, state.closed),
        content_type=state.content_type,
        producer_epoch=epoch,
        producer_seq=seq,
    )
    assert head_of(replies.created(state, request, state.tail)) == told
    there = replies.created(state, request, state.tail, "http://o/v1/stream/s")
    assert head_of(there) == replace(told, location="http://o/v1/stream/s")


@given(STREAMS, st.booleans(), NUMBERS, NUMBERS)
def test_appended(state: StreamState, close: bool, epoch: int, seq: int) -> None:
    plain = Append("text/plain", None, None, close)
    assert head_of(replies.accepted(state, plain, state.tail)) == at_tail(state, close)
    numbered = Append("text/plain", Producer("p", epoch, seq), None, close)
    told = replace(at_tail(state, close), producer_epoch=epoch, producer_seq=seq)
    assert head_of(replies.accepted(state, numbered, state.tail)) == told


@given(STREAMS, NUMBERS, NUMBERS)
def test_refused(state: StreamState, epoch: int, seq: int) -> None:
    request = Append("text/plain", Producer("p", epoch, seq), None, close=False)
    problem = ReplyHead(content_type="application/problem+json", cache_control="no-store")
    state.producers = {"p": Known(epoch, 0, 0)}
    assert head_of(replies.refused(Judgement.GAP, state, request)) == replace(
        problem, expected_seq=1, received_seq=seq
    )
    assert head_of(replies.refused(Judgement.STALE_EPOCH, state, request)) == replace(
        problem, producer_epoch=epoch
    )
    assert head_of(replies.refused(Judgement.CLOSED, state, request)) == replace(
        problem, next_offset=at(state, state.tail), incarnation=state.incarnation, closed=True
    )
    assert head_of(replies.trimmed(state, seq)) == replace(problem, earliest_offset=at(state, seq))
    foreign = replies.problem_of(replies.foreign_offset(state, state.tail, state.closed))
    assert head_of(foreign) == replace(
        problem,
        etag=stream_etag(state.incarnation, state.tail, state.closed),
        incarnation=state.incarnation,
    )


@given(STREAMS, st.booleans(), CURSORS)
def test_read(state: StreamState, reaches_tail: bool, cursor: int | None) -> None:
    end = state.tail if reaches_tail else state.tail + 1
    closed = state.closed and reaches_tail
    etag = format_etag(state.incarnation, 0, end, closed)
    is_kept = (closed or not reaches_tail) and not replies.can_expire(state)
    told = ReplyHead(
        content_type=state.content_type,
        next_offset=at(state, end),
        etag=etag,
        incarnation=state.incarnation,
        up_to_date=reaches_tail,
        closed=closed,
        cache_control=IMMUTABLE if is_kept else REVALIDATE,
    )
    reply = replies.chunk(state, b"", end, etag, reaches_tail, closed)
    assert head_of(reply) == told
    assert head_of(replies.not_modified(reply)) == replace(told, content_type="")
    live = replies.with_cursor(state, reply, cursor)
    assert head_of(live) == replace(
        told,
        cursor="" if cursor is None else str(cursor),
        cache_control="no-store" if replies.can_expire(state) else "public, max-age=20",
    )


@given(STREAMS, CURSORS)
def test_nothing_new(state: StreamState, cursor: int | None) -> None:
    told = ReplyHead(
        next_offset=at(state, state.tail),
        incarnation=state.incarnation,
        up_to_date=True,
        closed=state.closed,
        cursor="" if cursor is None else str(cursor),
        cache_control="no-store",
    )
    assert head_of(replies.nothing_new(state, state.tail, cursor, state.closed)) == told


@given(STREAMS)
def test_bootstrap(state: StreamState) -> None:
    snapshot = state.snapshot
    blob = 0 if snapshot is None else snapshot.blob
    reply = replies.bootstrap_head(state, snapshot, state.tail, state.closed, "b")
    assert head_of(reply) == replace(
        at_tail(state, state.closed),
        content_type="multipart/mixed; boundary=b",
        etag=bootstrap_etag(state.incarnation, blob, state.tail, state.closed),
        up_to_date=True,
        snapshot_offset=START if snapshot is None else at(state, snapshot.offset),
        cache_control=REVALIDATE,
    )


@given(STREAMS.filter(lambda state: state.snapshot is not None))
def test_snapshot(state: StreamState) -> None:
    snapshot = state.snapshot
    assert snapshot is not None
    offset, up_to_date = at(state, snapshot.offset), snapshot.offset == state.tail
    told = ReplyHead(
        next_offset=offset,
        snapshot_offset=offset,
        incarnation=state.incarnation,
        up_to_date=up_to_date,
        cache_control="no-store",
    )
    there = replies.snapshot_redirect(state, snapshot, state.tail, "/there")
    assert head_of(there) == replace(told, location="/there")
    is_kept = (state.closed or not up_to_date) and not replies.can_expire(state)
    assert head_of(replies.snapshot_head(state, snapshot, state.tail, state.closed)) == replace(
        told,
        content_type=snapshot.content_type,
        etag=snapshot_etag(state.incarnation, snapshot.blob, up_to_date),
        closed=state.closed and up_to_date,
        cache_control=IMMUTABLE if is_kept else REVALIDATE,
    )


# -- what others write -----------------------------------------------------------------------------


def test_a_head_that_says_nothing() -> None:
    assert parse_head({}) == ReplyHead()


@pytest.mark.parametrize(
    ("value", "is_set"), [("true", True), (" TRUE ", True), ("1", False), ("", False)]
)
def test_true_is_a_word(value: str, is_set: bool) -> None:
    assert parse_head({"stream-closed": value}) == ReplyHead(closed=is_set)
    assert parse_head({"stream-up-to-date": value}) == ReplyHead(up_to_date=is_set)


@pytest.mark.parametrize("value", ["", "-1", "1.5", "x", "\u0661", "1" * 17])
def test_what_is_no_number_is_absent(value: str) -> None:
    assert parse_head({"producer-seq": value}) == ReplyHead()
    assert parse_head({"stream-ttl": value}) == ReplyHead(can_expire=True)


def test_any_word_about_expiry_means_that_the_stream_can_expire() -> None:
    assert parse_head({"stream-expires-at": "tomorrow"}) == ReplyHead(can_expire=True)


def test_the_offset_names_the_incarnation_where_the_tag_does_not() -> None:
    offset = format_offset(0xC0FFEE, 5)
    told = ReplyHead(next_offset=offset, etag='"digest"', incarnation="0000000000c0ffee")
    assert parse_head({"stream-next-offset": offset, "etag": '"digest"'}) == told
    assert parse_head({"stream-next-offset": "x5", "etag": '"digest"'}).incarnation == ""
