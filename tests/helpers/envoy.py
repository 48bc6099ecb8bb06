"""The real Envoy in front of gateways, as `weir envoy` would configure it, on ports of its own."""

import json
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gateway.config import GatewayConfig
from tests.helpers.rawhttp import wait_until
from tests.helpers.require import need
from tests.helpers.server import START_SECS, STOP_SECS
from weir.edge.certificates import ensure_dev_certificate
from weir.edge.envoy import LISTENERS, envoy_command, find_envoy, read_ports, write_config
from weir.edge.settings import EnvoySettings
from wire.settings import SettingsError

QUICK = {"health_secs": 0.1}  # what a test waits for is a gateway's coming and going


@dataclass(slots=True)
class Envoy:
    """A running one. `plain_port` is without TLS."""

    process: "subprocess.Popen[bytes]"
    folder: Path
    certificate: Path
    port: int = 0
    plain_port: int = 0
    admin_port: int = 0
    metrics_port: int = 0

    @property
    def url(self) -> str:
        return f"https://localhost:{self.port}"

    @property
    def said(self) -> str:
        return (self.folder / "stderr.log").read_text(errors="replace")

    @property
    def access_log(self) -> Path:
        return self.folder / "access.jsonl"

    def log(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.access_log.read_bytes().split(b"\n")[:-1]]

    def ask(self, path: str, method: str = "GET") -> bytes:
        """Its own pages."""
        url = f"http://127.0.0.1:{self.admin_port}{path}"
        request = urllib.request.Request(url, method=method)
        with urllib.request.urlopen(request, timeout=START_SECS) as answer:
            data: bytes = answer.read()
        return data

    def stat(self, name: str) -> int:
        """A counter or gauge by its whole name; 0 while it does not exist."""
        lines = self.ask(f"/stats?filter=^{name}$").decode().splitlines()
        return sum(int(line.rpartition(": ")[2]) for line in lines)

    def healthy_gateways(self) -> int:
        return self.stat("cluster.gateways.membership_healthy")

    def tls(self, *protocols: str) -> ssl.SSLContext:
        """For a client that trusts the certificate, and nothing else."""
        context = ssl.create_default_context(cafile=str(self.certificate))
        context.set_alpn_protocols(list(protocols) or ["http/1.1"])
        return context


@contextmanager
def running_envoy(
    folder: Path, gateways: Sequence[str], config: GatewayConfig, **more: Any
) -> Iterator[Envoy]:
    """`config` is the gateways'. It has looked at all of them when the `with` begins, and it must
    not have complained when that ends."""
    need_envoy()
    folder.mkdir(parents=True, exist_ok=True)
    certificate = ensure_dev_certificate(folder, datetime.now(UTC))
    settings = EnvoySettings(
        gateways=tuple(gateways),
        config=config,
        cert_path=str(certificate),
        key_path=str(certificate),
        port=0,
        plain_port=0,
        admin_port=0,
        access_log=str(folder / "access.jsonl"),
    )
    settings = replace(settings, **{**QUICK, **more})
    path, admin = write_config(settings, folder / "envoy.json"), folder / "admin"
    command = [*envoy_command(path, admin_file=admin), "--concurrency", "2"]
    command += ["--file-flush-interval-msec", "10"]
    with (folder / "stderr.log").open("wb") as said:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said)
    envoy = Envoy(process, folder, certificate)
    try:
        wait_until(lambda: _is_ready(envoy, admin), START_SECS, "Envoy")
        ports = read_ports(envoy.ask(LISTENERS), envoy.admin_port)
        envoy.port, envoy.plain_port = ports.port, ports.plain_port
        envoy.metrics_port = ports.metrics_port
        yield envoy
        process.terminate()
        assert process.wait(STOP_SECS) == 0, envoy.said
        assert "[error]" not in envoy.said and "[critical]" not in envoy.said, envoy.said
    finally:
        process.kill()
        process.wait()


def need_envoy() -> None:
    try:
        find_envoy()
    except SettingsError as error:
        need(False, str(error))


def _is_ready(envoy: Envoy, admin: Path) -> bool:
    assert envoy.process.poll() is None, envoy.said
    if not admin.exists() or not (told := admin.read_text()):
        return False
    envoy.admin_port = int(told.rpartition(":")[2])
    try:
        return envoy.ask("/ready").startswith(b"LIVE")
    except (urllib.error.URLError, ConnectionError):
        time.sleep(0.02)
        return False
