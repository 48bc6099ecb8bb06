"""Programs that must not outlive us: however we die, the kernel kills them then.

Forked children of ours have a lifeline for that (wire.children); other programs know of none.
"""

import ctypes
import signal
import sys

PR_SET_PDEATHSIG = 1  # of linux/prctl.h

_libc = ctypes.CDLL(None)  # here, not in the child: loading takes locks that a fork may leave held


def end_with_parent() -> None:
    """A `preexec_fn`. The parent is the thread that starts the program. Linux only."""
    if sys.platform == "linux":
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
