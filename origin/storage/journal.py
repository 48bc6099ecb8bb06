"""The shared journal: fixed-size files of batches, and the watermark of what was acknowledged.

A journal file has its full size from the start, and its name is durable before the first batch, so
a shorter file is damaged, never a torn write. The watermark is a mapped page, written after each
sync: it survives a process crash and shows recovery whether a missing batch was acknowledged.
"""

import mmap
import os
import re
import secrets
from dataclasses import dataclass

from origin.storage.files import Files
from origin.storage.format import (
    BATCH_HEADER,
    JOURNAL_HEADER_BYTES,
    WATERMARK,
    JournalHead,
    encode_journal_head,
    encode_watermark,
)

_NAME = re.compile(r"(\d{12})\.journal")


@dataclass(slots=True)
class JournalFile:
    number: int
    path: str
    fd: int
    salt: int
    capacity: int
    used: int = JOURNAL_HEADER_BYTES

    @property
    def room_bytes(self) -> int:
        return self.capacity - self.used - BATCH_HEADER.size


@dataclass(frozen=True, slots=True)
class BatchPlace:
    """Where a sealed batch goes."""

    file: JournalFile
    position: int
    number: int


@dataclass(frozen=True, slots=True)
class LastBatch:
    """The newest whole batch found by recovery; `data` includes its header."""

    path: str
    position: int
    data: bytes


class Journal:
    def __init__(self, folder: str, files: Files, *, file_bytes: int, synced: bool) -> None:
        self._folder = folder
        self._files = files
        self._file_bytes = file_bytes
        self._synced = synced
        self._watermark: mmap.mmap | None = None
        self._open: set[int] = set()  # descriptors of the files in use

    def list_files(self) -> list[tuple[int, str]]:
        """(number, path) of the existing journal files, in order."""
        names = (_NAME.fullmatch(name) for name in os.listdir(self._folder))
        found = [(int(m[1]), os.path.join(self._folder, m[0])) for m in names if m]
        return sorted(found)

    def create_file(self, number: int) -> JournalFile:
        """It gets its name only when it is durable, so recovery never finds a partial file."""
        path = os.path.join(self._folder, f"{number:012d}.journal")
        temporary = path + ".new"
        salt = secrets.randbits(32)
        fd = self._files.create(temporary, self._file_bytes)
        try:
            head = JournalHead(self._synced, salt, number, self._file_bytes)
            self._files.write_at(fd, encode_journal_head(head), 0)
            self._files.sync(fd)
            self._files.rename(temporary, path)
        except BaseException:
            self._files.close(fd)
            self._files.unlink(temporary)
            raise
        try:
            self._files.sync_dir(self._folder)
        except BaseException:
            self._files.close(fd)
            self._files.unlink(path)
            raise
        self._open.add(fd)
        return JournalFile(number, path, fd, salt, self._file_bytes)

    def reopen(self, number: int, path: str, salt: int, last: LastBatch | None) -> JournalFile:
        """A file of an earlier run: made durable as it is, and treated as full.

        The sync of its last batch may have failed, after which the system considers unwritten pages
        written. So that batch is written again.
        """
        fd = self._files.open(path)
        self._open.add(fd)
        if last is not None:
            self._files.write_at(fd, last.data, last.position)
        self._files.sync(fd)
        size = os.fstat(fd).st_size
        return JournalFile(number, path, fd, salt, size, used=size)

    def write(self, place: BatchPlace, buffers: list[bytes]) -> None:
        """Write one batch, sync it, move the watermark. Runs in the writer thread."""
        file = place.file
        if self._synced:
            self._files.write_synced(file.fd, buffers, place.position)
        else:
            self._files.write_at(file.fd, b"".join(buffers), place.position)
        self.mark(place.number, file.number, place.position + sum(map(len, buffers)))

    def mark(self, batch: int, number: int, end: int) -> None:
        assert self._watermark is not None
        self._watermark[: WATERMARK.size] = encode_watermark(batch, number, end)

    @property
    def watermark_path(self) -> str:
        return os.path.join(self._folder, "watermark")

    def open_watermark(self) -> None:
        fd = self._files.open(self.watermark_path, create=True)
        try:
            # Not a hole: writing to a mapped page without disk space would kill the process.
            os.posix_fallocate(fd, 0, mmap.PAGESIZE)
            self._watermark = mmap.mmap(fd, mmap.PAGESIZE)
        finally:
            self._files.close(fd)

    def release(self, file: JournalFile) -> None:
        self._open.discard(file.fd)
        self._files.close(file.fd)

    def retire(self, file: JournalFile) -> None:
        self.release(file)
        self._files.unlink(file.path)

    def close(self) -> None:
        if self._watermark is not None:
            self._watermark.close()
            self._watermark = None
        while self._open:
            self._files.close(self._open.pop())
