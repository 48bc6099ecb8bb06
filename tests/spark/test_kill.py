"""A run that is killed anywhere loses nothing and counts nothing twice.

`WEIR_REPORT_KILLS=10` kills more often, `WEIR_REPORT_SEED` chooses other moments.
"""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from spark.run import FROM_REQUESTS, FROM_TABLES
from tests.helpers.require import need
from tests.spark.logs import write_logs

KILLS = int(os.environ.get("WEIR_REPORT_KILLS", "1"))
SEED = int(os.environ.get("WEIR_REPORT_SEED", "1"))
LINES = 3000 * (KILLS + 1)
WHOLE = ("log_quality", "quarantine_reasons", "quarantine", "requests")
BY_CHANCE = {"file", "position"}  # of several copies of a request, the one that was read first

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600 + 120 * KILLS)]


def start(logs: Path, out: Path) -> subprocess.Popen[bytes]:
    command = (sys.executable, "-m", "weir", "report", "--master", "local[2]")
    return subprocess.Popen(
        [*command, "--logs", str(logs), "--out", str(out)],
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        # Java's quick compiler: a process of seconds has no use for the thorough one.
        env=os.environ | {"JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"},
        process_group=0,
    )


def run_through(logs: Path, out: Path) -> float:
    """How many seconds it took."""
    started = time.monotonic()
    process = start(logs, out)
    _, errors = process.communicate()
    assert process.returncode == 0, errors.decode()
    return time.monotonic() - started


def run_and_kill(logs: Path, out: Path, seconds: float) -> None:
    """Python, Java and its workers at once, as when a machine goes down."""
    process = start(logs, out)
    try:
        process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def grow(source: Path, logs: Path, share: float) -> None:
    """Plain files up to that share of their bytes, wherever that cuts; the rest at the end."""
    for path in sorted(source.rglob("*")):
        target = logs / path.relative_to(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir() or (path.suffix != ".jsonl" and share < 1):
            continue
        if share == 1:
            shutil.copy2(path, target)
        else:
            target.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])


def rows(out: Path, table: str) -> list[tuple[Any, ...]]:
    found = pq.read_table(out / "tables" / table).to_pylist()
    names = sorted(found[0].keys() - (BY_CHANCE if table == "requests" else set()))
    return sorted((tuple(row[name] for name in names) for row in found), key=repr)


def test_a_run_that_is_killed_again_and_again_makes_the_same_tables(tmp_path: Path) -> None:
    need(shutil.which("java"), "Spark needs a Java runtime")
    source, logs = tmp_path / "source", tmp_path / "logs"
    write_logs(source, LINES)
    seconds = run_through(source, tmp_path / "undisturbed")
    chance = random.Random(SEED)
    for kill in range(KILLS):
        grow(source, logs, (kill + 1) / (KILLS + 1))
        run_and_kill(logs, tmp_path / "killed", chance.uniform(0.2, 1.0) * seconds)
    grow(source, logs, 1)
    run_through(logs, tmp_path / "killed")
    for table in (*WHOLE, *FROM_REQUESTS, *FROM_TABLES):
        assert rows(tmp_path / "killed", table) == rows(tmp_path / "undisturbed", table), table
