"""A run: new lines to tables, tables to a report.

Lines come from a streaming query whose checkpoint records how far each file was read. A batch adds
cleaned requests, quarantine and counts per file; `refresh` then updates the aggregates of dates
with new requests. Each is one change of the tables (`spark.tables`), so a run may be killed at any
time: a batch that Spark repeats is either in the tables already or not at all.
"""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from threading import Event, Lock
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from spark import logsource, requests, traffic
from spark.http import Address, SourceError
from spark.intake import LOG_FILES, Intake
from spark.loglines import SHARED
from spark.progress import Progress, some
from spark.report.page import render
from spark.schema import REQUESTS
from spark.session import as_source_error, tuned
from spark.statestep import Origin, update_state
from spark.summary import Summary
from spark.tables import Change, Tables

TRIES = 3
STOP_SECS = 1  # until a stop request is noticed

# Tables by date: from requests, and from a table that was made earlier.
FROM_REQUESTS = {
    "traffic_by_minute": traffic.traffic_by_minute,
    "usage": traffic.usage,
    "latency": traffic.latency,
    "latency_by_minute": traffic.latency_by_minute,
    "sse_sessions": traffic.sse_sessions,
    "errors": traffic.errors,
    "log_runs": traffic.log_runs,
}
FROM_TABLES = {
    "streams": ("usage", traffic.streams),
    "subjects": ("usage", traffic.subjects),
    "latency_percentiles": ("latency", traffic.latency_percentiles),
    "latency_by_mode": ("latency", traffic.latency_by_mode),
}


@dataclass(frozen=True, slots=True)
class Options:
    logs: Path
    out: Path
    origin: str = ""  # no state without it
    token: str = field(default="", repr=False)
    access_key: str = field(default="", repr=False)
    streams: tuple[str, ...] = ()  # of the origin, besides those in the log
    buckets: tuple[str, ...] = ()
    watch: bool = False
    watch_secs: float = 10  # between two looks
    batch_bytes: int = logsource.MAX_BATCH_BYTES


@dataclass(frozen=True, slots=True)
class Context:
    """What the steps of a run share."""

    session: SparkSession
    options: Options
    tables: Tables
    progress: Progress


def run(
    session: SparkSession, options: Options, progress: Progress, stop: Event | None = None
) -> None:
    """Raises InUse, and SourceError for unreadable input. Ends between two steps when `stop` is
    set; with `watch`, only then."""
    stop = stop or Event()
    tables = Tables(options.out)
    tables.open()
    try:
        context = Context(session, options, tables, progress)
        _try_again(lambda: _read_logs(context, stop))
        if not stop.is_set():
            finish(context)
        if options.watch:
            _try_again(lambda: _watch(context, stop))
    finally:
        tables.close()


def finish(context: Context) -> None:
    """Everything that follows from requests: aggregates, state, their join, the report."""
    tables, state = context.tables, context.tables.state
    if not state.is_refreshed or state.generation == 0:
        days = (f"requests/date={date}" for date in state.stale)
        with tuned(context.session, tables.size_bytes(*days, "log_files", "log_runs")):
            refresh(context)
    notes = [*find_unreadable(context), *make_state(context)]
    for note in notes:
        context.progress.note(note)
    with tuned(context.session, tables.size_bytes(*FROM_REQUESTS, "traffic_and_state")):
        make_report(context, notes)


def find_unreadable(context: Context) -> list[str]:
    names = logsource.Folder({"path": str(context.options.logs)}).unreadable()
    return [f"Unreadable logs, left for a later run {some(names)}."] if names else []


def make_state(context: Context) -> list[str]:
    """State of the origin's streams, joined with traffic. If the origin is unavailable, the tables
    stay unchanged, and the report says so."""
    options = context.options
    if not options.origin:
        return []
    context.progress.doing("state: reading streams")
    address = Address(options.origin, options.token, access_key=options.access_key)
    origin = Origin(address, options.streams, options.buckets)
    usage = context.tables.read(context.session, "usage", schema_of(context.session, "usage"))
    try:
        done = update_state(context.session, context.tables, origin, usage)
    except SourceError as error:
        return [f"State is from an earlier run: {error}."]
    if done.said:
        context.progress.done(f"state: {done.said}")
    return done.notes


def make_report(context: Context, notes: list[str]) -> None:
    """Replace report.html, unless nothing has changed."""
    options, tables = context.options, context.tables
    made_of = tables.checkpoint.with_name("report-of")
    sources = "\n".join([str(tables.state.generation), *notes])
    if made_of.exists() and made_of.read_text() == sources:
        return
    started = time.monotonic()
    context.progress.doing("report")
    schemas = {table: schema_of(context.session, table) for table in (*FROM_REQUESTS, *FROM_TABLES)}
    summary = Summary(context.session, tables, schemas)
    page = render(summary.make(str(options.logs), options.origin, notes))
    unfinished = options.out / "report.html.new"
    unfinished.write_text(page, encoding="utf-8")
    unfinished.rename(options.out / "report.html")
    made_of.write_text(sources)
    context.progress.done(f"report: in {time.monotonic() - started:.1f} s")


