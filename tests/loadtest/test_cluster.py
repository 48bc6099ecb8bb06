"""The rows of the cluster's suite, small, on origins in this process and on one alone."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from loadtest.load import cluster as rows
from loadtest.load.client import WrongAnswerError
from loadtest.load.cluster import (
    contest_appends,
    contest_reads,
    is_flushed,
    read_cold,
    try_shards,
)
from loadtest.load.contest import QUICK, Launch, Plan
from loadtest.load.owners import Owners
from loadtest.peers.clusters import CLUSTERS, Cluster, ShardStatus
from loadtest.peers.names import DURABLE, OURS
from loadtest.peers.process import Server
from loadtest.peers.servers import Stage, run_peer
from tests.helpers.require import need

PLAN = Plan(rounds=1, warm_up_s=1, load_s=1)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    need(shutil.which("wrk"), "wrk is not installed")
    monkeypatch.setattr(rows, "COLD_STREAMS", 20)


async def test_appends_are_stored_by_their_owners(server: Server) -> None:
    contest = contest_appends(8, 100)
    await contest.prepare(server, PLAN)
    sample = await contest.measure(server, PLAN)
    assert sample.figures["rate"] > 0
    assert 0 < sample.figures["p50"] <= sample.figures["p99"]


async def test_reads_of_what_was_just_written_and_of_what_is_only_on_disk(tmp_path: Path) -> None:
    contest = contest_reads("reads", "")
    stage = Stage(tmp_path / "data")
    with run_peer(CLUSTERS[DURABLE], stage, tmp_path / "file-durable.log") as server:
        await contest.prepare(server, PLAN)
        figures = (await contest.measure(server, PLAN)).figures
    assert figures["hot rate"] > 0 and figures["cold rate"] > 0
    assert figures["cold p50"] <= figures["cold p99"]


async def test_what_is_in_memory_is_not_cold(server: Server) -> None:
    paths = [f"warm-{number}" for number in range(40)]
    async with Owners(server) as owners:
        await owners.fill_all(paths, b"c" * rows.COLD_BYTES)
    with pytest.raises(WrongAnswerError, match="not cold"):
        await read_cold(server, paths)


def test_what_a_journal_has_is_not_flushed(monkeypatch: pytest.MonkeyPatch) -> None:
    shards = [ShardStatus(0, "open", "n1"), ShardStatus(1, "open", "n2", journal_bytes=7)]
    monkeypatch.setattr(Cluster, "open_shards", lambda _: shards)
    assert not is_flushed(Cluster(Path()))
    monkeypatch.setattr(Cluster, "open_shards", lambda _: shards[:1])
    assert is_flushed(Cluster(Path()))


async def test_clusters_with_other_numbers_of_shards(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    @contextmanager
    def run_cluster(folder: Path, settings: dict[str, str]) -> Iterator[Server]:
        asked.append(settings["DS_CLUSTER__SHARDS"])
        yield server

    monkeypatch.setattr(rows, "run_cluster", run_cluster)
    monkeypatch.setattr(rows, "SHARDS", (1, 3))
    never: Launch = lambda: pytest.fail("it starts clusters of its own")  # noqa: E731
    [sample] = (await try_shards(never, replace(QUICK, warm_up_s=1)))[OURS]
    assert asked == ["1", "3"]
    assert set(sample.figures) == {"rate, 1 shard", "rate, 3 shards"}
