"""How a command ends: the errors that are told in one line, and their exit codes.

0 well, 1 damage found by fsck or compact or a process that died, 2 bad configuration or usage,
3 unusable data directory or file, 4 a server that cannot be reached or refuses.
"""

from collections.abc import Callable

from origin.storage.base import UnusableData
from wire.children import Child, ChildFailed
from wire.settings import SettingsError


class RequestFailed(Exception):
    """A server that a command asked did not do it, in words for people."""


class Malformed(Exception):
    """A stream with messages that cannot be what they should be."""


EXPECTED = (SettingsError, ChildFailed, UnusableData, RequestFailed, Malformed, OSError)
_CODES = {Malformed: 1, SettingsError: 2, RequestFailed: 4}


def exit_code(error: Exception) -> int:
    if isinstance(error, ChildFailed):
        return error.code
    return next((code for kind, code in _CODES.items() if isinstance(error, kind)), 3)


def run_child(child: Child, work: Callable[[], int]) -> int:
    """Do a forked process's work; the line that `main` would print goes to the parent."""
    try:
        return work()
    except EXPECTED as error:
        child.complain(str(error))
        return exit_code(error)
