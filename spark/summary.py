"""The numbers of the report, taken out of the tables: small results of aggregations, nothing else.

Percentiles are by nearest rank over the bins of the latency tables, added up for whatever is looked
at. Requests that wait by design (long-polls, event streams) are in no percentile of the totals.
"""

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from spark.report.data import (
    READ_VERDICTS,
    SESSION_BORDERS_MS,
    Failure,
    Gap,
    ModeTimes,
    Moment,
    Pair,
    Percentiles,
    Quality,
    ReportData,
    Sessions,
    State,
    StateMoment,
    StreamTraffic,
    SubjectUsage,
    Totals,
    TypeState,
    choose_step,
)
from spark.tables import Tables

LARGEST = 100  # streams, subjects and pairs that are shown
WAITING = ("long-poll", "sse")

Bins = Mapping[int, int]  # requests by microseconds


class Summary:
    def __init__(self, session: SparkSession, tables: Tables, schemas: Mapping[str, Any]) -> None:
        """`schemas` are those of the tables that are made of requests."""
        self._session = session
        self._tables = tables
        self._schemas = schemas

    def make(self, logs: str, origin: str, notes: Iterable[str] = ()) -> ReportData:
        totals = self._totals()
        step_ms = choose_step(totals.first_ms, totals.last_ms)
        return ReportData(
            made_ms=int(time.time() * 1000),
            logs=logs,
            origin=origin,
            notes=tuple(notes),
            totals=totals,
            step_ms=step_ms,
            moments=self._moments(step_ms),
            modes=self._modes(),
            streams=self._streams(),
            subjects=self._subjects(),
            sessions=self._sessions(),
            failures=self._failures(),
            state=self._state() if origin else None,
            pairs=self._pairs(),
            paired=self._count_pairs(),
            quality=self._quality(),
        )

    # -- traffic -------------------------------------------------------------------------------

    def _totals(self) -> Totals:
        traffic, usage = self._table("traffic_by_minute"), self._table("usage")
        whole = _first(traffic.agg(*_traffic_sums()))
        seen = _first(
            usage.agg(
                F.count_distinct(F.when(F.col("stream") != "", F.col("stream"))).alias("streams"),
                F.count_distinct(F.when(F.col("subject") != "", F.col("subject"))).alias(
                    "subjects"
                ),
                F.unix_millis(F.min("first_seen")).alias("first_ms"),
                F.unix_millis(F.max("last_seen")).alias("last_ms"),
            )
        )
        workers = self._table("log_runs").select("gateway", "worker").distinct().collect()
        verdicts = traffic.groupBy("verdict").agg(F.sum("requests").alias("requests")).collect()
        bins = self._bins(self._quick(), [])
        return Totals(
            requests=whole["requests"],
            verdicts={row["verdict"]: row["requests"] for row in verdicts},
            origin_requests=whole["upstream_requests"],
            origin_reads=whole["origin_reads"],
            requests_saved=whole["requests_saved"],
            bytes_received=whole["bytes_received"],
            bytes_sent=whole["bytes_sent"],
            bytes_saved=whole["bytes_saved"],
            latency=percentiles(bins.get((), {})),
            errors=whole["errors"],
            token_failures=whole["token_failures"],
            streams=seen["streams"],
            subjects=seen["subjects"],
            first_ms=seen["first_ms"] or 0,
            last_ms=seen["last_ms"] or 0,
            gateways=sorted({row["gateway"] for row in workers}),
            workers=len(workers),
        )

    def _moments(self, step_ms: int) -> list[Moment]:
        slot = _slot("minute", step_ms)
        traffic = self._table("traffic_by_minute").withColumn("slot", slot)
        rows = traffic.groupBy("slot").agg(*_traffic_sums()).orderBy("slot").collect()
        verdicts: dict[int, dict[str, int]] = defaultdict(dict)
        for row in traffic.groupBy("slot", "verdict").agg(F.sum("requests").alias("n")).collect():
            verdicts[row["slot"]][row["verdict"]] = row["n"]
        bins = self._bins(self._quick().withColumn("slot", slot), ["slot"])
        return [
            Moment(
                at_ms=row["slot"],
                verdicts=verdicts[row["slot"]],
                origin_reads=row["origin_reads"],
                requests_saved=row["requests_saved"],
                bytes_sent=row["bytes_sent"],
                bytes_saved=row["bytes_saved"],
                errors=row["errors"],
                token_failures=row["token_failures"],
                latency=percentiles(bins.get((row["slot"],), {})),
            )
            for row in rows
        ]

    def _modes(self) -> list[ModeTimes]:
        table = self._table("latency_by_minute")
        bins = self._bins(table, ["mode"])
        sums = table.groupBy("mode").agg(
            *(F.sum(name).alias(name) for name in ("requests", "duration_us")),
            *(F.sum(name).alias(name) for name in ("wait_us", "upstream_us")),
        )
        found = []
        for row in sums.orderBy(F.desc("requests"), "mode").collect():
            latency = percentiles(bins[(row["mode"],)])
            assert latency is not None
            found.append(
                ModeTimes(
                    mode=row["mode"],
                    requests=row["requests"],
                    latency=latency,
                    duration_ms=row["duration_us"] / 1000,
                    wait_ms=row["wait_us"] / 1000,
                    upstream_ms=row["upstream_us"] / 1000,
                )
            )
        return found

    def _streams(self) -> list[StreamTraffic]:
        names = ("requests", "reads", "hits", "stale", "hub", "collapsed", "upstream_requests")
        reader = F.when((F.col("reads") > 0) & (F.col("subject") != ""), F.col("subject"))
        rows = self._largest(
            self._table("usage").where("stream != ''"),
            "stream",
            *(F.sum(name).alias(name) for name in (*names, "bytes_sent", "bytes_saved")),
            F.count_distinct(reader).alias("readers"),
        )
        shown = [row["stream"] for row in rows]
        quick = self._table("latency").where(~F.col("mode").isin(*WAITING))
        bins = self._bins(quick.where(F.col("stream").isin(shown)), ["stream"]) if shown else {}
        return [
            StreamTraffic(
                stream=row["stream"],
                requests=row["requests"],
                reads=row["reads"],
                hits=row["hits"] + row["stale"],
                hub=row["hub"],
                collapsed=row["collapsed"],
                origin_requests=row["upstream_requests"],
                bytes_sent=row["bytes_sent"],
                bytes_saved=row["bytes_saved"],
                readers=row["readers"],
                latency=percentiles(bins.get((row["stream"],), {})),
            )
            for row in rows
        ]

    def _subjects(self) -> list[SubjectUsage]:
        names = ("requests", "bytes_sent", "bytes_received", "failures")
        rows = self._largest(
            self._table("usage"),
            "subject",
            *(F.sum(name).alias(name) for name in names),
            F.count_distinct(F.when(F.col("stream") != "", F.col("stream"))).alias("streams"),
            F.unix_millis(F.max("last_seen")).alias("last_ms"),
        )
        return [
            SubjectUsage(
                subject=row["subject"],
                requests=row["requests"],
                streams=row["streams"],
                bytes_sent=row["bytes_sent"],
                bytes_received=row["bytes_received"],
                errors=row["failures"],
                last_ms=row["last_ms"],
            )
            for row in rows
        ]

    def _sessions(self) -> Sessions:
        table = self._table("sse_sessions").withColumn("ms", F.col("duration_us") / 1000)
        whole = _first(
            table.agg(
                F.count(F.lit(1)).alias("sessions"),
                _sum("bytes_sent"),
                F.coalesce(F.percentile("ms", 0.5), F.lit(0.0)).alias("median"),
                F.coalesce(F.max("ms"), F.lit(0.0)).alias("longest"),
            )
        )
        bar = F.lit(0)
        for border in SESSION_BORDERS_MS:
            bar = bar + (F.col("ms") >= border).cast("int")
        bars = {
            row["bar"]: row["count"] for row in table.groupBy(bar.alias("bar")).count().collect()
        }
        endings = table.groupBy("ended").count().collect()
        return Sessions(
            sessions=whole["sessions"],
            bytes_sent=whole["bytes_sent"],
            median_ms=whole["median"],
            longest_ms=whole["longest"],
            lengths=[bars.get(number, 0) for number in range(len(SESSION_BORDERS_MS) + 1)],
            endings={row["ended"]: row["count"] for row in endings},
        )

    def _failures(self) -> list[Failure]:
        rows = (
            self._table("errors")
            .groupBy("error", "status", "mode")
            .agg(
                F.sum("requests").alias("requests"),
                F.max("streams").alias("streams"),
                F.unix_millis(F.max("last_seen")).alias("last_ms"),
            )
            .orderBy(F.desc("requests"), "status", "error", "mode")
            .limit(LARGEST)
            .collect()
        )
        return [Failure(**row.asDict()) for row in rows]

    # -- state ---------------------------------------------------------------------------------

    def _state(self) -> State | None:
        streams, counts = self._stored("state_streams"), self._stored("state_counts")
        if streams is None or counts is None:
            return None
        read = _first(
            streams.where("status = 'read'").agg(
                F.count(F.lit(1)).alias("streams"), _sum("messages")
            )
        )
        types = counts.groupBy("type").agg(
            F.count_if(F.col("entities") > 0).alias("streams"),
            *(F.sum(name).alias(name) for name in ("entities", "inserts", "updates", "deletes")),
        )
        bad = self._stored("state_quarantine")
        reasons = [] if bad is None else bad.groupBy("reason").count().collect()
        step_ms, moments = self._state_moments()
        return State(
            streams=read["streams"],
            messages=read["messages"],
            quarantined={row["reason"]: row["count"] for row in reasons},
            types=[TypeState(**row.asDict()) for row in types.orderBy("type").collect()],
            step_ms=step_ms,
            moments=moments,
        )

    def _state_moments(self) -> tuple[int, list[StateMoment]]:
        table = self._stored("state_by_minute")
        dated = None if table is None else table.where("minute is not null")
        if dated is None:
            return 1, []
        ends = _first(
            dated.agg(
                F.unix_millis(F.min("minute")).alias("first"),
                F.unix_millis(F.max("minute")).alias("last"),
            )
        )
        if ends["first"] is None:
            return 1, []
        step_ms = choose_step(ends["first"], ends["last"])
        names = ("inserts", "updates", "deletes", "growth")
        rows = (
            dated.groupBy(_slot("minute", step_ms).alias("slot"), "type")
            .agg(*(F.sum(name).alias(name) for name in names))
            .orderBy("slot", "type")
            .collect()
        )
        entities: dict[str, int] = {}
        moments: dict[int, StateMoment] = {}
        for slot in sorted({row["slot"] for row in rows}):
            here = [row for row in rows if row["slot"] == slot]
            for row in here:
                entities[row["type"]] = entities.get(row["type"], 0) + row["growth"]
            moments[slot] = StateMoment(
                at_ms=slot,
                entities=dict(entities),
                inserts=sum(row["inserts"] for row in here),
                updates=sum(row["updates"] for row in here),
                deletes=sum(row["deletes"] for row in here),
            )
        return step_ms, list(moments.values())

    def _pairs(self) -> list[Pair]:
        """Those with most reads, with most entities, and with most entities that nobody read."""
        table = self._stored("traffic_and_state")
        if table is None:
            return []
        numbers = ("requests", "reads", "readers", "bytes_sent", "entities", "changes", "growth")
        whole = table.select(
            "stream", *(F.coalesce(name, F.lit(0)).alias(name) for name in numbers)
        )
        found: dict[str, Pair] = {}
        for chosen, order in (
            (whole, "reads"),
            (whole, "entities"),
            (whole.where("reads = 0"), "entities"),
        ):
            for row in chosen.orderBy(F.desc(order), "stream").limit(LARGEST).collect():
                found[row["stream"]] = Pair(**row.asDict())
        return sorted(found.values(), key=lambda pair: (-pair.reads, -pair.entities, pair.stream))

    def _count_pairs(self) -> int:
        table = self._stored("traffic_and_state")
        return 0 if table is None else table.count()

    # -- quality -------------------------------------------------------------------------------

    def _quality(self) -> Quality:
        logs, reasons = self._stored("log_quality"), self._stored("quarantine_reasons")
        assert logs is not None and reasons is not None
        rows = logs.orderBy("gateway", "worker").collect()
        return Quality(
            files=sum(row["files"] for row in rows),
            lines=sum(row["lines"] for row in rows),
            duplicates=sum(row["duplicates"] for row in rows),
            quarantined={row["reason"]: row["lines"] for row in reasons.collect()},
            gaps=[
                Gap(
                    gateway=row["gateway"],
                    worker=row["worker"],
                    lines=row["requests"],
                    missing=row["missing"],
                )
                for row in rows
                if row["worker"] is not None
            ],
        )

    # -- tables --------------------------------------------------------------------------------

    def _table(self, name: str) -> DataFrame:
        """One that is made of requests; it may have no rows."""
        return self._tables.read(self._session, name, self._schemas[name])

    def _stored(self, name: str) -> DataFrame | None:
        """One that is there or not."""
        path = self._tables.path(name)
        return self._session.read.parquet(str(path.resolve())) if path.exists() else None

    def _quick(self) -> DataFrame:
        return self._table("latency_by_minute").where(~F.col("mode").isin(*WAITING))

    def _largest(self, table: DataFrame, key: str, *sums: Column) -> list[Row]:
        grouped = table.groupBy(key).agg(*sums)
        return grouped.orderBy(F.desc("requests"), key).limit(LARGEST).collect()

    def _bins(self, table: DataFrame, keys: list[str]) -> dict[tuple[Any, ...], Bins]:
        rows = table.groupBy(*keys, "bin_us").agg(F.sum("requests").alias("requests")).collect()
        found: dict[tuple[Any, ...], dict[int, int]] = defaultdict(dict)
        for row in rows:
            found[tuple(row[key] for key in keys)][row["bin_us"]] = row["requests"]
        return dict(found)


