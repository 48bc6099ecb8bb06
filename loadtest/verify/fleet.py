"""The real processes of a run, each of which can be killed, stopped, paused and started again.

    producers, readers ──▶ network ──▶ Envoy ──▶ gateways ──▶ faults ──▶ origin
                                                 Redis

`network` and `faults` are proxies that do harm when told to: the way to Envoy, and to the origin.

Addresses stay: a part that comes back is found where it was. What is not installed is left out,
and the run says so.
"""

import asyncio
import os
import random
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from loadtest.errors import RunFailedError, UnavailableError
from loadtest.faults.proxy import faults_command, read_injected, write_plan
from loadtest.peers.process import FOR_FEW_SUBJECTS
from loadtest.peers.servers import redis_command
from loadtest.peers.tokens import AUDIENCE, ISSUER
from loadtest.verify.doors import Door
from loadtest.verify.plan import ENVOY, FAULTS, NETWORK, ORIGIN, REDIS
from wire.programs import end_with_parent

ROOT = Path(__file__).parents[2]
START_SECS = 60.0
STOP_SECS = 20.0
POLL_SECS = 0.02
GATEWAYS = 2
ENVOY_SHARE = GATEWAYS  # for each request that goes to one of the gateways
SERVER_PORTS = (20_000, 32_000)
INJECTED = "faults.jsonl"

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
GATEWAY_SETTINGS = FOR_FEW_SUBJECTS | {
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

Ready = Callable[[], Awaitable[bool]]


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
    """One process (and its children), or the next one in its place."""

    def __init__(
        self,
        name: str,
        folder: Path,
        command: Sequence[str],
        ready: Ready,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self._folder = folder
        self._command = command
        self._ready = ready
        self._settings = settings or {}
        self._process: subprocess.Popen[bytes] | None = None
        self.work = asyncio.Lock()  # one thing at a time is done to it

    async def start(self) -> None:
        """And wait until it serves."""
        self.launch()
        deadline = asyncio.get_running_loop().time() + START_SECS
        while not await self._ready():
            assert self._process is not None
            code = self._process.poll()
            if code is not None or asyncio.get_running_loop().time() > deadline:
                raise RunFailedError(
                    f"{self.name} does not start (exit code {code}), see {self._log}"
                )
            await asyncio.sleep(POLL_SECS)

    def launch(self) -> None:
        (self._folder / "configs").mkdir(parents=True, exist_ok=True)  # nobody's local.toml
        env = {name: value for name, value in os.environ.items() if not name.startswith("DS_")}
        env |= {"PYTHONPATH": str(ROOT), **self._settings}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                cwd=self._folder,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # so that a signal reaches its children as well
                preexec_fn=end_with_parent,
            )

    async def kill(self) -> None:
        self.signal(signal.SIGKILL)
        await self._gone()

    async def stop(self) -> None:
        """SIGTERM, and patience."""
        self.signal(signal.SIGTERM)
        await self._gone()

    def signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            try:
                os.killpg(self._process.pid, number)
            except ProcessLookupError:
                pass

    async def _gone(self) -> None:
        if self._process is None:
            return
        try:
            await asyncio.to_thread(self._process.wait, STOP_SECS)
        except subprocess.TimeoutExpired:
            self.signal(signal.SIGKILL)
            await asyncio.to_thread(self._process.wait)
        self._process = None

    @property
    def _log(self) -> Path:
        return self._folder / f"{self.name}.log"


@dataclass(slots=True)
class Fleet:
    """All parts, in the order of their start, and the ways in."""

    parts: dict[str, Part]
    front: list[Door]
    origin: Door
    fault_plans: dict[str, Path] = field(default_factory=dict)  # of proxies that do harm
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
        write_plan(self.fault_plans[name], {"seed": seed, "place": name, "faults": dict(faults)})

    def injected(self) -> Counter[tuple[str, str]]:
        """By place and kind: what the proxies have really done so far."""
        return Counter(
            (name, line["fault"])
            for name, plan in self.fault_plans.items()
            for line in read_injected(plan.with_name(INJECTED))
        )


def make_fleet(
    folder: Path, jwks_url: str, make_envoy: MakeEnvoy, *, left_out: Sequence[str] = ()
) -> Fleet:
    """`left_out` are names of parts that a run can do without."""
    ports = iter(pick_ports(GATEWAYS + 6))
    origin_port = next(ports)
    origin_url = f"http://127.0.0.1:{origin_port}"
    parts = {ORIGIN: _origin(folder, origin_port)}
    fleet = Fleet(parts, [], Door(ORIGIN, origin_url, ORIGIN_KEY))
    settings = {"DS_AUTH__JWKS": jwks_url}
    if REDIS not in left_out:
        with fleet.unless_missing(REDIS):
            port = next(ports)
            parts[REDIS] = _redis(folder, port)
            settings["DS_CACHE__REDIS_URL"] = f"redis://127.0.0.1:{port}"
    if FAULTS not in left_out:
        with fleet.unless_missing(FAULTS):
            port = next(ports)
            parts[FAULTS] = _faults(fleet, folder, FAULTS, port, origin_url)
            origin_url = f"http://127.0.0.1:{port}"
    for number in range(GATEWAYS):
        name, port = f"gateway-{number}", next(ports)
        parts[name] = _gateway(folder, name, port, origin_url, settings)
        fleet.front.append(Door(name, f"http://127.0.0.1:{port}"))
    if ENVOY not in left_out:
        gateways = tuple(door.url.removeprefix("http://") for door in fleet.front)
        order = EnvoyOrder(
            folder / ENVOY, gateways, GATEWAY_SETTINGS | settings, next(ports), next(ports)
        )
        with fleet.unless_missing(ENVOY):
            parts[ENVOY] = _envoy(order, make_envoy)
            # Half come through it; the others go straight to a gateway, as behind another balancer.
            url = f"http://127.0.0.1:{order.port}"
            fleet.front += [Door(ENVOY, url)] * ENVOY_SHARE
            if FAULTS in parts:
                port = next(ports)
                parts[NETWORK] = _faults(fleet, folder, NETWORK, port, url)
                fleet.front.append(Door(NETWORK, f"http://127.0.0.1:{port}"))
    return fleet


def _weir(
    name: str, folder: Path, arguments: Sequence[str], ready_url: str, settings: Mapping[str, str]
) -> Part:
    command = [sys.executable, "-m", "weir", *arguments]
    return Part(name, folder / name, command, lambda: answers(ready_url), settings)


def _origin(folder: Path, port: int) -> Part:
    arguments = ["origin", "--port", str(port), "--data-dir", "data", "--storage", "file-durable"]
    return _weir(ORIGIN, folder, arguments, f"http://127.0.0.1:{port}/readyz", ORIGIN_SETTINGS)


def _gateway(
    folder: Path, name: str, port: int, origin_url: str, settings: Mapping[str, str]
) -> Part:
    (admin,) = pick_ports(1)
    arguments = ["gateway", "--port", str(port), "--origin", origin_url]
    ours = GATEWAY_SETTINGS | {"DS_GATEWAY__ADMIN_PORT": str(admin)} | dict(settings)
    return _weir(name, folder, arguments, f"http://127.0.0.1:{admin}/readyz", ours)


def _redis(folder: Path, port: int) -> Part:
    return Part(REDIS, folder / REDIS, redis_command(port), lambda: _pings(port))


def _faults(fleet: Fleet, folder: Path, name: str, port: int, upstream: str) -> Part:
    home = folder / name
    home.mkdir(parents=True, exist_ok=True)
    fleet.fault_plans[name] = home / "plan.json"
    fleet.set_faults(name, {}, 0)
    command = faults_command(upstream, port, home / "plan.json", home / INJECTED)
    return Part(name, home, command, lambda: accepts(port))


def _envoy(order: EnvoyOrder, make_envoy: MakeEnvoy) -> Part:
    order.folder.mkdir(parents=True, exist_ok=True)
    url = f"http://127.0.0.1:{order.admin_port}/ready"
    return Part(ENVOY, order.folder, make_envoy(order), lambda: answers(url))


def pick_ports(count: int) -> list[int]:
    """Free ones that the kernel does not hand out: a part that is away must find its own again."""
    found: list[int] = []
    while len(found) < count:
        port = random.randrange(*SERVER_PORTS)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in found:
            found.append(port)
    return found


async def answers(url: str) -> bool:
    timeout = aiohttp.ClientTimeout(total=2)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(url, ssl=False) as reply,
        ):
            return reply.status == 200
    except (aiohttp.ClientError, TimeoutError, OSError):
        return False


async def accepts(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True


async def _pings(port: int) -> bool:
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"PING\r\n")
        said = await reader.readline()
        writer.close()
        return said.startswith(b"+PONG")
    except OSError:
        return False
