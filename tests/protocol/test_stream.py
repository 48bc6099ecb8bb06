import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from protocol.offsets import Offset
from protocol.producers import Known, Producer
from protocol.requests import Append, Create, ForkOf
from protocol.stream import (
    Appended,
    Created,
    Fork,
    Judgement,
    Record,
    Released,
    Renewed,
    Snapshot,
    Snapshotted,
    StreamState,
    Trimmed,
    apply,
    begin,
    deadline_ms,
    forget_idle,
    is_of,
    judge_append,
    same_configuration,
)

PLAIN = Append("text/plain", None, None, False)
P = Producer("p", 1, 3)


def stream(**changes: object) -> StreamState:
    state = begin(Created(1, "s", "Text/Plain; charset=utf-8", 100, None, None, None, False))
    for name, value in changes.items():
        setattr(state, name, value)
    return state


# -- judging: each row breaks every later rule too, so the first rule in order must win ----------

WORST = {"closed": True, "producers": {"p": Known(5, 9)}, "last_seq": "z"}
WORSE = WORST | {"closed": False}
BAD = Append("image/png", P, "a", True)


@pytest.mark.parametrize(
    ("state", "request_", "has_body", "judgement"),
    [
        pytest.param(WORST, BAD, True, Judgement.CLOSED, id="closed-comes-first"),
        pytest.param(WORSE, BAD, True, Judgement.TYPE_MISMATCH, id="then-the-type"),
        pytest.param(
            WORSE,
            replace(BAD, media_type="text/plain"),
            True,
            Judgement.STALE_EPOCH,
            id="then-the-producer",
        ),
        pytest.param(
            {"producers": {"p": Known(1, 3)}, "last_seq": "z"},
            replace(BAD, media_type="text/plain"),
            True,
            Judgement.DUPLICATE,
            id="a-duplicate-with-an-old-stream-seq-is-a-duplicate",
        ),
        pytest.param(
            {"last_seq": "z"},
            replace(PLAIN, seq="a"),
            True,
            Judgement.SEQ_REGRESSION,
            id="then-the-seq",
        ),
        pytest.param({"last_seq": "2"}, replace(PLAIN, seq="10"), True, Judgement.SEQ_REGRESSION),
        pytest.param({"last_seq": "09"}, replace(PLAIN, seq="10"), True, Judgement.ACCEPT),
        pytest.param({"last_seq": "a"}, replace(PLAIN, seq="a"), True, Judgement.SEQ_REGRESSION),
        pytest.param({"last_seq": "a"}, replace(PLAIN, seq="B"), True, Judgement.SEQ_REGRESSION),
        pytest.param({"last_seq": "z"}, PLAIN, True, Judgement.ACCEPT, id="no-seq-no-rule"),
        pytest.param(
            {"last_seq": "z"},
            replace(PLAIN, seq="a", if_match='"other"'),
            True,
            Judgement.SEQ_REGRESSION,
            id="the-seq-comes-before-the-condition",
        ),
        pytest.param(
            {"producers": {"p": Known(1, 3)}},
            Append("text/plain", P, None, False, if_match='"other"'),
            True,
            Judgement.DUPLICATE,
            id="a-duplicate-is-no-conflict-with-itself",
        ),
        pytest.param(
            {}, replace(PLAIN, if_match='"other"'), True, Judgement.PRECONDITION, id="condition"
        ),
        pytest.param(
            {"tail": 7},
            replace(PLAIN, if_match='"0000000000000001:7"'),
            True,
            Judgement.ACCEPT,
            id="condition-met",
        ),
        pytest.param(
            {},
            Append("image/png", None, None, True),
            False,
            Judgement.ACCEPT,
            id="a-close-ignores-the-type",
        ),
    ],
)
def test_order_of_judgement(
    state: dict[str, object], request_: Append, has_body: bool, judgement: Judgement
) -> None:
    assert judge_append(stream(**state), request_, has_body) is judgement


CLOSED_BY_P = {"closed": True, "closed_by": ("p", 1, 3), "producers": {"p": Known(1, 3)}}


