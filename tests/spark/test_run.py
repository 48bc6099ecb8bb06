"""The whole run over generated logs: every table equal to what DuckDB finds in the same files."""

import datetime
import io
import os
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from loadtest.analytics.duck import BIN, QUERIES
from protocol.accesslog import HOUR_MS, encode_line, file_name
from spark.progress import Progress
from spark.run import FROM_REQUESTS, FROM_TABLES, Options, run, schema_of
from spark.summary import Summary
from spark.tables import Tables
from tests.helpers.origin import LocalOrigin, make_config
from tests.spark import duckstate
from tests.spark.documented import documented_tables
from tests.spark.duck import LOG_QUERIES, Duck
from tests.spark.histories import message
from tests.spark.logs import HOURS, START_MS, STRAY_MS, WORKERS, Truth, record, write_logs
from tests.spark.writer import Writer

LINES = int(os.environ.get("WEIR_LOG_LINES", "30000"))

MESSAGES = 300  # for each stream
TIMED = ("s0", "s1", "s2")  # the hottest of the log
TIMELESS = "unread"  # of which the log knows nothing
ALL_QUERIES = QUERIES | LOG_QUERIES | duckstate.QUERIES

pytestmark = pytest.mark.timeout(LINES // 100 + 600)


@dataclass
class Made:
    logs: Path
    out: Path
    truth: Truth
    duck: Duck
    session: SparkSession

    def run(self, **options: Any) -> str:
        said = io.StringIO()
        run(self.session, Options(self.logs, self.out, **options), Progress(said))
        return said.getvalue()

    def rows(self, table: str) -> list[dict[str, Any]]:
        found = self.session.read.parquet(str(self.out / "tables" / table)).toArrow()
        rows: list[dict[str, Any]] = found.to_pylist()
        return rows


@pytest.fixture(scope="module")
def made(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    folder = tmp_path_factory.mktemp("run")
    truth = write_logs(folder / "logs", LINES)
    made = Made(folder / "logs", folder / "out", truth, Duck(folder / "logs"), spark)
    origin = LocalOrigin(make_config(folder / "data"))
    origin.start()
    streams = write_streams(Writer(origin.port))
    url = f"http://127.0.0.1:{origin.port}"
    # Several batches, so that copies are found across them.
    made.run(batch_bytes=LINES * 150, origin=url, streams=(TIMELESS,))
    origin.stop()
    made.duck.look_at((made.out / "tables").resolve(), streams)
    yield made


def write_streams(writer: Writer) -> dict[str, list[str]]:
    """Messages of each, and one stream that has none."""
    chance = random.Random(3)
    streams = {
        name: [message(chance, resets=0.01) for _ in range(MESSAGES)] for name in (*TIMED, TIMELESS)
    }
    streams[TIMELESS] = [text.replace('"timestamp"', '"at"') for text in streams[TIMELESS]]
    for name, texts in streams.items():
        writer.lay(name, f"[{','.join(texts)}]")
    writer.lay("s3", "no JSON", kind="text/plain")
    return streams


def in_order(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    names = sorted(rows[0])
    return sorted((tuple(_plain(row[name]) for name in names) for row in rows), key=repr)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime.datetime):
        return value.replace(tzinfo=None)
    return int(value) if isinstance(value, int) or hasattr(value, "as_tuple") else value


@pytest.mark.parametrize("table", sorted(ALL_QUERIES))
def test_a_table_is_equal_to_what_duckdb_computes(made: Made, table: str) -> None:
    expected = made.duck.rows(ALL_QUERIES[table])
    found = made.rows(table)
    assert sorted(found[0]) == sorted(expected[0])
    assert in_order(found) == in_order(expected)


def test_every_table_is_compared_but_those_of_single_rows(made: Made) -> None:
    tables = {path.name for path in (made.out / "tables").iterdir() if path.is_dir()}
    single = {"requests", "quarantine", "log_files", "state", "state_quarantine", "state_streams"}
    assert tables - single == set(ALL_QUERIES)


def test_every_table_and_column_is_documented(made: Made) -> None:
    tables = {
        path.name: sorted(made.session.read.parquet(str(path)).columns)
        for path in (made.out / "tables").iterdir()
        if path.is_dir()
    }
    assert {name: sorted(columns) for name, columns in documented_tables().items()} == tables


def test_every_request_is_there_once(made: Made) -> None:
    found = made.session.read.parquet(str(made.out / "tables/requests"))
    assert found.count() == made.truth.requests
    assert found.select("line_id").distinct().count() == made.truth.requests


def test_what_is_no_request_is_in_quarantine_with_its_reason(made: Made) -> None:
    found = {row["reason"]: row["lines"] for row in made.rows("quarantine_reasons")}
    assert found == dict(made.truth.quarantined)


def test_lines_that_the_gateway_dropped_are_counted(made: Made) -> None:
    rows = {(row["gateway"], row["worker"]): row for row in made.rows("log_quality")}
    for worker in WORKERS:
        assert rows[worker]["missing"] == made.truth.missing[worker]
        assert rows[worker]["starts"] == made.truth.starts[worker]


def test_every_line_that_was_read_is_accounted_for(made: Made) -> None:
    rows = made.rows("log_quality")
    counts = ("lines", "requests", "duplicates", "quarantined")
    total = {name: sum(row[name] for row in rows) for name in counts}
    assert total["requests"] == made.truth.requests
    assert total["duplicates"] == made.truth.duplicates
    assert total["quarantined"] == made.truth.quarantined.total()
    assert total["lines"] == total["requests"] + total["duplicates"] + total["quarantined"]


def test_the_report_says_what_the_tables_say(made: Made) -> None:
    schemas = {name: schema_of(made.session, name) for name in (*FROM_REQUESTS, *FROM_TABLES)}
    data = Summary(made.session, Tables(made.out), schemas, most=2).make("logs", "origin")
    [whole] = made.duck.rows(
        "select count(*) as requests, sum(bytes_sent) as bytes_sent, "
        "sum(upstream_requests) as origin_requests, "
        "count(*) filter (status in (401, 403)) as token_failures, "
        "count(distinct stream) filter (stream != '') as streams, "
        "min(time_ms) as first_ms, "
        f"max(time_ms) filter (time_ms < {STRAY_MS}) as last_ms from r"
    )
    assert {name: getattr(data.totals, name) for name in whole} == whole
    assert sum(data.totals.verdicts.values()) == data.totals.requests
    # All are drawn but the one that no chart has room for.
    assert sum(sum(m.verdicts.values()) for m in data.moments) == data.totals.requests - 1
    assert "They exclude 1 request with" in "".join(data.notes)
    assert max(moment.at_ms for moment in data.moments) <= data.totals.last_ms
    assert sum(mode.requests for mode in data.modes) == data.totals.requests
    assert (
        sum(data.sessions.lengths) == data.sessions.sessions == sum(data.sessions.endings.values())
    )
    [sessions] = made.duck.rows(
        "select count(*) as sessions, max(us) / 1000 as longest_ms, "
        f"quantile_disc({BIN}, 0.5) / 1000 as median_ms from r where mode = 'sse' and status = 200"
    )
    assert {name: getattr(data.sessions, name) for name in sessions} == sessions
    [reads] = made.duck.rows(
        "select sum(hits + stale)::int as hits, sum(hub)::int as hub, "
        f"sum(collapsed)::int as collapsed from ({QUERIES['usage']})"
    )
    assert {name: getattr(data.totals, name) for name in reads} == reads
    assert data.state is not None
    entities = {one.type: one.entities for one in data.state.types}
    by_type = {
        row["type"]: int(row["n"])
        for row in made.duck.rows("select type, sum(entities) as n from counts group by all")
    }
    rest = min(by_type, key=lambda kind: (by_type[kind], [-ord(letter) for letter in kind]))
    assert entities == {"": by_type.pop(rest), **by_type} and data.state.all_types == 3
    assert dict(data.quality.quarantined) == dict(made.truth.quarantined)
    assert (made.out / "report.html").read_text().startswith("<!doctype html>")


def test_a_second_run_reads_only_what_is_new(made: Made) -> None:
    link = made.out / "tables"
    before = link.readlink()
    assert made.run() == ""
    assert link.readlink() == before
    gateway, worker = WORKERS[-1]
    time_ms = START_MS + HOURS * HOUR_MS - 1
    line = encode_line(record(random.Random(2), gateway, worker, LINES, time_ms))
    with (made.logs / file_name(gateway, worker, time_ms)).open("ab") as file:
        file.write(line + b'{"v":1,"time_ms"')
    late = made.logs / "later"
    late.mkdir()
    copied = file_name(gateway, worker, START_MS)
    (late / copied).write_bytes((made.logs / copied).read_bytes())
    lines = 1 + (late / copied).read_bytes().count(b"\n")
    assert f"{lines:,} lines of 2 files" in made.run()
    rows = made.session.read.parquet(str(link / "requests"))
    assert rows.count() == made.truth.requests + 1
