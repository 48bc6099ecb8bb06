"""Deletions, and the lock by which a backup holds them off.

A backup copies files that the running server would delete, or punch holes into, a moment later. So
it holds the data directory itself locked (`flock`) while it copies. Whoever deletes takes that lock
too, shared and without waiting; while it cannot be had, deletions wait here in memory. The lock
dies with its process: a killed backup holds nothing back. What waits when the server dies is found
and deleted by its next start, as after any crash.
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

PATIENCE_SECS = 10.0  # with deletions under way, and with another backup
POLL_SECS = 0.02

Step = Callable[[], None]


class Reclaimer:
    """Its methods run in any thread."""

    def __init__(self, data_dir: str) -> None:
        self._data_dir = data_dir
        self._waiting: deque[Step] = deque()

    @property
    def is_waiting(self) -> bool:
        return bool(self._waiting)

    def do(self, *steps: Step) -> None:
        """Delete now or when the backup has ended; what fails is left to the next start."""
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
            log.warning("nothing deleted for now: %s", error)

    def _run(self) -> None:
        while True:
            try:
                step = self._waiting.popleft()
            except IndexError:
                return
            try:
                step()
            except OSError as error:
                log.warning("not deleted: %s", error)


@contextmanager
def pinned(data_dir: str) -> Iterator[None]:
    """Inside, no file of this data directory that counted at the beginning goes away."""
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
