import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from loadtest.analytics.changes import History
from loadtest.errors import RunFailedError
from loadtest.load import state as state_scenarios
from loadtest.load.client import WrongAnswerError
from loadtest.load.exchange import run_scripts
from loadtest.load.goals import MEASURES, OURS, REPLAY
from loadtest.load.origin import Launch, Plan
from loadtest.load.state import (
    allocated_bytes,
    await_reclaimed,
    compact,
    run_reads,
    try_compacted,
    write_changes,
)
from loadtest.load.suites import STATE_SUITE
from loadtest.peers.process import Server
from tests.helpers.origin import LocalOrigin

HISTORY = History(entities=50, rounds=40)


@pytest.fixture
def server(start_origin: Callable[..., LocalOrigin], tmp_path: Path) -> Server:
    """An origin that is its own gateway."""
    origin = start_origin("file-durable")
    tokens = tmp_path / "tokens.txt"
    tokens.write_text("token\n")
    data_dir = Path(origin.config.storage.data_dir)
    return Server(os.getpid(), origin.port, 0.0, tokens=tokens, data_dir=data_dir)


def launch_of(server: Server) -> Launch:
    @contextmanager
    def launch() -> Iterator[Server]:
        yield server

    return launch


def test_both_sides_are_measured_in_the_same_measures(server: Server) -> None:
    sides = try_compacted(launch_of(server), Plan(crowd_rounds=1), HISTORY)
    names = {measure.name for measure in MEASURES if measure.scenario == "compacted"}
    figures = {
        side: {name: value for sample in samples for name, value in sample.figures.items()}
        for side, samples in sides.items()
    }
    assert set(figures[OURS]) == names
    assert set(figures[REPLAY]) == names - {"weir compact"}
    assert all(value > 0 for value in [*figures[OURS].values(), *figures[REPLAY].values()])
    assert figures[OURS]["received"] < figures[REPLAY]["received"] / 10


def test_another_state_is_a_failure(server: Server) -> None:
    run_scripts(server.port, [write_changes(HISTORY)], timeout_s=30)
    longer = replace(HISTORY, rounds=41)
    with pytest.raises(WrongAnswerError, match="replay came to another state"):
        run_reads("replay", server.port, server, 1, longer)


def test_a_compaction_that_fails_says_why(server: Server) -> None:
    with pytest.raises(RunFailedError, match="404"):
        compact(server.port)


def test_holes_take_no_room_on_the_disk(tmp_path: Path) -> None:
    with (tmp_path / "file").open("wb") as sink:
        sink.truncate(10_000_000)
        sink.write(b"x" * 100_000)
        sink.flush()
        os.fsync(sink.fileno())
    assert 100_000 <= allocated_bytes(tmp_path) < 1_000_000
    assert allocated_bytes(tmp_path / "none") == 0


def test_room_that_is_not_given_back_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_scenarios, "RECLAIM_TIMEOUT_S", 0.0)
    (tmp_path / "segments").mkdir()
    await_reclaimed(tmp_path)
    (tmp_path / "segments/one.seg").write_bytes(os.urandom(500_000))
    with pytest.raises(RunFailedError, match="not given back"):
        await_reclaimed(tmp_path)


def test_the_board_shows_both_sides() -> None:
    assert set(STATE_SUITE.board.peers) == {OURS, REPLAY}
    assert set(STATE_SUITE.peers) <= set(STATE_SUITE.board.peers)
