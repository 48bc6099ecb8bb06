"""The real server as a process: started, waited for, stopped as an operator would, or killed.

It runs in a folder of its own, with an empty configs folder that keeps a developer's local.toml
out, and without the DS_ variables of whoever runs the tests.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.helpers.nats import cluster_name, shared_nats

ROOT = Path(__file__).parents[2]
READY = re.compile(r"listening on (https?://\S+)")
GATEWAY_READY = re.compile(r"weir gateway listening on (https?://\S+).*\n.*admin on .*\n")
UP_READY = re.compile(r"weir gateway listening on (https?://\S+).*\n(?:.*\n)*curl .*offset=-1'\n")
FLEET_READY = re.compile(
    r"weir envoy listening on (?P<url>https://\S+)(?:.*\n)+?weir envoy admin on (?P<admin>\S+)\n"
)
ADMIN = re.compile(r"weir gateway admin on (https?://\S+)")
START_SECS = 60.0
STOP_SECS = 60.0
POLL_SECS = 0.01


@dataclass(slots=True)
class Server:
    """One process and what it printed; `url` is empty until it was seen to listen."""

    process: "subprocess.Popen[bytes]"
    stdout_path: Path
    stderr_path: Path
    url: str = ""
    ready: re.Pattern[str] = READY

    @property
    def stdout(self) -> str:
        return self.stdout_path.read_text(errors="replace")

    @property
    def stderr(self) -> str:
        return self.stderr_path.read_text(errors="replace")

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    @property
    def admin_port(self) -> int:
        """Of a gateway."""
        found = ADMIN.search(self.stdout)
        assert found, self.stdout
        return int(found[1].rpartition(":")[2])

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    def wait_until_ready(self) -> "Server":
        deadline = time.monotonic() + START_SECS
        while time.monotonic() < deadline:
            running = self.is_running
            if ready := self.ready.search(self.stdout):
                self.url = ready[1]
                return self
            if not running:
                break
            time.sleep(POLL_SECS)
        code = self.process.poll()
        raise AssertionError(f"the server did not start (exit code {code}):\n{self.stderr[-2000:]}")

    def wait(self, timeout_s: float = START_SECS) -> int:
        """The exit code of a process that ends by itself."""
        return self.process.wait(timeout_s)

    def kill(self) -> None:
        """SIGKILL: nothing more runs, nothing is flushed."""
        self.process.kill()
        self.process.wait()

    def stop(self, timeout_s: float = STOP_SECS) -> int:
        """SIGTERM, and the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout_s)


def launch(
    folder: Path,
    mode: str,
    *,
    settings: Mapping[str, str] | None = None,
    data_dir: str = "data",
    module: str = "weir",
    arguments: Sequence[str] = (),
) -> Server:
    """Start the process and return at once. `settings` are environment variables."""
    command = ["origin", "--port", "0", "--data-dir", data_dir, "--storage", mode, *arguments]
    settings = {"DS_SERVER__ALLOWED_HOSTS": "*"} | dict(settings or {})  # tests use many names
    if mode == "cluster":
        settings = _one_node(folder / data_dir) | settings
    return _spawn(folder, module, command, settings, READY)


def _one_node(data_dir: Path) -> dict[str, str]:
    """A cluster of its own for each folder."""
    nats = shared_nats()
    return {
        "DS_SERVER__NODE_ID": "n1",
        "DS_CLUSTER__NAME": cluster_name(data_dir),
        "DS_CLUSTER__NATS_URLS": ",".join(nats.urls),
        "DS_CLUSTER__NATS_MONITOR_URLS": ",".join(nats.monitor_urls),
        "DS_CLUSTER__REPLICAS": "1",
        "DS_CLUSTER__SHARDS": "3",
        "DS_COLD__BACKEND": "fs",
        "DS_COLD__FS_PATH": str(data_dir / "objects"),
    }


_QUIET = {"DS_GATEWAY__ADMIN_PORT": "0", "DS_LOG__LEVEL": "warning"}
_TOKENS = {"DS_AUTH__ISSUER": "weir-dev", "DS_AUTH__AUDIENCE": "weir"}


def launch_gateway(
    folder: Path,
    origin_url: str,
    *,
    settings: Mapping[str, str] | None = None,
    arguments: Sequence[str] = (),
) -> Server:
    """Start a gateway on free ports and return at once."""
    command = ["gateway", "--port", "0", "--origin", origin_url, *arguments]
    settings = _QUIET | _TOKENS | dict(settings or {})
    return _spawn(folder, "weir", command, settings, GATEWAY_READY)


