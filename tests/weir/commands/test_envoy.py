"""`weir envoy`, as people meet it: its mistakes, and a whole fleet from one command."""

import json
import ssl
import urllib.request
from pathlib import Path

import pytest

from gateway.config import AuthConfig, GatewayConfig
from tests.helpers.envoy import need_envoy
from tests.helpers.http2 import Http2
from tests.helpers.processes import children_of, is_gone
from tests.helpers.server import FLEET_READY, launch_fleet, serving
from weir.cli import main
from weir.edge.envoy import EnvoyPorts, envoy_lines
from weir.edge.settings import EnvoySettings


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[object, str]:
    """(exit code, the line that was shown)"""
    with pytest.raises(SystemExit) as ended:
        main(["envoy", *arguments])
    return ended.value.code, capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "--gateway"),
        (("--gateway", "a:1", "--jwks", "x", "--cert", "c"), "--cert"),
        (("--gateway", "a:1"), "auth.jwks"),
        (
            ("--gateway", "a:1", "--jwks", "x", "--admin-port", "0", "--metrics-port", "0"),
            "--metrics-port",
        ),
        (("--fleet", "0"), "--fleet"),
        (("--fleet", "2", "--gateway", "a:1"), "--fleet"),
    ],
)
def test_a_mistake_is_told_in_a_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    told: str,
) -> None:
    (tmp_path / "configs").mkdir()
    monkeypatch.chdir(tmp_path)
    code, shown = run(capsys, *arguments)
    assert code == 2 and shown.startswith("weir: ") and shown.count("\n") == 1
    assert f" {told}: " in shown


@pytest.mark.parametrize("cert", ["", "cert.pem"])
def test_who_gets_no_tls_port_is_told_why(cert: str) -> None:
    config = GatewayConfig(auth=AuthConfig(mode="off"))
    settings = EnvoySettings(gateways=("a:1",), config=config, cert_path=cert, key_path=cert)
    ports = EnvoyPorts(8443 if cert else 0, 10000, 9901, 0)
    first, *rest = envoy_lines(settings, ports).splitlines()
    assert first.startswith("weir envoy listening on https://" if cert else "weir envoy has no TLS")
    assert cert or "--cert and --key" in first
    assert rest[0].startswith("weir envoy plain on http://")


def test_a_fleet_serves_by_http2_and_stops_without_leaving_anything(tmp_path: Path) -> None:
    need_envoy()
    with serving(launch_fleet(tmp_path, 2)) as server:
        ready = FLEET_READY.search(server.stdout)
        assert ready and server.stdout.count("weir gateway listening") == 2
        trusted = ssl.create_default_context(cafile=str(tmp_path / "data/keys/dev-tls.pem"))
        trusted.set_alpn_protocols(["h2"])
        with Http2(server.port, trusted) as client:
            assert client.request("GET", "/healthz").body == b"ok"
        with urllib.request.urlopen(f"{ready['admin']}/listeners?format=json", timeout=30) as reply:
            assert len(json.load(reply)["listener_statuses"]) == 3
        started = children_of(server.process.pid)
        started += [grandchild for child in started for grandchild in children_of(child)]
        assert len(started) == 5  # origin, gateways, and Envoy with its keeper
        assert server.stop() == 0, server.stderr
        assert all(is_gone(pid) for pid in started)
