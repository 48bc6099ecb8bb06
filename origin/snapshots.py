"""Snapshots of streams, and bootstraps.

A snapshot is one blob that replaces everything below its offset. It is written and synced outside
the journal while appends continue. One unit then makes it the latest and releases the data it
covers, so a crash leaves either the old one or the new one, complete.
"""

import secrets
from collections.abc import AsyncIterator
from contextlib import ExitStack
from dataclasses import dataclass

from origin.chunks import Chunks
from origin.config import LimitsConfig
from origin.lifetimes import Lifetimes
from origin.registry import Registry
from origin.removals import Removals
from origin.snapshotblobs import PIECE_BYTES, SnapshotBlobs
from origin.staging import Staging
from origin.storage.base import BelowFloor
from origin.streams import Stream
from protocol import replies
from protocol.errors import ProtocolError
from protocol.multipart import close_parts, open_part
from protocol.names import DEFAULT_CONTENT_TYPE
from protocol.offsets import Offset
from protocol.replies import Reply
from protocol.requests import Publish
from protocol.stream import Record, Snapshot, Snapshotted


def _growth(stream: Stream, position: int, size_bytes: int) -> int:
    """Change of the stored size: covered data is freed, unless forks read it."""
    state = stream.state
    floor = state.floor if stream.forks else position
    return state.tail - max(state.base, floor) + size_bytes - state.stored_bytes


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """Everything one response needs, as of the time of the request."""

    stream: Stream
    snapshot: Snapshot | None
    tail: int
    closed: bool
    boundary: str

    @property
    def head(self) -> Reply:
        return replies.bootstrap_head(
            self.stream.state, self.snapshot, self.tail, self.closed, self.boundary
        )

    @property
    def start(self) -> int:
        return 0 if self.snapshot is None else self.snapshot.offset


class Snapshots:
    def __init__(
        self,
        registry: Registry,
        lifetimes: Lifetimes,
        removals: Removals,
        staging: Staging,
        blobs: SnapshotBlobs,
        chunks: Chunks,
        limits: LimitsConfig,
    ) -> None:
        self._registry = registry
        self._lifetimes = lifetimes
        self._removals = removals
        self._staging = staging
        self._blobs = blobs
        self._chunks = chunks
        self._max_bootstrap_bytes = limits.max_bootstrap_bytes

    # -- publishing ----------------------------------------------------------------------------

    async def publish(self, name: str, request: Publish, body: bytes) -> Reply:
        stream = self._lifetimes.find(name)
        if isinstance(stream, Reply):
            return stream
        self._lifetimes.renew(stream)
        self._chunks.check_identity(stream, request.offset)
        position = request.offset.position
        refusal = await self._refusal(stream, position)
        if refusal is not None:
            return refusal
        growth = _growth(stream, position, len(body))
        if growth > 0:  # a full stream must be able to shrink
            self._registry.check_size(stream.state.stored_bytes, growth)
        snapshot = await self._blobs.write(position, request.content_type, body)
        with ExitStack() as unless_kept:
            unless_kept.callback(self._blobs.drop, snapshot)
            await self._staging.admitted(0)
            # The stream may be gone, or a later snapshot was faster.
            if self._lifetimes.find_writable(name) is not stream:
                return replies.not_found()
            if position < stream.state.earliest:
                await self._staging.decided()
                return replies.trimmed(stream.state, stream.state.earliest)
            unless_kept.pop_all()
        await self._replace(stream, snapshot)
        return replies.published(stream.state, snapshot, stream.tail)

    async def _refusal(self, stream: Stream, position: int) -> Reply | None:
        if position > stream.tail:
            return replies.problem(
                409,
                "offset-beyond-tail",
                "The snapshot's offset is beyond the tail.",
                (replies.next_offset(stream.state, stream.tail),),
            )
        if position < stream.state.earliest:
            await self._staging.decided()  # the newer snapshot may not be committed yet
            return replies.trimmed(stream.state, stream.state.earliest)
        try:
            aligned = await self._chunks.is_boundary(stream, position)
        except BelowFloor:  # a later snapshot was faster
            return replies.trimmed(stream.state, stream.state.earliest)
        if not aligned:
            return replies.problem(400, "invalid-offset", "The offset is inside a message.")
        return None

    async def _replace(self, stream: Stream, snapshot: Snapshot) -> None:
        replaced = stream.state.snapshot
        records: tuple[Record, ...] = (Snapshotted(stream.state.id, snapshot),)
        self._registry.apply(stream, records[0])
        if not stream.forks:  # forks read below it
            records += (self._removals.trim(stream),)

        def landed() -> None:
            stream.snapshot = snapshot
            if replaced is not None:
                self._blobs.retire(replaced)

        await self._staging.commit(stream, records, landed)

    # -- reading -------------------------------------------------------------------------------

    def latest(self, stream: Stream, url: str) -> Reply:
        """`url` is the stream's; snapshots are below it."""
        if stream.snapshot is None:
            return replies.no_snapshot()
        state, snapshot = stream.state, stream.snapshot
        _, value = replies.snapshot_offset(state, snapshot)
        return replies.snapshot_redirect(state, snapshot, stream.tail, f"{url}/snapshot/{value}")

    def at(self, stream: Stream, offset: Offset) -> tuple[Snapshot, Reply] | None:
        """The snapshot at an offset and its response head, if it is the latest."""
        self._chunks.check_identity(stream, offset)
        snapshot = stream.snapshot
        if snapshot is None or snapshot.offset != offset.position:
            return None
        return snapshot, replies.snapshot_head(stream.state, snapshot, stream.tail, stream.closed)

    # -- bootstrap -----------------------------------------------------------------------------

    def bootstrap(self, stream: Stream) -> Bootstrap:
        """The boundary is random each time, so writers cannot guess it and forge the end of a
        part."""
        plan = Bootstrap(
            stream, stream.snapshot, stream.tail, stream.closed, f"weir-{secrets.token_hex(16)}"
        )
        snapshot_bytes = 0 if plan.snapshot is None else plan.snapshot.size_bytes
        if plan.tail - plan.start + snapshot_bytes > self._max_bootstrap_bytes:
            raise ProtocolError(
                413,
                "bootstrap-too-large",
                "Too much data follows the snapshot; read the stream from its `offset`.",
            )
        return plan

    async def parts(self, plan: Bootstrap) -> AsyncIterator[bytes]:
        """The body, in pieces of moderate size."""
        boundary, stream = plan.boundary, plan.stream
        content_type = DEFAULT_CONTENT_TYPE
        if plan.snapshot is not None:
            content_type = plan.snapshot.content_type
        yield open_part(boundary, content_type, first=True)
        if plan.snapshot is not None:
            async for piece in self._blobs.pieces(plan.snapshot):
                yield piece
        between = open_part(boundary, stream.state.content_type)
        async for messages in self._chunks.batches(stream, plan.start, plan.tail):
            ready, size = [], 0
            for message in messages:
                ready += [between, message]
                size += len(between) + len(message)
                if size >= PIECE_BYTES:
                    yield b"".join(ready)
                    ready, size = [], 0
            if ready:
                yield b"".join(ready)
        yield close_parts(boundary)
