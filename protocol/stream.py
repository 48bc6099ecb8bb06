"""One stream as a state machine: records go in, state comes out, and `judge_*` decide what goes in.

Theory: a request is judged against the state, an accepted one becomes a record, and `apply` is the
only function that changes a state. The live server and crash recovery run the same `apply`, so what
a restart rebuilds is what the clients saw. Time is inside the record (`at_ms`); nothing here reads
a clock. Records and states are msgpack values: their encoding is the storage format.
"""

from collections.abc import Callable
from enum import Enum

from msgspec import Struct
from msgspec.structs import replace

from protocol.etags import matches, permits, stream_etag
from protocol.media import media_type
from protocol.names import JSON_TYPE
from protocol.offsets import Offset
from protocol.producers import UNDATED, Known, Producer, Verdict, judge_producer
from protocol.requests import Append, Create


class Fork(Struct, frozen=True, array_like=True, gc=False):
    """Where a fork's inherited bytes come from: below `position` they are those of `source_id`."""

    source_id: int
    source_name: str
    position: int
    offset: int | None  # as requested; None means the source's tail at creation
    sub_offset: int


class Snapshot(Struct, frozen=True, array_like=True, gc=False):
    """Replaces everything below `offset`; its bytes are a blob of the storage."""

    offset: int
    content_type: str
    size_bytes: int
    blob: int  # unique number of the publication
    blob_bytes: int  # size in the storage


class StreamState(Struct, array_like=True):
    """Everything a stream is, apart from its bytes."""

    id: int
    name: str
    content_type: str
    created_at_ms: int
    ttl_s: int | None = None
    expires_at_ms: int | None = None
    fork: Fork | None = None
    tail: int = 0
    closed: bool = False
    closed_by: tuple[str, int, int] | None = None
    last_seq: str | None = None
    producers: dict[str, Known] | None = None  # least recently active first
    renewed_at_ms: int = 0
    gone: bool = False  # deleted or expired, kept only because forks read it
    written_at_ms: int = 0
    strict_state: bool = False  # appends must be messages of the State Protocol
    snapshot: Snapshot | None = None
    floor: int = 0  # bytes below it are no longer kept

    @property
    def incarnation(self) -> str:
        return f"{self.id:016x}"

    @property
    def is_json(self) -> bool:
        return media_type(self.content_type) == JSON_TYPE

    @property
    def base(self) -> int:
        """First position whose bytes this stream stores itself."""
        return 0 if self.fork is None else self.fork.position

    @property
    def earliest(self) -> int:
        """First position that can be read; what came before is in the snapshot."""
        return 0 if self.snapshot is None else self.snapshot.offset

    @property
    def stored_bytes(self) -> int:
        snapshot = 0 if self.snapshot is None else self.snapshot.size_bytes
        return self.tail - max(self.base, self.floor) + snapshot

    @property
    def etag(self) -> str:
        return stream_etag(self.incarnation, self.tail, self.closed)


class Created(Struct, frozen=True, array_like=True, tag="create", gc=False):
    id: int
    name: str
    content_type: str
    at_ms: int
    ttl_s: int | None
    expires_at_ms: int | None
    fork: Fork | None
    closed: bool
    strict_state: bool = False


class Appended(Struct, frozen=True, array_like=True, tag="append", gc=False):
    """Data, producer state, sequence and closure of one request: one record, so atomic."""

    id: int
    start: int
    data: bytes
    at_ms: int
    producer: tuple[str, int, int] | None = None
    seq: str | None = None
    close: bool = False


class Renewed(Struct, frozen=True, array_like=True, tag="renew", gc=False):
    """A read moved the idle window of a stream with a TTL."""

    id: int
    at_ms: int


class Snapshotted(Struct, frozen=True, array_like=True, tag="snapshot", gc=False):
    """A snapshot is published and replaces the previous one. Its blob is already on disk."""

    id: int
    snapshot: Snapshot


class Trimmed(Struct, frozen=True, array_like=True, tag="trim", gc=False):
    """Data below `floor` is no longer needed: a snapshot covers it, and no fork reads it."""

    id: int
    floor: int


class Released(Struct, frozen=True, array_like=True, tag="release", gc=False):
    """Deleted or expired while forks still read it: gone for clients, kept for the forks."""

    id: int


