"""Snapshots as files: one per publication, written and synced before a record references it.

A blob has the format of a segment, so its bytes are verified in blocks as they are read. A blob not
referenced by any state was never published or is outdated, and is deleted at the next start.
"""

import asyncio
import logging
import os
from collections.abc import Collection
from concurrent.futures import Executor

from origin.storage.base import StorageFull
from origin.storage.files import Files
from origin.storage.format import Extent
from origin.storage.segments import BLOCK_BYTES, Segments
from protocol.stream import Snapshot

log = logging.getLogger("weir.storage")

BLOB_THREADS = 2  # separate, so that nothing else waits for a large snapshot


class Blobs:
    """Its methods run in worker threads."""

    def __init__(self, folder: str, files: Files) -> None:
        self._folder = folder
        self._files = files
        self._segments = Segments(folder, files)

    def path(self, blob: int) -> str:
        return self._segments.path(blob)

    def write(self, blob: int, data: bytes) -> int:
        """Returns the size of the file, which reads need."""
        parts = [data[at : at + BLOCK_BYTES] for at in range(0, len(data), BLOCK_BYTES)]
        try:
            fd, size_bytes = self._segments.write(blob, 0, 0, parts)
            try:
                self._files.sync(fd)
            finally:
                self._files.close(fd)
            for folder in (os.path.dirname(self.path(blob)), self._folder):
                self._files.sync_dir(folder)
            self._files.sync_dir(os.path.dirname(self._folder))
        except OSError as error:
            log.error("could not store a snapshot: %s", error)
            self.remove(blob)
            raise StorageFull(str(error)) from None
        return size_bytes

    def read(self, blob: int, size_bytes: int, start: int, end: int) -> bytes:
        return self._segments.read(blob, Extent(0, size_bytes), start, end)

    def verify(self, snapshot: Snapshot) -> None:
        """Raises DamagedData unless every byte is intact."""
        for start in range(0, snapshot.size_bytes, BLOCK_BYTES):
            end = min(start + BLOCK_BYTES, snapshot.size_bytes)
            self.read(snapshot.blob, snapshot.blob_bytes, start, end)

    def remove(self, blob: int) -> None:
        try:
            self._segments.remove(blob)
        except OSError as error:
            log.warning("deletion postponed until the next start: %s", error)

    def leftovers(self, named: Collection[int]) -> list[int]:
        """Existing blobs that no state references."""
        return [blob for blob in self._segments.found() if blob not in named]


async def write_blob(blobs: Blobs, workers: Executor, blob: int, data: bytes) -> int:
    """If the caller is cancelled, the blob is removed."""
    loop = asyncio.get_running_loop()
    writing = loop.run_in_executor(workers, blobs.write, blob, data)
    try:
        return await asyncio.shield(writing)
    except asyncio.CancelledError:
        writing.add_done_callback(lambda _: loop.run_in_executor(None, blobs.remove, blob))
        raise
