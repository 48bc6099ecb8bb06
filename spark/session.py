"""One Spark session for a run: quiet, in UTC, with bounded memory.

`spark.schema` bounds all numbers, so ANSI arithmetic never fails a run.
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
    # A batch's input is dropped once it is written: nothing is worth caching.
    "spark.cleaner.periodicGC.interval": "5min",
}


# For small input: compiling and adapting plans takes longer than it saves.
LITTLE_BYTES = 8 * 1024 * 1024
LITTLE = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "1",
}


@contextmanager
def tuned(session: SparkSession, size_bytes: float) -> Iterator[None]:
    """Use settings that suit this much input inside the block."""
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
    """The SourceError of a task; any other exception is a bug."""
    said = _SOURCE_ERROR.search(error.getMessage() or "")
    return SourceError(said[1]) if said else error


def start(master: str, settings: dict[str, str] | None = None) -> SparkSession:
    """`settings` are additional, such as executor memory on a cluster."""
    logging.getLogger("py4j").setLevel(logging.ERROR)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # a cluster may need another
    builder = SparkSession.builder.master(master).appName("weir report")
    for key, value in (SETTINGS | (settings or {})).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    source.register(session)
    logsource.register(session)
    return session