def percentiles(bins: Bins) -> Percentiles | None:
    """By nearest rank, as `spark.traffic` has it."""
    if not bins:
        return None
    return Percentiles(
        p50_ms=_percentile(bins, 50), p95_ms=_percentile(bins, 95), p99_ms=_percentile(bins, 99)
    )


def _percentile(bins: Bins, share: int) -> float:
    whole, reached = sum(bins.values()), 0
    for bin_us in sorted(bins):
        reached += bins[bin_us]
        if reached * 100 >= whole * share:
            return bin_us / 1000
    raise AssertionError("the last bin reaches everything")


def _traffic_sums() -> list[Column]:
    names = ("requests", "upstream_requests", "requests_saved", "bytes_sent", "bytes_received")
    is_read = F.col("verdict").isin(*READ_VERDICTS)
    reads = F.sum(F.when(is_read, F.col("upstream_requests")).otherwise(0))
    return [
        *(_sum(name) for name in (*names, "bytes_saved", "errors", "token_failures")),
        F.coalesce(reads, F.lit(0)).alias("origin_reads"),
    ]


def _sum(name: str) -> Column:
    return F.coalesce(F.sum(name), F.lit(0)).alias(name)


def _slot(column: str, step_ms: int) -> Column:
    """The beginning of the step that a time is in."""
    at = F.unix_millis(column)
    return at - at % step_ms


def _first(rows: DataFrame) -> Row:
    row = rows.first()
    assert row is not None
    return row
