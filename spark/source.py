"""The `durable_stream` data source: streams over HTTP as rows, for batches and streaming queries.

    from spark.source import register
    register(session)
    session.read.format("durable_stream").option("url", url).option("stream", "orders").load()

The driver plans which ranges of which streams to read (`planning`), tasks read them on executors
(`reading`). Connections and threads end with their task. `options` has the options, `rows` the
meaning of the columns.
"""

import atexit
import shutil
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp

import pyarrow as pa
from pyspark.sql import SparkSession, datasource
from pyspark.sql.streaming import datasource as limits
from pyspark.sql.types import StructType

from spark.http import Client
from spark.options import SourceOptions, parse_options
from spark.planning import Heads, Partitions, Planner
from spark.reading import read_ranges
from spark.streams import Streams

FORMAT = "durable_stream"
COLUMNS = (
    "stream string, incarnation string, offset string, position int, next_offset string, "
    "kind string, content_type string, message string, data binary"
)
PACKAGES = ("protocol", "spark")

Offset = dict[str, dict[str, str]]


def register(session: SparkSession) -> None:
    """Register `format("durable_stream")`, here and on executors."""
    if not (session.sparkContext.master or "").startswith("local["):
        ship(session)
    session.dataSource.register(DurableStream)


def ship(session: SparkSession) -> None:
    """Send our modules to the executors, which otherwise need only pyspark and pyarrow."""
    folder = Path(mkdtemp(prefix="weir-spark-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)  # executors fetch it when they start
    root = Path(__file__).parent.parent
    with zipfile.ZipFile(folder / "weir.zip", "w") as archive:
        for path in (path for name in PACKAGES for path in sorted((root / name).rglob("*.py"))):
            archive.write(path, path.relative_to(root))
    session.addArtifacts(str(folder / "weir.zip"), pyfile=True)


class DurableStream(datasource.DataSource):
    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return COLUMNS

    def reader(self, schema: StructType) -> datasource.DataSourceReader:
        return BatchReader(parse_options(self.options, streaming=False))

    def streamReader(self, schema: StructType) -> datasource.DataSourceStreamReader:
        return StreamReader(parse_options(self.options, streaming=True))


class BatchReader(datasource.DataSourceReader):
    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> list[datasource.InputPartition]:
        return _as_partitions(Planner(self._options).plan_all())

    def read(self, partition: datasource.InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._options, partition)


class StreamReader(datasource.DataSourceStreamReader, limits.SupportsTriggerAvailableNow):
    """Lives in the driver as long as its query; executors get a copy and call its `read`."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._planner = Planner(options)
        self._target: Heads | None = None
        self._look_at = 0.0

    def initialOffset(self) -> Offset:
        return {}  # each stream starts where it is first seen, so a restart needs no state

    def getDefaultReadLimit(self) -> limits.ReadLimit:
        most = self._options.max_bytes_per_batch
        return limits.ReadMaxBytes(most) if most else limits.ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._planner.look()

    def latestOffset(self, start: Offset, limit: limits.ReadLimit) -> Offset:
        budget = limit.max_bytes if isinstance(limit, limits.ReadMaxBytes) else 0
        found = self._look() if self._target is None else self._target
        return self._planner.latest(start, found, budget)

    def partitions(self, start: Offset, end: Offset) -> list[datasource.InputPartition]:
        return _as_partitions(self._planner.plan_between(start, end))

    def read(self, partition: datasource.InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._options, partition)

    def _look(self) -> Heads:
        """Rate-limited: Spark polls without pause while idle."""
        time.sleep(max(0.0, self._look_at - time.monotonic()))
        self._look_at = time.monotonic() + self._options.poll_s
        return self._planner.look()


def _as_partitions(planned: Partitions) -> list[datasource.InputPartition]:
    return [datasource.InputPartition(ranges) for ranges in planned]


def _read(options: SourceOptions, partition: datasource.InputPartition) -> Iterator[pa.RecordBatch]:
    """A plan without partitions arrives as one partition without a value."""
    with Client(options.address) as client:
        yield from read_ranges(
            Streams(client),
            partition.value or (),
            fail_on_data_loss=options.fail_on_data_loss,
            fail_on_error=options.fail_on_error,
        )
