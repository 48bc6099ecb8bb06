"""The step of a run that updates state: which streams, their new messages, which tables.

The table `state_streams` records how far each stream was read, and changes together with the data:
a killed run has read nothing. Streams are those with successful requests in the log, all streams
of their buckets and of requested buckets, and explicitly named ones.
"""

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import reduce
from urllib.parse import quote

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from protocol.heads import ReplyHead
from protocol.media import media_type
from protocol.names import BUCKET_PREFIX, JSON_TYPE
from protocol.offsets import START, is_offset
from spark import messages, state
from spark.http import Address, Client, SourceError, ask_each
from spark.joined import traffic_and_state
from spark.progress import some
from spark.ranges import span
from spark.session import as_source_error, tuned
from spark.source import COLUMNS, FORMAT
from spark.streams import REASONS, Streams, precedes, stream_path
from spark.tables import Change, Tables

STREAMS = (
    "stream string, status string, detail string, incarnation string, offset string, "
    "messages bigint, changes bigint, resets bigint, snapshots bigint, quarantined bigint, "
    "last_time timestamp"
)
QUARANTINE = "stream string, offset string, position int, field string, reason string"
CHURN = (
    "stream string, type string, date date, inserts bigint, updates bigint, deletes bigint, "
    "growth bigint"
)
BY_MINUTE = (
    "type string, minute timestamp, inserts bigint, updates bigint, deletes bigint, growth bigint"
)
READ, GONE, NOT_JSON, REFUSED = "read", "gone", "not-json", "refused"

TRIES = 3  # a snapshot published meanwhile can invalidate a plan

_SUMS = ("messages", "changes", "resets", "snapshots", "quarantined")