def launch_up(
    folder: Path,
    mode: str = "memory",
    *,
    settings: Mapping[str, str] | None = None,
    arguments: Sequence[str] = (),
) -> Server:
    """Start origin and gateway on free ports and return at once."""
    command = ["up", "--gateway-port", "0", "--origin-port", "0", "--storage", mode, *arguments]
    return _spawn(folder, "weir", command, _QUIET | dict(settings or {}), UP_READY)


def launch_fleet(folder: Path, gateways: int) -> Server:
    """Start origin, gateways and Envoy on free ports and return at once."""
    command = ["envoy", "--fleet", str(gateways), "--storage", "memory", "--data-dir", "data"]
    for name in ("--port", "--plain-port", "--admin-port", "--origin-port"):
        command += [name, "0"]
    return _spawn(folder, "weir", command, _QUIET, FLEET_READY)


def launch_cluster(
    folder: Path,
    nodes: int = 3,
    *,
    settings: Mapping[str, str] | None = None,
    arguments: Sequence[str] = (),
) -> Server:
    """Start NATS, S3, origins and gateways on free ports and return at once."""
    command = ["up", "--cluster", str(nodes), "--port", "0", "--data-dir", "data", *arguments]
    # obstore wants certificates that it can trust, even for plain HTTP.
    settings = {"DS_LOG__LEVEL": "warning"} | dict(settings or {})
    return _spawn(folder, "weir", command, settings, UP_READY, certificates=True)


def _spawn(
    folder: Path,
    module: str,
    arguments: Sequence[str],
    settings: Mapping[str, str] | None,
    ready: re.Pattern[str],
    *,
    certificates: bool = False,
) -> Server:
    (folder / "configs").mkdir(parents=True, exist_ok=True)
    env = _environment(certificates=certificates) | dict(settings or {})
    command = [sys.executable, "-m", module, *arguments]
    number = len(list(folder.glob("stdout-*")))
    paths = folder / f"stdout-{number}.log", folder / f"stderr-{number}.log"
    with paths[0].open("wb") as stdout, paths[1].open("wb") as stderr:
        process = subprocess.Popen(command, cwd=folder, env=env, stdout=stdout, stderr=stderr)
    return Server(process, *paths, ready=ready)


@contextmanager
def serving(server: Server) -> Iterator[Server]:
    """A launched server that listens inside of the `with` and is gone afterwards."""
    try:
        yield server.wait_until_ready()
    finally:
        server.kill()


def start(
    folder: Path,
    mode: str,
    *,
    settings: Mapping[str, str] | None = None,
    data_dir: str = "data",
    module: str = "weir",
) -> Server:
    """Start the process and wait until it listens."""
    server = launch(folder, mode, settings=settings, data_dir=data_dir, module=module)
    try:
        return server.wait_until_ready()
    except BaseException:
        server.kill()
        raise


@contextmanager
def started(
    folder: Path,
    mode: str,
    *,
    settings: Mapping[str, str] | None = None,
    data_dir: str = "data",
    module: str = "weir",
) -> Iterator[Server]:
    """A listening server that is gone afterwards, whatever the test did to it."""
    server = start(folder, mode, settings=settings, data_dir=data_dir, module=module)
    try:
        yield server
    finally:
        server.kill()


@contextmanager
def running_server(folder: Path, mode: str) -> Iterator[str]:
    """The URL of a server that must also stop cleanly."""
    settings = {"DS_SERVER__LONG_POLL_TIMEOUT_SECS": "0.5", "DS_SERVER__ALLOWED_HOSTS": ""}
    with started(folder, mode, settings=settings) as server:
        yield server.url
        code = server.stop()
        assert code == 0, f"exit code {code}:\n{server.stderr[-2000:]}"


def run_weir(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """One command of the command line that ends by itself."""
    command = [sys.executable, "-m", "weir", *arguments]
    return subprocess.run(
        command, env=_environment(), capture_output=True, text=True, timeout=START_SECS
    )


def _environment(*, certificates: bool = False) -> dict[str, str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("DS_")}
    env["PYTHONPATH"] = str(ROOT)
    # Reading every certificate that the machine trusts is a quarter of a start; few tests need one.
    none = {"SSL_CERT_FILE": os.devnull, "SSL_CERT_DIR": os.devnull}
    return env if certificates else env | none
