"""One Spark session for a run: quiet, in UTC, with bounds on memory.

Sums of what lines claim are bounded by `spark.schema`, so ANSI arithmetic never stops a run.
"""

import logging
import os
import sys

from pyspark.sql import SparkSession

from spark import logsource, source

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "2g",
    "spark.driver.maxResultSize": "256m",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "8",  # small ones are joined, see adaptive execution
    "spark.sql.files.maxPartitionBytes": "64m",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.streaming.minBatchesToRetain": "10",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    # What a batch reads is dropped as soon as it is written: nothing is worth keeping in memory.
    "spark.cleaner.periodicGC.interval": "5min",
}


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
