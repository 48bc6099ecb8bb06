"""A backup as files: the copies, and the manifest that lists them.

  manifest.jsonl   a head, one line per file, and a last line with their number and a checksum
  data/...         the files under their names in the data directory

The manifest is written after everything else is on disk, so a backup without its last line is
incomplete. Only the bytes from `start` to `end` of a file are copied; the rest of its size is zero
and takes no space.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import PurePosixPath

import msgspec
from crc32c import crc32c

from origin.storage.base import DamagedData, UnusableData
from origin.storage.files import Files

MANIFEST = "manifest.jsonl"
DATA = "data"
FORMAT = 1
PIECE_BYTES = 1024 * 1024


class ManifestHead(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    weir_backup: int
    mode: str  # file or acid
    made: str


class Copy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    path: str
    size: int
    start: int
    end: int
    crc: int


class ManifestEnd(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    files: int
    crc: int


@dataclass(slots=True)
class Manifest:
    head: ManifestHead
    copies: dict[str, Copy] = field(default_factory=dict)

    def add(self, copy: Copy) -> None:
        self.copies[copy.path] = copy

    @property
    def size_bytes(self) -> int:
        return sum(copy.end - copy.start for copy in self.copies.values())


def write_manifest(folder: str, manifest: Manifest) -> None:
    files = Files()
    lines = [*map(msgspec.json.encode, (manifest.head, *manifest.copies.values())), b""]
    body = b"\n".join(lines)
    end = msgspec.json.encode(ManifestEnd(len(manifest.copies), crc32c(body))) + b"\n"
    path = os.path.join(folder, MANIFEST)
    fd = files.open(path + ".new", create=True)
    try:
        files.write_at(fd, body + end, 0)
        files.sync(fd)
    finally:
        files.close(fd)
    files.rename(path + ".new", path)
    files.sync_dir(folder)


def read_manifest(folder: str) -> Manifest:
    path = os.path.join(folder, MANIFEST)
    try:
        with open(path, "rb") as file:
            *lines, last = file.read().splitlines(keepends=True)
    except FileNotFoundError:
        raise UnusableData(f"{path} is missing: not a backup, or one that did not finish") from None
    except ValueError:  # not even one line
        raise UnusableData(f"{path}: it is empty") from None
    try:
        end = msgspec.json.decode(last, type=ManifestEnd)
        if crc32c(b"".join(lines)) != end.crc or len(lines) != end.files + 1:
            raise UnusableData(f"{path}: checksum mismatch")
        head = msgspec.json.decode(lines[0], type=ManifestHead)
        if head.weir_backup != FORMAT:
            raise UnusableData(f"{path}: backup format {head.weir_backup}, expected {FORMAT}")
        copies = [msgspec.json.decode(line, type=Copy) for line in lines[1:]]
    except msgspec.MsgspecError as error:
        raise UnusableData(f"{path}: not a manifest, or truncated: {error}") from None
    for copy in copies:
        if copy.path.startswith("/") or ".." in PurePosixPath(copy.path).parts:
            raise UnusableData(f"{path}: {copy.path} points outside the backup")
    return Manifest(head, {copy.path: copy for copy in copies})


def check_sizes(folder: str, copies: Iterable[Copy]) -> None:
    """A quick check that does not read the contents."""
    for copy in copies:
        path = os.path.join(folder, DATA, copy.path)
        try:
            size = os.stat(path).st_size
        except FileNotFoundError:
            raise UnusableData(f"{path} is missing: the backup is incomplete") from None
        if size != copy.size:
            raise DamagedData(path, min(size, copy.size), f"{size} bytes, expected {copy.size}")


class Copier:
    """Copies files to another folder under the same names, creating parents as needed."""

    def __init__(self, source: str, target: str) -> None:
        self._source = source
        self._target = target
        self._files = Files()

    def copy(self, path: str, start: int, end: int, size: int | None = None) -> Copy:
        """A range of a file, shorter if the file is; raises DamagedData if the disk cannot read
        it."""
        source = os.open(os.path.join(self._source, path), os.O_RDONLY | os.O_CLOEXEC)
        try:
            target = self._create(path)
            try:
                at, crc = start, 0
                while at < end and (data := self._read(source, path, end - at, at)):
                    self._files.write_at(target, data, at)
                    crc = crc32c(data, crc)
                    at += len(data)
                os.ftruncate(target, at if size is None else size)
            finally:
                self._files.close(target)
        finally:
            os.close(source)
        return Copy(path, at if size is None else size, start, at, crc)

    def _read(self, source: int, path: str, most: int, at: int) -> bytes:
        try:
            return os.pread(source, min(PIECE_BYTES, most), at)
        except OSError as error:
            reason = error.strerror or str(error)
            raise DamagedData(os.path.join(self._source, path), at, reason) from None

    def write(self, path: str, data: bytes, size: int | None = None) -> Copy:
        """Write these bytes as a file of that size."""
        target = self._create(path)
        try:
            self._files.write_at(target, data, 0)
            os.ftruncate(target, size or len(data))
        finally:
            self._files.close(target)
        return Copy(path, size or len(data), 0, len(data), crc32c(data))

    def note(self, path: str) -> Copy:
        """A file that the caller has written to the target."""
        whole = os.path.join(self._target, path)
        size = os.stat(whole).st_size
        return Copy(path, size, 0, size, checksum(whole, 0, size))

    def link(self, base: str, known: Copy) -> bool:
        """Hard-link the file of an earlier backup if it is intact and identical."""
        ours, theirs = (
            os.path.join(folder, known.path) for folder in (self._source, os.path.join(base, DATA))
        )
        path = os.path.join(self._target, known.path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        try:
            if os.stat(theirs).st_size != known.size:
                return False
            if any(checksum(p, known.start, known.end) != known.crc for p in (ours, theirs)):
                return False
            os.link(theirs, path)
        except OSError:  # on another disk, missing, or unreadable
            return False
        return True

    def _create(self, path: str) -> int:
        whole = os.path.join(self._target, path)
        os.makedirs(os.path.dirname(whole), exist_ok=True)
        return self._files.open(whole, create=True)


def checksum(path: str, start: int, end: int) -> int:
    """The checksum of a range, as far as it exists."""
    crc = 0
    with open(path, "rb") as file:
        file.seek(start)
        while start < end and (data := file.read(min(PIECE_BYTES, end - start))):
            start += len(data)
            crc = crc32c(data, crc)
    return crc