class Removed(Struct, frozen=True, array_like=True, tag="remove", gc=False):
    id: int


Record = Created | Appended | Renewed | Snapshotted | Trimmed | Released | Removed


def begin(record: Created) -> StreamState:
    return StreamState(
        id=record.id,
        name=record.name,
        content_type=record.content_type,
        created_at_ms=record.at_ms,
        ttl_s=record.ttl_s,
        expires_at_ms=record.expires_at_ms,
        fork=record.fork,
        tail=0 if record.fork is None else record.fork.position,
        closed=record.closed,
        renewed_at_ms=record.at_ms,
        written_at_ms=record.at_ms,
        strict_state=record.strict_state,
    )


def apply(state: StreamState, record: Record) -> None:
    """Apply a record that was accepted (or is read back from the log)."""
    if type(record) is Appended:
        state.tail = record.start + len(record.data)
        state.renewed_at_ms = state.written_at_ms = record.at_ms
        if record.producer is not None:
            producer_id, epoch, seq = record.producer
            if state.producers is None:
                state.producers = {}
            state.producers.pop(producer_id, None)
            state.producers[producer_id] = Known(epoch, seq, record.at_ms)
        if record.seq is not None:
            state.last_seq = record.seq
        if record.close:
            state.closed = True
            state.closed_by = record.producer
    elif type(record) is Renewed:
        state.renewed_at_ms = record.at_ms
    elif type(record) is Snapshotted:
        state.snapshot = record.snapshot
    elif type(record) is Trimmed:
        state.floor = record.floor
    elif type(record) is Released:
        state.gone = True
    elif type(record) is Removed:
        state.gone = True


def forget_idle(state: StreamState, producer_id: str, since_ms: int) -> None:
    """Forget producers that were inactive since then (DS 5.2.1). This follows from stored times
    alone, so it needs no record: a replay gives the same result."""
    producers = state.producers
    while producers:
        oldest = next(iter(producers))
        if producers[oldest].at_ms >= since_ms:
            break
        del producers[oldest]
    if producers and producer_id in producers and producers[producer_id].at_ms < since_ms:
        del producers[producer_id]  # out of order, because the clock went back


def date_producers(state: StreamState) -> None:
    """For states written before producers had a time: not older than the last write."""
    producers = state.producers or {}
    for producer_id, known in producers.items():
        if known.at_ms == UNDATED:
            producers[producer_id] = known._replace(at_ms=state.written_at_ms)


def is_of(offset: Offset, state: StreamState, source_of: Callable[[Fork], StreamState]) -> bool:
    """Whether an offset is in this stream. Offsets that name no stream always are; a fork accepts
    its ancestors' offsets, as far as it inherited their bytes."""
    if offset.stream_id is None or offset.stream_id == state.id:
        return True
    fork = state.fork
    while fork is not None and offset.position <= fork.position:
        if offset.stream_id == fork.source_id:
            return True
        fork = source_of(fork).fork
    return False


def deadline_ms(state: StreamState) -> int | None:
    """When the stream stops existing unless it is renewed; None means never."""
    if state.ttl_s is not None:
        return state.renewed_at_ms + state.ttl_s * 1000
    return state.expires_at_ms


class Judgement(Enum):
    """The result of judging an append, close or create."""

    ACCEPT = "accept"
    DUPLICATE = "duplicate"
    ALREADY_CLOSED = "closed before, and that is what was asked"
    CLOSED = "the stream is closed"
    TYPE_MISMATCH = "the content type differs from the stream's"
    STALE_EPOCH = "a newer epoch of this producer is known"
    BAD_EPOCH_START = "a new epoch starts at sequence 0"
    GAP = "the producer sequence has a gap"
    SEQ_REGRESSION = "Stream-Seq is not greater than the last one"
    PRECONDITION = "If-Match names another state of the stream"
    SAME = "the stream is there as it is asked for"
    CONFIG_MISMATCH = "the stream is there with another configuration"
    EXISTS = "the stream is there, without the data that would be its beginning"


_OF_PRODUCER = {
    Verdict.DUPLICATE: Judgement.DUPLICATE,
    Verdict.STALE_EPOCH: Judgement.STALE_EPOCH,
    Verdict.BAD_EPOCH_START: Judgement.BAD_EPOCH_START,
    Verdict.GAP: Judgement.GAP,
}


