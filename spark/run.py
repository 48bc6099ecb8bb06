"""A run: new lines to tables, tables to a report.

Lines come as a streaming query whose checkpoint says how far each file was read. A batch adds
cleaned requests, quarantine and counts per file; `refresh` then makes the aggregates of the dates
that got new requests. Both are one change of the tables each (`spark.tables`), so a run may be
killed anywhere: the batch that Spark brings again is in the tables already or not at all.
"""

import json
import time
from dataclasses import dataclass, replace
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from spark import logsource, requests, traffic
from spark.http import Address, SourceError
from spark.progress import Progress
from spark.report import render
from spark.schema import REQUESTS
from spark.statestep import Origin, update_state
from spark.summary import Summary
from spark.tables import Change, Tables

LOG_FILES = (
    "file string, lines bigint, requests bigint, duplicates bigint, quarantined bigint, date date"
)
WATCH_SECS = 10

# Tables by date: from requests, and from a table that was made before them.
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
    token: str = ""
    streams: tuple[str, ...] = ()  # of the origin, beside those of the log
    buckets: tuple[str, ...] = ()
    watch: bool = False
    batch_bytes: int = logsource.MAX_BATCH_BYTES


@dataclass(frozen=True, slots=True)
class Context:
    """What the steps of a run share."""

    session: SparkSession
    options: Options
    tables: Tables
    progress: Progress


def run(session: SparkSession, options: Options, progress: Progress) -> None:
    """Raises InUse; with `watch` it ends when it is interrupted."""
    tables = Tables(options.out)
    tables.open()
    try:
        context = Context(session, options, tables, progress)
        if options.watch:
            finish(context)  # new lines may be long in coming
        _read_logs(context)
        finish(context)
    finally:
        tables.close()


def finish(context: Context) -> None:
    """Everything that follows from requests: aggregates, state, their join, the report."""
    state = context.tables.state
    if not state.is_refreshed or state.generation == 0:
        refresh(context)
    make_report(context, make_state(context))


def make_state(context: Context) -> list[str]:
    """State of the origin's streams, and traffic beside it. Without the origin the tables stay as
    they are, and the reader of the report is told."""
    options = context.options
    if not options.origin:
        return []
    context.progress.doing("state: reading streams")
    origin = Origin(Address(options.origin, options.token), options.streams, options.buckets)
    usage = context.tables.read(context.session, "usage", schema_of(context.session, "usage"))
    try:
        update_state(context.session, context.tables, origin, usage, context.progress.done)
    except SourceError as error:
        context.progress.done(f"state: not read: {error}")
        return [f"The state is that of an earlier run: {error}."]
    return []


def make_report(context: Context, notes: list[str]) -> None:
    """report.html, in place of the one before; not when it would be the same."""
    options, tables = context.options, context.tables
    made_of = tables.checkpoint.with_name("report-of")
    generation = str(tables.state.generation)
    if not notes and made_of.exists() and made_of.read_text() == generation:
        return
    started = time.monotonic()
    context.progress.doing("report")
    schemas = {table: schema_of(context.session, table) for table in (*FROM_REQUESTS, *FROM_TABLES)}
    summary = Summary(context.session, tables, schemas)
    page = render(summary.make(str(options.logs), options.origin, notes))
    unfinished = options.out / "report.html.new"
    unfinished.write_text(page, encoding="utf-8")
    unfinished.rename(options.out / "report.html")
    made_of.write_text("" if notes else generation)
    context.progress.done(f"report: in {time.monotonic() - started:.1f} s")


def _read_logs(context: Context) -> None:
    options = context.options
    lines = (
        context.session.readStream.format(logsource.FORMAT)
        .option("path", str(options.logs))
        .option("maxBytesPerBatch", options.batch_bytes)
        .load()
    )

    def on_batch(batch: DataFrame, number: int) -> None:
        apply_batch(context, batch, number)
        if options.watch:
            finish(context)

    writer = lines.writeStream.foreachBatch(on_batch).option(
        "checkpointLocation", str(context.tables.checkpoint)
    )
    trigger = (
        writer.trigger(processingTime=f"{WATCH_SECS} seconds")
        if options.watch
        else writer.trigger(availableNow=True)
    )
    query = trigger.start()
    try:
        query.awaitTermination()
    except KeyboardInterrupt:
        context.progress.doing("stopping")
        query.stop()


