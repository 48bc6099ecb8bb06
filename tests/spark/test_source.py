"""The data source in Spark: rows of batches and of streaming queries, restarted and killed."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark.rows import SCHEMA
from spark.source import COLUMNS, FORMAT, register
from tests.conftest import StartOrigin
from tests.docs.snippets import snippets_of
from tests.helpers.offsets import nameless, unnamed
from tests.helpers.rawhttp import wait_until
from tests.helpers.scripted_origin import Answer, ScriptedOrigin, dropped
from tests.helpers.server import ROOT
from tests.spark.conftest import TEXT, Door
from tests.spark.documented import DOCUMENT, documented
from tests.spark.writer import Writer

AT = nameless
PATIENCE_S = 60


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    register(spark)
    return spark


def load(session: SparkSession, door: Door, **options: object) -> DataFrame:
    return session.read.format(FORMAT).options(**door.options, **options).load()  # type: ignore[arg-type]


def test_the_examples_of_the_documentation_run(
    session: SparkSession,
    gateway: Door,
    writer: Writer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    writer.lay("orders", '[{"order":1}]')
    writer.bucket("shop")
    for name in ("eu-1", "us-1"):
        writer.lay(f"/ds/shop/{name}", f'["{name}"]')
    names: dict[str, Any] = {"token": gateway.token}
    for snippet in snippets_of(DOCUMENT):
        text = snippet.text.replace("http://localhost:8080", gateway.url)
        exec(text.replace('"lake/', f'"{tmp_path}/'), names)
    assert '{"order":1}' in capsys.readouterr().out
    written = session.read.parquet(f"{tmp_path}/orders")
    assert [row.message for row in written.collect()] == ['"eu-1"']
    assert documented("field") == written.columns


# -- batches ---------------------------------------------------------------------------------------


def test_batches_of_all_kinds_through_a_gateway(
    session: SparkSession, gateway: Door, writer: Writer
) -> None:
    """All row shapes of `tests/spark/test_reading.py` survive the way through Spark."""
    offsets = writer.lay("json", '["old"]', '[{"k":"é\\u0000"}]', "1.0")
    writer.publish("json", offsets[0], b'[{"snapshot":1}]')
    writer.lay("text", b"\x00\xff", kind=TEXT)
    frame = load(session, gateway, streams='["json","text"]')
    assert frame.schema.simpleString() == f"struct<{COLUMNS.replace(' ', ':').replace(',:', ',')}>"
    rows = [row.asDict() for row in frame.collect()]
    told = [(row["stream"], unnamed(row["offset"]), row["position"], row["kind"]) for row in rows]
    assert told == [
        ("json", AT(6), -1, "snapshot"),
        ("json", AT(6), 0, "message"),
        ("json", AT(23), 0, "message"),
        ("text", AT(0), 0, "chunk"),
    ]
    values = [row["message"] or bytes(row["data"]) for row in rows]
    assert values == ['{"snapshot":1}', '{"k":"é\\u0000"}', "1.0", b"\x00\xff"]
    assert gateway.token not in _plan_of(frame)


def _plan_of(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().toString())


def test_partitions_are_read_in_parallel_and_make_the_whole(
    session: SparkSession, start_origin: StartOrigin
) -> None:
    origin = start_origin(storage={"chunk_bytes": 10_000})
    door, writer = Door(f"http://127.0.0.1:{origin.port}"), Writer(origin.port)
    wanted = [f'{{"n":{n}}}' for n in range(10_000)]
    writer.lay("a", *(f"[{','.join(wanted[at : at + 500])}]" for at in range(0, 10_000, 500)))
    frame = load(session, door, stream="a", partitionBytes=20_000)
    rows = frame.select("offset", "message").collect()
    assert frame.rdd.getNumPartitions() > 4
    assert [row["message"] for row in rows] == wanted
    assert [row["offset"] for row in rows] == sorted({row["offset"] for row in rows})


def test_failures_that_pass_are_not_seen(session: SparkSession, server: ScriptedOrigin) -> None:
    head = {"Content-Type": "application/json", "Stream-Next-Offset": AT(4)}
    server.on("HEAD", "/v1/stream/a", [dropped(), Answer(503), Answer(200, head)])
    cut = Answer(200, head, b'["1"]', cut_after=3)
    server.on("GET", "/v1/stream/a", [cut, Answer(429), Answer(200, head, b'["1"]')])
    rows = load(session, Door(server.url), stream="a").collect()
    assert [row["message"] for row in rows] == ['"1"']
    assert server.count() == 6


def test_errors_name_the_stream_and_not_the_token(
    session: SparkSession, gateway: Door, writer: Writer
) -> None:
    forged = Door(gateway.url, gateway.token[:-4] + "AAAA")
    cases: list[tuple[Door, dict[str, str], str]] = [
        (forged, {"stream": "a"}, "stream 'a': status 401"),
        (gateway, {"stream": "missing"}, "stream 'missing': no such stream"),
        (gateway, {"stream": "a", "strat": "7"}, "option 'strat' is unknown"),
    ]
    for door, options, complaint in cases:
        with pytest.raises(PySparkException) as caught:
            load(session, door, **options).collect()
        assert complaint in str(caught.value)
        assert door.token not in str(caught.value)


# -- streaming -------------------------------------------------------------------------------------


class Queries:
    """Runs of one streaming query over one checkpoint: what each batch brought."""

    def __init__(self, session: SparkSession, folder: Path, door: Door, **options: str) -> None:
        self._session = session
        self._checkpoint = str(folder / "checkpoint")
        self._options = door.options | {"pollSeconds": "0.02"} | options
        self.batches: list[list[str]] = []
        self.before_write: Callable[[], object] = lambda: None

    def start(self, **trigger: Any) -> StreamingQuery:
        stream = self._session.readStream.format(FORMAT).options(**self._options).load()
        writing = stream.writeStream.foreachBatch(self._write)
        writing = writing.option("checkpointLocation", self._checkpoint)
        return (writing.trigger(**trigger) if trigger else writing).start()

    def run(self) -> list[list[str]]:
        """All there is now; the batches of this run."""
        done = len(self.batches)
        query = self.start(availableNow=True)
        assert query.awaitTermination(PATIENCE_S), "still running"
        return self.batches[done:]

    def _write(self, frame: DataFrame, number: int) -> None:
        rows = frame.select("offset", "position", "message").collect()
        self.before_write()
        self.batches.append([row["message"] for row in rows])

    @property
    def committed(self) -> list[str]:
        return sorted(path.name for path in Path(self._checkpoint, "commits").glob("[0-9]*"))


def test_a_restarted_query_neither_repeats_nor_skips(
    session: SparkSession, gateway: Door, writer: Writer, tmp_path: Path
) -> None:
    queries = Queries(session, tmp_path, gateway, stream="a")
    writer.lay("a", '"1"', '"2"')
    assert queries.run() == [['"1"', '"2"']]
    writer.append("a", '["3","4"]')

    def die() -> None:
        writer.append("a", '"5"')  # the stream has moved on when the batch is tried again
        raise RuntimeError("killed in the middle of a batch")

    queries.before_write = die
    with pytest.raises(PySparkException, match="killed in the middle"):
        queries.run()
    queries.before_write = lambda: None
    assert queries.run() == [['"3"', '"4"'], ['"5"']]
    assert queries.run() == []
    assert queries.committed == ["0", "1", "2"]


def test_now_is_when_a_query_began_even_if_there_was_nothing(
    session: SparkSession, front: Door, writer: Writer, tmp_path: Path
) -> None:
    queries = Queries(session, tmp_path, front, stream="a", start="now")
    assert not any(queries.run())
    writer.lay("a", '"1"', '"2"')
    assert queries.run() == [['"1"', '"2"']]


def test_available_now_reads_in_bounded_batches_to_where_streams_ended_at_its_start(
    session: SparkSession, front: Door, writer: Writer, tmp_path: Path
) -> None:
    queries = Queries(session, tmp_path, front, stream="a", maxBytesPerBatch="9")
    writer.lay("a", '["1","2","3","4","5"]')
    queries.before_write = lambda: writer.append("a", '"late"')
    assert queries.run() == [['"1"', '"2"'], ['"3"', '"4"'], ['"5"']]


def test_a_running_query_follows_a_bucket(
    session: SparkSession, front: Door, writer: Writer, tmp_path: Path
) -> None:
    """New streams, growth, deletion and a second life, while it runs."""
    queries = Queries(session, tmp_path, front, bucket="buck")
    writer.bucket("buck")
    query = queries.start()

    def seen() -> list[str]:
        assert query.exception() is None
        return [message for batch in queries.batches for message in batch]

    try:
        for name, body in (("a", '"1"'), ("b", '"2"')):
            writer.lay(f"/ds/buck/{name}", body)
            wait_until(lambda: body in seen(), PATIENCE_S, body)  # noqa: B023
        writer.append("/ds/buck/a", '"3"')
        wait_until(lambda: '"3"' in seen(), PATIENCE_S)
        writer.delete("/ds/buck/a")
        writer.lay("/ds/buck/a", '"4"', '"5"', '"6"')
        wait_until(lambda: '"6"' in seen(), PATIENCE_S)
    finally:
        query.stop()
    assert seen() == ['"1"', '"2"', '"3"', '"4"', '"5"', '"6"']


def test_executors_need_nothing_but_pyspark_and_pyarrow() -> None:
    """What the modules import that are sent there."""
    code = "import sys, spark.source; print(*{name.partition('.')[0] for name in sys.modules})"
    found = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert not {"msgspec", "aiohttp", "uvloop", "jwt"} & set(found.stdout.split())


def test_the_columns_are_those_that_tasks_give() -> None:
    names = {"string": "string", "int": "int32", "binary": "binary"}
    told = [column.split() for column in COLUMNS.split(", ")]
    assert [(name, names[kind]) for name, kind in told] == [(f.name, str(f.type)) for f in SCHEMA]
