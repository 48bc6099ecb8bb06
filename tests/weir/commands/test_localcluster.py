"""`weir up --cluster`: what it refuses, and the whole cluster as a newcomer meets it."""

import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.config import AuthConfig, GatewayConfig
from origin.config import OriginConfig
from tests.helpers.clusters import make_file
from tests.helpers.processes import is_gone
from tests.helpers.rawhttp import wait_until
from tests.helpers.server import Server, launch_cluster, run_weir, serving
from tests.weir.conftest import Weir
from weir.cluster.clusterfile import ClusterFile, read_file, write_file
from weir.commands.health import ask
from weir.commands.localcluster import make_layout
from weir.commands.up import Plan
from wire.settings import SettingsError

WAIT_S = 120.0
OPEN = GatewayConfig(auth=AuthConfig(mode="off"))


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--cluster", "0"], "from 1 to 16"),
        (["--cluster", "17"], "from 1 to 16"),
        (["--cluster", "3", "--storage", "acid"], "--storage"),
        (["--cluster", "3", "--origin-port", "1"], "--origin-port"),
    ],
)
def test_refused_arguments(weir: Weir, arguments: list[str], told: str) -> None:
    done = weir("up", *arguments)
    assert done.code == 2 and told in done.err[0]


@pytest.mark.parametrize("program", ["nats-server", "weed"])
def test_missing_programs_name_the_extra(
    weir: Weir, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, program: str
) -> None:
    for name in {"nats-server", "weed"} - {program}:
        (tmp_path / name).touch(mode=0o755)
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    done = weir("up", "--cluster", "3")
    assert done.code == 2
    assert f"{program} is not installed" in done.err[0] and "cluster-dev" in done.err[0]


def test_missing_packages_name_the_extra(weir: Weir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weir.commands.localcluster.NEEDED", ("nats", "no_such_package"))
    done = weir("up", "--cluster", "3")
    assert done.code == 2
    assert "no_such_package not installed" in done.err[0] and "[cluster," in done.err[0]


def plan_with(port: int) -> Plan:
    return Plan(OriginConfig(), replace(OPEN, gateway=replace(OPEN.gateway, port=port)), None)


def test_another_size_needs_another_folder(tmp_path: Path) -> None:
    write_file(tmp_path, make_file())
    with pytest.raises(SettingsError, match="cluster of 3"):
        make_layout(plan_with(0), tmp_path, 5)


def test_the_first_gateway_is_where_it_was_asked_for(tmp_path: Path) -> None:
    free = make_layout(plan_with(0), tmp_path, 3).ports["gateway-1"]
    assert make_layout(plan_with(free), tmp_path, 3).ports["gateway-1"] == free
    with socket.create_server(("127.0.0.1", 0)) as taken:
        with pytest.raises(SettingsError, match=r"gateway\.port"):
            make_layout(plan_with(taken.getsockname()[1]), tmp_path, 3)


def test_ports_stay(tmp_path: Path) -> None:
    plan = plan_with(0)
    layout = make_layout(plan, tmp_path, 3)
    write_file(tmp_path, layout.file(plan.origin, plan.gateway))
    assert make_layout(plan, tmp_path, 3) == layout


# -- processes ---------------------------------------------------------------------------------


def file_of(folder: Path) -> ClusterFile:
    file = read_file(folder / "data")
    assert file is not None
    return file


def pids_of(folder: Path) -> dict[str, int | None]:
    file = file_of(folder)
    pids = {node.id: node.pid for node in file.nodes} | {file.s3.name: file.s3.pid}
    pids |= {server.name: server.pid for server in file.nats}
    return pids | {server.name: server.pid for server in file.gateways}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cluster")


@pytest.fixture(scope="module")
def cluster(folder: Path) -> Iterator[Server]:
    with serving(launch_cluster(folder)) as server:
        yield server


def status_of(folder: Path) -> "subprocess.CompletedProcess[str]":
    return run_weir("cluster", "status", "--json", "--data-dir", str(folder / "data"))


@pytest.mark.slow
def test_it_is_ready_when_it_says_so(cluster: Server, folder: Path) -> None:
    assert cluster.url == file_of(folder).gateways[0].url
    assert ask(f"{cluster.url}/readyz") == 200
    assert cluster.stdout.rstrip().endswith("cluster status")  # of the default folder
    lines = [line for line in cluster.stdout.splitlines() if line.startswith("curl ")]
    printed = [subprocess.check_output(["bash", "-c", line], text=True) for line in lines]
    assert [text.split()[1] for text in printed] == ["201", "204", "200"]
    done = status_of(folder)
    told = json.loads(done.stdout)
    assert done.returncode == 0
    assert {node["id"]: node["pid"] for node in told["nodes"]}.items() <= pids_of(folder).items()
    assert sorted(shard for node in told["nodes"] for shard in node["shards"]) == list(range(16))


@pytest.mark.slow
def test_who_is_killed_comes_back(cluster: Server, folder: Path) -> None:
    before = pids_of(folder)
    for name in ("n2", "gateway-2"):
        os.kill(before[name] or 0, signal.SIGKILL)
    wait_until(lambda: cluster.stdout.count("is back") == 2, WAIT_S, "both are back")
    changed = {name for name, pid in pids_of(folder).items() if pid != before[name]}
    assert changed == {"n2", "gateway-2"} and cluster.is_running
    wait_until(lambda: status_of(folder).returncode == 0, WAIT_S, "every shard has an owner")


@pytest.mark.slow
def test_a_stop_leaves_nothing_behind(cluster: Server, folder: Path) -> None:
    pids = [pid for pid in pids_of(folder).values() if pid is not None]
    assert cluster.stop() == 0
    assert len(pids) == 9 and all(map(is_gone, pids))
    assert set(pids_of(folder).values()) == {None}
