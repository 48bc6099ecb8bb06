"""Where a fork begins and what it inherits: bytes below its position, and the source's snapshot."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from origin.chunks import Chunks
from origin.lifetimes import Lifetimes
from origin.messages import prefix_length
from origin.registry import Registry
from origin.removals import Removals
from origin.snapshotblobs import SnapshotBlobs
from origin.streams import Stream
from protocol import replies
from protocol.errors import ProtocolError
from protocol.media import media_type
from protocol.replies import Reply
from protocol.requests import Create, ForkOf
from protocol.stream import Fork, Snapshot, StreamState

MAX_FORK_DEPTH = 256  # a read may traverse all of it


@dataclass(frozen=True, slots=True)
class Inheritance:
    """What a fork inherits from its source."""

    fork: Fork
    source: StreamState
    snapshot: Snapshot | None  # replaces the beginning of the source; the fork gets a copy


class Forks:
    def __init__(
        self,
        registry: Registry,
        lifetimes: Lifetimes,
        removals: Removals,
        blobs: SnapshotBlobs,
        chunks: Chunks,
    ) -> None:
        self._registry = registry
        self._lifetimes = lifetimes
        self._removals = removals
        self._blobs = blobs
        self._chunks = chunks

    @asynccontextmanager
    async def inheriting(self, request: Create, asked: ForkOf) -> AsyncIterator[Inheritance]:
        """Raises ProtocolError if the fork is not possible. Holds the source inside the block."""
        source = self._find_source(request, asked)
        # The staged value: data covered by a pending snapshot will be gone for a fork.
        snapshot = source.state.snapshot
        earliest = 0 if snapshot is None else snapshot.offset
        source.forks += 1  # hold it until the fork holds it
        try:
            with self._blobs.held(snapshot):
                position = await self._position(source, earliest, asked)
                if source.state.gone:
                    raise _source_gone()
                offset = None if asked.offset is None else asked.offset.position
                fork = Fork(source.state.id, asked.source_name, position, offset, asked.sub_offset)
                yield Inheritance(fork, source.state, snapshot)
        finally:
            self._removals.release(source)

    def check_repeated(self, state: StreamState, asked: ForkOf | None) -> None:
        """It is the same fork however its offset is written, unless it names another stream."""
        if state.fork is not None and asked is not None and asked.offset is not None:
            source = self._registry.by_id[state.fork.source_id]
            self._chunks.check_identity(source, asked.offset)

    def _find_source(self, request: Create, asked: ForkOf) -> Stream:
        source = self._lifetimes.find(asked.source_name)
        if isinstance(source, Reply):
            if source.status == 410:
                raise _source_gone()
            raise ProtocolError(404, "source-not-found", "The stream to fork does not exist.")
        if request.content_type is not None:
            if media_type(request.content_type) != media_type(source.state.content_type):
                raise ProtocolError(
                    409, "content-type-mismatch", "A fork must have the content type of its source."
                )
        if request.strict_state and not source.state.strict_state:
            raise ProtocolError(409, "state-mismatch", "The source is not a strict State stream.")
        self._check_depth(source)
        return source

    def _check_depth(self, source: Stream) -> None:
        """Refuse a fork that would be nested too deeply."""
        above = source.state.fork
        for _ in range(MAX_FORK_DEPTH - 1):
            if above is None:
                return
            above = self._registry.by_id[above.source_id].state.fork
        if above is not None:
            raise ProtocolError(
                413, "fork-too-deep", f"Forks may be nested at most {MAX_FORK_DEPTH} levels deep."
            )

    async def _position(self, source: Stream, earliest: int, asked: ForkOf) -> int:
        """At a message boundary of the source, or some messages (JSON mode) or bytes after it."""
        chunks, tail = self._chunks, source.tail
        start = tail
        if asked.offset is not None:
            chunks.check_identity(source, asked.offset)
            start = asked.offset.position
        if start > tail:
            raise ProtocolError(400, "offset-beyond-tail", "Stream-Fork-Offset is beyond the tail.")
        if start < earliest:
            raise replies.offset_gone(source.state, earliest)
        # `earliest` is a boundary; looking it up could fail while the data below it is removed.
        if start != earliest and not await chunks.is_boundary(source, start):
            raise ProtocolError(400, "invalid-offset", "Stream-Fork-Offset is inside a message.")
        if not asked.sub_offset:
            return start
        end = await chunks.boundary(source, start + 1, tail) if start < tail else start
        length: int | None = asked.sub_offset
        if source.is_json:
            batch = await chunks.raw(source, start, end)
            length = await prefix_length(batch, asked.sub_offset)
        if length is None or start + length > end:
            raise ProtocolError(
                400, "sub-offset-too-large", "Stream-Fork-Sub-Offset exceeds the next append."
            )
        return start + length


def _source_gone() -> ProtocolError:
    return ProtocolError(409, "source-gone", "The source was deleted.")