@pytest.mark.parametrize(
    ("state", "producer", "close", "has_body", "judgement"),
    [
        pytest.param({"closed": True}, None, True, False, Judgement.ALREADY_CLOSED, id="again"),
        pytest.param({"closed": True}, None, True, True, Judgement.CLOSED, id="with-a-body"),
        pytest.param({"closed": True}, None, False, True, Judgement.CLOSED, id="append"),
        pytest.param({"closed": True}, P, True, False, Judgement.CLOSED, id="not-by-this-producer"),
        pytest.param(CLOSED_BY_P, P, True, False, Judgement.DUPLICATE, id="same-tuple"),
        pytest.param(CLOSED_BY_P, P, True, True, Judgement.DUPLICATE, id="same-tuple-other-body"),
        pytest.param(
            CLOSED_BY_P, Producer("p", 1, 4), True, False, Judgement.CLOSED, id="next-seq"
        ),
        pytest.param(CLOSED_BY_P, None, True, False, Judgement.ALREADY_CLOSED, id="no-producer"),
    ],
)
def test_closed_stream(
    state: dict[str, object],
    producer: Producer | None,
    close: bool,
    has_body: bool,
    judgement: Judgement,
) -> None:
    request = Append("text/plain", producer, None, close)
    assert judge_append(stream(**state), request, has_body) is judgement


# -- whose an offset is ------------------------------------------------------------------------

ROOT = StreamState(1, "root", "text/plain", 0)
CHILD = StreamState(2, "child", "text/plain", 0, fork=Fork(1, "root", 20, None, 0))
GRANDCHILD = StreamState(3, "grandchild", "text/plain", 0, fork=Fork(2, "child", 30, None, 0))
EARLY = StreamState(4, "early", "text/plain", 0, fork=Fork(2, "child", 10, None, 0))
FAMILY = {state.id: state for state in (ROOT, CHILD, GRANDCHILD, EARLY)}


@pytest.mark.parametrize(
    ("state", "stream_id", "furthest"),
    [
        pytest.param(ROOT, None, 99, id="nameless"),
        pytest.param(ROOT, 1, 99, id="own"),
        pytest.param(ROOT, 9, -1, id="of-nobody-here"),
        pytest.param(ROOT, 2, -1, id="of-its-fork"),
        pytest.param(CHILD, 1, 20, id="of-its-source"),
        pytest.param(GRANDCHILD, 2, 30, id="of-its-source-which-is-a-fork"),
        pytest.param(GRANDCHILD, 1, 20, id="of-its-grandparent"),
        pytest.param(EARLY, 1, 10, id="no-more-than-was-inherited"),
        pytest.param(EARLY, 3, -1, id="of-a-sibling"),
    ],
)
def test_a_fork_takes_the_offsets_of_the_bytes_it_inherited(
    state: StreamState, stream_id: int | None, furthest: int
) -> None:
    def valid(position: int) -> bool:
        offset = Offset(position, stream_id)
        return is_of(offset, state, lambda fork: FAMILY[fork.source_id])

    assert [p for p in range(100) if valid(p)] == list(range(furthest + 1))


# -- repeated PUT ------------------------------------------------------------------------------

CREATE = Create("text/plain", None, None, False, None)
FORK = Fork(7, "src", 12, 10, 2)
ASKED = ForkOf("src", Offset(10), 2)
FORKED = Create(None, None, None, False, ASKED)


