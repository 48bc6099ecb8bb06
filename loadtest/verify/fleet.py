"""The real processes of a run, each of which can be killed, stopped, paused and started again.

    producers, readers ──▶ network ──▶ Envoy ──▶ gateways ──▶ faults ──▶ origin
                                                 Redis

`network` and `faults` are proxies that do harm when told to: the way to Envoy, and to the origin.

Addresses stay: a part that comes back is found where it was. What is not installed is left out,
and the run says so.
"""

import asyncio
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loadtest.errors import UnavailableError
from loadtest.faults.proxy import FaultProxy
from loadtest.peers.process import Process, Start, free_port, free_ports
from loadtest.peers.servers import redis_command, start_gateway, start_origin
from loadtest.peers.tokens import AUDIENCE, ISSUER
from loadtest.verify.doors import Door
from loadtest.verify.plan import ENVOY, FAULTS, NETWORK, ORIGIN, REDIS

GATEWAYS = 2
ENVOY_SHARE = GATEWAYS  # for each request that goes to one of the gateways

ORIGIN_KEY = "that-of-a-verified-fleet"
ORIGIN_SETTINGS = {
    "DS_SERVER__ACCESS_KEY": ORIGIN_KEY,
    # Small, so that a short run has many chunks, journal files and checkpoints.
    "DS_STORAGE__CHUNK_BYTES": "8192",
    "DS_STORAGE__JOURNAL_BYTES": "262144",
    "DS_LIMITS__MAX_BODY_BYTES": "65536",
    "DS_STORAGE__CHECKPOINT_SECS": "0.5",
    "DS_SERVER__LONG_POLL_TIMEOUT_SECS": "4",
    "DS_LOG__LEVEL": "warning",
}
GATEWAY_SETTINGS = {
    "DS_UPSTREAM__ACCESS_KEY": ORIGIN_KEY,
    "DS_GATEWAY__LONG_POLL_TIMEOUT_SECS": "3",
    "DS_GATEWAY__SSE_ROTATION_SECS": "12",
    "DS_GATEWAY__SSE_HEARTBEAT_SECS": "1",
    "DS_GATEWAY__DRAIN_SECS": "3",
    "DS_GATEWAY__TRUSTED_HOPS": "1",
    "DS_UPSTREAM__CONNECT_TIMEOUT_SECS": "1",
    "DS_UPSTREAM__FIRST_BYTE_TIMEOUT_SECS": "3",
    "DS_UPSTREAM__IDLE_TIMEOUT_SECS": "3",
    "DS_UPSTREAM__LIVE_TIMEOUT_SECS": "10",
    "DS_UPSTREAM__BREAKER_SECS": "0.5",
    "DS_AUTH__ISSUER": ISSUER,
    "DS_AUTH__AUDIENCE": AUDIENCE,
    "DS_AUTH__JWKS_REFRESH_SECS": "1",
    "DS_AUTH__JWKS_COOLDOWN_SECS": "0.2",
    "DS_CACHE__CURSOR_KEY": "verify",
    "DS_LOG__LEVEL": "warning",
}


@dataclass(frozen=True, slots=True)
class EnvoyOrder:
    """What Envoy is to be started for; whoever knows its configuration makes a command of it."""

    folder: Path
    gateways: tuple[str, ...]
    settings: Mapping[str, str]  # environment of the gateways
    port: int
    admin_port: int


MakeEnvoy = Callable[[EnvoyOrder], Sequence[str]]


class Part:
    """One process of the fleet, or the next one in its place."""

    def __init__(self, name: str, folder: Path, start: Start) -> None:
        self.name = name
        self._process = Process(start, folder / name / f"{name}.log")
        self.work = asyncio.Lock()  # one thing at a time is done to it

    async def start(self) -> None:
        """And wait until it serves."""
        await self._process.start_again()

    async def kill(self) -> None:
        await asyncio.to_thread(self._process.kill)

    async def stop(self) -> None:
        """SIGTERM, and patience."""
        await asyncio.to_thread(self._process.stop)

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)


