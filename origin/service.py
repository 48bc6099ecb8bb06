"""What the origin does with a parsed request: judge, stage, publish, reply.

Everything between a check and the change it allows is synchronous, so there are no locks. Staged
work is finished in completion callbacks that storage calls, never in the request's own task: a
client that leaves changes nothing about what was accepted.
"""

import asyncio
import heapq
import logging
import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass

from msgspec.structs import replace

from origin.blobs import BlobHolds
from origin.buckets import Buckets
from origin.chunks import Chunks
from origin.config import LimitsConfig
from origin.forks import check_depth, fork_position
from origin.problems import storage_problem
from origin.storage.base import (
    Storage,
    StorageFailed,
    StorageFull,
)
from origin.streams import Stream
from protocol import replies
from protocol.bodies import check_append, check_create, check_data, stored_bytes
from protocol.errors import ProtocolError
from protocol.etags import permits
from protocol.media import media_type
from protocol.paths import bucket_of
from protocol.producers import Known
from protocol.replies import RETRY_AFTER, Reply
from protocol.requests import Append, Create, ForkOf
from protocol.stream import (
    Appended,
    Created,
    Fork,
    Judgement,
    Record,
    Released,
    Removed,
    Renewed,
    Snapshot,
    Snapshotted,
    StreamState,
    Trimmed,
    apply,
    begin,
    deadline_ms,
    forget_idle,
    judge_append,
    judge_create,
    judge_first,
)

log = logging.getLogger("weir.origin")

Send = Callable[[Reply], None]

RECORD_OVERHEAD_BYTES = 4096
RENEWALS_PER_TTL = 16
SWEEP_AGAIN_MS = 1000
SWEEP_STEP = 500  # streams that one step of a sweep looks at, and one batch removes
SPARE_DEADLINES = 1024
MAX_WAITING_BYTES = 64 * 1024 * 1024
COPIES_AT_A_TIME = 2  # of snapshots for forks: each is in memory as a whole


@dataclass(slots=True)
class Totals:
    """Counters for /metrics."""

    stored_bytes: int = 0
    appends: int = 0
    append_bytes: int = 0
    duplicates: int = 0
    refused_appends: int = 0
    live_readers: int = 0
    expired: int = 0