@dataclass(frozen=True, slots=True)
class Origin:
    """Where to read streams, and which ones besides those in the log."""

    address: Address
    streams: tuple[str, ...] = ()
    buckets: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream as found, and where to continue reading. `detail` says why it is not read."""

    name: str
    status: str
    detail: str = ""
    incarnation: str = ""
    offset: str = START
    tail: str = START
    is_over: bool = False  # earlier data is void

    @property
    def kept(self) -> tuple[str, ...]:
        """Its row in the table of streams."""
        return self.name, self.status, self.detail, self.incarnation, self.offset

    @property
    def has_news(self) -> bool:
        return self.status == READ and precedes(self.offset, self.tail)


@dataclass(frozen=True, slots=True)
class Done:
    """What a step did, if anything, and notes for the report."""

    said: str
    notes: list[str]


def update_state(session: SparkSession, tables: Tables, origin: Origin, usage: DataFrame) -> Done:
    """At most one change of the tables. `usage` is the table of that name."""
    known = {row.name: row for row in _known(tables.read(session, "state_streams", STREAMS))}
    found, notes = find_streams(origin, known, _names(usage))
    if _is_same(found, known) and tables.state.is_joined:
        return Done("", [*notes, *_refusals(found)])
    size = sum(span(each.offset, each.tail) or math.inf for each in found if each.has_news)
    change = tables.begin()
    kept = tables.size_bytes("state", "state_changed", "state_churn", "usage")
    with tuned(session, size + kept):
        judged, failed = _read(session, change, origin.address, found)
        found = [
            refused(each.name, failed[each.name], known.get(each.name))
            if each.name in failed
            else each
            for each in found
        ]
        notes += _refusals(found)
        is_same = _is_same(found, known)
        if is_same and tables.state.is_joined:
            return Done("", notes)
        if not is_same:
            _apply(session, tables, change, judged, found)
        counts = _latest(session, tables, change, "state_counts", _schema_of_counts(session))
        churn = _latest(session, tables, change, "state_churn", CHURN)
        changed = _latest(session, tables, change, "state_changed", state.CHANGED)
        both = traffic_and_state(usage, counts, churn, changed)
        change.replace_all("traffic_and_state", both)
    tables.commit(change, replace(tables.state, is_joined=True))
    statuses = [stream.status for stream in found]
    news = sum(stream.has_news for stream in found)
    parts = [f"{statuses.count(each)} {each}" for each in (NOT_JSON, GONE, REFUSED)]
    return Done(f"{news} of {len(found)} streams changed ({', '.join(parts)})", notes)


def _is_same(found: list[Stream], known: dict[str, Stream]) -> bool:
    """Nothing to read, and no change to the table of streams."""
    is_known = {each.kept for each in found} == {each.kept for each in known.values()}
    return is_known and not any(each.has_news for each in found)


def _refusals(found: list[Stream]) -> list[str]:
    reasons = {str(status): f"{status}, {reason}" for status, reason in REASONS.items()}
    names = [
        f"{each.name} ({reasons.get(each.detail, each.detail)})"
        for each in found
        if each.status == REFUSED
    ]
    return [f"Streams with state from an earlier run {some(names)}."] if names else []


# -- which streams ---------------------------------------------------------------------------------


def find_streams(
    origin: Origin, known: dict[str, Stream], names: Iterable[str]
) -> tuple[list[Stream], list[str]]:
    """All existing and former streams, by name; notes on buckets. Names in the log that never
    existed, such as those tried by scanners, are skipped."""
    seen = set(names)
    listed, notes = _listed(origin, {*filter(None, map(_bucket_of, seen))})
    ordered = sorted({*origin.streams, *seen, *known, *listed})

    def look(client: Client, name: str) -> Stream:
        response = client.head(f"stream {name!r}", stream_path(name))
        return judge_stream(name, response.status, response.head, known.get(name))

    found = ask_each(origin.address, ordered, look)
    kept = {*origin.streams, *known}
    there = (each for each in found if each.status != GONE or each.name in kept)
    return sorted(there, key=lambda each: each.name), notes


def _bucket_of(name: str) -> str:
    if not name.startswith(BUCKET_PREFIX):
        return ""
    return name.removeprefix(BUCKET_PREFIX).partition("/")[0]


def _listed(origin: Origin, buckets: set[str]) -> tuple[set[str], list[str]]:
    """A bucket that cannot be listed has only its named streams; if it was requested, a note says
    so."""
    names: set[str] = set()
    notes: list[str] = []
    with Client(origin.address) as client:
        for bucket in sorted({*origin.buckets, *buckets}):
            fault = f"bucket {bucket!r}: it has no streams"
            rows: set[str] = set()
            try:
                rows = {row.name for row in Streams(client).listing(bucket, "")}
            except SourceError as error:
                fault = str(error)
            if bucket in origin.buckets and not rows:
                notes.append(f"Nothing is shown for {fault}.")
            names |= rows
    return names, notes


def judge_stream(name: str, status: int, head: ReplyHead, before: Stream | None) -> Stream:
    """What to do with a stream, from the reply to a HEAD."""
    incarnation, tail = head.incarnation, head.next_offset
    old = before or Stream(name, GONE)
    has_rows = old.status in (READ, REFUSED)
    if status in (404, 410):
        return Stream(name, GONE, is_over=has_rows)
    if status != 200 or not is_offset(tail):
        return refused(name, str(status), before)
    if media_type(head.content_type) != JSON_TYPE:
        return Stream(name, NOT_JSON, head.content_type, incarnation, is_over=has_rows)
    if old.incarnation != incarnation or precedes(tail, old.offset):
        return Stream(name, READ, "", incarnation, START, tail, is_over=has_rows)
    return Stream(name, READ, "", incarnation, old.offset, tail)


def refused(name: str, detail: str, before: Stream | None) -> Stream:
    """Earlier data stays, and reading continues from there once it is possible."""
    old = before or Stream(name, GONE)
    return Stream(name, REFUSED, detail, old.incarnation, old.offset)


def _names(usage: DataFrame) -> list[str]:
    """Streams with successful requests."""
    used = usage.where("stream != '' and failures < requests").select("stream").distinct()
    return [row.stream for row in used.toLocalIterator()]


def _known(rows: DataFrame) -> list[Stream]:
    return [
        Stream(row.stream, row.status, row.detail, row.incarnation, row.offset)
        for row in rows.toLocalIterator()
    ]


# -- new messages ----------------------------------------------------------------------------------


def _apply(
    session: SparkSession, tables: Tables, change: Change, judged: DataFrame, found: list[Stream]
) -> None:
    streams = tables.read(session, "state_streams", STREAMS)
    before = tables.read(session, "state", state.CURRENT)
    over = session.createDataFrame(
        [(each.name, True) for each in found if each.is_over], "stream string, is_over boolean"
    )
    known = streams.join(over, "stream", "left").select(
        "stream", "last_time", F.coalesce("is_over", F.lit(False)).alias("is_over")
    )
    moved = _keep(session, change, "moves", state.moves(before, judged, known))
    left = before.join(over, "stream", "left_anti")
    change.replace_all("state", state.advance(left, judged), is_small=False)

    dated = moved.withColumn("date", F.col("minute").cast("date"))
    churn = tables.read(session, "state_churn", CHURN)
    change.replace_all("state_churn", state.add_moves(churn, dated, "stream", "type", "date"))
    minutes = tables.read(session, "state_by_minute", BY_MINUTE)
    change.replace_all("state_by_minute", state.add_moves(minutes, moved, "type", "minute"))
    changed = tables.read(session, "state_changed", state.CHANGED)
    all_changed = changed.unionByName(state.changed(judged)).distinct()
    change.replace_all("state_changed", all_changed, is_small=False)
    current = change.read(session, "state", state.CURRENT)
    counts = state.counts(current, change.read(session, "state_churn", CHURN))
    change.replace_all("state_counts", counts)

    bad = tables.read(session, "state_quarantine", QUARANTINE).join(over, "stream", "left_anti")
    all_bad = bad.unionByName(messages.quarantine(judged))
    change.replace_all("state_quarantine", all_bad, is_small=False)
    change.replace_all("state_streams", _progress(session, streams, judged, found))


def _read(
    session: SparkSession, change: Change, address: Address, found: list[Stream]
) -> tuple[DataFrame, dict[str, str]]:
    """Checked messages, stored in files: they are needed several times, but must be read once. For
    unreadable streams there is only the reason."""
    left = [each for each in found if each.has_news]
    parts: list[DataFrame] = []
    failed: dict[str, str] = {}
    for tries_left in reversed(range(TRIES if left else 0)):
        rows = messages.judge(_new_rows(session, address, left))
        try:
            kept = _keep(session, change, f"judged-{tries_left}", rows)
        except PySparkException as error:
            if not tries_left and not parts:
                raise as_source_error(error) from error
            continue
        faults = kept.where("failure is not null").groupBy("stream").agg(F.min("failure"))
        failed = dict(map(tuple, faults.collect()))
        parts.append(kept.where(~F.col("stream").isin(*failed)) if failed else kept)
        left = [each for each in left if each.name in failed]
        if not left:
            break
    schema = messages.judge(session.createDataFrame([], COLUMNS)).schema
    return reduce(DataFrame.unionByName, parts or [session.createDataFrame([], schema)]), failed


def _new_rows(session: SparkSession, address: Address, news: list[Stream]) -> DataFrame:
    planned = session.createDataFrame(
        [(each.name, each.incarnation or None) for each in news],
        "planned string, planned_incarnation string",
    )
    # A stream re-created since the HEAD is left to the next run.
    is_planned = (F.col("stream") == F.col("planned")) & F.col("incarnation").eqNullSafe(
        F.col("planned_incarnation")
    )
    return (
        session.read.format(FORMAT)
        .options(
            url=address.url,
            token=address.token,
            accessKey=address.access_key,
            timeoutSeconds=address.timeout_s,
            retries=address.retries,
            # The source accepts encoded names too, so names are encoded to be taken literally.
            streams=json.dumps([quote(each.name) for each in news]),
            start=json.dumps({quote(each.name): each.offset for each in news}),
            failOnDataLoss=False,
            failOnError=False,
        )
        .load()
        .join(F.broadcast(planned), is_planned, "left_semi")
    )


def _progress(
    session: SparkSession, before: DataFrame, judged: DataFrame, found: list[Stream]
) -> DataFrame:
    """`state_streams` after this step. Counts of ended streams restart at 0."""
    rows = [(*each.kept, each.is_over) for each in found]
    columns = "stream string, status string, detail string, incarnation string, "
    now = session.createDataFrame(rows, columns + "offset string, is_over boolean")
    is_good = F.col("fault").isNull()
    new = judged.groupBy("stream").agg(
        F.count_if(F.col("kind") == messages.MESSAGE).alias("messages"),
        F.count_if(is_good & F.col("operation").isNotNull()).alias("changes"),
        F.count_if(is_good & F.col("control").eqNullSafe("reset")).alias("resets"),
        F.count_distinct(F.when(F.col("kind") == messages.SNAPSHOT, F.col("offset"))).alias(
            "snapshots"
        ),
        F.count("fault").alias("quarantined"),
        F.max(F.when(is_good, F.col("time"))).alias("last_time"),
        F.max("next_offset").alias("reached"),
    )
    old = before.join(now.where("not is_over"), "stream", "left_semi")
    sums = (
        old.select("stream", *_SUMS, "last_time")
        .unionByName(new.drop("reached"))
        .groupBy("stream")
        .agg(*(F.sum(name).alias(name) for name in _SUMS), F.max("last_time").alias("last_time"))
    )
    return (
        now.join(new.select("stream", "reached"), "stream", "left")
        .join(sums, "stream", "left")
        .select(
            *("stream", "status", "detail", "incarnation"),
            F.coalesce("reached", "offset").alias("offset"),
            *(F.coalesce(name, F.lit(0).cast("bigint")).alias(name) for name in _SUMS),
            "last_time",
        )
    )


def _schema_of_counts(session: SparkSession) -> StructType:
    current, churn = (session.createDataFrame([], rows) for rows in (state.CURRENT, CHURN))
    return state.counts(current, churn).schema


# -- files -----------------------------------------------------------------------------------------


def _keep(session: SparkSession, change: Change, name: str, rows: DataFrame) -> DataFrame:
    path, schema = str(change.scratch / name), rows.schema
    rows.write.mode("overwrite").parquet(path)
    return session.read.schema(schema).parquet(path)


def _latest(
    session: SparkSession, tables: Tables, change: Change, table: str, schema: StructType | str
) -> DataFrame:
    if (change.folder / table).exists():
        return change.read(session, table, schema)
    return tables.read(session, table, schema)
