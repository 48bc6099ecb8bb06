"""Logs and streams that grow from step to step, and the tables that a run makes of them.

Whatever the runs between two steps were and wherever they ended, the tables must in the end be
those of one undisturbed run.
"""

import io
import shutil
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from spark.progress import Progress
from spark.run import Options, run
from tests.spark.histories import message
from tests.spark.logs import write_logs
from tests.spark.writer import Writer

STREAMS = ("s0", "s1", "s2", "s3")  # the hottest of the log
LATE = "s4"  # is created while others have grown
MESSAGES = 30  # for each stream and step
BY_BATCH = "log_files"  # the one table that tells how lines were read
BY_CHANCE = {"file", "position"}  # of several copies of a request, the one that was read first


class World:
    def __init__(self, folder: Path, port: int, steps: int, lines: int) -> None:
        self.logs = folder / "logs"
        self.origin = f"http://127.0.0.1:{port}"
        self._writer = Writer(port)
        self._source = folder / "source"
        self._undisturbed = folder / "undisturbed"
        self._random = Random(steps)
        self._steps = steps
        self._step = 0
        write_logs(self._source, lines)
        for name in STREAMS:
            self._writer.create(name)
        self._writer.lay("s5", "no JSON", kind="text/plain")

    @property
    def is_grown(self) -> bool:
        return self._step == self._steps

    def options(self, out: Path, **more: Any) -> Options:
        return Options(self.logs, out, origin=self.origin, **more)

    def grow(self) -> None:
        """Plain files up to a share of their bytes, wherever that cuts; all others at the end."""
        self._step += 1
        for path in sorted(self._source.rglob("*.jsonl")):
            target = self.logs / path.relative_to(self._source)
            target.parent.mkdir(parents=True, exist_ok=True)
            size = path.stat().st_size * self._step // self._steps
            target.write_bytes(path.read_bytes()[:size])
        if self.is_grown:
            shutil.copytree(self._source, self.logs, dirs_exist_ok=True)
        if self._step == 2:
            self._writer.create(LATE)
        for name in (*STREAMS, *([LATE] if self._step >= 2 else [])):
            texts = [message(self._random, resets=0.03) for _ in range(MESSAGES)]
            self._writer.append(name, f"[{','.join(texts)}]")

    def check(self, session: SparkSession, out: Path) -> None:
        """The tables of a run over all there is are those of one that nothing has disturbed."""
        assert self.is_grown
        wanted = self._undisturbed
        if not wanted.exists():
            run(session, self.options(wanted), Progress(io.StringIO()))
        names = {path.name for path in (wanted / "tables").iterdir() if path.is_dir()}
        assert {path.name for path in (out / "tables").iterdir() if path.is_dir()} == names
        for table in sorted(names - {BY_BATCH}):
            assert rows(out, table) == rows(wanted, table), table


def rows(out: Path, table: str) -> list[tuple[Any, ...]]:
    found = pq.read_table((out / "tables" / table).resolve())
    names = sorted(set(found.column_names) - (BY_CHANCE if table == "requests" else set()))
    return sorted((tuple(row[name] for name in names) for row in found.to_pylist()), key=repr)
