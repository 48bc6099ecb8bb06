"""`--watch`: tables and report follow logs and streams until somebody says stop, and a run that
comes later goes on from there."""

import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from protocol.accesslog import encode_line, file_name
from spark.progress import Progress
from spark.run import Options, run
from tests.helpers.server import ROOT
from tests.spark.conftest import QUICK_JAVA, Door
from tests.spark.logs import START_MS, record
from tests.spark.world import rows
from tests.spark.writer import Writer

PATIENCE_S = 600.0

pytestmark = pytest.mark.timeout(2 * PATIENCE_S)


def until(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(0.05)


class Watched:
    """A folder of logs, a stream, and what a watching run makes of them."""

    def __init__(self, folder: Path, url: str, writer: Writer) -> None:
        self.logs, self.out = folder / "logs", folder / "out"
        self.lines = self.entities = 0
        self._url = url
        self._writer = writer
        self._random = Random(1)
        self.logs.mkdir()
        writer.create("s0")

    def options(self, out: Path, *, watch: bool) -> Options:
        return Options(
            self.logs, out, origin=self._url, streams=("s0",), watch=watch, watch_secs=0.2
        )

    def log(self, count: int) -> None:
        """The last line is not whole at first."""
        path = self.logs / file_name("edge-1", 0, START_MS)
        for _ in range(count):
            self.lines += 1
            line = encode_line(record(self._random, "edge-1", 0, self.lines, START_MS + self.lines))
            with path.open("ab") as file:
                file.write(line[:100])
                file.flush()
                file.write(line[100:])

    def write(self, count: int) -> None:
        for _ in range(count):
            self.entities += 1
            change = {"type": "t", "key": str(self.entities), "value": self.entities}
            headers = {"operation": "insert"}
            self._writer.append("s0", json.dumps(change | {"headers": headers}))

    def is_shown(self) -> bool:
        """In tables and report alike."""
        try:
            return (
                len(rows(self.out, "requests")) == self.lines
                and sum(row["requests"] for row in self._table("streams")) <= self.lines
                and sum(row["requests"] for row in self._table("subjects")) == self.lines
                and len(rows(self.out, "state")) == self.entities
                and (self.out / "_weir/report-of").read_text() == self.generation()
            )
        except OSError:  # not there yet, or gone while it was read
            return False

    def generation(self) -> str:
        return str(int((self.out / "tables").readlink().name))

    def _table(self, name: str) -> list[dict[str, int]]:
        found: list[dict[str, int]] = pq.read_table(
            (self.out / "tables" / name).resolve()
        ).to_pylist()
        return found


@contextmanager
def watching(spark: SparkSession, watched: Watched) -> Iterator[None]:
    """Ends by the same event as a signal sets."""
    stop, failed = threading.Event(), []

    def work() -> None:
        try:
            options = watched.options(watched.out, watch=True)
            run(spark, options, Progress(io.StringIO()), stop)
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(PATIENCE_S)
    assert not thread.is_alive() and not failed, failed


@pytest.fixture
def watched(tmp_path: Path, front: Door, writer: Writer) -> Watched:
    return Watched(tmp_path, front.url, writer)


def test_tables_and_report_follow_logs_and_streams_and_a_later_run_goes_on(
    spark: SparkSession, watched: Watched
) -> None:
    watched.log(20)
    watched.write(3)
    with watching(spark, watched):
        until(watched.is_shown, "what was there before")
        watched.write(2)
        until(watched.is_shown, "changes of which no line tells")
        watched.log(5)
        until(watched.is_shown, "new lines")
        generation = watched.generation()
    watched.log(5)
    watched.write(1)
    assert watched.generation() == generation
    with watching(spark, watched):
        until(watched.is_shown, "what came while nobody watched")
        generation = watched.generation()
        time.sleep(1)  # some looks at what has not changed
        assert watched.generation() == generation
    again = watched.out.with_name("again")
    run(spark, watched.options(again, watch=False), Progress(io.StringIO()))
    for table in ("requests", "subjects", "latency", "log_quality", "state", "state_counts"):
        assert rows(watched.out, table) == rows(again, table), table


@pytest.mark.slow
def test_a_signal_ends_the_command_well_also_if_java_gets_it_too(tmp_path: Path) -> None:
    """As when a service is stopped."""
    (tmp_path / "logs").mkdir()
    command = [sys.executable, "-m", "weir", "report", "--master", "local[2]", "--watch"]
    process = subprocess.Popen(
        [*command, "--logs", str(tmp_path / "logs"), "--out", str(tmp_path / "out")],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | QUICK_JAVA,
        process_group=0,
    )
    assert process.stderr is not None
    said = ""
    for line in process.stderr:
        said += line
        if "report: in " in line:
            os.killpg(process.pid, signal.SIGTERM)
            break
    _, rest = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, said + rest
    assert "Traceback" not in rest
    assert (tmp_path / "out/report.html").exists()
