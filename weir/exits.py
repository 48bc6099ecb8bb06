"""How a command ends: the errors that are told in one line, and their exit codes.

0 well, 1 damage found by fsck or a process that died, 2 bad configuration or usage, 3 unusable
data directory or file.
"""

from collections.abc import Callable

from origin.storage.base import UnusableData
from wire.children import Child, ChildFailed
from wire.settings import SettingsError

EXPECTED = (SettingsError, ChildFailed, UnusableData, OSError)


def exit_code(error: Exception) -> int:
    if isinstance(error, ChildFailed):
        return error.code
    return 2 if isinstance(error, SettingsError) else 3


def run_child(child: Child, work: Callable[[], int]) -> int:
    """Do a forked process's work; the line that `main` would print goes to the parent."""
    try:
        return work()
    except EXPECTED as error:
        child.complain(str(error))
        return exit_code(error)
