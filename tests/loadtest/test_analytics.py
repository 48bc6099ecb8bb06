import json
import shutil
from pathlib import Path

import pytest

from loadtest.analytics.accesslogs import write_logs
from loadtest.analytics.changes import History
from loadtest.analytics.duck import connect
from loadtest.errors import RunFailedError
from loadtest.load.analytics import (
    check_goaccess,
    check_room,
    check_states,
    grown_figures,
    run_goaccess,
    step_seconds,
)
from loadtest.peers.jobs import Job
from tests.helpers.require import need

SAID = """
   31.5 s  batch 0: 1,000 lines of 7 files in 12.5 s
   40.0 s  batch 1: 9,000 lines of 2 files in 8.5 s
   70.1 s  tables: 2 days in 30.1 s
   75.0 s  report: in 4.9 s
   75.0 s  report: /x/report.html, tables: /x/tables
"""


def make_job(folder: Path, took_s: float, peak_mb: int, said: str = "") -> Job:
    (folder / "job.err").write_text(said)
    (folder / "job.out").write_text("{}")
    return Job(took_s, took_s, peak_mb * 1_000_000, folder / "job.out", folder / "job.err")


def test_steps_of_a_run_are_read_from_what_it_says() -> None:
    assert step_seconds(SAID) == {"batch": 21.0, "tables": 30.1, "report": 4.9}


def test_growth_is_for_just_ten_times_the_lines(tmp_path: Path) -> None:
    """However many copies each side has."""
    few, many = make_job(tmp_path, 10.0, 1000), make_job(tmp_path, 90.0, 1200, SAID)
    found = grown_figures(few, 100, many, 900)
    assert found["times as long"] == pytest.approx(10.0)
    assert found["times the peak"] == pytest.approx(1.2)
    assert found["lines"] == pytest.approx(10.0)
    assert found["tables"] == 30.1


def test_a_full_disk_is_told_before_it_is_full(tmp_path: Path) -> None:
    check_room(tmp_path, 1000)
    with pytest.raises(RunFailedError, match="MB of disk are needed"):
        check_room(tmp_path, 10**15)


def test_goaccess_reads_every_line_that_is_one(tmp_path: Path) -> None:
    need(shutil.which("goaccess"), "goaccess is not installed")
    written = write_logs(tmp_path / "logs", 3000)
    run_goaccess(tmp_path / "logs", tmp_path / "goaccess")
    counts = {"requests": written.requests, "duplicates": written.duplicates}
    check_goaccess(tmp_path / "goaccess.json", counts)
    with pytest.raises(RunFailedError, match="goaccess found"):
        check_goaccess(tmp_path / "goaccess.json", counts | {"duplicates": 0})


def test_both_states_must_be_the_one_that_was_written(tmp_path: Path) -> None:
    history = History(entities=4, rounds=3)
    entities = {
        kind: {key: json.loads(value) for key, value in rows.items()}
        for kind, rows in history.final_state().entities.items()
    }
    rows = [
        (kind, key, json.dumps(value)) for kind in entities for key, value in entities[kind].items()
    ]
    state = tmp_path / "none-out/tables/state"
    state.mkdir(parents=True)
    db = connect()
    db.execute("CREATE TABLE state (type VARCHAR, key VARCHAR, value VARCHAR)")
    db.executemany("INSERT INTO state VALUES (?, ?, ?)", rows)
    db.execute(f"COPY state TO '{state}/part.parquet'")
    plain = make_job(tmp_path, 1.0, 1)
    plain.output.write_text(json.dumps(entities))
    check_states(tmp_path, plain, history)
    plain.output.write_text("{}")
    with pytest.raises(RunFailedError, match="weir state came to another state"):
        check_states(tmp_path, plain, history)