@dataclass(slots=True)
class Fleet:
    """All parts, in the order of their start, and the ways in."""

    parts: dict[str, Part]
    front: list[Door]
    origin: Door
    proxies: dict[str, FaultProxy] = field(default_factory=dict)  # those that do harm
    missing: list[str] = field(default_factory=list)

    @contextmanager
    def unless_missing(self, name: str) -> Iterator[None]:
        """A part that is not installed is noted down and done without."""
        try:
            yield
        except UnavailableError as error:
            self.missing.append(f"{name}: {error}")

    async def start(self) -> None:
        for part in self.parts.values():
            await part.start()

    async def kill(self) -> None:
        for part in reversed(self.parts.values()):
            await part.kill()

    def set_faults(self, name: str, faults: Mapping[str, Any], seed: int) -> None:
        """From now on, for what goes through that proxy; an empty mapping switches them off."""
        self.proxies[name].set_plan({"seed": seed, "place": name, "faults": dict(faults)})

    def injected(self) -> Counter[tuple[str, str]]:
        """By place and kind: what the proxies have really done so far."""
        return Counter(
            (name, line["fault"])
            for name, proxy in self.proxies.items()
            for line in proxy.injected()
        )


def make_fleet(
    folder: Path, jwks_url: str, make_envoy: MakeEnvoy, *, left_out: Sequence[str] = ()
) -> Fleet:
    """`left_out` are names of parts that a run can do without."""
    port = free_port()
    origin_url = f"http://127.0.0.1:{port}"
    fleet = Fleet({}, [], Door(ORIGIN, origin_url, ORIGIN_KEY))
    parts = fleet.parts

    def add(name: str, start: Start) -> None:
        parts[name] = Part(name, folder, start)

    add(ORIGIN, start_origin(Path("data"), "file-durable", ORIGIN_SETTINGS, port=port))
    settings = GATEWAY_SETTINGS | {"DS_AUTH__JWKS": jwks_url}
    if REDIS not in left_out:
        with fleet.unless_missing(REDIS):
            port = free_port()
            add(REDIS, Start(redis_command(port), port))
            settings["DS_CACHE__REDIS_URL"] = f"redis://127.0.0.1:{port}"
    if FAULTS not in left_out:
        with fleet.unless_missing(FAULTS):
            origin_url = _add_faults(fleet, folder, FAULTS, origin_url)
    for number in range(GATEWAYS):
        name, start = f"gateway-{number}", start_gateway(origin_url, settings)
        add(name, start)
        fleet.front.append(Door(name, f"http://127.0.0.1:{start.port}"))
    if ENVOY not in left_out:
        gateways = tuple(door.url.removeprefix("http://") for door in fleet.front)
        order = EnvoyOrder(folder / ENVOY, gateways, settings, *free_ports(2))
        with fleet.unless_missing(ENVOY):
            order.folder.mkdir(parents=True, exist_ok=True)
            ready_url = f"http://127.0.0.1:{order.admin_port}/ready"
            add(ENVOY, Start(make_envoy(order), order.port, ready_url=ready_url))
            # Half come through it; the others go straight to a gateway, as behind another balancer.
            url = f"http://127.0.0.1:{order.port}"
            fleet.front += [Door(ENVOY, url)] * ENVOY_SHARE
            if FAULTS in parts:
                fleet.front.append(Door(NETWORK, _add_faults(fleet, folder, NETWORK, url)))
    return fleet


def _add_faults(fleet: Fleet, folder: Path, name: str, upstream: str) -> str:
    """Where the proxy is."""
    proxy = FaultProxy(upstream, free_port(), folder / name)
    fleet.parts[name] = Part(name, folder, proxy.start())
    fleet.proxies[name] = proxy
    fleet.set_faults(name, {}, 0)
    return proxy.url
