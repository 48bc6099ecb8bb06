"""One flush: what each stream contributes. The half without I/O."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from origin.storage.base import StorageFailed
from origin.storage.cluster.packs import Block, Extents, PackWriter
from origin.storage.cluster.saved import SavedStream
from origin.storage.stored import Buffered


@dataclass(slots=True)
class ColdStored(Buffered):
    """A stream of a cluster: its blocks have the positions below `flushed`."""

    extents: Extents = field(default_factory=Extents)


@dataclass(slots=True)
class Flush:
    """One stream's share: its state and tail at the cut, and its bytes that are only in memory."""

    stored: ColdStored
    state: bytes
    tail: int
    floor: int
    parts: list[bytes] = field(default_factory=list)
    start: int = 0  # of the parts
    end: int = 0
    merged: list[tuple[int, int, list[Block]]] = field(default_factory=list)  # runs, in order
    added: list[Block] = field(default_factory=list)
    dropped: list[Block] = field(default_factory=list)  # what the blocks after it do not have

    def note_bytes(self) -> None:
        """Called when the batch of the cut is committed, before later appends are published."""
        recent = self.stored.recent
        self.parts = [] if recent is None else recent.parts[:]
        self.start = self.stored.flushed if recent is None else recent.start
        self.end = self.stored.flushed if recent is None else recent.end

    def check(self) -> None:
        """A checkpoint whose state is ahead of its bytes would lose what is between them."""
        if self.end != self.tail:
            stream = f"stream {self.stored.state.id:016x}"
            raise StorageFailed(f"{stream}: bytes to {self.end} do not reach {self.tail}")

    def add_blocks(self, writer: PackWriter) -> None:
        if self.parts:
            self.added = writer.add(self.stored.state.id, self.start, self.parts)

    def extents(self) -> Extents:
        """The blocks after this flush."""
        before = self.stored.extents
        extents = before.copy()
        for first, last, blocks in reversed(self.merged):
            self.dropped += (before[index] for index in range(first, last + 1))
            extents.replace(first, last, blocks)
        # First, because what was never flushed below the floor leaves a gap.
        self.dropped += extents.drop_below(self.floor)
        for block in self.added:
            extents.add(block)
        return extents

    def new_blocks(self) -> Iterator[Block]:
        for _, _, blocks in self.merged:
            yield from blocks
        yield from self.added

    def saved(self, extents: Extents) -> SavedStream:
        raw = msgspec.msgpack.encode(extents.to_raw())
        return SavedStream(
            self.stored.state.id, msgspec.Raw(self.state), self.tail, msgspec.Raw(raw)
        )

    def finish(self, extents: Extents) -> None:
        """The blocks have all positions below the cut: free them in memory."""
        stored = self.stored
        stored.flushed, stored.extents = self.tail, extents
        if stored.recent is not None:
            stored.recent.drop_below(self.tail)
            if not stored.recent.parts and stored.recent.end == stored.flushed:
                stored.recent = None


@dataclass(slots=True)
class Cut:
    """A flush from the moment it is decided."""

    flushes: list[Flush]
    removed: list[int]
    next_batch: int
    used_bytes: int  # of the journal before it
    is_whole: bool = False  # every stream, so that no earlier checkpoint is needed
    seq: int = 0  # of the last message before it
