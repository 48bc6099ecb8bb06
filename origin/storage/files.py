"""The file operations used by the store, in one place so that tests can make them fail."""

import ctypes
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from origin.storage.base import UnusableData

SYNC_EACH = 32
MOST_BUFFERS = os.sysconf("SC_IOV_MAX")

PUNCH_HOLE = 0x03  # and keep the size

RESTORING = "restoring"  # marks an incomplete data directory

_libc = ctypes.CDLL(None, use_errno=True)


class Files:
    def create(self, path: str, size_bytes: int) -> int:
        """A new file with room for `size_bytes`, all zero."""
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o640)
        try:
            os.posix_fallocate(fd, 0, size_bytes)
            os.fsync(fd)
        except BaseException:
            os.close(fd)
            os.unlink(path)
            raise
        return fd

    def open(self, path: str, *, create: bool = False) -> int:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return os.open(path, flags, 0o640)

    def write_at(self, fd: int, data: bytes, position: int) -> None:
        view = memoryview(data)
        while view:
            written = os.pwrite(fd, view, position)
            view = view[written:]
            position += written

    def write_synced(self, fd: int, buffers: list[bytes], position: int) -> None:
        """Write and sync in one call: after each call, a thread has to wait for the interpreter."""
        written = 0
        if len(buffers) <= MOST_BUFFERS:
            written = os.pwritev(fd, buffers, position, os.RWF_DSYNC)
        if written < sum(map(len, buffers)):
            self.write_at(fd, b"".join(buffers)[written:], position + written)
            self.sync(fd)

    def punch(self, fd: int, size_bytes: int) -> None:
        """Free the beginning of a file on disk; positions stay the same."""
        if _libc.fallocate(fd, PUNCH_HOLE, ctypes.c_long(0), ctypes.c_long(size_bytes)) != 0:
            raise _last_error()

    def read_at(self, fd: int, size_bytes: int, position: int) -> bytes:
        """Up to `size_bytes`; fewer only at the end of the file."""
        data = os.pread(fd, size_bytes, position)
        if len(data) == size_bytes or not data:
            return data
        parts = [data]
        got = len(data)
        while got < size_bytes and (data := os.pread(fd, size_bytes - got, position + got)):
            parts.append(data)
            got += len(data)
        return b"".join(parts)

    def sync(self, fd: int) -> None:
        os.fdatasync(fd)

    def sync_all(self, fds: list[int]) -> None:
        """Sync files of one file system; for many, syncing the whole file system is far faster."""
        if len(fds) <= SYNC_EACH:
            for fd in fds:
                self.sync(fd)
        else:
            _sync_file_system(fds[0])

    def sync_dir(self, path: str) -> None:
        with opened_folder(path or ".") as fd:
            os.fsync(fd)

    def sync_disk(self, path: str) -> None:
        """Sync the whole file system of this folder."""
        with opened_folder(path) as fd:
            _sync_file_system(fd)

    def close(self, fd: int) -> None:
        os.close(fd)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def rename(self, source: str, target: str) -> None:
        """Durable only after `sync_dir` of the folder."""
        os.replace(source, target)


@contextmanager
def opened_folder(path: str) -> Iterator[int]:
    """A new descriptor each time, because a lock belongs to its descriptor."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def _sync_file_system(fd: int) -> None:
    if _libc.syncfs(fd) != 0:
        raise _last_error()


def _last_error() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))


def lock_directory(data_dir: str) -> int:
    """One process owns a data directory; the lock is released when it dies."""
    Files().sync_dir(os.path.dirname(os.path.abspath(data_dir)))
    path = os.path.join(data_dir, "lock")
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        refuse_unfinished(data_dir)
    except BlockingIOError:
        os.close(fd)
        raise UnusableData(f"{path}: another process uses this data directory") from None
    except UnusableData:
        os.close(fd)
        raise
    return fd


def refuse_unfinished(data_dir: str) -> None:
    path = os.path.join(data_dir, RESTORING)
    if os.path.exists(path):
        raise UnusableData(f"{path}: a restore did not finish; empty the folder, restore again")
