"""The catalog: every stream's state as of the last checkpoint, as a log of frames.

A checkpoint appends the changed streams and one Checkpoint frame, then syncs. Frames after the last
Checkpoint belong to an unfinished one and are ignored. When half the log is outdated, it is
rewritten to a new file, which then replaces it.
"""

import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass

from origin.storage.base import DamagedData
from origin.storage.files import Files
from origin.storage.format import (
    CATALOG_MAGIC,
    CatalogGone,
    CatalogStream,
    Checkpoint,
    Extent,
    Frame,
    decode_frames,
    decode_state,
    encode_frame,
)
from origin.storage.stored import Stored

log = logging.getLogger("weir.storage")

REWRITE_BYTES = 4 * 1024 * 1024


@dataclass(slots=True)
class Contents:
    """The contents of a catalog, and where its valid part ends."""

    streams: dict[int, CatalogStream]
    checkpoint: Checkpoint
    end: int
    tail: bytes  # the frames of the last checkpoint

    def stored(self) -> Iterator[Stored]:
        for stream in self.streams.values():
            state = decode_state(stream.state)
            extent = Extent(stream.segment_first, stream.segment_bytes)
            yield Stored(state, stream.flushed, state.floor, extent=extent)

    def encode(self) -> bytes:
        """An equivalent catalog without its history."""
        frames: list[Frame] = [*self.streams.values(), self.checkpoint]
        return _encode_catalog(frames)


def read_catalog(path: str) -> Contents:
    """Everything up to the last whole checkpoint."""
    with open(path, "rb") as file:
        data = file.read()
    if data[: len(CATALOG_MAGIC)] != CATALOG_MAGIC:
        raise DamagedData(path, 0, "not a catalog of this format")
    streams: dict[int, CatalogStream] = {}
    unfinished: list[Frame] = []
    last: Checkpoint | None = None
    start = end = 0
    for position, frame in decode_frames(data):
        if type(frame) is not Checkpoint:
            unfinished.append(frame)
            continue
        _settle(streams, unfinished)
        unfinished.clear()
        last, start, end = frame, end, position
    if last is None:
        raise DamagedData(path, len(CATALOG_MAGIC), "no complete checkpoint")
    return Contents(streams, last, end, data[start:end])


def _encode_catalog(frames: list[Frame]) -> bytes:
    return CATALOG_MAGIC + b"".join(map(encode_frame, frames))


def _settle(streams: dict[int, CatalogStream], frames: list[Frame]) -> None:
    for frame in frames:
        if type(frame) is CatalogStream:
            streams[frame.id] = frame
        elif type(frame) is CatalogGone:
            streams.pop(frame.id, None)


class Catalog:
    """The catalog file as the running server appends to it, in the checkpoint thread."""

    def __init__(self, path: str, files: Files) -> None:
        self._path = path
        self._files = files
        self._fd = -1
        self._end = 0
        self._rewritten_at = 0
        self._unnamed = False  # the rename of a new file is not synced yet

    def create(self, journal: int) -> None:
        self._write_new(_encode_catalog([Checkpoint(1, journal)]))

    def open(self, end: int, tail: bytes) -> None:
        """Continue at `end`; `tail` is the newest checkpoint.

        That checkpoint may not have been synced, or its sync may have failed. So it is written
        again before anything is deleted because of it.
        """
        self._fd = self._files.open(self._path)
        os.ftruncate(self._fd, end)
        self._files.write_at(self._fd, tail, end - len(tail))
        self._files.sync(self._fd)
        self._files.sync_dir(os.path.dirname(self._path))
        self._end = self._rewritten_at = end

    def append(self, frames: list[Frame]) -> None:
        if self._unnamed:
            self._settle_name()
        data = b"".join(map(encode_frame, frames))
        self._files.write_at(self._fd, data, self._end)
        self._files.sync(self._fd)
        self._end += len(data)
        if self._end > 2 * self._rewritten_at + REWRITE_BYTES:
            try:
                self._rewrite()
            except (OSError, DamagedData) as error:  # harmless: the history is kept longer
                log.warning("could not rewrite the catalog: %s", error)
                self._rewritten_at = self._end

    def close(self) -> None:
        if self._fd >= 0:
            self._files.close(self._fd)
            self._fd = -1

    def _rewrite(self) -> None:
        contents = read_catalog(self._path)
        if contents.end != self._end:  # never drop unreadable data
            raise DamagedData(self._path, contents.end, "a frame is incomplete")
        self._write_new(contents.encode())

    def _write_new(self, data: bytes) -> None:
        temporary = self._path + ".new"
        fd = self._files.open(temporary, create=True)
        try:
            os.ftruncate(fd, 0)
            self._files.write_at(fd, data, 0)
            self._files.sync(fd)
            self._files.rename(temporary, self._path)
        except BaseException:
            self._files.close(fd)
            raise
        # From here on the new file is the catalog, even if something fails.
        old, self._fd = self._fd, fd
        self._end = self._rewritten_at = len(data)
        self._unnamed = True
        if old >= 0:
            self._files.close(old)
        self._settle_name()

    def _settle_name(self) -> None:
        self._files.sync_dir(os.path.dirname(self._path))
        self._unnamed = False
