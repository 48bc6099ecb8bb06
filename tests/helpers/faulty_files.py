"""File operations that fail when told to, for storages inside a test and for whole servers.

    python -m tests.helpers.faulty_files origin ...    the server, its faults in WEIR_TEST_FAULTS

WEIR_TEST_FAULTS names a JSON file with a list of faults. It is read again whenever it changes, so
a test can break the disk of a running server and mend it.
"""

import errno
import json
import os
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from origin.storage.files import Files

VARIABLE = "WEIR_TEST_FAULTS"


@dataclass(slots=True)
class Fault:
    """Fails `operation` on paths that contain `where`: `after` good calls, then `times` bad ones.

    `$` at the end of `where` is the end of the path. A `partial` write leaves that share of its
    bytes on disk before it fails. With `delay_s` the operation is only slow.
    """

    operation: str
    where: str = ""
    error: int = errno.EIO
    after: int = 0
    times: int = 1_000_000
    partial: float = 0.0
    delay_s: float = 0.0

    def strikes(self, operation: str, path: str) -> bool:
        if operation != self.operation or self.where not in path + "$":
            return False
        if self.after:
            self.after -= 1
            return False
        self.times -= 1
        return self.times >= 0


class FaultyFiles(Files):
    """Real files with faults; `held` lets a test stop syncs in their tracks."""

    def __init__(self, faults: Iterable[Fault] = ()) -> None:
        self.faults = list(faults)
        self.struck = 0
        self.free = threading.Event()
        self.free.set()
        self.held_where = ""
        self.arrived = threading.Event()
        self._paths: dict[int, str] = {}

    @contextmanager
    def hold_syncs(self, where: str) -> Iterator[None]:
        """Inside, a sync of these paths sets `arrived` and waits."""
        self.held_where = where
        self.arrived.clear()
        self.free.clear()
        try:
            yield
        finally:
            self.free.set()

    def create(self, path: str, size_bytes: int) -> int:
        self._meet("create", path)
        fd = super().create(path, size_bytes)
        self._paths[fd] = path
        return fd

    def open(self, path: str, *, create: bool = False) -> int:
        self._meet("open", path)
        fd = super().open(path, create=create)
        self._paths[fd] = path
        return fd

    def write_at(self, fd: int, data: bytes, position: int) -> None:
        fault = self._find("write_at", self._paths[fd])
        if fault is not None:
            super().write_at(fd, data[: int(len(data) * fault.partial)], position)
            raise _error(fault, self._paths[fd])
        super().write_at(fd, data, position)

    def write_synced(self, fd: int, buffers: list[bytes], position: int) -> None:
        self.write_at(fd, b"".join(buffers), position)
        self.sync(fd)

    def punch(self, fd: int, size_bytes: int) -> None:
        self._meet("punch", self._paths[fd])
        super().punch(fd, size_bytes)

    def sync(self, fd: int) -> None:
        path = self._paths[fd]
        if not self.free.is_set() and self.held_where in path + "$":
            self.arrived.set()
            assert self.free.wait(30), "nobody let the sync go on"
        self._meet("sync", path)
        super().sync(fd)

    def sync_dir(self, path: str) -> None:
        self._meet("sync_dir", path)
        super().sync_dir(path)

    def close(self, fd: int) -> None:
        super().close(fd)  # as the system does: the file is closed, whatever it answers
        self._meet("close", self._paths[fd])

    def unlink(self, path: str) -> None:
        self._meet("unlink", path)
        super().unlink(path)

    def rename(self, source: str, target: str) -> None:
        self._meet("rename", target)
        self._paths = {fd: target if path == source else path for fd, path in self._paths.items()}
        super().rename(source, target)

    def _meet(self, operation: str, path: str) -> None:
        fault = self._find(operation, path)
        if fault is not None:
            raise _error(fault, path)

    def _find(self, operation: str, path: str) -> Fault | None:
        for fault in self.faults:
            if fault.strikes(operation, path):
                self.struck += 1
                if not fault.delay_s:
                    return fault
                time.sleep(fault.delay_s)
        return None


def _error(fault: Fault, path: str) -> OSError:
    return OSError(fault.error, os.strerror(fault.error), path)


def write_faults(path: Path, *faults: Fault) -> None:
    """Tell a running server which operations fail from now on."""
    beside = path.with_suffix(".new")
    beside.write_text(json.dumps([asdict(fault) for fault in faults]))
    beside.replace(path)


class _ToldFiles(FaultyFiles):
    """Faults from the file that WEIR_TEST_FAULTS names."""

    def __init__(self) -> None:
        super().__init__()
        self._told = Path(os.environ[VARIABLE])
        self._version = (0, 0)

    def _find(self, operation: str, path: str) -> Fault | None:
        stat = self._told.stat()
        version = stat.st_ino, stat.st_mtime_ns
        if version != self._version:
            self._version = version
            self.faults = [Fault(**fault) for fault in json.loads(self._told.read_text())]
        return super()._find(operation, path)


def main() -> None:
    from origin.storage import filestore
    from weir.cli import main as weir

    setattr(filestore, "Files", _ToldFiles)  # noqa: B010
    weir()


if __name__ == "__main__":
    main()