def apply_batch(context: Context, lines: DataFrame, number: int) -> None:
    """Add what the lines hold; nothing if they are in the tables already."""
    started = time.monotonic()
    tables, session = context.tables, context.session
    state, query = tables.state, _query_id(tables.checkpoint)
    if state.query == query and number <= state.batch:
        return
    context.progress.doing(f"batch {number}: reading lines")
    change = tables.begin()
    parsed = _parse_once(session, lines, change)
    seen = parsed.agg(
        F.count(F.lit(1)).alias("lines"),
        F.countDistinct("file").alias("files"),
        F.min(F.when(F.col("reason").isNull(), F.col("time_ms"))).alias("first_ms"),
        F.max(F.when(F.col("reason").isNull(), F.col("time_ms"))).alias("last_ms"),
    ).first()
    assert seen is not None
    if seen["lines"] == 0:
        return
    # A copy has the time of its original, so only requests of that time can have been there before.
    context.progress.doing(f"batch {number}: {seen['lines']:,} lines, looking for copies")
    same_time = F.col("time_ms").between(seen["first_ms"], seen["last_ms"])
    earlier = tables.read(session, "requests", REQUESTS).where(same_time)
    name = f"change-{state.generation + 1:08d}"
    change.add("requests", requests.without_copies(requests.requests(parsed), earlier), name)
    added = change.read(session, "requests", REQUESTS)
    bad = requests.quarantine(parsed).join(
        tables.read(session, "quarantine", requests.QUARANTINE),
        ["file", "position", "reason"],
        "left_anti",
    )
    change.add("quarantine", bad, name)
    change.add("log_files", _count_files(parsed, added), name)
    stale = sorted({*state.stale, *change.dates("requests")})
    tables.commit(
        change, replace(state, query=query, batch=number, stale=stale, is_refreshed=False)
    )
    context.progress.done(
        f"batch {number}: {seen['lines']:,} lines of {seen['files']:,} files "
        f"in {time.monotonic() - started:.1f} s"
    )


def refresh(context: Context) -> None:
    """Make the aggregates of the dates that have new requests."""
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
    tables.commit(change, replace(state, stale=[], is_refreshed=True))
    context.progress.done(f"tables: {len(dates)} days in {time.monotonic() - started:.1f} s")


def _made(context: Context, change: Change, table: str) -> DataFrame:
    """What the change has of that table, or no rows."""
    return change.read(context.session, table, schema_of(context.session, table))


def schema_of(session: SparkSession, table: str) -> StructType:
    """Of an aggregate, `date` being the last column as in its files."""
    none = session.createDataFrame([], REQUESTS)
    if table in FROM_REQUESTS:
        made = FROM_REQUESTS[table](none)
    else:
        source, derive = FROM_TABLES[table]
        made = derive(FROM_REQUESTS[source](none))
    return made.select(*(name for name in made.columns if name != "date"), "date").schema


def _parse_once(session: SparkSession, lines: DataFrame, change: Change) -> DataFrame:
    """Parsed lines by way of a file: they are needed thrice, and memory must not hold them."""
    parsed = requests.parse(lines)
    schema = parsed.schema
    path = str(change.scratch / "parsed")
    kept = F.when(F.col("reason").isNotNull(), F.col("line"))
    parsed.withColumn("line", kept).write.parquet(path)
    return session.read.schema(schema).parquet(path)


def _count_files(parsed: DataFrame, added: DataFrame) -> DataFrame:
    counts = parsed.groupBy("file").agg(
        F.count(F.lit(1)).alias("lines"), F.count("reason").alias("quarantined")
    )
    kept = added.groupBy("file").agg(F.count(F.lit(1)).alias("requests"))
    duplicates = F.col("lines") - F.col("quarantined") - F.col("requests")
    return (
        counts.join(kept, "file", "left")
        .withColumn("requests", F.coalesce("requests", F.lit(0)))
        .withColumn("duplicates", duplicates)
        .withColumn("date", requests.date_of_file(F.col("file")))
        .select("file", "lines", "requests", "duplicates", "quarantined", "date")
    )


def _query_id(checkpoint: Path) -> str:
    """Batches are numbered anew when somebody removes the checkpoint."""
    identity: str = json.loads((checkpoint / "metadata").read_bytes())["id"]
    return identity
