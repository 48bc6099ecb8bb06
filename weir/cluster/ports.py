"""Ports for the servers of a cluster: free ones, the same after a restart.

They are below the range from which the kernel takes ports of outgoing connections, so that none is
lost to a connection while its server is restarted.
"""

import random
from collections.abc import Iterable, Mapping

from wire.settings import SettingsError
from wire.workers import close_all, reserve_port

CHOICE = range(20_000, 32_000)
TRIES = 200


def choose_ports(host: str, names: Iterable[str], kept: Mapping[str, int]) -> dict[str, int]:
    """A port for each name: the kept one, or another if that is taken."""
    chosen: dict[str, int] = {}
    for name in names:
        others = set(chosen.values()) | (set(kept.values()) - {kept.get(name)})
        wanted = [kept[name]] if name in kept else []
        tried = (*wanted, *random.sample(CHOICE, TRIES))
        port = next((port for port in tried if port not in others and is_free(host, port)), None)
        if port is None:
            about = f"no free port from {CHOICE.start} to {CHOICE.stop - 1}"
            raise SettingsError("--cluster", about)
        chosen[name] = port
    return chosen


def is_free(host: str, port: int) -> bool:
    try:
        sockets, _ = reserve_port("port", host, port)
    except SettingsError:
        return False
    close_all(sockets)
    return True