@pytest.mark.parametrize(
    ("state", "request_", "same"),
    [
        pytest.param({}, CREATE, True, id="equal-but-for-case-and-charset"),
        pytest.param({}, replace(CREATE, content_type="text/html"), False, id="type"),
        pytest.param({}, replace(CREATE, content_type=None), False, id="type-omitted"),
        pytest.param(
            {"content_type": "application/octet-stream"},
            replace(CREATE, content_type=None),
            True,
            id="the-default-type",
        ),
        pytest.param({"ttl_s": 5}, replace(CREATE, ttl_s=5), True, id="ttl"),
        pytest.param({"ttl_s": 5}, replace(CREATE, ttl_s=6), False, id="other-ttl"),
        pytest.param({"ttl_s": 5}, CREATE, False, id="ttl-omitted"),
        pytest.param({"expires_at_ms": 5}, replace(CREATE, expires_at_ms=5), True, id="expiry"),
        pytest.param({"expires_at_ms": 5}, replace(CREATE, expires_at_ms=6), False, id="later"),
        pytest.param({"closed": True}, CREATE, False, id="closed-since"),
        pytest.param({"closed": True}, replace(CREATE, closed=True), True, id="closed-both"),
        pytest.param({}, replace(CREATE, closed=True), False, id="asked-closed"),
        pytest.param({"strict_state": True}, CREATE, False, id="strict-omitted"),
        pytest.param({}, replace(CREATE, strict_state=True), False, id="asked-strict"),
        pytest.param(
            {"strict_state": True}, replace(CREATE, strict_state=True), True, id="strict-both"
        ),
        pytest.param(
            {"fork": FORK, "strict_state": True}, FORKED, True, id="fork-inherits-strictness"
        ),
        pytest.param(
            {"fork": FORK}, replace(FORKED, strict_state=True), False, id="fork-asked-strict"
        ),
        pytest.param({}, FORKED, False, id="asked-a-fork"),
        pytest.param({"fork": FORK}, CREATE, False, id="is-a-fork"),
        pytest.param({"fork": FORK}, FORKED, True, id="fork-inherits-the-type"),
        pytest.param({"fork": FORK, "ttl_s": 5}, FORKED, True, id="fork-inherits-the-ttl"),
        pytest.param(
            {"fork": FORK, "ttl_s": 5}, replace(FORKED, ttl_s=5), True, id="fork-names-that-ttl"
        ),
        pytest.param(
            {"fork": FORK, "ttl_s": 5}, replace(FORKED, ttl_s=6), False, id="fork-other-ttl"
        ),
        pytest.param(
            {"fork": FORK, "ttl_s": 5},
            replace(FORKED, expires_at_ms=9),
            False,
            id="fork-expiry-for-ttl",
        ),
        pytest.param(
            {"fork": FORK}, replace(FORKED, content_type="a/b"), False, id="fork-other-type"
        ),
        pytest.param(
            {"fork": FORK},
            replace(FORKED, fork=replace(ASKED, offset=Offset(11))),
            False,
            id="offset",
        ),
        pytest.param(
            {"fork": FORK}, replace(FORKED, fork=replace(ASKED, sub_offset=0)), False, id="sub"
        ),
        pytest.param(
            {"fork": FORK},
            replace(FORKED, fork=replace(ASKED, source_name="x")),
            False,
            id="source",
        ),
    ],
)
def test_same_configuration(state: dict[str, object], request_: Create, same: bool) -> None:
    assert same_configuration(stream(**state), request_) is same


# -- records -----------------------------------------------------------------------------------


def test_one_record_carries_everything_of_an_append() -> None:
    state = stream()
    apply(state, Appended(1, 0, b"abc", 200, ("p", 1, 0), "s1", True))
    assert (state.tail, state.closed, state.closed_by) == (3, True, ("p", 1, 0))
    assert (state.producers, state.last_seq, state.renewed_at_ms) == ({"p": (1, 0, 200)}, "s1", 200)


def test_producers_are_forgotten_in_the_order_in_which_they_were_heard_of() -> None:
    state = stream()
    for at_ms, producer in enumerate(["a", "b", "c", "a"]):
        apply(state, Appended(1, 0, b"", at_ms, (producer, 0, 0)))
    forget_idle(state, P.id, since_ms=2)
    assert list(state.producers or ()) == ["c", "a"]
    forget_idle(state, P.id, since_ms=4)
    assert not state.producers


def test_a_clock_that_went_back_hides_nobody_who_is_asked_for() -> None:
    state = stream()
    apply(state, Appended(1, 0, b"", 9, ("later", 0, 0)))
    apply(state, Appended(1, 0, b"", 5, (P.id, 0, 0)))
    forget_idle(state, P.id, since_ms=7)
    assert list(state.producers or ()) == ["later"]