def _try_again(step: Callable[[], None]) -> None:
    """On a busy machine Python may need longer to start than Spark waits."""
    for tries_left in reversed(range(TRIES)):
        try:
            return step()
        except StreamingQueryException as error:
            if not tries_left or "failed to connect back" not in str(error):
                raise as_source_error(error) from error


def _read_logs(context: Context, stop: Event) -> None:
    """All existing lines."""
    query = _start_query(context, Lock(), availableNow=True)
    while not query.awaitTermination(STOP_SECS):
        if stop.is_set():
            query.stop()


def _watch(context: Context, stop: Event) -> None:
    """Lines come from a continuous query. Everything derived from them is updated between its
    batches, and so is the state of streams, which may grow without new lines."""
    turn, seconds = Lock(), context.options.watch_secs
    query = _start_query(context, turn, processingTime=f"{seconds} seconds")
    try:
        while query.isActive and not stop.wait(seconds):
            with turn:
                finish(context)
    finally:
        query.stop()
        turn.acquire()  # wait for a running batch
    query.awaitTermination()  # raises if it has failed


def _start_query(context: Context, turn: Lock, **trigger: Any) -> StreamingQuery:
    """`turn` is held while the tables are changed."""
    options = context.options
    lines = (
        context.session.readStream.format(logsource.FORMAT)
        .option("path", str(options.logs))
        .option("maxBytesPerBatch", options.batch_bytes)
        .load()
    )

    def on_batch(batch: DataFrame, number: int) -> None:
        with turn:
            apply_batch(context, batch, number)

    return (
        lines.writeStream.foreachBatch(on_batch)
        .option("checkpointLocation", str(context.tables.checkpoint))
        .trigger(**trigger)
        .start()
    )


def apply_batch(context: Context, lines: DataFrame, number: int) -> None:
    """Add the lines, unless they are already in the tables."""
    started = time.monotonic()
    tables, session = context.tables, context.session
    state, query = tables.state, _query_id(tables.checkpoint)
    if state.query == query and number <= state.batch:
        return
    context.progress.doing(f"batch {number}: reading lines")
    change = tables.begin()
    intake = Intake(session, tables, change)
    seen = intake.read(lines)
    if not seen.lines:
        return
    unseen = [name for name in seen.gone if (context.options.logs / name).exists()]
    if unseen:
        raise SourceError(f"executors cannot find {context.options.logs / unseen[0]}: {SHARED}")
    context.progress.doing(f"batch {number}: {seen.lines:,} lines, looking for duplicates")
    intake.add(seen)
    stale = sorted({*state.stale, *change.dates("requests")})
    after = replace(state, query=query, batch=number, stale=stale, is_refreshed=False)
    tables.commit(change, after)
    context.progress.done(
        f"batch {number}: {seen.lines:,} lines of {len(seen.files):,} files "
        f"in {time.monotonic() - started:.1f} s"
    )


def refresh(context: Context) -> None:
    """Update the aggregates of dates with new requests."""
    started = time.monotonic()
    tables, session = context.tables, context.session
    state = tables.state
    dates = state.stale
    change = tables.begin()
    if dates:
        fresh = tables.read(session, "requests", REQUESTS).where(F.col("date").isin(dates))
        for table, make in FROM_REQUESTS.items():
            context.progress.doing(f"{len(dates)} days: {table}")
            change.replace(table, make(fresh), dates)
        for table, (source, derive) in FROM_TABLES.items():
            context.progress.doing(f"{len(dates)} days: {table}")
            change.replace(table, derive(_made(context, change, source)), dates)
    runs = _made(context, change, "log_runs")
    if dates:
        old = tables.read(session, "log_runs", runs.schema)
        runs = runs.unionByName(old.where(~F.col("date").isin(dates)))
    else:
        runs = tables.read(session, "log_runs", runs.schema)
    files = tables.read(session, "log_files", LOG_FILES)
    change.replace_all("log_quality", traffic.log_quality(runs, files))
    bad = tables.read(session, "quarantine", requests.QUARANTINE)
    change.replace_all("quarantine_reasons", traffic.quarantine_reasons(bad))
    tables.commit(change, replace(state, stale=[], is_refreshed=True, is_joined=False))
    context.progress.done(f"tables: {len(dates)} days in {time.monotonic() - started:.1f} s")


def _made(context: Context, change: Change, table: str) -> DataFrame:
    """The rows of that table in the change, if any."""
    return change.read(context.session, table, schema_of(context.session, table))


@lru_cache
def schema_of(session: SparkSession, table: str) -> StructType:
    """The schema of an aggregate, with `date` last as in its files."""
    none = session.createDataFrame([], REQUESTS)
    if table in FROM_REQUESTS:
        made = FROM_REQUESTS[table](none)
    else:
        source, derive = FROM_TABLES[table]
        made = derive(FROM_REQUESTS[source](none))
    return made.select(*(name for name in made.columns if name != "date"), "date").schema


def _query_id(checkpoint: Path) -> str:
    """Batch numbers restart if the checkpoint is removed."""
    identity: str = json.loads((checkpoint / "metadata").read_bytes())["id"]
    return identity
