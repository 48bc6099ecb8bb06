"""What the aggregates say is tested where Spark makes the same ones: tests/spark/test_run.py."""

import json
from pathlib import Path

import pytest

from loadtest.analytics.accesslogs import write_logs
from loadtest.analytics.duck import QUERIES, compare, connect, make, read_state

LINES = 2000


def lay_out(made: Path, tables: Path) -> None:
    """As `weir report` leaves its tables."""
    db = connect()
    for table in QUERIES:
        (tables / table).mkdir(parents=True)
        rows = f"SELECT * FROM '{made / table}.parquet'"
        db.execute(
            f"COPY ({rows}) TO '{tables / table}' (FORMAT parquet, PARTITION_BY date, OVERWRITE)"
        )
    (tables / "log_quality").mkdir()
    quality = "SELECT 9 AS lines, 6 AS requests, 2 AS duplicates, 1 AS quarantined"
    db.execute(f"COPY ({quality}) TO '{tables}/log_quality/part.parquet'")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("duck")
    write_logs(folder / "logs", LINES)
    assert make(folder / "logs", folder / "made") == {"requests": LINES}
    return folder / "made"


def test_equal_tables_do_not_differ(made: Path, tmp_path: Path) -> None:
    lay_out(made, tmp_path)
    assert compare(tmp_path, made) == {
        "differ": [],
        "ours": {"lines": 9, "requests": 6, "duplicates": 2, "quarantined": 1},
        "theirs": LINES,
    }


def test_one_more_row_or_another_number_is_a_difference(made: Path, tmp_path: Path) -> None:
    lay_out(made, tmp_path)
    db = connect()
    [part] = (tmp_path / "errors").glob("*/*.parquet")
    db.execute(f"CREATE TABLE errors AS SELECT * FROM '{part}'")
    db.execute(f"COPY (FROM errors UNION ALL (FROM errors LIMIT 1)) TO '{part}' (FORMAT parquet)")
    [part] = (tmp_path / "latency_by_mode").glob("*/*.parquet")
    db.execute(f"CREATE TABLE modes AS SELECT * REPLACE (p99_us + 1 AS p99_us) FROM '{part}'")
    db.execute(f"COPY modes TO '{part}' (FORMAT parquet)")
    assert compare(tmp_path, made)["differ"] == ["latency_by_mode", "errors"]


def test_a_state_is_read_by_type_and_key(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    value = json.dumps({"name": "a"})
    rows = f"SELECT 'item' AS type, 'k' AS key, '{value}' AS value"
    connect().execute(f"COPY ({rows}) TO '{tmp_path}/state/part.parquet'")
    assert read_state(tmp_path, tmp_path) == {"item": {"k": {"name": "a"}}}
