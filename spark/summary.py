"""The numbers of the report, taken out of the tables: small results of aggregations, nothing else.

Percentiles are by nearest rank over the bins of the latency tables, added up for whatever is looked
at. Requests that wait by design (long-polls, event streams) are in no percentile of the totals.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from functools import reduce
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
TRAFFIC_MOMENTS = ("requests_saved", "bytes_sent", "bytes_saved", "errors", "token_failures")
TRAFFIC_TOTALS = (*TRAFFIC_MOMENTS, "requests", "bytes_received")
TRAFFIC = (*TRAFFIC_TOTALS, "upstream_requests", "collapsed")

Bins = Mapping[int, int]  # requests by microseconds


class Summary:
    def __init__(self, session: SparkSession, tables: Tables, schemas: Mapping[str, Any]) -> None:
        """`schemas` are those of the tables that are made of requests."""
        self._session = session
        self._tables = tables
        self._schemas = schemas

    def make(self, logs: str, origin: str, notes: Iterable[str] = ()) -> ReportData:
        seen = self._seen()
        step_ms = choose_step(seen["first_ms"] or 0, seen["last_ms"] or 0)
        slots = self._slots(step_ms)
        bins = self._bins(self._quick().withColumn("slot", _slot("minute", step_ms)), "slot")
        workers = self._workers()
        return ReportData(
            made_ms=int(time.time() * 1000),
            logs=logs,
            origin=origin,
            notes=tuple(notes),
            totals=_totals(seen, slots, bins, workers),
            step_ms=step_ms,
            moments=_moments(slots, bins),
            modes=self._modes(),
            streams=self._streams(),
            subjects=self._subjects(),
            sessions=self._sessions(),
            failures=self._failures(),
            state=self._state() if origin else None,
            pairs=self._pairs(),
            paired=self._count_pairs(),
            quality=self._quality(workers),
        )

    # -- traffic -------------------------------------------------------------------------------

    def _seen(self) -> Row:
        return _first(
            self._table("usage").agg(
                F.count_distinct(F.when(F.col("stream") != "", F.col("stream"))).alias("streams"),
                F.count_distinct(F.when(F.col("subject") != "", F.col("subject"))).alias(
                    "subjects"
                ),
                F.unix_millis(F.min("first_seen")).alias("first_ms"),
                F.unix_millis(F.max("last_seen")).alias("last_ms"),
            )
        )

    def _slots(self, step_ms: int) -> list[Row]:
        """Traffic by step and verdict: few rows, from which everything else is added up."""
        traffic = self._table("traffic_by_minute").withColumn("slot", _slot("minute", step_ms))
        sums = (F.sum(name).alias(name) for name in TRAFFIC)
        return traffic.groupBy("slot", "verdict").agg(*sums).collect()

    def _modes(self) -> list[ModeTimes]:
        names = ("requests", "duration_us", "wait_us", "upstream_us")
        table = self._table("latency_by_minute").groupBy("mode", "bin_us")
        by_mode: dict[str, list[Row]] = defaultdict(list)
        for row in table.agg(*(F.sum(name).alias(name) for name in names)).collect():
            by_mode[row["mode"]].append(row)
        found = []
        for mode, rows in by_mode.items():
            latency = percentiles({row["bin_us"]: row["requests"] for row in rows})
            assert latency is not None
            requests, duration, wait, upstream = (sum(row[name] for row in rows) for name in names)
            found.append(
                ModeTimes(
                    mode=mode,
                    requests=requests,
                    latency=latency,
                    duration_ms=duration / 1000,
                    wait_ms=wait / 1000,
                    upstream_ms=upstream / 1000,
                )
            )
        return sorted(found, key=lambda mode: (-mode.requests, mode.mode))

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
        bins = self._bins(quick.where(F.col("stream").isin(shown)), "stream") if shown else {}
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
                latency=percentiles(bins.get(row["stream"], {})),
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
        lengths, endings = [0] * (len(SESSION_BORDERS_MS) + 1), Counter[str]()
        for row in table.groupBy(bar.alias("bar"), "ended").count().collect():
            lengths[row["bar"]] += row["count"]
            endings[row["ended"]] += row["count"]
        return Sessions(
            sessions=whole["sessions"],
            bytes_sent=whole["bytes_sent"],
            median_ms=whole["median"],
            longest_ms=whole["longest"],
            lengths=lengths,
            endings=endings,
        )

    def _failures(self) -> list[Failure]:
        rows = (
            self._table("errors")
            .groupBy("error", "status", "mode")
            .agg(
                F.sum("requests").alias("requests"),
                F.max("streams").alias("most_streams"),
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
            types=[TypeState(**row.asDict()) for row in sorted(types.collect(), key=_type_of)],
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
        numbers = ("requests", "reads", "readers", "bytes_sent", "entities", "changes")
        whole = table.select(
            "stream",
            *(F.coalesce(name, F.lit(0)).alias(name) for name in numbers),
            F.col("changed_entities").alias("changed"),
            "growth",
        )
        orders = (whole, "reads"), (whole, "entities"), (whole.where("reads = 0"), "entities")
        largest = [rows.orderBy(F.desc(order), "stream").limit(LARGEST) for rows, order in orders]
        found = {
            row["stream"]: row
            for row in reduce(lambda one, other: one.unionByName(other), largest).collect()
        }
        pairs = (Pair(**row.asDict()) for row in found.values())
        return sorted(pairs, key=lambda pair: (-pair.reads, -pair.entities, pair.stream))

    def _count_pairs(self) -> int:
        table = self._stored("traffic_and_state")
        return 0 if table is None else table.count()

    # -- quality -------------------------------------------------------------------------------

    def _workers(self) -> list[Row]:
        logs = self._stored("log_quality")
        assert logs is not None
        return sorted(logs.collect(), key=lambda row: (row["gateway"], row["worker"] or 0))

    def _quality(self, workers: list[Row]) -> Quality:
        reasons = self._stored("quarantine_reasons")
        assert reasons is not None
        return Quality(
            files=sum(row["files"] for row in workers),
            lines=sum(row["lines"] for row in workers),
            duplicates=sum(row["duplicates"] for row in workers),
            quarantined={row["reason"]: row["lines"] for row in reasons.collect()},
            gaps=[
                Gap(
                    gateway=row["gateway"],
                    worker=row["worker"],
                    lines=row["requests"],
                    missing=row["missing"],
                )
                for row in workers
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

    def _bins(self, table: DataFrame, key: str) -> dict[Any, Bins]:
        rows = table.groupBy(key, "bin_us").agg(F.sum("requests").alias("requests")).collect()
        found: dict[Any, dict[int, int]] = defaultdict(dict)
        for row in rows:
            found[row[key]][row["bin_us"]] = row["requests"]
        return dict(found)


def _totals(seen: Row, slots: list[Row], bins: Mapping[Any, Bins], workers: list[Row]) -> Totals:
    wrote = [row for row in workers if row["requests"]]
    all_bins = Counter[int]()
    for some in bins.values():
        all_bins.update(some)
    return Totals(
        **_added(slots, *TRAFFIC_TOTALS),
        **_answers(slots),
        verdicts=_verdicts(slots),
        origin_requests=sum(row["upstream_requests"] for row in slots),
        origin_reads=_origin_reads(slots),
        latency=percentiles(all_bins),
        streams=seen["streams"],
        subjects=seen["subjects"],
        first_ms=seen["first_ms"] or 0,
        last_ms=seen["last_ms"] or 0,
        gateways=sorted({row["gateway"] for row in wrote}),
        workers=len(wrote),
    )


def _moments(slots: list[Row], bins: Mapping[Any, Bins]) -> list[Moment]:
    by_slot: dict[int, list[Row]] = defaultdict(list)
    for row in slots:
        by_slot[row["slot"]].append(row)
    return [
        Moment(
            **_added(rows, *TRAFFIC_MOMENTS),
            **_answers(rows),
            at_ms=at_ms,
            verdicts=_verdicts(rows),
            origin_reads=_origin_reads(rows),
            latency=percentiles(bins.get(at_ms, {})),
        )
        for at_ms, rows in sorted(by_slot.items())
    ]


def _added(rows: list[Row], *names: str) -> dict[str, Any]:
    return {name: sum(row[name] for row in rows) for name in names}


def _answers(rows: list[Row]) -> dict[str, int]:
    """Parts of the reads, as `spark.traffic` has them."""
    alone = Counter[str]()
    for row in rows:
        alone[row["verdict"]] += row["requests"] - row["collapsed"]
    collapsed = sum(row["collapsed"] for row in rows)
    return {"hits": alone["hit"] + alone["stale"], "hub": alone["hub"], "collapsed": collapsed}


def _verdicts(rows: list[Row]) -> dict[str, int]:
    found = Counter[str]()
    for row in rows:
        found[row["verdict"]] += row["requests"]
    return dict(found)


def _origin_reads(rows: list[Row]) -> int:
    return sum(row["upstream_requests"] for row in rows if row["verdict"] in READ_VERDICTS)


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


def _sum(name: str) -> Column:
    return F.coalesce(F.sum(name), F.lit(0)).alias(name)


def _type_of(row: Row) -> Any:
    return row["type"]


def _slot(column: str, step_ms: int) -> Column:
    """The beginning of the step that a time is in."""
    at = F.unix_millis(column)
    return at - at % step_ms


def _first(rows: DataFrame) -> Row:
    row = rows.first()
    assert row is not None
    return row