class Service:
    def __init__(
        self,
        storage: Storage,
        chunks: Chunks,
        limits: LimitsConfig,
        *,
        max_total_bytes: int,
        clock_ms: Callable[[], int],
        new_id: Callable[[], int],
    ) -> None:
        self._storage = storage
        self._chunks = chunks
        self._limits = limits
        self._producer_idle_ms = int(limits.producer_idle_secs * 1000)
        self._max_total_bytes = max_total_bytes
        self._clock_ms = clock_ms
        self._new_id = new_id
        self._names: dict[str, Stream] = {}
        self._ids: dict[int, Stream] = chunks.streams
        self._deadlines: list[tuple[int, int]] = []
        self._let_go: list[Stream] = []  # by their last forks, when there was no room to say so
        self._waiting_bytes = 0
        self._copying = asyncio.Semaphore(COPIES_AT_A_TIME)
        self.buckets = Buckets()
        self.blobs = BlobHolds(storage)
        self.totals = Totals()

    # -- start and upkeep ----------------------------------------------------------------------

    async def start(self) -> None:
        for state in await self._storage.recover():
            stream = Stream(state, committed=True)
            self._ids[state.id] = self._names[state.name] = stream
            self.totals.stored_bytes += state.stored_bytes
            self._note_deadline(stream)
            self.buckets.hold(state.name)
        self.buckets.load([s.state.name for s in self._ids.values() if _is_shown(s)])
        for stream in list(self._ids.values()):
            if stream.state.fork is not None:
                self._ids[stream.state.fork.source_id].forks += 1
        # A crash may have come between a fork's removal and what it meant for its source.
        for stream in list(self._ids.values()):
            if not stream.forks:
                self._unhold(stream)

    def sweep(self) -> bool:
        """Remove some of what has expired; whether there is more. Called about once a second."""
        let_go, self._let_go = self._let_go[:SWEEP_STEP], self._let_go[SWEEP_STEP:]
        for stream in let_go:
            if not stream.forks:
                self._unhold(stream)
        now = self._clock_ms()
        for _ in range(SWEEP_STEP):
            if not self._is_due(now):
                return False
            self._end_or_note(heapq.heappop(self._deadlines)[1], now)
        return self._is_due(now)

    def _is_due(self, now_ms: int) -> bool:
        return bool(self._deadlines) and self._deadlines[0][0] <= now_ms

    def _end_or_note(self, stream_id: int, now_ms: int) -> None:
        """Its time may have come, or it was renewed."""
        due = self._ids.get(stream_id)
        if due is None or due.removing or due.state.gone:
            return
        if self._is_alive(due, now_ms):
            if due.live_readers:
                self.renew(due)
            self._note_deadline(due)
        elif not due.removing and not due.state.gone:  # no room for its removal yet
            heapq.heappush(self._deadlines, (now_ms + SWEEP_AGAIN_MS, stream_id))

    @property
    def stream_count(self) -> int:
        """Buckets included: they are kept as streams."""
        return len(self._ids)

    @property
    def failure(self) -> str | None:
        return self._storage.failure

    # -- finding -------------------------------------------------------------------------------

    def find(self, name: str) -> Stream | Reply:
        """The stream as readers may see it, or the reply that says why not."""
        stream = self._names.get(name)
        if stream is None or not stream.visible:
            return replies.not_found()
        if stream.ended:
            return replies.gone()
        if stream.deadline_ms is not None and not self._is_alive(stream, self._clock_ms()):
            return replies.not_found()
        return stream

    def find_writable(self, name: str) -> Stream | None:
        """The stream as writers are judged; None if it is not there or on its way out."""
        stream = self._names.get(name)
        if stream is None or not self._is_alive(stream, self._clock_ms()):
            return None
        return None if stream.removing or stream.state.gone else stream

    def renew(self, stream: Stream) -> None:
        """A read moves the idle window (DS 5.1); what is kept on disk runs a little ahead of it."""
        state = stream.state
        if state.ttl_s is None or stream.removing or state.gone:
            return
        now = self._clock_ms()
        stream.deadline_ms = now + state.ttl_s * 1000
        step_ms = state.ttl_s * 1000 // RENEWALS_PER_TTL
        if now >= stream.renewal_kept_ms and self._admits_quietly(urgent=False):
            record = Renewed(state.id, now + step_ms)
            apply(state, record)
            stream.renewal_kept_ms = record.at_ms
            self._storage.stage(state, (record,), _ignore)

    def _check_storage(self) -> None:
        """After a failure the staged state holds what was lost: nothing may be judged by it."""
        if self._storage.failure is not None:
            raise StorageFailed(self._storage.failure)

    def _admits_quietly(self, *, urgent: bool) -> bool:
        try:
            return self._storage.admits(RECORD_OVERHEAD_BYTES, urgent=urgent)
        except (StorageFailed, StorageFull):
            return False

    def _is_alive(self, stream: Stream, now_ms: int) -> bool:
        deadline, state = stream.deadline_ms, stream.state
        if deadline is None or now_ms < deadline:
            return True
        if stream.live_readers and state.ttl_s and not stream.removing and not state.gone:
            self.renew(stream)  # not under those who read it (DS 5.1)
            return True
        if not stream.removing and not state.gone and self._admits_quietly(urgent=True):
            self.totals.expired += 1
            self._remove(stream, _ignore)
        return False

    def _note_deadline(self, stream: Stream) -> None:
        if stream.deadline_ms is None or stream.state.gone:
            return
        heapq.heappush(self._deadlines, (_look_at_ms(stream, stream.deadline_ms), stream.state.id))
        if len(self._deadlines) > 2 * len(self._ids) + SPARE_DEADLINES:
            streams = self._ids.values()  # most entries are of streams long gone
            self._deadlines = [
                (s.deadline_ms, s.state.id) for s in streams if s.deadline_ms is not None
            ]
            heapq.heapify(self._deadlines)

    # -- create --------------------------------------------------------------------------------

    async def create(self, name: str, request: Create, body: bytes, location: str) -> Reply:
        now = self._clock_ms()
        if request.expires_at_ms is not None and request.expires_at_ms <= now:
            raise ProtocolError(400, "invalid-expiry", "Stream-Expires-At is in the past.")
        check_create(request, body)
        if self._misses_bucket(name):
            return replies.problem(404, "bucket-not-found", "There is no such bucket.")
        while (stream := self._names.get(name)) is not None:
            self._check_storage()
            alive = self._is_alive(stream, now)  # if not, its end is staged or it is held by forks
            if (alive or stream.state.gone) and not stream.removing:
                return await self._created_before(stream, request, now)
            await self._settled()
            if self._names.get(name) is stream:  # it could not be removed: the disk is full
                raise StorageFull("an expired stream waits for its removal")
        if request.if_match is not None:
            return replies.precondition_failed(None)
        if request.fork is None:
            return await self._create_new(name, request, None, None, body, location)
        return await self._create_fork(name, request, request.fork, body, location)

    def _misses_bucket(self, name: str) -> bool:
        """Buckets are made explicitly, never by a stream in them; and one whose creation a crash
        could take back must not leave a stream behind."""
        bucket_name = bucket_of(name)
        bucket = self.find_writable(bucket_name)
        return bucket_name != "" and (bucket is None or not bucket.visible)

    async def _created_before(self, stream: Stream, request: Create, now_ms: int) -> Reply:
        if stream.state.gone:
            reply = replies.problem(409, "held-by-forks", "Forks still hold the old stream.")
        else:
            if request.first is not None:
                self._forget_idle(stream.state, request.first, now_ms)
            judgement = judge_create(stream.state, request)
            if judgement in (Judgement.SAME, Judgement.DUPLICATE):
                self._check_fork_offset(stream.state, request)
            reply = replies.created_before(judgement, stream.state, request)
        if stream.inflight:
            await self._settled()
        return reply

    def _check_fork_offset(self, state: StreamState, request: Create) -> None:
        """It is the same fork however its offset is written, but not with one of another stream."""
        if state.fork is not None and request.fork is not None and request.fork.offset is not None:
            source = self._ids[state.fork.source_id]
            self._chunks.check_identity(source, request.fork.offset)

    async def _create_new(
        self,
        name: str,
        request: Create,
        fork: Fork | None,
        inherited: Snapshot | None,
        body: bytes,
        location: str,
    ) -> Reply:
        now = self._clock_ms()
        record = self._creation(name, request, fork, now)
        state = begin(record)
        if state.strict_state and not state.is_json:
            raise ProtocolError(400, "state-needs-json", "Stream-State needs application/json.")
        if (judgement := judge_first(request)) is not Judgement.ACCEPT:
            return replies.created_before(judgement, state, request)
        data = stored_bytes(state, body)
        if request.first is not None:
            check_data(data)
        self.check_room(0, len(data) + (inherited.size_bytes if inherited else 0))
        if len(self._ids) >= self._limits.max_streams:
            raise ProtocolError(413, "too-many-streams", "The server holds no more streams.")
        snapshot = None if inherited is None else await self._copy(inherited)
        try:
            await self.admitted(len(data))
        except BaseException:
            if snapshot is not None:
                self._storage.drop_blob(snapshot.blob)
            raise
        if name in self._names or self._misses_bucket(name):  # others were faster while we waited
            if snapshot is not None:
                self._storage.drop_blob(snapshot.blob)
            return await self.create(name, request, body, location)
        records: list[Record] = [record]
        if snapshot is not None:
            records.append(Snapshotted(state.id, snapshot))
        if data:
            append = request.first or Append(None, None, None, close=False)
            records.append(_appended(state, append, data, now, close=record.closed))
        for more in records[1:]:
            apply(state, more)
        stream = Stream(state, committed=False)
        self._ids[state.id] = self._names[name] = stream
        self.buckets.hold(name)
        self.totals.stored_bytes += state.stored_bytes
        if fork is not None:
            self._ids[fork.source_id].forks += 1
        self._note_deadline(stream)
        tail, closed = state.tail, state.closed
        reply = replies.created(
            state, request, tail, location
        )  # now: appends may follow before it lands

        def landed() -> None:
            stream.visible = True
            stream.tail, stream.closed, stream.snapshot = tail, closed, state.snapshot
            if _is_shown(stream):
                self.buckets.show(name)

        await self.commit(stream, tuple(records), landed)
        return reply

    def _creation(self, name: str, request: Create, fork: Fork | None, now_ms: int) -> Created:
        content_type, ttl_s = request.content_type_or_default, request.ttl_s
        expires_at_ms, strict_state = request.expires_at_ms, request.strict_state
        if fork is not None:
            source = self._ids[fork.source_id].state
            content_type = request.content_type or source.content_type
            if ttl_s is None and expires_at_ms is None:
                ttl_s, expires_at_ms = source.ttl_s, source.expires_at_ms
            strict_state = source.strict_state
        return Created(
            self._new_id(),
            name,
            content_type,
            now_ms,
            ttl_s,
            expires_at_ms,
            fork,
            request.closed,
            strict_state,
        )

    async def _copy(self, snapshot: Snapshot) -> Snapshot:
        async with self._copying:
            data = await self._storage.read_blob(
                snapshot.blob, snapshot.blob_bytes, 0, snapshot.size_bytes
            )
            blob = self._new_id()
            size = await self._storage.write_blob(blob, data)
        return replace(snapshot, blob=blob, blob_bytes=size)

    async def _create_fork(
        self, name: str, request: Create, asked: ForkOf, body: bytes, location: str
    ) -> Reply:
        source = self.find(asked.source_name)
        if isinstance(source, Reply):
            if source.status == 410:
                return replies.problem(409, "source-gone", "The source was deleted.")
            return replies.problem(404, "source-not-found", "There is no stream to fork from.")
        if request.content_type is not None:
            if media_type(request.content_type) != media_type(source.state.content_type):
                return replies.problem(
                    409, "content-type-mismatch", "A fork has its source's content type."
                )
        if request.strict_state and not source.state.strict_state:
            return replies.problem(409, "state-mismatch", "The source is no strict State stream.")
        check_depth(self._ids, source)
        # As staged: what a snapshot that is on its way covers will not be there for a fork.
        inherited = source.state.snapshot
        source.forks += 1  # hold it until the fork holds it
        try:
            with self.blobs.held(inherited.blob) if inherited else nullcontext():
                return await self._fork_held(
                    source, inherited, name, request, asked, body, location
                )
        finally:
            self._release(source)

    async def _fork_held(
        self,
        source: Stream,
        inherited: Snapshot | None,
        name: str,
        request: Create,
        asked: ForkOf,
        body: bytes,
        location: str,
    ) -> Reply:
        """A fork gets a copy of the snapshot that stands for the beginning of its source."""
        earliest = 0 if inherited is None else inherited.offset
        position = await fork_position(self._chunks, source, earliest, asked)
        if source.state.gone:
            return replies.problem(409, "source-gone", "The source was deleted.")
        offset = None if asked.offset is None else asked.offset.position
        fork = Fork(source.state.id, asked.source_name, position, offset, asked.sub_offset)
        if name in self._names:
            return await self.create(name, request, body, location)
        return await self._create_new(name, request, fork, inherited, body, location)

    def _release(self, source: Stream) -> None:
        source.forks -= 1
        if not source.forks:
            self._unhold(source)

    def _unhold(self, source: Stream) -> None:
        """No fork reads it any more: what was kept for forks alone can go. Without room for the
        record of it, some sweeps later."""
        state = source.state
        if source.removing or (not state.gone and state.earliest <= state.floor):
            return
        if not self._admits_quietly(urgent=True):
            self._let_go.append(source)
        elif state.gone:
            self._remove(source, _ignore)
        else:
            self._storage.stage(state, (self.trim(source),), _ignore)

    def trim(self, stream: Stream) -> Trimmed:
        """Nothing below the snapshot is kept; the record of it is the caller's to stage."""
        state = stream.state
        record = Trimmed(state.id, state.earliest)
        before = state.stored_bytes
        apply(state, record)
        self.totals.stored_bytes += state.stored_bytes - before
        return record

    # -- append and close ----------------------------------------------------------------------

    def append(self, name: str, request: Append, body: bytes, send: Send) -> None:
        """Calls `send` once: at once for most refusals, after the commit otherwise."""
        try:
            self._append(name, request, body, send)
        except ProtocolError as error:
            self.totals.refused_appends += 1
            send(replies.problem_of(error))
        except (StorageFailed, StorageFull) as error:
            send(storage_problem(error))

    def _append(self, name: str, request: Append, body: bytes, send: Send) -> None:
        check_append(request, body)
        stream = self._names.get(name)
        if stream is None or not self._is_alive(stream, now := self._clock_ms()):
            send(replies.not_found())
            return
        self._check_storage()
        state = stream.state
        if state.gone or stream.removing:
            reply = replies.gone() if state.gone and not stream.removing else replies.not_found()
            self._when_settled(stream, reply, send)
            return
        self._forget_idle(state, request, now)
        judgement = judge_append(state, request, bool(body))
        if judgement is not Judgement.ACCEPT:
            self._count_refusal(judgement)
            self._when_settled(stream, replies.refused(judgement, state, request), send)
            return
        data = stored_bytes(state, body)
        if body:
            check_data(data)
        self.check_room(state.stored_bytes, len(data))
        if request.producer is not None and state.producers is not None:
            self._check_producers(state.producers, request.producer.id, now)
        if not self._storage.admits(len(data) + RECORD_OVERHEAD_BYTES):
            self._append_later(name, request, body, send)
            return
        self._stage_append(stream, request, data, now, send)

    def _stage_append(
        self, stream: Stream, request: Append, data: bytes, now_ms: int, send: Send
    ) -> None:
        """From here on it counts for every later judgement; readers see it when it has landed."""
        state = stream.state
        record = _appended(state, request, data, now_ms, close=request.close)
        apply(state, record)
        if state.ttl_s is not None:
            stream.deadline_ms = deadline_ms(state)
            stream.renewal_kept_ms = now_ms
        tail = state.tail
        stream.inflight += 1
        self.totals.stored_bytes += len(data)

        def done(error: Exception | None) -> None:
            stream.inflight -= 1
            if error is not None:
                send(storage_problem(error))
                return
            stream.tail = tail
            stream.closed = stream.closed or request.close
            self.totals.appends += 1
            self.totals.append_bytes += len(data)
            stream.wake_all()
            accepted = replies.accepted if data else replies.close_accepted
            send(accepted(state, request, tail))

        self._storage.stage(state, (record,), done)

    def _append_later(self, name: str, request: Append, body: bytes, send: Send) -> None:
        """The journal is catching up: wait for room instead of sending the client away."""
        if self._waiting_bytes > MAX_WAITING_BYTES:
            send(replies.problem(503, "busy", "Too many appends are waiting.", RETRY_AFTER))
            return
        self._waiting_bytes += len(body) + RECORD_OVERHEAD_BYTES

        def retry() -> None:
            self._waiting_bytes -= len(body) + RECORD_OVERHEAD_BYTES
            self.append(name, request, body, send)

        self._storage.when_room(retry)

    def _when_settled(self, stream: Stream, reply: Reply, send: Send) -> None:
        """A reply judged by staged state waits until that state cannot be lost."""
        if not stream.inflight and not stream.removing:
            send(reply)
            return
        self._storage.barrier(
            lambda error: send(reply if error is None else storage_problem(error))
        )

    def _count_refusal(self, judgement: Judgement) -> None:
        if judgement is Judgement.DUPLICATE:
            self.totals.duplicates += 1
        else:
            self.totals.refused_appends += 1

    def check_room(self, stream_bytes: int, data_bytes: int) -> None:
        if stream_bytes + data_bytes > self._limits.max_stream_bytes:
            raise ProtocolError(413, "stream-too-large", "The stream would exceed its size limit.")
        if self.totals.stored_bytes + data_bytes > self._max_total_bytes:
            raise ProtocolError(413, "server-full", "The server's size limit is reached.")

    def _forget_idle(self, state: StreamState, request: Append, now_ms: int) -> None:
        """But not who closed the stream: that request is a duplicate for good."""
        if request.producer is not None and state.producers and not state.closed:
            forget_idle(state, request.producer.id, now_ms - self._producer_idle_ms)

    def _check_producers(self, known: dict[str, Known], producer_id: str, now_ms: int) -> None:
        """The first one who is forgotten makes room."""
        if producer_id in known or len(known) < self._limits.max_producers_per_stream:
            return
        left_ms = next(iter(known.values())).at_ms + self._producer_idle_ms - now_ms
        retry_after = ("Retry-After", str(max(1, math.ceil(left_ms / 1000))))
        raise ProtocolError(
            429, "too-many-producers", "The stream knows too many producers.", (retry_after,)
        )

    # -- delete --------------------------------------------------------------------------------

    async def delete(self, name: str, if_match: str | None = None) -> Reply:
        stream = self._names.get(name)
        if stream is None or not self._is_alive(stream, self._clock_ms()):
            return replies.not_found()
        if stream.removing:
            await self._settled()
            return replies.not_found()
        if stream.state.gone:
            await self._settled()
            return replies.gone()
        while not self._storage.admits(RECORD_OVERHEAD_BYTES, urgent=True):
            await self._room()
            if stream.removing or stream.state.gone:
                return await self.delete(name, if_match)
        if if_match is not None and not permits(if_match, stream.state.etag):
            reply = replies.precondition_failed(stream.state)
            await self._settled()
            return reply
        if not self.buckets.is_empty(name):
            return replies.problem(409, "bucket-not-empty", "The bucket still has streams.")
        settled = asyncio.get_running_loop().create_future()
        self._remove(stream, lambda error: _settle(settled, error))
        await settled
        return replies.deleted()

    def _remove(self, stream: Stream, done: Callable[[Exception | None], None]) -> None:
        """Stage the end of a stream: at once, or held back while forks read it."""
        state = stream.state
        record = Released(state.id) if stream.forks else Removed(state.id)
        removed = stream.removing = type(record) is Removed
        apply(state, record)
        stream.inflight += 1

        def landed(error: Exception | None) -> None:
            stream.inflight -= 1
            if error is None:
                stream.ended = True
                self.buckets.hide(state.name)
                if removed:
                    self._forget(stream)
                stream.wake_all()
            done(error)

        self._storage.stage(state, (record,), landed)

    def _forget(self, stream: Stream) -> None:
        state = stream.state
        del self._ids[state.id]
        if self._names.get(state.name) is stream:
            del self._names[state.name]
        self.buckets.release(state.name)
        if state.snapshot is not None:
            self.blobs.retire(state.snapshot.blob)
        self.totals.stored_bytes -= state.stored_bytes
        if state.fork is not None:
            self._release(self._ids[state.fork.source_id])

    # -- staging -------------------------------------------------------------------------------

    async def commit(
        self, stream: Stream, records: tuple[Record, ...], landed: Callable[[], None]
    ) -> None:
        """Stage records that are applied already, and wait; `landed` comes before anyone waits."""
        settled = asyncio.get_running_loop().create_future()
        stream.inflight += 1

        def done(error: Exception | None) -> None:
            stream.inflight -= 1
            if error is None:
                landed()
            _settle(settled, error)

        self._storage.stage(stream.state, records, done)
        await settled

    async def admitted(self, data_bytes: int) -> None:
        while not self._storage.admits(data_bytes + RECORD_OVERHEAD_BYTES):
            if self._waiting_bytes > MAX_WAITING_BYTES:
                raise ProtocolError(503, "busy", "Too many requests are waiting.", RETRY_AFTER)
            self._waiting_bytes += data_bytes + RECORD_OVERHEAD_BYTES
            try:
                await self._room()
            finally:
                self._waiting_bytes -= data_bytes + RECORD_OVERHEAD_BYTES

    async def _room(self) -> None:
        room = asyncio.get_running_loop().create_future()
        self._storage.when_room(lambda: _settle(room, None))
        await room

    async def settle(self) -> None:
        """Wait until everything staged is decided, one way or the other."""
        try:
            await self._settled()
        except StorageFailed:
            pass

    async def _settled(self) -> None:
        settled = asyncio.get_running_loop().create_future()
        self._storage.barrier(lambda error: _settle(settled, error))
        await settled


def _look_at_ms(stream: Stream, deadline_ms: int) -> int:
    """When to see whether it has expired. While somebody reads it live, twice as often as its TTL
    asks for: what is on disk about it must not run out before a restart."""
    ttl_s = stream.state.ttl_s
    return deadline_ms - ttl_s * 500 if ttl_s and stream.live_readers else deadline_ms


def _appended(
    state: StreamState, request: Append, data: bytes, now_ms: int, *, close: bool
) -> Appended:
    producer = request.producer
    by = None if producer is None else (producer.id, producer.epoch, producer.seq)
    return Appended(state.id, state.tail, data, now_ms, by, request.seq, close)


def _is_shown(stream: Stream) -> bool:
    """In the listing of its bucket."""
    return bucket_of(stream.state.name) != "" and not stream.state.gone


def _settle(future: "asyncio.Future[None]", error: Exception | None) -> None:
    """The one who waits may be gone."""
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)


def _ignore(error: Exception | None) -> None:
    """Nobody waits for this; a failed storage has said so in the log."""