def known_producer(state: StreamState, producer: Producer) -> tuple[int, int] | None:
    known = None if state.producers is None else state.producers.get(producer.id)
    return None if known is None else known[:2]


def judge_append(state: StreamState, request: Append, has_body: bool) -> Judgement:
    """Order of DS 5.2: closed, content type, producer, Stream-Seq; then the precondition, so that a
    producer's repeated append is a duplicate, not a conflict with itself."""
    producer = request.producer
    if state.closed:
        return _judge_closed(state, producer, close_only=request.close and not has_body)
    if has_body and request.media_type != media_type(state.content_type):
        return Judgement.TYPE_MISMATCH
    if producer is not None:
        verdict = judge_producer(known_producer(state, producer), producer)
        if verdict is not Verdict.ACCEPT:
            return _OF_PRODUCER[verdict]
    if request.seq is not None and state.last_seq is not None and request.seq <= state.last_seq:
        return Judgement.SEQ_REGRESSION
    if request.if_match is not None and not permits(request.if_match, state.etag):
        return Judgement.PRECONDITION
    return Judgement.ACCEPT


def _judge_closed(state: StreamState, producer: Producer | None, close_only: bool) -> Judgement:
    if producer is None:
        return Judgement.ALREADY_CLOSED if close_only else Judgement.CLOSED
    if state.closed_by == (producer.id, producer.epoch, producer.seq):
        return Judgement.DUPLICATE
    return Judgement.CLOSED


def judge_first(request: Create) -> Judgement:
    """The body of a PUT that creates, as the first append of a stream."""
    producer = None if request.first is None else request.first.producer
    if producer is None:
        return Judgement.ACCEPT
    verdict = judge_producer(None, producer)
    return Judgement.ACCEPT if verdict is Verdict.ACCEPT else _OF_PRODUCER[verdict]


def judge_create(state: StreamState, request: Create) -> Judgement:
    """A PUT of an existing stream. It appends nothing, so data that is new by producer or sequence
    must not look stored; a producer's repeated PUT is a duplicate, as with POST."""
    is_same = same_configuration(state, request)
    first = Judgement.SAME
    if request.first is not None and is_same:
        first = judge_append(
            state, replace(request.first, media_type=media_type(state.content_type)), True
        )
        if first is Judgement.DUPLICATE:
            return first
    if not permits_create(state, request):
        return Judgement.PRECONDITION
    if not is_same:
        return Judgement.CONFIG_MISMATCH
    return Judgement.EXISTS if first is Judgement.ACCEPT else first


def permits_create(state: StreamState, request: Create) -> bool:
    """Whether the conditions of a PUT hold for the existing stream."""
    if request.if_match is not None and not permits(request.if_match, state.etag):
        return False
    return request.if_none_match is None or not matches(request.if_none_match, state.etag)


def same_configuration(state: StreamState, request: Create) -> bool:
    """Whether a repeated PUT matches the existing stream (DS 5.1)."""
    fork, asked = state.fork, request.fork
    if (fork is None) != (asked is None) or state.closed != request.closed:
        return False
    if state.strict_state != request.strict_state and (fork is None or request.strict_state):
        return False
    if fork is None or asked is None:
        return _same_plain(state, request)
    return (
        fork.source_name == asked.source_name
        and fork.offset == (None if asked.offset is None else asked.offset.position)
        and fork.sub_offset == asked.sub_offset
        and _same_inherited(state, request)
    )


def _same_plain(state: StreamState, request: Create) -> bool:
    return (
        media_type(state.content_type) == media_type(request.content_type_or_default)
        and state.ttl_s == request.ttl_s
        and state.expires_at_ms == request.expires_at_ms
    )


def _same_inherited(state: StreamState, request: Create) -> bool:
    """A fork inherits omitted fields from its source, so they always match."""
    if request.content_type is not None:
        if media_type(request.content_type) != media_type(state.content_type):
            return False
    if request.ttl_s is None and request.expires_at_ms is None:
        return True
    return state.ttl_s == request.ttl_s and state.expires_at_ms == request.expires_at_ms
