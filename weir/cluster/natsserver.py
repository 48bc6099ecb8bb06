"""One NATS server of a cluster on this machine: its configuration and its process."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from weir.cluster.program import Program, find_program, serve_program
from wire.addresses import base_url
from wire.children import Child

PROGRAM = "nats-server"
ASK_SECS = 2.0


@dataclass(frozen=True, slots=True)
class NatsSettings:
    """`route_ports` are those of all servers, this one's among them; without others there is no
    cluster, and no election to wait for."""

    name: str
    cluster: str
    host: str
    port: int
    route_port: int
    monitor_port: int
    route_ports: tuple[int, ...]
    user: str
    password: str
    folder: Path
    log: Path

    @property
    def url(self) -> str:
        return f"nats://{self.host}:{self.port}"

    @property
    def monitor(self) -> str:
        return base_url(self.host, self.monitor_port)


def render_config(settings: NatsSettings) -> str:
    """`sync_interval: always`: a message is acknowledged when it is on disk."""
    quoted, host = _quoted, settings.host
    login = f"user: {quoted(settings.user)}, password: {quoted(settings.password)}"
    lines = [
        f"server_name: {quoted(settings.name)}",
        f"listen: {quoted(f'{host}:{settings.port}')}",
        f"http: {quoted(f'{host}:{settings.monitor_port}')}",
        "max_payload: 8MB",
        "max_pending: 64MB",
        f"authorization {{ {login} }}",
        "jetstream {",
        f"  store_dir: {quoted(str(settings.folder / 'store'))}",
        "  max_mem: 256MB",
        "  max_file: 20GB",
        "  sync_interval: always",
        "}",
    ]
    if len(settings.route_ports) > 1:
        lines += _cluster_lines(settings, login)
    return "\n".join(lines) + "\n"


def _cluster_lines(settings: NatsSettings, login: str) -> Sequence[str]:
    host, account = settings.host, f"{settings.user}:{settings.password}"
    routes = (f"nats://{account}@{host}:{port}" for port in settings.route_ports)
    return (
        "cluster {",
        f"  name: {_quoted(settings.cluster)}",
        f"  listen: {_quoted(f'{host}:{settings.route_port}')}",
        f"  authorization {{ {login} }}",
        f"  routes: [{', '.join(map(_quoted, routes))}]",
        "}",
    )


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def serve_nats(settings: NatsSettings, on_ready: Callable[[int], None], child: Child) -> int:
    settings.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    config = settings.folder / "nats.conf"
    config.touch(mode=0o600)  # it has the password
    config.write_text(render_config(settings))
    command = (str(find_program(PROGRAM)), "--config", str(config))
    program = Program(command, settings.folder, settings.log)
    return serve_program(program, lambda: can_create_streams(settings.monitor), on_ready, child)


async def can_create_streams(monitor: str) -> bool:
    """Whether it follows the leader of its cluster. Streams may still elect leaders of their own,
    and a server that restarts may still fetch what it missed."""
    timeout = aiohttp.ClientTimeout(total=ASK_SECS)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(f"{monitor}/healthz?js-meta-only=true") as answer,
        ):
            return answer.status == 200
    except (aiohttp.ClientError, TimeoutError):
        return False
