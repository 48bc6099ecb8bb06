"""One Spark session for a run: quiet, in UTC, with bounds on memory.

What a line may claim is bounded by `spark.schema`, so ANSI arithmetic does not stop a run.
"""

import logging
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark import logsource, source
from spark.http import SourceError

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "2g",
    "spark.driver.maxResultSize": "256m",
    "spark.hadoop.fs.permissions.umask-mode": "027",  # as of the logs
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "8",  # small ones are joined, see adaptive execution
    "spark.sql.files.maxPartitionBytes": "64m",
    "spark.sql.maxConcurrentOutputFileWriters": "16",  # else rows are sorted by date first
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.streaming.minBatchesToRetain": "10",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    # What a batch reads is dropped as soon as it is written: nothing is worth keeping in memory.
    "spark.cleaner.periodicGC.interval": "5min",
}


# For little input: to compile plans and to adapt them takes longer than it saves.
LITTLE_BYTES = 8 * 1024 * 1024
LITTLE = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "1",
}


@contextmanager
def tuned(session: SparkSession, size_bytes: float) -> Iterator[None]:
    """What is done meanwhile is done in the way that suits so much input."""
    if size_bytes > LITTLE_BYTES:
        yield
        return
    before = {key: session.conf.get(key) for key in LITTLE}
    try:
        for key, value in LITTLE.items():
            session.conf.set(key, value)
        yield
    finally:
        for key, old in before.items():
            session.conf.set(key, str(old))


_SOURCE_ERROR = re.compile(r"\b(?:SourceError|DataLoss): (.+)")


def as_source_error(error: PySparkException) -> Exception:
    """What a task could not read, in its own words; anything else is a mistake of ours."""
    said = _SOURCE_ERROR.search(error.getMessage() or "")
    return SourceError(said[1]) if said else error


def start(master: str, settings: dict[str, str] | None = None) -> SparkSession:
    """`settings` come on top, such as executors' memory for a cluster."""
    logging.getLogger("py4j").setLevel(logging.ERROR)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # a cluster may need another one
    builder = SparkSession.builder.master(master).appName("weir report")
    for key, value in (SETTINGS | (settings or {})).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    source.register(session)
    logsource.register(session)
    return session
