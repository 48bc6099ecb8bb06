"""What is known of a cluster from its file and its nodes' answers, here scripted ones."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from loadtest.errors import RunFailedError, UnavailableError
from loadtest.peers import clusters
from loadtest.peers.clusters import (
    ACCESS_KEY,
    CLUSTER_FILE,
    CLUSTERS,
    LEASE_SECS,
    READY_PATH,
    STATUS_PATH,
    Cluster,
    ensure_cluster,
    find_cluster,
)
from loadtest.peers.names import DURABLE, FILE, OURS
from loadtest.peers.process import Server
from loadtest.peers.servers import Stage
from origin.config import ClusterConfig
from tests.helpers.scripted_cluster import JSON, ScriptedCluster
from tests.helpers.scripted_origin import Answer, Recorded


@pytest.fixture
def scripted(tmp_path: Path) -> Iterator[ScriptedCluster]:
    with ScriptedCluster() as cluster:
        for node_id, origin in cluster.nodes.items():
            origin.on("GET", READY_PATH, Answer(200, {}, b"ready"))
            origin.on("GET", STATUS_PATH, told_by(cluster, node_id))
        write_file(tmp_path, cluster.urls)
        yield cluster


def write_file(folder: Path, urls: dict[str, str], pid: int | None = None) -> None:
    nodes = [{"id": node, "url": url, "pid": pid or os.getpid()} for node, url in urls.items()]
    (folder / CLUSTER_FILE).write_text(json.dumps({"cluster": "weir", "nodes": nodes}))


def told_by(cluster: ScriptedCluster, node_id: str) -> Callable[[Recorded], Answer]:
    def tell(request: Recorded) -> Answer:
        shards = [
            {"shard": number, "owner": owner, "state": "open", "streams": 2, "epoch": 1}
            if owner == node_id
            else {"shard": number, "owner": owner, "state": "elsewhere"}
            for number, owner in enumerate(cluster.owners)
        ]
        return Answer(200, JSON, msgspec.json.encode({"shards": shards, "lease_age_secs": 0.5}))

    return tell


def test_owners_tell_of_their_shards(scripted: ScriptedCluster, tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    assert [shard.shard for shard in cluster.open_shards()] == [0, 3, 1, 4, 2, 5]
    assert cluster.status_of(cluster.nodes[0]).lease_age_secs == 0.5
    assert cluster.map.owners == tuple(scripted.owners)


def test_it_is_spread_when_all_have_as_many_shards(
    scripted: ScriptedCluster, tmp_path: Path
) -> None:
    cluster = Cluster(tmp_path)
    assert cluster.is_spread()
    scripted.owners[0] = "n2"
    assert not cluster.is_spread()
    scripted.owners = ["n1", "n2", "n1", "n2", "n1", "n2"]
    del scripted.urls["n3"]
    write_file(tmp_path, scripted.urls)
    assert not cluster.is_spread() and cluster.is_spread(2)


def test_it_is_not_spread_before_it_has_started(tmp_path: Path) -> None:
    assert not Cluster(tmp_path).is_spread()


def test_nodes_that_do_not_run_are_left_out(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    write_file(tmp_path, {"n1": "http://127.0.0.1:1"}, child.pid)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and nobody has looked
    assert Cluster(tmp_path).nodes == []
    child.wait()
    assert Cluster(tmp_path).nodes == []
    with pytest.raises(RunFailedError, match="no node"):
        _ = Cluster(tmp_path).map


def test_a_wait_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters, "WAIT_SECS", 0.05)
    with pytest.raises(RunFailedError, match="3 nodes serve"):
        Cluster(tmp_path).await_spread(3)


def test_a_server_alone_is_no_cluster(tmp_path: Path) -> None:
    assert find_cluster(Server(1, 80, 0.0)) is None
    assert find_cluster(Server(1, 80, 0.0, data_dir=tmp_path)) is None


def test_all_are_started_with_the_same_key_on_ports_that_stay(tmp_path: Path) -> None:
    for name in (OURS, DURABLE):
        start = CLUSTERS[name].start(Stage(tmp_path))
        assert start.environment == {"DS_SERVER__ACCESS_KEY": ACCESS_KEY}
        assert str(start.port) in start.command
    words = CLUSTERS[OURS].start(Stage(tmp_path)).command
    assert "--no-restart" in words and words[-1] == str(tmp_path)
    assert CLUSTERS[FILE].ensure is not CLUSTERS[DURABLE].ensure


def test_the_lease_is_the_default_one() -> None:
    assert ClusterConfig().lease_secs == LEASE_SECS


def test_missing_programs_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UnavailableError, match="nats-server"):
        ensure_cluster()
