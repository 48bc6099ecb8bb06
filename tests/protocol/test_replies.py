import json

import pytest

from protocol import replies
from protocol.errors import ProtocolError
from protocol.offsets import format_offset
from protocol.producers import Known, Producer
from protocol.replies import IMMUTABLE, REVALIDATE, Reply
from protocol.requests import Append
from protocol.stream import Judgement, Snapshot, StreamState

FIVE, NINE = format_offset(1, 5), format_offset(1, 9)
AT_FIVE = Snapshot(5, "text/csv", 10, 3, 10)
AT_NINE = Snapshot(9, "text/csv", 10, 4, 10)


def stream(**changes: object) -> StreamState:
    state = StreamState(1, "s", "text/plain; charset=utf-8", 0, tail=9)
    for name, value in changes.items():
        setattr(state, name, value)
    return state


def append(producer: Producer | None = None, close: bool = False) -> Append:
    return Append("text/plain", producer, None, close)


def named(reply: Reply) -> dict[str, str]:
    headers = dict(reply.headers)
    assert len(headers) == len(reply.headers), "a header is repeated"
    return headers


def test_problem_is_rfc_9457() -> None:
    reply = replies.problem_of(ProtocolError(400, "a-code", 'with "quotes"\n', (("X-Y", "z"),)))
    assert json.loads(reply.body) == {
        "type": "about:blank",
        "title": "Bad Request",
        "status": 400,
        "code": "a-code",
        "detail": 'with "quotes"\n',
    }
    assert named(reply) == {
        "Content-Type": "application/problem+json",
        "Cache-Control": "no-store",
        "X-Y": "z",
    }


@pytest.mark.parametrize(
    ("request_", "has_body", "status", "extra"),
    [
        (append(), True, 204, {}),
        (append(close=True), True, 204, {"Stream-Closed": "true"}),
        (append(close=True), False, 204, {"Stream-Closed": "true"}),
        (append(Producer("p", 3, 4)), True, 200, {"Producer-Epoch": "3", "Producer-Seq": "4"}),
        (
            append(Producer("p", 3, 4), close=True),
            False,
            204,
            {"Producer-Epoch": "3", "Producer-Seq": "4", "Stream-Closed": "true"},
        ),
    ],
    ids=["plain", "append-and-close", "close-only", "producer", "producer-close-only"],
)
def test_success(request_: Append, has_body: bool, status: int, extra: dict[str, str]) -> None:
    reply = (replies.accepted if has_body else replies.close_accepted)(stream(), request_, 9)
    assert reply.status == status
    etag = '"0000000000000001:9:c"' if request_.close else '"0000000000000001:9"'
    always = {"Stream-Next-Offset": NINE, "Cache-Control": "no-store", "ETag": etag}
    assert named(reply) == always | extra


P = Producer("p", 1, 7)
KNOWN = {"producers": {"p": Known(2, 5)}}


@pytest.mark.parametrize(
    ("judgement", "state", "producer", "status", "extra"),
    [
        (
            Judgement.ALREADY_CLOSED,
            stream(closed=True),
            None,
            204,
            {"Stream-Closed": "true", "Stream-Next-Offset": NINE},
        ),
        (
            Judgement.CLOSED,
            stream(closed=True),
            None,
            409,
            {"Stream-Closed": "true", "Stream-Next-Offset": NINE},
        ),
        (Judgement.TYPE_MISMATCH, stream(), None, 409, {}),
        (Judgement.SEQ_REGRESSION, stream(), None, 409, {}),
        (Judgement.PRECONDITION, stream(), None, 412, {"Stream-Next-Offset": NINE}),
        (Judgement.STALE_EPOCH, stream(**KNOWN), P, 403, {"Producer-Epoch": "2"}),
        (Judgement.BAD_EPOCH_START, stream(**KNOWN), Producer("p", 3, 1), 400, {}),
        (
            Judgement.GAP,
            stream(**KNOWN),
            Producer("p", 2, 8),
            409,
            {"Producer-Expected-Seq": "6", "Producer-Received-Seq": "8"},
        ),
        (
            Judgement.GAP,
            stream(),
            P,
            409,
            {"Producer-Expected-Seq": "0", "Producer-Received-Seq": "7"},
        ),
        (
            Judgement.DUPLICATE,
            stream(**KNOWN),
            Producer("p", 2, 1),
            204,
            {"Producer-Epoch": "2", "Producer-Seq": "5", "Stream-Next-Offset": NINE},
        ),
        (
            Judgement.DUPLICATE,
            stream(closed=True, **KNOWN),
            Producer("p", 2, 5),
            204,
            {
                "Producer-Epoch": "2",
                "Producer-Seq": "5",
                "Stream-Closed": "true",
                "Stream-Next-Offset": NINE,
            },
        ),
    ],
)
def test_refusal(
    judgement: Judgement,
    state: StreamState,
    producer: Producer | None,
    status: int,
    extra: dict[str, str],
) -> None:
    reply = replies.refused(judgement, state, append(producer))
    headers = named(reply)
    assert reply.status == status
    assert headers.pop("Cache-Control") == "no-store"
    assert headers.pop("Content-Type", None) == (None if status == 204 else replies.PROBLEM_TYPE[1])
    assert headers.pop("ETag", None) == (state.etag if status in (204, 412) else None)
    assert headers == extra


