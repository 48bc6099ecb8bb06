"""Catch-up reads: which bytes a read returns, from where, and encoded responses kept for reuse.

Chunks end at the first message boundary at or after a multiple of the chunk size, so readers that
start anywhere converge on the same URLs. At most one load of a chunk is running, however many
readers wait. A fork's positions below its fork point are read from its source, up the chain.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass

from cachetools import LRUCache

from origin.messages import fitting_length, in_turns, is_whole
from origin.storage.base import BelowFloor, Storage, UnknownStream
from origin.streams import Stream
from protocol import replies
from protocol.errors import ProtocolError
from protocol.etags import format_etag, matches
from protocol.jsonmode import framed
from protocol.media import text_like
from protocol.nesting import SLICE_BYTES, batches
from protocol.offsets import Offset
from protocol.replies import Reply
from protocol.sse import complete_utf8
from protocol.stream import Fork, is_of

ENTRY_OVERHEAD_BYTES = 1024
JOIN_BYTES = 64 * 1024  # below this, one write of a copy is faster than two writes
KNOWN_PLACES = 10_000  # positions inside appends, remembered as message ends or not
LOOKS_AT_A_TIME = 2  # scans of large appends: each is fully in memory

MAX_CHARACTER_BYTES = 4  # in UTF-8


@dataclass(slots=True)
class Chunk:
    """A reusable response: always if `fixed`, else until the tail moves."""

    start: int
    end: int
    closed: bool
    fixed: bool
    etag: str
    reply: Reply
    whole: bytes = b""  # the encoded response for the second `whole_date`, made by the fast path
    whole_date: bytes = b""

    def answer(self, if_none_match: str | None) -> Reply:
        if if_none_match is not None and matches(if_none_match, self.etag):
            return replies.not_modified(self.reply)
        return self.reply

    def is_current(self, stream: Stream) -> bool:
        return self.fixed or (self.end == stream.tail and self.closed == stream.closed)


@dataclass(slots=True, eq=False)
class _Load:
    """A chunk being loaded, and the number of waiting readers."""

    task: asyncio.Task[Chunk]
    readers: int = 0


Key = tuple[int, int]
EncodedChunks = LRUCache[Key, Chunk]


def make_cache(cache_bytes: int) -> EncodedChunks:
    """Shards may share one: the ids of streams are unique."""
    return LRUCache(cache_bytes, getsizeof=_cost)


class Chunks:
    def __init__(
        self,
        storage: Storage,
        streams: Mapping[int, Stream],
        cache: EncodedChunks,
        *,
        chunk_bytes: int,
    ) -> None:
        self._storage = storage
        self._streams = streams  # by their ids
        self._chunk_bytes = chunk_bytes
        self._cache = cache
        self._loading: dict[tuple[int, int, int, bool], _Load] = {}
        self._message_ends: LRUCache[Key, bool] = LRUCache(KNOWN_PLACES)
        self._looking = asyncio.Semaphore(LOOKS_AT_A_TIME)
        self.hits = 0
        self.misses = 0

    def cached(self, stream: Stream, start: int) -> Chunk | None:
        """The response if it is available without waiting."""
        if start < stream.earliest:
            return None
        chunk = self._cache.get((stream.state.id, start))
        if chunk is not None and chunk.is_current(stream):
            self.hits += 1
            return chunk
        return self._read_now(stream, start)

    async def get(self, stream: Stream, start: int) -> Chunk:
        chunk = self.cached(stream, start)
        if chunk is not None:
            return chunk
        if start < stream.earliest:  # even if an older load is still running
            raise replies.offset_gone(stream.state, stream.earliest)
        self.misses += 1
        key = (stream.state.id, start, stream.tail, stream.closed)
        load = self._loading.get(key)
        if load is None:
            task = asyncio.create_task(self._load(stream, start), name=f"chunk {key}")
            load = self._loading[key] = _Load(task)
            task.add_done_callback(lambda _: self._end_load(key, load))
        load.readers += 1
        try:
            return await asyncio.shield(load.task)
        finally:
            load.readers -= 1
            if not load.readers:  # cancel a load without readers
                self._end_load(key, load)
                load.task.cancel()

    def _end_load(self, key: tuple[int, int, int, bool], load: "_Load") -> None:
        if self._loading.get(key) is load:
            del self._loading[key]

    def check_identity(self, stream: Stream, offset: Offset) -> None:
        """Refuse an offset of another stream."""
        if not is_of(offset, stream.state, lambda fork: self._source_of(fork).state):
            raise replies.foreign_offset(stream.state, stream.tail, stream.closed)

    async def check_position(self, stream: Stream, start: int) -> None:
        """Refuse a position that was never sent, or that a snapshot replaced."""
        tail = stream.tail
        if start < stream.earliest:
            raise replies.offset_gone(stream.state, stream.earliest)
        if start > tail:
            raise ProtocolError(
                400,
                "offset-beyond-tail",
                "The offset is beyond the tail.",
                (replies.next_offset(stream.state, tail),),
            )
        if not await self.is_boundary(stream, start):
            if not await self._is_cut_character(stream, start):
                raise ProtocolError(400, "invalid-offset", "The offset is inside a message.")

    async def is_boundary(self, stream: Stream, position: int) -> bool:
        """Whether an append ends here, or in JSON mode a message in it."""
        if position == stream.earliest:
            return True
        end = await self.boundary(stream, position, stream.tail)
        if end == position or not stream.is_json:
            return end == position
        return await self._is_message_end(stream, position, end)

    async def _is_message_end(self, stream: Stream, position: int, end: int) -> bool:
        """Inside an append, which ends at `end`. Remembered, because it never changes."""
        if end - position <= SLICE_BYTES:
            return await self._look(stream, position, end)
        key = (stream.state.id, position)
        if key not in self._message_ends:
            async with self._looking:
                if key not in self._message_ends:  # not found by another request meanwhile
                    self._message_ends[key] = await self._look(stream, position, end)
        return self._message_ends[key]

    async def _look(self, stream: Stream, position: int, end: int) -> bool:
        rest = await self.raw(stream, position - 1, end)
        return rest.startswith(b",") and await is_whole(rest[1:])

    async def _is_cut_character(self, stream: Stream, position: int) -> bool:
        """Whether an append ends within the character that starts here: a text event stream holds
        it back until the rest arrives, and sends this offset meanwhile."""
        if stream.is_json or not text_like(stream.state.content_type):
            return False
        end = await self.boundary(stream, position, stream.tail)
        if end - position >= MAX_CHARACTER_BYTES:
            return False
        return complete_utf8(await self.raw(stream, position, end)) == 0

    async def limited(self, stream: Stream, start: int, max_bytes: int) -> Chunk:
        """As many whole messages as fit, but at least one, even if it is larger."""
        chunk = await self.get(stream, start)
        data = chunk.reply.body
        if len(data) <= max_bytes or chunk.end == start:
            return chunk
        if stream.is_json:
            data = data[1:-1] + b","  # the array is one byte longer than its messages
            length = await fitting_length(data, max_bytes - 1)
            self._message_ends[(stream.state.id, start + length)] = True
        else:
            length = _fitting(await self.appends(stream, start, chunk.end), max_bytes)
        end = start + length
        at_tail = end == stream.tail
        return self._make(stream, start, end, data[:length], at_tail, stream.closed and at_tail)

    async def appends(self, stream: Stream, start: int, end: int) -> list[bytes]:
        """The appends of a range."""
        spans = self._spans(stream, start, end)
        return [part for id_, s, e in spans for part in await self._storage.parts(id_, s, e)]

    async def batches(self, stream: Stream, start: int, end: int) -> AsyncIterator[list[bytes]]:
        """All messages of a range, at most a chunk at a time."""
        while start < end:
            line = (start // self._chunk_bytes + 1) * self._chunk_bytes
            border = await self.boundary(stream, line, end)
            if stream.is_json:
                data = await self.raw(stream, start, border)
                async for messages in in_turns(batches(data)):
                    yield messages
            else:
                yield await self.appends(stream, start, border)
            start = border

    async def _load(self, stream: Stream, start: int) -> Chunk:
        tail, closed = stream.tail, stream.closed
        await self.check_position(stream, start)
        line = (start // self._chunk_bytes + 1) * self._chunk_bytes
        end = tail if tail <= line else await self.boundary(stream, line, tail)
        data = await self.raw(stream, start, end)
        return self._keep(stream, start, end, data, end == tail, closed and end == tail)

    def _read_now(self, stream: Stream, start: int) -> Chunk | None:
        """A short run of recent bytes needs no thread: encode it here."""
        tail = stream.tail
        line = (start // self._chunk_bytes + 1) * self._chunk_bytes
        if tail > line or start > tail or start < stream.state.base:
            return None
        try:
            if start not in (stream.state.base, tail):
                if stream.is_json or self._storage.boundary_now(stream.state.id, start) != start:
                    return None
            data = self._storage.read_now(stream.state.id, start, tail)
        except (UnknownStream, BelowFloor):  # it just changed: let the ordinary path handle it
            return None
        if data is None:
            return None
        return self._keep(stream, start, tail, data, True, stream.closed)

    def _keep(
        self, stream: Stream, start: int, end: int, data: bytes, at_tail: bool, closed: bool
    ) -> Chunk:
        chunk = self._make(stream, start, end, data, at_tail, closed)
        if _cost(chunk) <= self._cache.maxsize:
            self._cache[(stream.state.id, start)] = chunk
        return chunk

    def _make(
        self, stream: Stream, start: int, end: int, data: bytes, at_tail: bool, closed: bool
    ) -> Chunk:
        etag = format_etag(stream.state.incarnation, start, end, closed)
        body = framed(data) if stream.is_json else data
        reply = replies.chunk(stream.state, body, end, etag, at_tail, closed)
        return Chunk(start, end, closed, closed or not at_tail, etag, reply)

    async def raw(self, stream: Stream, start: int, end: int) -> bytes:
        """Stored bytes of a range, collected along the chain of forks."""
        parts = [
            await self._storage.read(id_, s, e) for id_, s, e in self._spans(stream, start, end)
        ]
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def boundary(self, stream: Stream, at_or_after: int, tail: int) -> int:
        """First message boundary at or after a position; fork points and the tail count."""
        if at_or_after >= tail:
            return tail
        owner, limit = stream, tail
        while at_or_after < owner.state.base:
            limit = owner.state.base
            owner = self._source(owner)
        return min(limit, await self._storage.boundary(owner.state.id, at_or_after))

    def _spans(self, stream: Stream, start: int, end: int) -> Iterator[tuple[int, int, int]]:
        found: list[tuple[int, int, int]] = []
        owner = stream
        while start < end:
            base = owner.state.base
            if end > base:
                found.append((owner.state.id, max(start, base), end))
                end = max(start, base)
            if owner.state.fork is None:
                break
            owner = self._source(owner)
        return reversed(found)

    def _source(self, stream: Stream) -> Stream:
        assert stream.state.fork is not None
        return self._source_of(stream.state.fork)

    def _source_of(self, fork: Fork) -> Stream:
        try:
            return self._streams[fork.source_id]
        except KeyError:  # fork and source were removed while we waited
            raise UnknownStream(fork.source_id) from None


def _fitting(appends: list[bytes], most_bytes: int) -> int:
    """Bytes of the first appends that fit, but at least of one."""
    length = 0
    for append in appends:
        if length and length + len(append) > most_bytes:
            break
        length += len(append)
    return length


def _cost(chunk: Chunk) -> int:
    size = len(chunk.reply.body)
    return ENTRY_OVERHEAD_BYTES + (2 * size if size <= JOIN_BYTES else size)
