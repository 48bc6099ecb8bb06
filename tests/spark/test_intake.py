"""What a batch has read is in the tables, or the run fails."""

import html
import io
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrameWriter, SparkSession

from protocol.accesslog import encode_line, file_name
from spark.http import SourceError
from spark.loglines import COLUMNS, GONE
from spark.progress import Progress
from spark.requests import QUARANTINE
from spark.run import Context, Options, apply_batch, run
from spark.tables import Tables
from tests.spark.logs import START_MS, record


@pytest.fixture
def options(tmp_path: Path) -> Options:
    """Ten lines of two workers."""
    options = Options(tmp_path / "logs", tmp_path / "out")
    options.logs.mkdir()
    for worker in range(2):
        made = (record(random.Random(1), "edge", worker, seq + 1, START_MS) for seq in range(5))
        path = options.logs / file_name("edge", worker, START_MS)
        path.write_bytes(b"".join(map(encode_line, made)))
    return options


def count(spark: SparkSession, options: Options) -> int:
    run(spark, options, Progress(io.StringIO()))
    return Tables(options.out).read(spark, "requests", "line_id string").count()


def then(action: Callable[[Path], object]) -> Callable[..., None]:
    """In place of the writing of files: it is done, and so is something else."""
    write = DataFrameWriter.parquet

    def parquet(self: DataFrameWriter, path: str, **named: Any) -> None:
        write(self, path, **named)
        action(Path(path))

    return parquet


def test_folders_that_executors_do_not_share_fail_the_run_and_nothing_is_lost(
    spark: SparkSession, options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(
            DataFrameWriter, "parquet", then(lambda path: shutil.rmtree(path / "is_good=true"))
        )
        with pytest.raises(SourceError, match="10 lines were written to .*, but 0 found there"):
            count(spark, options)
    # The batch is planned, and comes again.
    elsewhere = options.logs.rename(options.logs.with_name("elsewhere"))
    with pytest.raises(
        SourceError, match=f"^{options.logs} does not exist on .* must be able to access"
    ):
        count(spark, options)
    elsewhere.rename(options.logs)
    assert count(spark, options) == 10


def test_files_that_only_the_driver_sees_fail_the_run(
    spark: SparkSession, options: Options
) -> None:
    """As where an executor has an empty folder of that name."""
    tables = Tables(options.out)
    tables.open()
    tables.checkpoint.mkdir()
    (tables.checkpoint / "metadata").write_text('{"id": "query"}')
    context = Context(spark, options, tables, Progress(io.StringIO()))
    rows = [(name, 0, "", GONE) for name in ("removed", file_name("edge", 1, START_MS))]
    with pytest.raises(SourceError, match="executors cannot find .*access-edge-1-"):
        apply_batch(context, spark.createDataFrame(rows, COLUMNS), 0)
    apply_batch(context, spark.createDataFrame(rows[:1], COLUMNS), 0)
    [told] = tables.read(spark, "quarantine", QUARANTINE).collect()
    assert (told.file, told.reason) == ("removed", "gone")
    tables.close()


def test_a_file_that_cannot_be_read_is_told_and_read_by_a_later_run(
    spark: SparkSession, options: Options
) -> None:
    path = options.logs / file_name("edge", 1, START_MS)
    kept = path.read_bytes()
    path.unlink()
    path.symlink_to(path.name)  # nobody can read that, not even root
    assert count(spark, options) == 5
    assert f"left for a later run (1): {path.name}." in report(options)
    path.unlink()
    path.write_bytes(kept)
    assert count(spark, options) == 10
    assert "cannot be read" not in report(options)


def report(options: Options) -> str:
    return html.unescape((options.out / "report.html").read_text())