@pytest.mark.parametrize(
    ("at_tail", "closed", "expires", "cache_control"),
    [
        (False, False, False, IMMUTABLE),
        (True, False, False, REVALIDATE),
        (True, True, False, IMMUTABLE),
        (False, False, True, REVALIDATE),
        (True, True, True, REVALIDATE),
    ],
)
def test_only_what_can_never_change_is_immutable(
    at_tail: bool, closed: bool, expires: bool, cache_control: str
) -> None:
    state = stream(ttl_s=60 if expires else None)
    headers = named(replies.chunk(state, b"x", 9, '"e"', at_tail, closed))
    assert headers["Cache-Control"] == cache_control
    assert ("Stream-Up-To-Date" in headers) == at_tail
    assert ("Stream-Closed" in headers) == closed
    assert headers["Content-Type"] == "text/plain; charset=utf-8"


def test_not_modified_keeps_the_stream_headers() -> None:
    whole = replies.chunk(stream(), b"x", 9, '"e"', True, True)
    reply = replies.not_modified(whole)
    assert (reply.status, reply.body) == (304, b"")
    assert named(reply) == {k: v for k, v in named(whole).items() if k != "Content-Type"}


def test_long_poll_is_keyed_by_its_cursor() -> None:
    whole = replies.chunk(stream(), b"x", 9, '"e"', True, False)
    headers = named(replies.with_cursor(stream(), whole, 5))
    assert headers["Stream-Cursor"] == "5"
    assert headers["Cache-Control"] == "public, max-age=20"
    assert named(replies.with_cursor(stream(ttl_s=1), whole, 5))["Cache-Control"] == "no-store"


def test_head_shows_the_configured_window_and_time() -> None:
    assert named(replies.head(stream(ttl_s=3600), 9, False, None))["Stream-TTL"] == "3600"
    headers = named(replies.head(stream(expires_at_ms=1500), 9, True, None))
    assert headers["Stream-Expires-At"] == "1970-01-01T00:00:01.500Z"
    assert headers["Stream-Closed"] == "true"


@pytest.mark.parametrize(
    ("content_type", "base64"),
    [
        ("text/plain", False),
        ("TEXT/HTML; charset=x", False),
        ("application/json", False),
        ("application/ndjson", True),
        ("application/octet-stream", True),
        ("image/png", True),
    ],
)
def test_event_stream_says_when_it_is_base64(content_type: str, base64: bool) -> None:
    headers = named(replies.event_stream(content_type))
    assert headers["Content-Type"] == "text/event-stream"
    assert headers.get("Stream-SSE-Data-Encoding") == ("base64" if base64 else None)


# -- snapshots and bootstrap ---------------------------------------------------------------------


def test_head_names_the_snapshot_and_where_reading_begins() -> None:
    headers = named(replies.head(stream(strict_state=True), 9, False, AT_FIVE))
    assert headers["Stream-Snapshot-Offset"] == headers["Stream-Earliest-Offset"] == FIVE
    assert headers["Stream-State"] == "strict"
    bare = named(replies.head(stream(), 9, False, None))
    assert not {"Stream-Snapshot-Offset", "Stream-Earliest-Offset", "Stream-State"} & set(bare)


def test_head_answers_a_condition_by_the_tag_it_gives() -> None:
    etag = named(replies.head(stream(), 9, False, None))["ETag"]
    assert replies.head(stream(), 9, False, None, etag).status == 304
    for tail, closed in ((10, False), (9, True)):
        assert replies.head(stream(), tail, closed, None, etag).status == 200


