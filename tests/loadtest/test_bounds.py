"""What much data takes: of nodes in this process, whose caches and journals the test makes."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from loadtest.load import bounds
from loadtest.load.bounds import Peaks, folder_bytes, read_again, try_bounds
from loadtest.load.client import WrongAnswerError
from loadtest.load.contest import Launch, Plan
from loadtest.load.owners import Owners
from loadtest.peers.clusters import Cluster, ShardStatus
from loadtest.peers.names import OURS
from loadtest.peers.process import Server
from tests.helpers.require import need

LAUNCH: Launch = lambda: pytest.fail("it starts a cluster of its own")  # noqa: E731
SHARD = ShardStatus(0, "open", "a", journal_bytes=7)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "LARGE_STREAMS", 20)
    monkeypatch.setattr(bounds, "BURST_SECS", 1.0)
    monkeypatch.setattr(Cluster, "open_shards", lambda _: [SHARD])


def make_folders(folder: Path) -> None:
    for name in ("nats/nats-1", "nats/nats-2", "nodes/a/cache"):
        (folder / name).mkdir(parents=True)


def test_files_count_as_the_disk_holds_them(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "whole").write_bytes(os.urandom(100_000))
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(10_000_000)
    assert 100_000 <= folder_bytes(tmp_path) < 200_000


def test_a_peak_is_of_one_node_and_stays(server: Server, tmp_path: Path) -> None:
    make_folders(tmp_path)
    cached, peaks = tmp_path / "nodes/a/cache/block", Peaks()
    cached.write_bytes(os.urandom(50_000))
    (tmp_path / "nats/nats-2/message").write_bytes(os.urandom(20_000))
    peaks.look(Cluster(tmp_path), tmp_path)
    cached.unlink()
    peaks.look(Cluster(tmp_path), tmp_path)
    assert 50_000 <= peaks.cache < 100_000
    assert 20_000 <= peaks.stores < 50_000
    assert peaks.journals == 7
    assert peaks.memory > 1_000_000


async def test_much_is_written_and_read_again(
    server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    need(shutil.which("wrk"), "wrk is not installed")

    @contextmanager
    def run_cluster(folder: Path, settings: dict[str, str]) -> Iterator[Server]:
        make_folders(folder)
        yield server

    monkeypatch.setattr(bounds, "run_cluster", run_cluster)
    plan = Plan(folder=tmp_path, streams=30, bound_bytes=1_000_000)
    [sample] = (await try_bounds(LAUNCH, plan))[OURS]
    figures = sample.figures
    assert figures["streams"] == 50
    assert figures["written"] >= 1.0
    assert 0 < figures["read again"] <= figures["written"] + 0.1


async def test_what_is_shorter_than_its_tail_is_an_error(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def longer(self: Owners, paths: object) -> list[int]:
        return [1000]

    async with Owners(server) as owners:
        await owners.fill_all(["s"], b"x" * 500)
    monkeypatch.setattr(Owners, "tails", longer)
    with pytest.raises(WrongAnswerError, match="500 bytes of 1000"):
        await read_again(server, ["s"])
