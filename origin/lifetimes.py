"""Stream lifetimes: lookup for readers and writers, renewal, expiry, deletion.

Expiry is detected on access and by a sweep. An expired stream is removed like a deleted one.
"""

import asyncio
import heapq
from collections.abc import Callable

from origin.registry import Registry
from origin.removals import Removals
from origin.staging import Staging, ignore, settle
from origin.streams import Stream
from protocol import replies
from protocol.etags import permits
from protocol.replies import Reply
from protocol.stream import Renewed, apply

RENEWALS_PER_TTL = 16
SWEEP_AGAIN_MS = 1000
SWEEP_STEP = 500  # streams that one step of a sweep looks at, and one batch removes
SPARE_DEADLINES = 1024


class Lifetimes:
    def __init__(
        self, registry: Registry, removals: Removals, staging: Staging, clock_ms: Callable[[], int]
    ) -> None:
        self._registry = registry
        self._removals = removals
        self._staging = staging
        self._clock_ms = clock_ms
        self.deadlines: list[tuple[int, int]] = []  # a heap of (when to look, stream id)
        self.expired = 0

    # -- finding -------------------------------------------------------------------------------

    def find(self, name: str) -> Stream | Reply:
        """The stream, if visible to readers, or the reply that says why not."""
        stream = self._registry.by_name.get(name)
        if stream is None or not stream.visible:
            return replies.not_found()
        if stream.ended:
            return replies.gone()
        if stream.deadline_ms is not None and not self.is_alive(stream, self._clock_ms()):
            return replies.not_found()
        return stream

    def find_writable(self, name: str) -> Stream | None:
        """The stream for writers; None if it does not exist or is being removed."""
        stream = self._registry.by_name.get(name)
        if stream is None or not self.is_alive(stream, self._clock_ms()):
            return None
        return None if stream.removing or stream.state.gone else stream

    def is_alive(self, stream: Stream, now_ms: int) -> bool:
        """If it has expired, its removal is staged now, or when there is room."""
        deadline, state = stream.deadline_ms, stream.state
        if deadline is None or now_ms < deadline:
            return True
        if stream.live_readers and state.ttl_s and not stream.removing and not state.gone:
            self.renew(stream)  # it never expires while it is read (DS 5.1)
            return True
        if not stream.removing and not state.gone and self._staging.admits_quietly(urgent=True):
            self.expired += 1
            self._removals.remove(stream, ignore)
        return False

    # -- renewal -------------------------------------------------------------------------------

    def renew(self, stream: Stream) -> None:
        """A read renews the idle window (DS 5.1); the stored deadline runs slightly ahead."""
        state = stream.state
        if state.ttl_s is None or stream.removing or state.gone:
            return
        now = self._clock_ms()
        stream.deadline_ms = now + state.ttl_s * 1000
        step_ms = state.ttl_s * 1000 // RENEWALS_PER_TTL
        if now >= stream.renewal_kept_ms and self._staging.admits_quietly(urgent=False):
            record = Renewed(state.id, now + step_ms)
            apply(state, record)
            stream.renewal_kept_ms = record.at_ms
            self._staging.stage_quietly(stream, record)

    # -- expiry --------------------------------------------------------------------------------

    def watch(self, stream: Stream) -> None:
        """Let the sweep detect the expiry of this stream."""
        if stream.deadline_ms is None or stream.state.gone:
            return
        heapq.heappush(self.deadlines, (_look_at_ms(stream, stream.deadline_ms), stream.state.id))
        if len(self.deadlines) > 2 * len(self._registry.by_id) + SPARE_DEADLINES:
            streams = self._registry.by_id.values()  # most entries belong to removed streams
            self.deadlines = [
                (s.deadline_ms, s.state.id) for s in streams if s.deadline_ms is not None
            ]
            heapq.heapify(self.deadlines)

    def sweep(self) -> bool:
        """Remove some expired streams; whether there are more. Called about once a second."""
        self._removals.retry(SWEEP_STEP)
        now = self._clock_ms()
        for _ in range(SWEEP_STEP):
            if not self._is_due(now):
                return False
            self._end_or_watch(heapq.heappop(self.deadlines)[1], now)
        return self._is_due(now)

    def _is_due(self, now_ms: int) -> bool:
        return bool(self.deadlines) and self.deadlines[0][0] <= now_ms

    def _end_or_watch(self, stream_id: int, now_ms: int) -> None:
        """It may have expired, or was renewed."""
        due = self._registry.by_id.get(stream_id)
        if due is None or due.removing or due.state.gone:
            return
        if self.is_alive(due, now_ms):
            if due.live_readers:
                self.renew(due)
            self.watch(due)
        elif not due.removing and not due.state.gone:  # no room to remove it yet
            heapq.heappush(self.deadlines, (now_ms + SWEEP_AGAIN_MS, stream_id))

    # -- deletion ------------------------------------------------------------------------------

    async def delete(self, name: str, if_match: str | None = None) -> Reply:
        stream = self._registry.by_name.get(name)
        if stream is None or not self.is_alive(stream, self._clock_ms()):
            return replies.not_found()
        if stream.removing or stream.state.gone:
            reply = replies.not_found() if stream.removing else replies.gone()
            await self._staging.settled()
            return reply
        while not self._staging.admits(0, urgent=True):
            await self._staging.room()
            if stream.removing or stream.state.gone:
                return await self.delete(name, if_match)
        if if_match is not None and not permits(if_match, stream.state.etag):
            reply = replies.precondition_failed(stream.state)
            await self._staging.settled()
            return reply
        if not self._registry.buckets.is_empty(name):
            return replies.bucket_not_empty()
        removed = asyncio.get_running_loop().create_future()
        self._removals.remove(stream, lambda error: settle(removed, error))
        await removed
        return replies.deleted()


def _look_at_ms(stream: Stream, deadline_ms: int) -> int:
    """When to check for expiry. During live reads, at half its TTL, to renew the stored deadline in
    time: else a restart might find it expired."""
    ttl_s = stream.state.ttl_s
    return deadline_ms - ttl_s * 500 if ttl_s and stream.live_readers else deadline_ms
