"""The numbers of the report, from the tables: only small results of aggregations.

Percentiles are by nearest rank over the summed bins of the latency tables. Requests that wait by
design (long-polls, event streams) are excluded from the percentiles of the totals.
`statesummary` has the numbers about state.
"""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any

from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from pages.figures import plural
from protocol.accesslog import READ_VERDICTS
from spark.intake import LOG_FILES
from spark.report import data
from spark.statesummary import StateSummary, slot_of
from spark.tables import Tables
from spark.traffic import bin_of

LARGEST = 100  # streams, subjects, failures, types and pairs shown
WAITING = ("long-poll", "sse")
TRAFFIC_MOMENTS = ("requests_saved", "bytes_sent", "bytes_saved", "errors", "token_failures")
TRAFFIC_TOTALS = (*TRAFFIC_MOMENTS, "requests", "bytes_received")
TRAFFIC = (*TRAFFIC_TOTALS, "upstream_requests", "collapsed")

Bins = Mapping[int, int]  # requests by microseconds


class Summary:
    def __init__(
        self, session: SparkSession, tables: Tables, schemas: Mapping[str, Any], most: int = LARGEST
    ) -> None:
        """`schemas` are those of the tables derived from requests."""
        self._session = session
        self._tables = tables
        self._schemas = schemas
        self._most = most

    def make(self, logs: str, origin: str, notes: Iterable[str] = ()) -> data.ReportData:
        now = datetime.now(UTC)
        drawn, left_out = self._drawn(now.date())
        seen = self._seen(drawn)
        step_ms = data.choose_step(seen["first_ms"] or 0, seen["last_ms"] or 0)
        slot = F.when(drawn, slot_of("minute", step_ms))
        slots = self._slots(slot)
        bins = self._bins(self._quick().withColumn("slot", slot), "slot")
        workers = self._workers()
        state = StateSummary(self._session, self._tables, self._most)
        return data.ReportData(
            made_ms=int(now.timestamp() * 1000),
            logs=logs,
            origin=origin,
            notes=(*notes, *left_out),
            totals=_totals(seen, slots, bins, workers),
            step_ms=step_ms,
            moments=_moments(slots, bins),
            modes=self._modes(),
            streams=self._streams(),
            subjects=self._subjects(),
            sessions=self._sessions(),
            failures=self._failures(),
            state=state.summarise(now + timedelta(days=1)) if origin else None,
            pairs=state.largest_pairs(),
            paired=state.count_pairs(),
            quality=self._quality(workers),
        )

    # -- traffic -------------------------------------------------------------------------------

    def _drawn(self, today: date) -> tuple[Column, list[str]]:
        """Which dates are shown in charts over time, and a note about the others."""
        files = self._tables.read(self._session, "log_files", LOG_FILES)
        days = [row["date"] for row in files.select("date").distinct().collect() if row["date"]]
        rows = self._table("usage").groupBy("date").agg(F.sum("requests").alias("requests"))
        requests = {row["date"]: row["requests"] for row in rows.collect()}
        drawn = data.choose_days(requests, days, today)
        if drawn == set(requests):
            return F.lit(True), []
        first, last = min(drawn), max(drawn)
        number = sum(requests[day] for day in requests if day not in drawn)
        note = (
            f"Charts over time cover {first:%-d %b %Y} to {last:%-d %b %Y}. They exclude "
            f"{plural(number, 'request')} with timestamps outside the log files' days."
        )
        return F.col("date").between(first, last), [note]

    def _seen(self, drawn: Column) -> Row:
        columns = (
            F.count_distinct(F.when(F.col("stream") != "", F.col("stream"))).alias("streams"),
            F.count_distinct(F.when(F.col("subject") != "", F.col("subject"))).alias("subjects"),
            F.unix_millis(F.min(F.when(drawn, F.col("first_seen")))).alias("first_ms"),
            F.unix_millis(F.max(F.when(drawn, F.col("last_seen")))).alias("last_ms"),
        )
        [row] = self._table("usage").agg(*columns).collect()
        return row

    def _slots(self, slot: Column) -> list[Row]:
        """Traffic by step and verdict: few rows, from which everything else is summed. Dates that
        are not shown are in no step."""
        traffic = self._table("traffic_by_minute").withColumn("slot", slot)
        sums = (F.sum(name).alias(name) for name in TRAFFIC)
        return traffic.groupBy("slot", "verdict").agg(*sums).collect()

    def _modes(self) -> list[data.ModeTimes]:
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
                data.ModeTimes(
                    mode=mode,
                    requests=requests,
                    latency=latency,
                    duration_ms=duration / 1000,
                    wait_ms=wait / 1000,
                    upstream_ms=upstream / 1000,
                )
            )
        return sorted(found, key=lambda mode: (-mode.requests, mode.mode))

    def _streams(self) -> list[data.StreamTraffic]:
        names = ("requests", "reads", "hub", "collapsed", "bytes_sent", "bytes_saved")
        reader = F.when((F.col("reads") > 0) & (F.col("subject") != ""), F.col("subject"))
        rows = self._largest(
            self._table("usage").where("stream != ''"),
            "stream",
            *(F.sum(name).alias(name) for name in names),
            F.sum(F.col("hits") + F.col("stale")).alias("hits"),
            F.sum("upstream_requests").alias("origin_requests"),
            F.count_distinct(reader).alias("readers"),
        )
        shown = [row["stream"] for row in rows]
        quick = self._table("latency").where(~F.col("mode").isin(*WAITING))
        bins = self._bins(quick.where(F.col("stream").isin(shown)), "stream") if shown else {}
        return [
            data.StreamTraffic(**row.asDict(), latency=percentiles(bins.get(row["stream"], {})))
            for row in rows
        ]

    def _subjects(self) -> list[data.SubjectUsage]:
        names = ("requests", "bytes_sent", "bytes_received")
        rows = self._largest(
            self._table("usage"),
            "subject",
            *(F.sum(name).alias(name) for name in names),
            F.sum("failures").alias("errors"),
            F.count_distinct(F.when(F.col("stream") != "", F.col("stream"))).alias("streams"),
            F.unix_millis(F.max("last_seen")).alias("last_ms"),
        )
        return [data.SubjectUsage(**row.asDict()) for row in rows]

    def _sessions(self) -> data.Sessions:
        """From bins, which are few. All bar boundaries are also bin boundaries."""
        duration = F.col("duration_us")
        rows = (
            self._table("sse_sessions")
            .groupBy(bin_of(duration).alias("bin_us"), "ended")
            .agg(
                F.count(F.lit(1)).alias("sessions"),
                F.sum("bytes_sent").alias("bytes_sent"),
                F.max(duration).alias("us"),
            )
            .collect()
        )
        lengths = [0] * (len(data.SESSION_BORDERS_MS) + 1)
        endings, bins = Counter[str](), Counter[int]()
        for row in rows:
            lengths[bisect_right(data.SESSION_BORDERS_MS, row["bin_us"] / 1000)] += row["sessions"]
            endings[row["ended"]] += row["sessions"]
            bins[row["bin_us"]] += row["sessions"]
        return data.Sessions(
            sessions=bins.total(),
            bytes_sent=sum(row["bytes_sent"] for row in rows),
            median_ms=_percentile(bins, 50) if bins else 0.0,
            longest_ms=max((row["us"] for row in rows), default=0) / 1000,
            lengths=lengths,
            endings=endings,
        )

    def _failures(self) -> list[data.Failure]:
        rows = (
            self._table("errors")
            .groupBy("error", "status", "mode")
            .agg(
                F.sum("requests").alias("requests"),
                F.max("streams").alias("most_streams"),
                F.unix_millis(F.max("last_seen")).alias("last_ms"),
            )
            .orderBy(F.desc("requests"), "status", "error", "mode")
            .limit(self._most)
            .collect()
        )
        return [data.Failure(**row.asDict()) for row in rows]

    # -- quality -------------------------------------------------------------------------------

    def _workers(self) -> list[Row]:
        logs = self._tables.find(self._session, "log_quality")
        assert logs is not None
        return sorted(logs.collect(), key=lambda row: (row["gateway"], row["worker"] or 0))

    def _quality(self, workers: list[Row]) -> data.Quality:
        reasons = self._tables.find(self._session, "quarantine_reasons")
        assert reasons is not None
        return data.Quality(
            files=sum(row["files"] for row in workers),
            lines=sum(row["lines"] for row in workers),
            duplicates=sum(row["duplicates"] for row in workers),
            quarantined={row["reason"]: row["lines"] for row in reasons.collect()},
            gaps=[
                data.Gap(
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
        """A table derived from requests; it may have no rows."""
        return self._tables.read(self._session, name, self._schemas[name])

    def _quick(self) -> DataFrame:
        return self._table("latency_by_minute").where(~F.col("mode").isin(*WAITING))

    def _largest(self, table: DataFrame, key: str, *sums: Column) -> list[Row]:
        grouped = table.groupBy(key).agg(*sums)
        return grouped.orderBy(F.desc("requests"), key).limit(self._most).collect()

    def _bins(self, table: DataFrame, key: str) -> dict[Any, Bins]:
        rows = table.groupBy(key, "bin_us").agg(F.sum("requests").alias("requests")).collect()
        found: dict[Any, dict[int, int]] = defaultdict(dict)
        for row in rows:
            found[row[key]][row["bin_us"]] = row["requests"]
        return dict(found)


def _totals(
    seen: Row, slots: list[Row], bins: Mapping[Any, Bins], workers: list[Row]
) -> data.Totals:
    wrote = [row for row in workers if row["requests"]]
    all_bins = Counter[int]()
    for some in bins.values():
        all_bins.update(some)
    return data.Totals(
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


def _moments(slots: list[Row], bins: Mapping[Any, Bins]) -> list[data.Moment]:
    by_slot: dict[int, list[Row]] = defaultdict(list)
    for row in slots:
        if row["slot"] is not None:
            by_slot[row["slot"]].append(row)
    return [
        data.Moment(
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
    """Parts of the reads, as in `spark.traffic`."""
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


def percentiles(bins: Bins) -> data.Percentiles | None:
    """By nearest rank, as in `spark.traffic`."""
    if not bins:
        return None
    return data.Percentiles(
        p50_ms=_percentile(bins, 50), p95_ms=_percentile(bins, 95), p99_ms=_percentile(bins, 99)
    )


def _percentile(bins: Bins, share: int) -> float:
    whole, reached = sum(bins.values()), 0
    for bin_us in sorted(bins):
        reached += bins[bin_us]
        if reached * 100 >= whole * share:
            return bin_us / 1000
    raise AssertionError("the last bin reaches everything")