@pytest.mark.parametrize(
    ("snapshot", "closed", "expires", "up_to_date", "cache_control"),
    [
        (AT_FIVE, False, False, "false", IMMUTABLE),
        (AT_FIVE, True, False, "false", IMMUTABLE),
        (AT_FIVE, False, True, "false", REVALIDATE),
        (AT_NINE, False, False, "true", REVALIDATE),
        (AT_NINE, True, False, "true", IMMUTABLE),
    ],
)
def test_snapshot_is_immutable_once_something_follows_it_or_nothing_can(
    snapshot: Snapshot, closed: bool, expires: bool, up_to_date: str, cache_control: str
) -> None:
    state = stream(ttl_s=60 if expires else None)
    headers = named(replies.snapshot_head(state, snapshot, 9, closed))
    assert headers["Stream-Up-To-Date"] == up_to_date
    assert headers["Cache-Control"] == cache_control
    assert headers["Content-Type"] == "text/csv"
    assert headers["Stream-Next-Offset"] == headers["Stream-Snapshot-Offset"]
    assert ("Stream-Closed" in headers) == (closed and up_to_date == "true")


def test_snapshot_has_another_tag_once_something_follows_it() -> None:
    tags = {
        named(replies.snapshot_head(stream(), s, t, False))["ETag"]
        for s, t in ((AT_FIVE, 5), (AT_FIVE, 9), (AT_NINE, 9))
    }
    assert len(tags) == 3


def test_redirect_to_the_latest_snapshot_is_never_stored() -> None:
    reply = replies.snapshot_redirect(stream(), AT_FIVE, 9, "http://h/x")
    assert (reply.status, reply.body) == (307, b"")
    headers = named(reply)
    assert headers["Location"] == "http://h/x"
    assert headers["Cache-Control"] == "no-store"
    assert headers["Stream-Snapshot-Offset"] == FIVE


def test_bootstrap_reaches_the_tail() -> None:
    headers = named(replies.bootstrap_head(stream(), AT_FIVE, 9, False, "B"))
    assert headers["Content-Type"] == "multipart/mixed; boundary=B"
    assert (headers["Stream-Snapshot-Offset"], headers["Stream-Next-Offset"]) == (FIVE, NINE)
    assert headers["Stream-Up-To-Date"] == "true"
    assert headers["Cache-Control"] == REVALIDATE
    assert "Stream-Closed" not in headers
    without = named(replies.bootstrap_head(stream(), None, 9, True, "B"))
    assert (without["Stream-Snapshot-Offset"], without["Stream-Closed"]) == ("-1", "true")
    assert without["ETag"] != headers["ETag"]


def test_offset_below_the_snapshot_is_gone_and_told_where_to_begin() -> None:
    reply = replies.trimmed(stream(), 9)
    assert (reply.status, json.loads(reply.body)["code"]) == (410, "offset-gone")
    assert named(reply)["Stream-Earliest-Offset"] == NINE


def test_offset_of_another_stream_is_gone_and_not_told_where_to_go_on() -> None:
    reply = replies.problem_of(replies.foreign_offset(stream(), 9, closed=True))
    assert (reply.status, json.loads(reply.body)["code"]) == (410, "foreign-offset")
    assert named(reply)["ETag"] == '"0000000000000001:9:c"'
    assert not {"Stream-Earliest-Offset", "Stream-Next-Offset"} & set(named(reply))


def test_condition_on_a_stream_that_is_not_there_names_no_state() -> None:
    reply = replies.precondition_failed(None)
    assert reply.status == 412
    assert not {"ETag", "Stream-Next-Offset"} & set(named(reply))


def test_bucket_answers_are_json_that_nobody_stores() -> None:
    reply = replies.json_reply(200, {"bucket_id": "buck", "next_cursor": None})
    assert json.loads(reply.body) == {"bucket_id": "buck", "next_cursor": None}
    assert named(reply) == {"Content-Type": "application/json", "Cache-Control": "no-store"}


def test_a_conflict_of_sequences_says_so() -> None:
    """The official clients' adapters tell it from other conflicts by that word."""
    state = StreamState(1, "s", "text/plain", 0)
    reply = replies.refused(
        Judgement.SEQ_REGRESSION, state, Append("text/plain", None, "1", close=False)
    )
    assert reply.status == 409
    assert "sequence" in json.loads(reply.body)["detail"]
