"""The real processes of a cluster, and the links between them.

    clients ──▶ gateways ──▶ link to each node ──▶ nodes ──▶ link to each NATS server
         └────────────────────────────────────────▶  └─────▶ link to the S3 server

Nodes reach each other by the links as well: each advertises the address of its own. Addresses stay
when a process is started again.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import aiohttp

from loadtest.errors import NotStartedError, RunFailedError
from loadtest.peers.nats import NatsPlace, place_nats, start_nats
from loadtest.peers.process import Process, Start, free_port
from loadtest.peers.servers import start_gateway, weir_start
from loadtest.peers.tokens import AUDIENCE, ISSUER
from loadtest.peers.weed import ACCESS_KEY, BUCKET, SECRET, WeedPlace
from loadtest.verify.cluster.links import Link
from loadtest.verify.cluster.overview import Overview
from loadtest.verify.doors import Door

NODES = 3
NATS_SERVERS = 3
S3 = "s3"
START_SECS = 120.0
AWAY_CODES = frozenset({2, 3})  # of a node that NATS or object storage does not answer
POLL_SECS = 0.1
KEY = "that-of-a-verified-cluster"

NODE_SETTINGS = {
    "DS_SERVER__ACCESS_KEY": KEY,
    "DS_SERVER__LONG_POLL_TIMEOUT_SECS": "4",
    "DS_SERVER__DRAIN_SECS": "3",
    # Small, so that a short run has many chunks, flushes, checkpoints and merged blocks.
    "DS_STORAGE__CHUNK_BYTES": "8192",
    "DS_LIMITS__MAX_BODY_BYTES": "65536",
    "DS_CLUSTER__FLUSH_SECS": "1.5",
    "DS_CLUSTER__FLUSH_BYTES": "131072",
    "DS_CLUSTER__JOURNAL_BYTES": "1048576",
    "DS_CLUSTER__RENEW_SECS": "1",
    "DS_COLD__BACKEND": "s3",
    "DS_COLD__S3_BUCKET": BUCKET,
    "DS_COLD__S3_ACCESS_KEY_ID": ACCESS_KEY,
    "DS_COLD__S3_SECRET_ACCESS_KEY": SECRET,
    "DS_COLD__CACHE_BYTES": "1048576",
    "DS_LOG__LEVEL": "info",
}
GATEWAY_SETTINGS = {
    "DS_UPSTREAM__ACCESS_KEY": KEY,
    "DS_GATEWAY__WORKERS": "1",
    "DS_GATEWAY__LONG_POLL_TIMEOUT_SECS": "3",
    "DS_GATEWAY__SSE_ROTATION_SECS": "12",
    "DS_GATEWAY__SSE_HEARTBEAT_SECS": "1",
    "DS_GATEWAY__DRAIN_SECS": "3",
    "DS_AUTH__ISSUER": ISSUER,
    "DS_AUTH__AUDIENCE": AUDIENCE,
    "DS_AUTH__JWKS_REFRESH_SECS": "1",
    "DS_CACHE__CURSOR_KEY": "verify",
    "DS_LOG__LEVEL": "warning",
}


@dataclass(frozen=True, slots=True)
class Shape:
    """What is started. `origin` is the command of a node, before its arguments."""

    gateways: int = 1
    lease_secs: float = 6.0
    shards: int = 16
    origin: Sequence[str] = field(default_factory=lambda: [*weir_start(), "origin"])
    settings: Mapping[str, str] = field(default_factory=dict)


class Machines:
    def __init__(self, folder: Path, jwks_url: str, shape: Shape) -> None:
        self.folder = folder
        self.shape = shape
        # The path of a unix socket must be short.
        self._short = TemporaryDirectory(prefix="weir-")
        self.s3 = WeedPlace(Path(self._short.name))
        self.nats: dict[str, NatsPlace] = {
            place.name: place for place in place_nats(folder, NATS_SERVERS)
        }
        self.nodes = [f"node-{number}" for number in range(1, NODES + 1)]
        self._ports = {name: free_port() for name in self.nodes}
        self.links = {
            S3: Link(self.s3.port, self._pids),
            **{name: Link(place.port, self._pids) for name, place in self.nats.items()},
            **{name: Link(port, self._pids) for name, port in self._ports.items()},
        }
        self.parts: dict[str, Process] = {}
        self._add(S3, self.s3.start())
        for place in self.nats.values():
            self._add(place.name, start_nats(place, list(self.nats.values())))
        for name in self.nodes:
            self._add(name, self._start_node(name))
        self.gateways = [f"gateway-{number}" for number in range(1, shape.gateways + 1)]
        self._doors = {name: Door(name, self._url(port), KEY) for name, port in self._ports.items()}
        for name in self.gateways:
            start = self._start_gateway(jwks_url)
            self._add(name, start)
            self._doors[name] = Door(name, self._url(start.port))

    # -- the ways in -----------------------------------------------------------------------------

    @property
    def doors(self) -> list[Door]:
        return list(self._doors.values())

    @property
    def node_doors(self) -> list[Door]:
        return [self._doors[name] for name in self.nodes]

    def _pids(self) -> Mapping[str, int]:
        return {name: self.parts[name].pid for name in self.nodes}

    # -- how each is started ---------------------------------------------------------------------

    def _add(self, name: str, start: Start) -> None:
        self.parts[name] = Process(start, self.folder / name / f"{name}.log")

    def _url(self, port: int) -> str:
        return f"http://127.0.0.1:{port}"

    def data_dir(self, node: str) -> Path:
        return self.folder / node / "data"

    def _start_node(self, name: str) -> Start:
        port = self._ports[name]
        command = [*self.shape.origin, "--host", "127.0.0.1", "--port", str(port)]
        command += ["--storage", "cluster", "--data-dir", str(self.data_dir(name))]
        nats_urls = [f"nats://127.0.0.1:{self.links[each].port}" for each in self.nats]
        settings = {
            "DS_SERVER__NODE_ID": name,
            "DS_SERVER__ADVERTISE": self._url(self.links[name].port),
            "DS_CLUSTER__NAME": "verified",
            "DS_CLUSTER__NATS_URLS": ",".join(nats_urls),
            "DS_CLUSTER__NATS_MONITOR_URLS": ",".join(
                place.monitor_url for place in self.nats.values()
            ),
            "DS_CLUSTER__SHARDS": str(self.shape.shards),
            "DS_CLUSTER__LEASE_SECS": f"{self.shape.lease_secs:g}",
            "DS_COLD__S3_ENDPOINT": self._url(self.links[S3].port),
        }
        environment = {**NODE_SETTINGS, **settings, **self.shape.settings}
        return Start(command, port, environment, f"{self._url(port)}/healthz")

    def _start_gateway(self, jwks_url: str) -> Start:
        urls = [self._url(self.links[name].port) for name in self.nodes]
        settings = GATEWAY_SETTINGS | {"DS_AUTH__JWKS": jwks_url}
        return start_gateway(",".join(urls), settings)  # several are a cluster

    # -- start and stop --------------------------------------------------------------------------

    async def start(self) -> None:
        for link in self.links.values():
            await link.start()
        await self._start_all([S3, *self.nats])
        async with aiohttp.ClientSession() as session:
            overview = self.overview(session)
            await wait_until(self.s3_stores, START_SECS, "the S3 server")
            await wait_until(overview.nats_leader, START_SECS, "NATS")
        await self._start_all(self.nodes)
        await self._start_all(self.gateways)

    async def start_again(self, name: str) -> None:
        """As a supervisor does: a node that cannot reach what it needs ends."""
        until = time.monotonic() + START_SECS
        while True:
            try:
                return await self.parts[name].start_again()
            except NotStartedError as error:
                if error.code not in AWAY_CODES or time.monotonic() > until:
                    raise

    async def _start_all(self, names: Iterable[str]) -> None:
        for name in names:
            self.parts[name].launch()  # by this thread, which will be there when the program is
        for name in names:
            await asyncio.to_thread(self.parts[name].await_ready)

    async def kill(self) -> None:
        for part in reversed(self.parts.values()):
            await asyncio.to_thread(part.kill)
        for link in self.links.values():
            await link.close()
        self.s3.clear()
        self._short.cleanup()

    async def s3_stores(self) -> bool:
        return await asyncio.to_thread(self.s3.stores)

    def overview(self, session: aiohttp.ClientSession) -> Overview:
        """Past the links: what is cut off can still be asked by us."""
        nodes = {name: self._url(port) for name, port in self._ports.items()}
        return Overview(session, nodes, {n: place.monitor_url for n, place in self.nats.items()})


async def wait_until(is_so: Callable[[], Awaitable[object]], secs: float, what: str) -> None:
    """Raises RunFailedError if it is never so."""
    until = time.monotonic() + secs
    while not await is_so():
        if time.monotonic() > until:
            raise RunFailedError(f"{what}: not ready within {secs:g} s")
        await asyncio.sleep(POLL_SECS)
