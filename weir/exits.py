"""How a command ends: errors reported in one line, and their exit codes.

0 success; 1 damage found by fsck or compact, or a process that died; 2 bad configuration or usage;
3 an unusable data directory or file; 4 a server that cannot be reached or that refuses.
"""

import sys
from collections.abc import Callable

from origin.storage.base import UnusableData
from wire.children import Child, ChildFailed
from wire.settings import SettingsError


class RequestFailed(Exception):
    """A server refused what a command asked for, or could not be reached."""


class Malformed(Exception):
    """A stream contains malformed messages."""


EXPECTED = (SettingsError, ChildFailed, UnusableData, RequestFailed, Malformed, OSError)
_CODES = {Malformed: 1, SettingsError: 2, RequestFailed: 4}


def exit_code(error: Exception) -> int:
    if isinstance(error, ChildFailed):
        return error.code
    return next((code for kind, code in _CODES.items() if isinstance(error, kind)), 3)


def warn(text: str) -> None:
    print(f"weir: {text}", file=sys.stderr, flush=True)


def run_child(child: Child, work: Callable[[], int]) -> int:
    """Do the work of a forked process; the parent gets the line that `main` would print."""
    try:
        return work()
    except EXPECTED as error:
        child.complain(str(error))
        return exit_code(error)
