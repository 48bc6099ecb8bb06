"""What `test_cluster.py` runs in a process of its own: a cluster with two executor processes on
this machine, which cannot import what the driver can. Prints what came out, as JSON.

    python -m tests.spark.cluster_job URL FOLDER LOGS ORIGIN OUT
"""

import json
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from pyspark.sql import Row, SparkSession

from spark.progress import Progress
from spark.run import Options, run
from spark.session import start
from spark.source import FORMAT
from tests.spark.conftest import SETTINGS

EXECUTORS = {"spark.driver.host": "127.0.0.1", "spark.executor.memory": "512m"}


def main(url: str, folder: Path, logs: Path, origin: str, out: Path) -> None:
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    session = start("local-cluster[2,1,1024]", SETTINGS | EXECUTORS)
    try:
        read = read_streams(session, url, folder)
        run(session, Options(logs, out, origin=origin), Progress(sys.stderr))
        print(json.dumps({"read": read, "tasks": count_tasks(session)}))
    finally:
        session.stop()


def read_streams(session: SparkSession, url: str, folder: Path) -> list[object]:
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


def count_tasks(session: SparkSession) -> dict[str, int]:
    """By executor, and by `driver`."""
    java = session.sparkContext._jsc.sc()
    found = java.statusStore().executorList(True)
    executors = [found.apply(number) for number in range(found.size())]
    return {each.id(): each.completedTasks() for each in executors}


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4], Path(sys.argv[5]))
