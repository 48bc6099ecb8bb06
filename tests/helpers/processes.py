"""Looking at processes from outside."""

from pathlib import Path


def children_of(pid: int) -> list[int]:
    """Process ids, in the order of their start."""
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_gone(pid: int) -> bool:
    """Whether the process has ended; nobody may have reaped it yet."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
    return stat.rpartition(")")[2].split()[0] in ("Z", "X")
