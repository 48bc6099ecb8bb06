"""The background half of a checkpoint: bytes to segments, states to the catalog, old files deleted.

`checkpoints` decides when and what (a `Cut`); here it is written, in the background thread.
"""

import logging
import os
from dataclasses import dataclass, field
from functools import partial

import msgspec

from origin.storage.base import DamagedData
from origin.storage.datafolder import DataFolder
from origin.storage.format import NO_EXTENT, CatalogGone, CatalogStream, Checkpoint, Extent, Frame
from origin.storage.journal import JournalFile
from origin.storage.stored import Stored

log = logging.getLogger("weir.storage")

SYNC_GROUP = 256


class CheckpointAbandoned(Exception):
    """The server is stopping; the journal still has everything."""


@dataclass(slots=True)
class Flush:
    """One stream's share: its state and tail at the cut, and its bytes that are only in memory."""

    stored: Stored
    state: bytes
    tail: int
    parts: list[bytes] = field(default_factory=list)
    start: int = 0  # of the parts
    floor: int = 0
    extent: Extent = NO_EXTENT

    def note_bytes(self) -> None:
        """Called when the batch of the cut is committed, before later appends are published."""
        stored, recent = self.stored, self.stored.recent
        self.parts = [] if recent is None else recent.parts[:]
        self.start = stored.flushed if recent is None else recent.start
        self.floor, self.extent = stored.floor, stored.extent

    def finish(self) -> None:
        """The segment now has all positions below the cut: free them in memory."""
        stored = self.stored
        stored.flushed, stored.extent = self.tail, self.extent
        if stored.recent is not None:
            stored.recent.drop_below(self.tail)
            if not stored.recent.parts and stored.recent.end == stored.flushed:
                stored.recent = None


@dataclass(slots=True)
class Cut:
    """A checkpoint from the moment it is decided."""

    flushes: list[Flush]
    removed: list[int]
    dropped: list[int]
    retired: list[JournalFile]
    next_batch: int
    journal: int


class CheckpointWriter:
    def __init__(self, folder: DataFolder) -> None:
        self._files = folder.files
        self._journal = folder.journal
        self._catalog = folder.catalog
        self._segments = folder.segments
        self._blobs = folder.blobs
        self._reclaimer = folder.reclaimer
        self._is_abandoned = False

    def abandon(self) -> None:
        """Called from the event loop; takes effect between two groups of segments."""
        self._is_abandoned = True

    def write(self, cut: Cut) -> None:
        """Segments first, then the catalog, which makes them valid."""
        frames: list[Frame] = []
        for first in range(0, len(cut.flushes), SYNC_GROUP):
            group = cut.flushes[first : first + SYNC_GROUP]
            if self._is_abandoned:
                raise CheckpointAbandoned
            self._write_segments(group)
            frames += [
                CatalogStream(
                    f.stored.state.id, msgspec.Raw(f.state), f.tail, f.extent.end, f.extent.first
                )
                for f in group
            ]
        frames += map(CatalogGone, cut.removed)
        frames.append(Checkpoint(cut.next_batch, cut.journal))
        self._catalog.append(frames)

    def _write_segments(self, group: list[Flush]) -> None:
        fds: list[int] = []
        folders: set[str] = set()
        try:
            for flush in group:
                stored = flush.stored
                first, end = self._first_kept(flush), stored.extent.end
                if flush.parts:
                    fd, end = self._segments.write(stored.state.id, end, flush.start, flush.parts)
                    fds.append(fd)
                    if not stored.extent.end:
                        folders.add(os.path.dirname(self._segments.path(stored.state.id)))
                flush.extent = Extent(first, end)
            self._files.sync_all(fds)
        finally:
            for fd in fds:
                self._files.close(fd)
        for folder in folders:
            self._files.sync_dir(folder)
        if folders:
            self._files.sync_dir(self._segments.folder)

    def _first_kept(self, flush: Flush) -> int:
        """Start of the first block that is not entirely below the floor."""
        stored = flush.stored
        if flush.floor >= stored.flushed:
            return stored.extent.end
        if flush.floor <= stored.state.base:
            return stored.extent.first
        try:
            return self._segments.block_at(stored.state.id, stored.extent, flush.floor)
        except DamagedData as error:  # or the stream was removed meanwhile
            log.warning("could not free disk space: %s", error)
            return stored.extent.first

    def reclaim(self, cut: Cut) -> None:
        """What cannot be deleted now is deleted at the next start."""
        work = [partial(self._journal.retire, file) for file in cut.retired]
        work += [
            partial(self._segments.punch, flush.stored.state.id, flush.extent.first)
            for flush in cut.flushes
            if flush.floor > flush.stored.state.base and flush.extent.first
        ]
        work += [partial(self._segments.remove, stream_id) for stream_id in cut.removed]
        work += [partial(self._blobs.remove, blob) for blob in cut.dropped]
        self._reclaimer.do(*work)
