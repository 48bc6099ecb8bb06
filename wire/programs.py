"""Third-party programs: found inside Python packages, and ended when we end."""

import ctypes
import importlib.util
import signal
import sys
from pathlib import Path

PR_SET_PDEATHSIG = 1  # of linux/prctl.h

_libc = ctypes.CDLL(None)  # not in the child: loading takes locks that a fork may leave held


def packed_program(package: str, inside: str) -> Path | None:
    """A file shipped in a Python package, if it is installed."""
    spec = importlib.util.find_spec(package)
    path = Path(spec.origin).parent / inside if spec and spec.origin else None
    return path if path is not None and path.is_file() else None


def end_with_parent() -> None:
    """A `preexec_fn`: the kernel kills the program when the thread that started it ends.

    Forked children of ours have a lifeline instead (`wire.children`). Linux only.
    """
    if sys.platform == "linux":
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
