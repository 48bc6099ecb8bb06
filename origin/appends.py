"""Appends and closes: judged against the staged state, staged, published when committed."""

import math
from collections.abc import Callable

from origin.config import LimitsConfig
from origin.lifetimes import Lifetimes
from origin.registry import Registry
from origin.staging import Staging, storage_problem
from origin.storage.base import Storage, StorageFailed, StorageFull
from origin.streams import Stream
from protocol import replies
from protocol.bodies import check_append, check_data, stored_bytes
from protocol.errors import ProtocolError
from protocol.producers import Known
from protocol.replies import RETRY_AFTER, Reply
from protocol.requests import Append
from protocol.stream import (
    Appended,
    Judgement,
    StreamState,
    apply,
    deadline_ms,
    forget_idle,
    judge_append,
)

Send = Callable[[Reply], None]


class Appends:
    def __init__(
        self,
        registry: Registry,
        lifetimes: Lifetimes,
        staging: Staging,
        storage: Storage,
        limits: LimitsConfig,
        clock_ms: Callable[[], int],
    ) -> None:
        self._registry = registry
        self._lifetimes = lifetimes
        self._staging = staging
        self._storage = storage
        self._max_producers = limits.max_producers_per_stream
        self._producer_idle_ms = int(limits.producer_idle_secs * 1000)
        self._clock_ms = clock_ms
        self.committed = 0
        self.committed_bytes = 0
        self.duplicates = 0
        self.refused = 0

    def append(self, name: str, request: Append, body: bytes, send: Send) -> None:
        """Calls `send` once: immediately for most refusals, otherwise after the commit."""
        try:
            self._append(name, request, body, send)
        except ProtocolError as error:
            self.refused += 1
            send(replies.problem_of(error))
        except (StorageFailed, StorageFull) as error:
            send(storage_problem(error))

    def _append(self, name: str, request: Append, body: bytes, send: Send) -> None:
        check_append(request, body)
        stream = self._registry.by_name.get(name)
        if stream is None or not self._lifetimes.is_alive(stream, now := self._clock_ms()):
            send(replies.not_found())
            return
        self._staging.check_storage()
        state = stream.state
        if state.gone or stream.removing:
            reply = replies.gone() if state.gone and not stream.removing else replies.not_found()
            self._send_settled(stream, reply, send)
            return
        self.forget_idle(state, request, now)
        judgement = judge_append(state, request, bool(body))
        if judgement is not Judgement.ACCEPT:
            self._count_refusal(judgement)
            self._send_settled(stream, replies.refused(judgement, state, request), send)
            return
        data = stored_bytes(state, body)
        if body:
            check_data(data)
        self._registry.check_size(state.stored_bytes, len(data))
        if request.producer is not None and state.producers is not None:
            self._check_producers(state.producers, request.producer.id, now)
        if self._staging.admits(len(data)):
            self._stage(stream, request, data, now, send)
        else:
            self._append_later(name, request, body, send)

    def _stage(self, stream: Stream, request: Append, data: bytes, now_ms: int, send: Send) -> None:
        """Later requests are judged with it; readers see it once it is committed.

        Calls the storage directly instead of `Staging.stage`, for speed."""
        state = stream.state
        record = appended(state, request, data, now_ms, close=request.close)
        apply(state, record)
        if state.ttl_s is not None:
            stream.deadline_ms = deadline_ms(state)
            stream.renewal_kept_ms = now_ms
        tail = state.tail
        self._registry.grow(len(data))
        stream.inflight += 1

        def done(error: Exception | None) -> None:
            stream.inflight -= 1
            if error is not None:
                send(storage_problem(error))
                return
            stream.publish(tail, closed=request.close)
            self.committed += 1
            self.committed_bytes += len(data)
            accepted = replies.accepted if data else replies.close_accepted
            send(accepted(state, request, tail))

        self._storage.stage(state, (record,), done)

    def _append_later(self, name: str, request: Append, body: bytes, send: Send) -> None:
        """The journal is catching up: wait for room instead of refusing the client."""
        if self._staging.is_crowded:
            send(replies.problem(503, "busy", "Too many appends are queued.", RETRY_AFTER))
        else:
            self._staging.when_room(len(body), lambda: self.append(name, request, body, send))

    def _send_settled(self, stream: Stream, reply: Reply, send: Send) -> None:
        """A reply based on staged state waits until that state cannot be lost."""
        if not stream.inflight and not stream.removing:
            send(reply)
            return
        self._storage.barrier(
            lambda error: send(reply if error is None else storage_problem(error))
        )

    def _count_refusal(self, judgement: Judgement) -> None:
        if judgement is Judgement.DUPLICATE:
            self.duplicates += 1
        else:
            self.refused += 1

    # -- producers -----------------------------------------------------------------------------

    def forget_idle(self, state: StreamState, request: Append, now_ms: int) -> None:
        """Except in a closed stream: the request that closed it must stay a duplicate."""
        if request.producer is not None and state.producers and not state.closed:
            forget_idle(state, request.producer.id, now_ms - self._producer_idle_ms)

    def _check_producers(self, known: dict[str, Known], producer_id: str, now_ms: int) -> None:
        """Refuse a new producer until an idle one can be forgotten."""
        if producer_id in known or len(known) < self._max_producers:
            return
        left_ms = next(iter(known.values())).at_ms + self._producer_idle_ms - now_ms
        retry_after = ("Retry-After", str(max(1, math.ceil(left_ms / 1000))))
        raise ProtocolError(
            429, "too-many-producers", "The stream has too many producers.", (retry_after,)
        )


def appended(
    state: StreamState, request: Append, data: bytes, now_ms: int, *, close: bool
) -> Appended:
    producer = request.producer
    by = None if producer is None else (producer.id, producer.epoch, producer.seq)
    return Appended(state.id, state.tail, data, now_ms, by, request.seq, close)
