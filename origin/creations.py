"""PUT: a new stream, a fork, or the response for an existing stream."""

import secrets
from collections.abc import Callable
from contextlib import ExitStack

from origin.appends import Appends, appended
from origin.forks import Forks, Inheritance
from origin.lifetimes import Lifetimes
from origin.registry import Registry
from origin.snapshotblobs import SnapshotBlobs
from origin.staging import Staging
from origin.storage.base import StorageFull
from origin.streams import Stream
from protocol import replies
from protocol.bodies import check_create, check_data, stored_bytes
from protocol.errors import ProtocolError
from protocol.paths import bucket_of
from protocol.replies import Reply
from protocol.requests import Append, Create
from protocol.stream import (
    Created,
    Judgement,
    Record,
    Snapshot,
    Snapshotted,
    StreamState,
    apply,
    begin,
    judge_create,
    judge_first,
)


class Revoked(Exception):
    """The permit of a creation is no longer valid: what was found out for it may have changed."""


class Permits:
    """What a shard permits other shards to prepare for it. A permit is a number that is valid until
    the shard revokes all of them; a shard that was opened anew knows none of them."""

    def __init__(self) -> None:
        self.current = secrets.randbits(62)

    def revoke_all(self) -> None:
        self.current += 1


class Creations:
    def __init__(
        self,
        registry: Registry,
        lifetimes: Lifetimes,
        staging: Staging,
        appends: Appends,
        forks: Forks,
        blobs: SnapshotBlobs,
        permits: Permits,
        clock_ms: Callable[[], int],
        new_id: Callable[[], int],
    ) -> None:
        self._registry = registry
        self._lifetimes = lifetimes
        self._staging = staging
        self._appends = appends
        self._forks = forks
        self._blobs = blobs
        self._permits = permits
        self._clock_ms = clock_ms
        self._new_id = new_id

    async def create(
        self, name: str, request: Create, body: bytes, location: str, permit: int | None = None
    ) -> Reply:
        """With a permit, other shards have been asked: about its bucket, and where it may be. A
        stream is then created only if the permit is valid at that moment; else raises Revoked."""
        while True:
            now = self._clock_ms()
            if request.expires_at_ms is not None and request.expires_at_ms <= now:
                raise ProtocolError(400, "invalid-expiry", "Stream-Expires-At is in the past.")
            check_create(request, body)
            if permit is None and self._lacks_bucket(name):
                return replies.no_bucket()
            reply = await self._answer_existing(name, request, now)
            if reply is None:
                if request.if_match is not None:
                    return replies.precondition_failed(None)
                self._check_permit(permit)
                reply = await self._create(name, request, body, location, permit)
            if reply is not None:
                return reply

    def _lacks_bucket(self, name: str) -> bool:
        """Buckets are created explicitly, never by a stream; an uncommitted bucket must not have
        streams, because a crash could undo its creation."""
        bucket_name = bucket_of(name)
        bucket = self._lifetimes.find_writable(bucket_name)
        return bucket_name != "" and (bucket is None or not bucket.visible)

    def _check_permit(self, permit: int | None) -> None:
        if permit is not None and permit != self._permits.current:
            raise Revoked

    # -- the stream exists ---------------------------------------------------------------------

    async def _answer_existing(self, name: str, request: Create, now_ms: int) -> Reply | None:
        """None if the name is free, possibly because an expired stream was removed."""
        while (stream := self._registry.by_name.get(name)) is not None:
            self._staging.check_storage()
            # If it is not alive, its removal is staged or forks still use it.
            alive = self._lifetimes.is_alive(stream, now_ms)
            if (alive or stream.state.gone) and not stream.removing:
                reply = self._judge_existing(stream, request, now_ms)
                if stream.inflight:
                    await self._staging.settled()
                return reply
            await self._staging.settled()
            if self._registry.by_name.get(name) is stream:  # the disk is full
                raise StorageFull("an expired stream is waiting for removal")
        return None

    def _judge_existing(self, stream: Stream, request: Create, now_ms: int) -> Reply:
        state = stream.state
        if state.gone:
            return replies.problem(409, "held-by-forks", "Forks still use the old stream.")
        if request.first is not None:
            self._appends.forget_idle(state, request.first, now_ms)
        judgement = judge_create(state, request)
        if judgement in (Judgement.SAME, Judgement.DUPLICATE):
            self._forks.check_repeated(state, request.fork)
        return replies.created_before(judgement, state, request)

    # -- the name is free ----------------------------------------------------------------------

    async def _create(
        self, name: str, request: Create, body: bytes, location: str, permit: int | None
    ) -> Reply | None:
        """None if another request was faster."""
        if request.fork is None:
            return await self._create_stream(name, request, None, body, location, permit)
        async with self._forks.inheriting(request, request.fork) as inherited:
            return await self._create_stream(name, request, inherited, body, location, permit)

    async def _create_stream(
        self,
        name: str,
        request: Create,
        inherited: Inheritance | None,
        body: bytes,
        location: str,
        permit: int | None,
    ) -> Reply | None:
        if name in self._registry.by_name:  # while the fork was prepared
            return None
        now = self._clock_ms()
        record = _created(self._new_id(), name, request, inherited, now)
        state = begin(record)
        if state.strict_state and not state.is_json:
            raise ProtocolError(400, "state-needs-json", "Stream-State needs application/json.")
        if (judgement := judge_first(request)) is not Judgement.ACCEPT:
            return replies.created_before(judgement, state, request)
        data = stored_bytes(state, body)
        if request.first is not None:
            check_data(data)
        snapshot = None if inherited is None else inherited.snapshot
        self._registry.check_size(0, len(data) + (snapshot.size_bytes if snapshot else 0))
        self._registry.check_count()
        with ExitStack() as unless_kept:
            if snapshot is not None:
                snapshot = await self._blobs.copy(snapshot)
                unless_kept.callback(self._blobs.drop, snapshot)
            await self._staging.admitted(len(data))
            if name in self._registry.by_name:
                return None
            if permit is None and self._lacks_bucket(name):
                return None
            self._check_permit(permit)
            unless_kept.pop_all()
        records = _first_records(state, request, record, snapshot, data, now)
        return await self._commit(state, request, records, location)

    async def _commit(
        self, state: StreamState, request: Create, records: tuple[Record, ...], location: str
    ) -> Reply:
        stream = Stream(state, committed=False)
        self._registry.add(stream)
        self._lifetimes.watch(stream)
        tail, closed, snapshot = state.tail, state.closed, state.snapshot
        # Encoded now: appends may follow before it lands.
        reply = replies.created(state, request, tail, location)

        def landed() -> None:
            stream.visible = True
            stream.tail, stream.closed, stream.snapshot = tail, closed, snapshot
            if not state.gone:
                self._registry.buckets.show(state.name)

        await self._staging.commit(stream, records, landed)
        return reply


def _created(
    id_: int, name: str, request: Create, inherited: Inheritance | None, now_ms: int
) -> Created:
    content_type, ttl_s = request.content_type_or_default, request.ttl_s
    expires_at_ms, strict_state = request.expires_at_ms, request.strict_state
    fork = None
    if inherited is not None:
        source, fork = inherited.source, inherited.fork
        content_type = request.content_type or source.content_type
        if ttl_s is None and expires_at_ms is None:
            ttl_s, expires_at_ms = source.ttl_s, source.expires_at_ms
        strict_state = source.strict_state
    return Created(
        id_, name, content_type, now_ms, ttl_s, expires_at_ms, fork, request.closed, strict_state
    )


def _first_records(
    state: StreamState,
    request: Create,
    record: Created,
    snapshot: Snapshot | None,
    data: bytes,
    now_ms: int,
) -> tuple[Record, ...]:
    """The records as one unit; `state` is the state after them."""
    more: list[Record] = []
    if snapshot is not None:
        more.append(Snapshotted(state.id, snapshot))
    if data:
        append = request.first or Append(None, None, None, close=False)
        more.append(appended(state, append, data, now_ms, close=record.closed))
    for each in more:
        apply(state, each)
    return (record, *more)
