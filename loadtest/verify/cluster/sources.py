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


def find_source(port: int, to_port: int, pids: Mapping[str, int]) -> str | None:
    """The name of the process that connects from this port of loopback to that one; empty if it is
    another, None if there is no such connection."""
    inode = _inode_of(port, to_port)
    if not inode:
        return None
    return next((name for name, pid in pids.items() if _holds(pid, inode)), "")


def _inode_of(port: int, to_port: int) -> str:
    """The table is long where many connections were closed lately, so it is not parsed. Two
    processes may have the same port, if they are connected to different ones."""
    with open(TABLE) as table:
        rows = table.read()
    row = rf"^ *\d+: {LOOPBACK}:{port:04X} {LOOPBACK}:{to_port:04X} (?:\S+ +){{6}}([1-9]\d*)"
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
