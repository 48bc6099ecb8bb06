"""What `test_cluster.py` runs in a process of its own: a cluster with two executor processes on
this machine, which cannot import what the driver can. Prints what came out, as JSON.

    python -m tests.spark.cluster_job URL FOLDER
"""

import json
import os
import shutil
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyspark
from pyspark.sql import Row, SparkSession

from spark.source import FORMAT, register
from tests.spark.conftest import SETTINGS

EXECUTORS = {"spark.driver.host": "127.0.0.1", "spark.executor.memory": "512m"}


def main(url: str, folder: Path) -> None:
    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    builder = SparkSession.builder.master("local-cluster[2,1,1024]").appName("cluster")
    for key, value in (SETTINGS | EXECUTORS).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    name = session.sparkContext.applicationId
    session.sparkContext.setLogLevel("ERROR")
    try:
        register(session)
        print(json.dumps(read(session, url, folder)))
    finally:
        session.stop()
        shutil.rmtree(Path(pyspark.__file__).parent / "work" / name, ignore_errors=True)


def read(session: SparkSession, url: str, folder: Path) -> list[object]:
    """By a batch, with the places where it was read; by a streaming query into `out`."""
    options = {"url": url, "streams": '["a","b"]', "partitionBytes": "10000"}
    stream = session.readStream.format(FORMAT).options(**options).load()
    writing = stream.writeStream.format("parquet").trigger(availableNow=True)
    writing = writing.option("checkpointLocation", str(folder / "checkpoint"))
    writing.start(str(folder / "out")).awaitTermination()
    frame = session.read.format(FORMAT).options(**options).load()
    return frame.select("stream", "offset", "message").rdd.mapPartitions(with_place).collect()


def with_place(rows: Iterable[Row]) -> Iterator[object]:
    """The folder of the executor, whether our modules came to it by themselves, what it read."""
    import spark

    yield os.getcwd(), "weir.zip" in str(spark.__file__), [list(row) for row in rows]


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
