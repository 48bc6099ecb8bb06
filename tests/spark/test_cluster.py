"""The data source on executors that are processes of their own."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pyarrow import parquet

from tests.conftest import StartOrigin
from tests.helpers.require import need
from tests.helpers.server import ROOT
from tests.spark.conftest import Writer

PATIENCE_S = 300.0


@pytest.mark.slow
@pytest.mark.timeout(PATIENCE_S)
def test_executors_read_in_parallel_with_nothing_but_what_is_sent_to_them(
    start_origin: StartOrigin, tmp_path: Path
) -> None:
    need(shutil.which("java"), "Spark needs a Java runtime")
    origin = start_origin(storage={"chunk_bytes": 4000})
    writer = Writer(origin.port)
    wanted = [f'{{"n":{number}}}' for number in range(100, 1000)]
    for name in "ab":
        writer.lay(name, *(f"[{','.join(wanted[at : at + 90])}]" for at in range(0, 900, 90)))
    writer.close()
    command = [sys.executable, "-m", "tests.spark.cluster_job", f"http://127.0.0.1:{origin.port}"]
    ran = subprocess.run(
        [*command, str(tmp_path)],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    folders, shipped, parts = zip(*json.loads(ran.stdout.splitlines()[-1]), strict=True)
    assert len(folders) == len(set(folders)) == 2
    assert all(shipped)
    rows = [row for part in parts for row in part]
    assert [[stream, text] for stream, _, text in rows] == [[s, t] for s in "ab" for t in wanted]
    written = [row for path in (tmp_path / "out").glob("*.parquet") for row in read_rows(path)]
    assert sorted(written) == sorted(rows)


def read_rows(path: Path) -> list[list[str]]:
    columns = parquet.read_table(path, columns=["stream", "offset", "message"])
    return [list(row.values()) for row in columns.to_pylist()]