def test_a_fork_begins_at_its_fork_point() -> None:
    state = begin(Created(2, "f", "text/plain", 0, None, None, FORK, False))
    assert (state.tail, state.base) == (12, 12)


def test_a_snapshot_moves_where_reading_begins_and_a_trim_what_is_stored() -> None:
    state = stream(tail=10)
    assert (state.earliest, state.stored_bytes) == (0, 10)
    apply(state, Snapshotted(1, Snapshot(6, "text/csv", 100, 1, 100)))
    assert (state.earliest, state.tail, state.stored_bytes) == (6, 10, 110)
    apply(state, Trimmed(1, 6))
    assert (state.earliest, state.floor, state.stored_bytes) == (6, 6, 104)
    apply(state, Snapshotted(1, Snapshot(10, "text/csv", 1, 2, 1)))
    assert (state.earliest, state.floor, state.stored_bytes) == (10, 6, 5)


@pytest.mark.parametrize(
    ("changes", "deadline"),
    [
        ({}, None),
        ({"ttl_s": 0}, 100),
        ({"ttl_s": 3}, 3100),
        ({"ttl_s": 3, "renewed_at_ms": 500}, 3500),
        ({"expires_at_ms": 50, "renewed_at_ms": 500}, 50),
    ],
)
def test_deadline(changes: dict[str, object], deadline: int | None) -> None:
    assert deadline_ms(stream(**changes)) == deadline


ids = st.sampled_from(["a", "b", "c"])
small = st.integers(0, 3)
requests = st.builds(
    Append,
    st.sampled_from(["text/plain", "image/png"]),
    st.none() | st.builds(Producer, ids, small, small),
    st.none() | st.sampled_from(["1", "2", "3"]),
    st.sampled_from([False] * 9 + [True]),
)
steps = st.lists(st.tuples(requests, st.binary(max_size=4)), max_size=40)
_encode = msgspec.msgpack.Encoder().encode
_decode_record = msgspec.msgpack.Decoder(Record)
_decode_state = msgspec.msgpack.Decoder(StreamState)


def run(request_steps: list[tuple[Append, bytes]]) -> tuple[list[Record], StreamState]:
    """What a server does: judge, make a record, apply; with a renewal now and then."""
    created = Created(1, "s", "text/plain", 0, 60, None, None, False)
    records: list[Record] = [created]
    state = begin(created)
    for at_ms, (request, body) in enumerate(request_steps):
        if not body and not request.close:
            record: Record = Renewed(1, at_ms)
        elif judge_append(state, request, bool(body)) is Judgement.ACCEPT:
            p = request.producer
            tuple_ = None if p is None else (p.id, p.epoch, p.seq)
            record = Appended(1, state.tail, body, at_ms, tuple_, request.seq, request.close)
        else:
            continue
        records.append(record)
        apply(state, record)
    return records, state


@given(steps)
def test_replaying_the_records_rebuilds_the_same_state(taken: list[tuple[Append, bytes]]) -> None:
    records, state = run(taken)
    first, *rest = [_decode_record.decode(_encode(record)) for record in records]
    assert isinstance(first, Created)
    rebuilt = begin(first)
    for record in rest:
        apply(rebuilt, record)
    assert rebuilt == state


@given(steps, st.data())
def test_a_state_stored_half_way_takes_the_rest(
    taken: list[tuple[Append, bytes]], data: st.DataObject
) -> None:
    records, state = run(taken)
    cut = data.draw(st.integers(1, len(records)))
    assert isinstance(records[0], Created)
    half = begin(records[0])
    for record in records[1:cut]:
        apply(half, record)
    resumed = _decode_state.decode(_encode(half))
    for record in records[cut:]:
        apply(resumed, record)
    assert resumed == state


@given(steps)
def test_a_closed_stream_never_changes(taken: list[tuple[Append, bytes]]) -> None:
    records, _ = run(taken)
    closing = [i for i, r in enumerate(records) if isinstance(r, Appended) and r.close]
    assert (
        not [r for r in records[closing[0] + 1 :] if isinstance(r, Appended)] if closing else True
    )


def test_a_released_stream_is_gone() -> None:
    state = stream()
    apply(state, Released(1))
    assert state.gone
