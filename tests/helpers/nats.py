"""Real NATS servers with JetStream, on free ports, in a folder of their own."""

import atexit
import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from wire.programs import end_with_parent

BINARY = Path(sys.executable).parent / "nats-server"
READY_SECS = 60.0
ATTEMPTS = 10


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [sock.getsockname()[1] for sock in sockets]
    for sock in sockets:
        sock.close()
    return ports


@dataclass(slots=True)
class NatsNode:
    name: str
    folder: Path
    port: int
    monitor: int
    route: int
    config: Path
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    @property
    def monitor_url(self) -> str:
        return f"http://127.0.0.1:{self.monitor}"

    def start(self) -> None:
        with (self.folder / f"{self.name}.log").open("ab") as log:
            command = [str(BINARY), "-c", str(self.config)]
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, preexec_fn=end_with_parent
            )

    def send(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)
        if number == signal.SIGSTOP:  # not at once: its threads go on until they are told
            os.waitpid(self.process.pid, os.WUNTRACED)

    def kill(self) -> None:
        if self.process is not None:
            with suppress(ProcessLookupError):
                os.kill(self.process.pid, signal.SIGCONT)
            self.process.kill()
            self.process.wait()
            self.process = None


@dataclass(slots=True)
class Nats:
    nodes: list[NatsNode] = field(default_factory=list)

    @property
    def urls(self) -> list[str]:
        return [node.url for node in self.nodes]

    @property
    def monitor_urls(self) -> list[str]:
        return [node.monitor_url for node in self.nodes]

    def start(self) -> bool:
        """False if a server ended at once: another program was faster to take its port."""
        for node in self.nodes:
            node.start()
        deadline = time.monotonic() + READY_SECS
        while not all(self._is_ready(node) for node in self.nodes):
            if any(node.process and node.process.poll() is not None for node in self.nodes):
                return False
            assert time.monotonic() < deadline, "NATS did not start"
            time.sleep(0.05)
        return True

    def kill(self) -> None:
        for node in self.nodes:
            node.kill()

    def _is_ready(self, node: NatsNode) -> bool:
        try:
            with urllib.request.urlopen(f"{node.monitor_url}/jsz", timeout=2) as answer:
                found = json.load(answer)
        except OSError:
            return False
        return len(self.nodes) == 1 or bool(found.get("meta_cluster", {}).get("leader"))


@contextmanager
def nats_servers(folder: Path, count: int = 1, *, sync: str = "always") -> Iterator[Nats]:
    for _ in range(ATTEMPTS):
        servers = _configured(folder, count, sync)
        try:
            if servers.start():
                yield servers
                return
        finally:
            servers.kill()
    raise AssertionError("no ports for NATS")


def _configured(folder: Path, count: int, sync: str) -> Nats:
    ports = free_ports(3 * count)
    routes = [f"nats://127.0.0.1:{ports[3 * at + 2]}" for at in range(count)]
    servers = Nats()
    for at in range(count):
        name = f"nats-{at + 1}"
        port, monitor, route = ports[3 * at : 3 * at + 3]
        config = folder / f"{name}.conf"
        lines = [
            f"server_name: {name}",
            f"listen: 127.0.0.1:{port}",
            f"http: 127.0.0.1:{monitor}",
            f'jetstream {{ store_dir: "{folder / name}", max_file: 1TB, sync_interval: {sync} }}',
            "max_payload: 8MB",
            "max_pending: 64MB",
        ]
        if count > 1:
            listen = f"127.0.0.1:{route}"
            lines.append(
                f"cluster {{ name: test, listen: {listen}, routes: {json.dumps(routes)} }}"
            )
        config.write_text("\n".join(lines))
        servers.nodes.append(NatsNode(name, folder, port, monitor, route, config))
    return servers


_shared: list[Nats] = []


def shared_nats() -> Nats:
    """One server for all tests of this process that need no faults; it ends with the process."""
    if not _shared:
        folder = Path(tempfile.mkdtemp(prefix="weir-nats-"))
        starting = nats_servers(folder)
        _shared.append(starting.__enter__())
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        atexit.register(starting.__exit__, None, None, None)
    return _shared[0]


def cluster_name(data_dir: Path) -> str:
    """The cluster whose data is said to be in this folder."""
    return hashlib.sha256(str(data_dir).encode()).hexdigest()[:24]
