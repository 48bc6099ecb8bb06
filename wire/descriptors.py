"""Logs when the process runs out of descriptors: the kernel refuses connections silently."""

import logging
import resource
import time

log = logging.getLogger("weir.connections")

TOLD_SECS = 10.0  # between two log lines
FEW = 8  # left


class Descriptors:
    """A new descriptor gets the lowest free number, so a high number means that few are left."""

    def __init__(self) -> None:
        self._silent_until = 0.0

    def note(self, number: int) -> None:
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if number < limit - FEW or limit == resource.RLIM_INFINITY:
            return
        now = time.monotonic()
        if now >= self._silent_until:
            self._silent_until = now + TOLD_SECS
            log.error("the limit of %d file descriptors is reached: raise it (ulimit -n)", limit)
