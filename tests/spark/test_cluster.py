"""The data source and the whole pipeline on executors that are processes of their own."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyarrow import parquet
from pyspark.sql import SparkSession

from tests.conftest import StartOrigin
from tests.helpers.server import ROOT
from tests.spark.world import World
from tests.spark.writer import Writer

PATIENCE_S = 1200.0

pytestmark = [pytest.mark.slow, pytest.mark.timeout(PATIENCE_S)]


def test_executors_with_nothing_but_what_is_sent_to_them_read_streams_and_make_all_tables(
    spark: SparkSession, world: World, start_origin: StartOrigin, tmp_path: Path
) -> None:
    while not world.is_grown:
        world.grow()
    origin = start_origin(storage={"chunk_bytes": 4000})
    writer = Writer(origin.port)
    wanted = [f'{{"n":{number}}}' for number in range(100, 1000)]
    for name in "ab":
        writer.lay(name, *(f"[{','.join(wanted[at : at + 90])}]" for at in range(0, 900, 90)))
    out = tmp_path / "report"
    told = run_job(
        tmp_path, f"http://127.0.0.1:{origin.port}", tmp_path, world.logs, world.origin, out
    )

    folders, shipped, parts = zip(*told["read"], strict=True)
    assert len(folders) == len(set(folders)) == 2
    assert all(shipped)
    rows = [row for part in parts for row in part]
    assert [[stream, text] for stream, _, text in rows] == [[s, t] for s in "ab" for t in wanted]
    written = [row for path in (tmp_path / "out").glob("*.parquet") for row in read_rows(path)]
    assert sorted(written) == sorted(rows)

    assert told["tasks"].pop("driver", 0) == 0
    assert len(told["tasks"]) == 2 and min(told["tasks"].values()) > 10
    world.check(spark, out)


def run_job(folder: Path, *arguments: object) -> Any:
    """A cluster leaves its files below the home of Spark, so it gets a home of its own."""
    home = folder / "spark"
    home.mkdir()
    for path in Path(pyspark.__file__).parent.iterdir():
        (home / path.name).symlink_to(path)
    ran = subprocess.run(
        [sys.executable, "-m", "tests.spark.cluster_job", *map(str, arguments)],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env=os.environ | {"SPARK_HOME": str(home)},
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    return json.loads(ran.stdout.splitlines()[-1])


def read_rows(path: Path) -> list[list[str]]:
    columns = parquet.read_table(path, columns=["stream", "offset", "message"])
    return [list(row.values()) for row in columns.to_pylist()]
