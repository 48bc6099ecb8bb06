"""Which process is at the other end of a connection to us, on this machine. Linux only.

All nodes of a cluster have the same addresses for NATS and object storage, as in production. So a
proxy that cuts off one of them must find out who connects.
"""

import os
import socket
import struct
from collections.abc import Mapping
from contextlib import suppress

LOOPBACK = socket.inet_aton("127.0.0.1")
SOCK_DIAG = 4  # the family of netlink, and below what it is asked for
BY_FAMILY = 20
REQUEST = 1
ANY = 0xFFFFFFFF

_HEADER = struct.Struct("=IHHII")  # length, kind, flags, number, sender
_QUERY = struct.Struct("=BBBBI")  # family, protocol, extensions, padding, states
_PORTS = struct.Struct("!HH")
_REST = struct.Struct("=III")  # interface, and a cookie that matches any
_INODE = struct.Struct("=I")
INODE_AT = _HEADER.size + 68


def find_source(port: int, to_port: int, pids: Mapping[str, int]) -> str | None:
    """The name of the process that connects from this port of loopback to that one; empty if it is
    another, None if there is no such connection."""
    inode = _inode_of(port, to_port)
    if not inode:
        return None
    return next((name for name, pid in pids.items() if _holds(pid, inode)), "")


def _inode_of(port: int, to_port: int) -> int:
    """0 if there is no such connection. Two processes may have the same port, if they are connected
    to different ones. `/proc/net/tcp` would take milliseconds to read: it also lists what was
    closed lately."""
    ends = _PORTS.pack(port, to_port) + LOOPBACK.ljust(16, b"\0") * 2 + _REST.pack(0, ANY, ANY)
    query = _QUERY.pack(socket.AF_INET, socket.IPPROTO_TCP, 0, 0, ANY) + ends
    size = _HEADER.size + len(query)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, SOCK_DIAG) as kernel:
        kernel.send(_HEADER.pack(size, BY_FAMILY, REQUEST, 0, 0) + query)
        answer = kernel.recv(4096)
    is_found = _HEADER.unpack_from(answer)[1] == BY_FAMILY
    return int(_INODE.unpack_from(answer, INODE_AT)[0]) if is_found else 0


def _holds(pid: int, inode: int) -> bool:
    folder, wanted = f"/proc/{pid}/fd", f"socket:[{inode}]"
    with suppress(OSError):  # it has ended
        for number in os.listdir(folder):
            with suppress(OSError):  # closed meanwhile
                if os.readlink(f"{folder}/{number}") == wanted:
                    return True
    return False
