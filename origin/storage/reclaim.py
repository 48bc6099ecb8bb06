"""Deletions, and the lock that lets a backup postpone them.

A backup copies files that the running server might delete, or punch holes into, meanwhile. So it
locks the data directory itself (`flock`) while it copies. Deletions take that lock too, shared and
without waiting; while it is not available, they wait here in memory. The lock is released when its
process ends, so a killed backup blocks nothing. Deletions pending when the server dies are found
and done at its next start, as after any crash.
"""

import fcntl
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from origin.storage.base import UnusableData
from origin.storage.files import opened_folder

log = logging.getLogger("weir.storage")

PATIENCE_SECS = 10.0  # for running deletions, and for another backup
POLL_SECS = 0.02

Step = Callable[[], None]


class Reclaimer:
    """Thread-safe."""

    def __init__(self, data_dir: str) -> None:
        self._data_dir = data_dir
        self._waiting: deque[Step] = deque()

    @property
    def is_waiting(self) -> bool:
        return bool(self._waiting)

    def do(self, *steps: Step) -> None:
        """Delete now, or when the backup has ended; failures are left to the next start."""
        self._waiting.extend(steps)
        self.settle()

    def settle(self) -> None:
        if not self._waiting:
            return
        try:
            with opened_folder(self._data_dir) as fd:
                if _try_lock(fd, fcntl.LOCK_SH):
                    self._run()
        except OSError as error:
            log.warning("deletions postponed: %s", error)

    def _run(self) -> None:
        while True:
            try:
                step = self._waiting.popleft()
            except IndexError:
                return
            try:
                step()
            except OSError as error:
                log.warning("deletion failed: %s", error)


@contextmanager
def pinned(data_dir: str) -> Iterator[None]:
    """Inside, no file of this data directory that was live at the beginning is deleted."""
    deadline = time.monotonic() + PATIENCE_SECS
    with opened_folder(data_dir) as fd:
        while not _try_lock(fd, fcntl.LOCK_EX):
            if time.monotonic() > deadline:
                raise UnusableData(f"{data_dir}: another backup of it is running")
            time.sleep(POLL_SECS)
        yield


def _try_lock(fd: int, kind: int) -> bool:
    """A lock belongs to the descriptor, not to the process."""
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
