"""What is measured after a kill: of origins in this process, of one origin, of a real cluster."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from loadtest.errors import RunFailedError
from loadtest.load import takeovers
from loadtest.load.contest import QUICK, Launch, Plan
from loadtest.load.takeovers import (
    Takeover,
    contest_recovery,
    has_streams,
    kill_owner,
    path_in,
    try_replay,
    try_takeovers,
)
from loadtest.peers.clusters import CLUSTERS, Cluster, Node, ShardStatus, Status, ensure_cluster
from loadtest.peers.names import DURABLE, OURS
from loadtest.peers.process import Server
from loadtest.peers.servers import Stage, run_peer
from protocol.clustermap import shard_of
from tests.helpers.cluster import LocalCluster

LAUNCH: Launch = lambda: pytest.fail("a trial starts clusters of its own")  # noqa: E731


def test_the_parts_of_a_pause_add_up() -> None:
    figures = Takeover(10.0, {1: 11.0, 2: 11.0}, {1: 11.25, 2: 11.25}).sample().figures
    assert figures == {
        "pause": 11.25,
        "of it lease": 10.0,
        "of it detection": 1.0,
        "of it opening": 0.25,
    }


def test_every_shard_has_a_path() -> None:
    assert [shard_of(path_in(shard, 16), 16) for shard in range(16)] == list(range(16))


@pytest.fixture
def mortal(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalCluster]:
    """Whose survivors take over a moment after a node was killed."""
    movers: list[threading.Thread] = []

    def kill(_: Cluster, node: Node) -> None:
        mover = threading.Thread(target=take_over, args=(cluster, node.id))
        mover.start()
        movers.append(mover)

    monkeypatch.setattr(Cluster, "kill", kill)
    monkeypatch.setattr(Cluster, "status_of", lambda _, node: Status(lease_age_secs=1.0))
    yield cluster
    for mover in movers:
        mover.join()


def take_over(cluster: LocalCluster, victim: str) -> None:
    survivors = [node for node in cluster.urls if node != victim]
    for shard, owner in enumerate(cluster.owners):
        if owner == victim:
            cluster.move(shard, survivors[shard % 2])


async def test_shards_of_the_victim_are_watched(mortal: LocalCluster, server: Server) -> None:
    lost = {shard for shard, owner in enumerate(mortal.owners) if owner == "a"}
    victim = Cluster(server.data_dir or Path()).nodes[0]
    takeover = await kill_owner(server, victim, 12.0)
    assert takeover.lease_left_s == 11.0
    assert set(takeover.claimed_s) == set(takeover.served_s) == lost
    assert all(0 < pause < 30 for pause in takeover.served_s.values())


async def test_nobody_takes_over(
    mortal: LocalCluster, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Cluster, "kill", lambda _, node: mortal.owners.__setitem__(0, None))
    monkeypatch.setattr(takeovers, "WAIT_SECS", 0.2)
    with pytest.raises(RunFailedError, match="no writes"):
        await kill_owner(server, Cluster(server.data_dir or Path()).nodes[0])


async def test_takeovers_make_a_distribution(
    mortal: LocalCluster, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def run_cluster(folder: Path, settings: dict[str, str]) -> Iterator[Server]:
        yield server

    monkeypatch.setattr(takeovers, "run_cluster", run_cluster)
    monkeypatch.setattr(takeovers, "run_wrk", lambda port, load, seconds: None)
    monkeypatch.setattr(Cluster, "await_spread", lambda _, count: None)
    [kill, whole] = (await try_takeovers(LAUNCH, QUICK))[OURS]
    pause = kill.figures["pause"]
    assert whole.figures["shortest"] <= pause <= whole.figures["longest"]


async def test_one_origin_is_killed_and_started_again(tmp_path: Path) -> None:
    contest = contest_recovery("recovery", "")
    plan = Plan(streams=20)
    folder = tmp_path / "data"
    with run_peer(CLUSTERS[DURABLE], Stage(folder), tmp_path / "file-durable.log") as server:
        await contest.prepare(server, plan)
        before = server.pid
        sample = await contest.measure(server, plan)
        assert 0 < sample.figures["served"] < 60
        assert server.pid != before


def test_streams_are_counted_where_they_are_served(monkeypatch: pytest.MonkeyPatch) -> None:
    shards = [ShardStatus(0, "open", "n1", 3), ShardStatus(1, "open", "n2", 4)]
    monkeypatch.setattr(Cluster, "open_shards", lambda _: shards)
    cluster = Cluster(Path())
    assert has_streams(cluster, 7) and not has_streams(cluster, 8)


@pytest.mark.slow
async def test_a_real_owner_is_killed_and_its_journal_replayed(tmp_path: Path) -> None:
    ensure_cluster()
    plan = Plan(folder=tmp_path, lease_secs=6.0, journal_bytes=10_000_000)
    [sample] = (await try_replay(LAUNCH, plan))[OURS]
    assert sample.figures["journal"] >= 10.0
    assert 0 < sample.figures["took"] < 60 and sample.figures["replayed"] > 0
