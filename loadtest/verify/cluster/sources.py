"""Which process is at the other end of a connection to us, on this machine. Linux only.

All nodes of a cluster have the same addresses for NATS and object storage, as in production. So a
proxy that cuts off one of them must find out who connects.
"""

import os
import re
from collections.abc import Mapping
from contextlib import suppress

TABLE = "/proc/net/tcp"
LOOPBACK = "0100007F"


def find_source(port: int, pids: Mapping[str, int]) -> str:
    """The name of the process that connects from this port of loopback; empty if it is another."""
    inode = _inode_of(port)
    return next((name for name, pid in pids.items() if inode and _holds(pid, inode)), "")


def _inode_of(port: int) -> str:
    """The table is long where many connections were closed lately, so it is not parsed."""
    with open(TABLE) as table:
        rows = table.read()
    row = rf"^ *\d+: {LOOPBACK}:{port:04X} (?:\S+ +){{7}}([1-9]\d*)"
    found = re.search(row, rows, re.MULTILINE)
    return found[1] if found else ""


def _holds(pid: int, inode: str) -> bool:
    folder, wanted = f"/proc/{pid}/fd", f"socket:[{inode}]"
    with suppress(OSError):  # it has ended
        for number in os.listdir(folder):
            with suppress(OSError):  # closed meanwhile
                if os.readlink(f"{folder}/{number}") == wanted:
                    return True
    return False
