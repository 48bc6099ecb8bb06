"""The real processes of a run, each of which can be killed, stopped, paused and started again.

    producers, readers ──▶ network ──▶ Envoy ──▶ gateways ──▶ faults ──▶ origin
                                                 Redis

`network` and `faults` are proxies that do harm when told to: the way to Envoy, and to the origin.

Addresses stay: a part that comes back is found where it was. What is not installed is left out,
and the run says so.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loadtest.errors import UnavailableError
from loadtest.faults.proxy import FaultProxy
from loadtest.peers.process import Process, Start, free_port
from loadtest.peers.servers import start_edge, start_gateway, start_origin, start_redis
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


@dataclass(slots=True)
class Fleet:
    """All parts, in the order of their start, and the ways in."""

    folder: Path
    left_out: Sequence[str] = ()  # parts that a run can do without
    parts: dict[str, Process] = field(default_factory=dict)
    front: list[Door] = field(default_factory=list)
    proxies: dict[str, FaultProxy] = field(default_factory=dict)  # those that do harm
    missing: list[str] = field(default_factory=list)

    def add(self, name: str, start: Start) -> str:
        """Where it will serve."""
        self.parts[name] = Process(start, self.folder / name / f"{name}.log")
        return f"http://127.0.0.1:{start.port}"

    def may_add(self, name: str, make: Callable[[], Start]) -> str:
        """The same; nothing if it is left out. What is not installed is noted down, too."""
        if name in self.left_out:
            return ""
        try:
            return self.add(name, make())
        except UnavailableError as error:
            self.missing.append(f"{name}: {error}")
            return ""

    def may_add_faults(self, name: str, upstream: str) -> str:
        proxy = FaultProxy(upstream, free_port(), self.folder / name)
        if url := self.may_add(name, proxy.start):
            self.proxies[name] = proxy
            self.set_faults(name, {}, 0)
        return url

    async def start(self) -> None:
        for part in self.parts.values():
            await part.start_again()

    async def kill(self) -> None:
        for part in reversed(self.parts.values()):
            await asyncio.to_thread(part.kill)

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


def make_fleet(folder: Path, jwks_url: str, left_out: Sequence[str] = ()) -> tuple[Fleet, Door]:
    """And the way to its origin."""
    fleet = Fleet(folder, left_out)
    start = start_origin(Path("data"), "file-durable", ORIGIN_SETTINGS, port=free_port())
    origin = Door(ORIGIN, fleet.add(ORIGIN, start), ORIGIN_KEY)
    settings = GATEWAY_SETTINGS | {"DS_AUTH__JWKS": jwks_url}
    if url := fleet.may_add(REDIS, start_redis):
        settings["DS_CACHE__REDIS_URL"] = url.replace("http:", "redis:")
    upstream = fleet.may_add_faults(FAULTS, origin.url) or origin.url
    starts = [start_gateway(upstream, settings) for _ in range(GATEWAYS)]
    for number, start in enumerate(starts):
        name = f"gateway-{number}"
        fleet.front.append(Door(name, fleet.add(name, start)))

    def make_envoy() -> Start:
        # A killed Envoy leaves its temporary files: they belong in the run's folder.
        here = settings | {"TMPDIR": str(folder / ENVOY)}
        log = str(folder / ENVOY / "access.jsonl")
        return start_edge([start.port for start in starts], here, access_log=log)

    if url := fleet.may_add(ENVOY, make_envoy):
        # Half come through it; the others go straight to a gateway, as behind another balancer.
        fleet.front += [Door(ENVOY, url)] * ENVOY_SHARE
        if FAULTS in fleet.parts:
            fleet.front.append(Door(NETWORK, fleet.may_add_faults(NETWORK, url)))
    return fleet, origin
