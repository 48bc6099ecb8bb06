"""Aggregates of cleaned requests, one function per table. Built-in functions and integers only, so
that every engine gets the same numbers. docs/analytics.md has their columns.

What the counts mean:
- a *read* was or could have been served from stored bytes: verdict hit, stale, revalidated, miss
  or hub. Each read counts in one column: `collapsed` if it waited for another request's fetch, else
  by its verdict.
- the *hit ratio* is the share of reads in `hits` and `stale`. Hub and collapsed reads have their
  own ratios.
- a *saved* request is a read without an origin request. A hub's requests are in the line of one of
  its readers, so only the others are saved.
- an *error* is a server error: status 500 and above, or verdict error. A *failure* is any status of
  400 and above.
"""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from protocol.accesslog import HOUR_MS, READ_VERDICTS

PERCENTILES = (50, 90, 95, 99)
FIRST_SEQ = 1

_SUMS = ("requests", "reads", "writes", "bytes_sent", "bytes_received")
_READS = ("hits", "stale", "revalidated", "misses", "hub", "collapsed")
_COSTS = ("upstream_requests", "requests_saved", "bytes_saved")
_FAULTS = ("errors", "failures", "refused", "token_failures")
USAGE_SUMS = (*_SUMS, *_READS, *_COSTS, *_FAULTS)


def traffic_by_minute(requests: DataFrame) -> DataFrame:
    minute = F.date_trunc("minute", "time").alias("minute")
    return requests.groupBy("date", minute, "gateway", "mode", "verdict").agg(
        _count().alias("requests"),
        _count(_is_collapsed()).alias("collapsed"),
        _sum("bytes_sent"),
        _sum("bytes_received"),
        _sum("upstream_requests"),
        _count(_is_saved()).alias("requests_saved"),
        _bytes_saved(),
        _count(_is_error()).alias("errors"),
        _count(_is_token_failure()).alias("token_failures"),
    )


def usage(requests: DataFrame) -> DataFrame:
    """Requests by subject and stream; `streams` and `subjects` are sums of it."""
    is_alone = _is_read() & ~_is_collapsed()
    verdicts = {"hits": "hit", "misses": "miss"} | {
        name: name for name in ("stale", "revalidated", "hub")
    }
    return requests.groupBy("date", "stream", "subject").agg(
        _count().alias("requests"),
        _count(_is_read()).alias("reads"),
        _count(_is_write()).alias("writes"),
        _sum("bytes_sent"),
        _sum("bytes_received"),
        *(
            _count(is_alone & (F.col("verdict") == verdict)).alias(name)
            for name, verdict in verdicts.items()
        ),
        _count(_is_collapsed()).alias("collapsed"),
        _sum("upstream_requests"),
        _count(_is_saved()).alias("requests_saved"),
        _bytes_saved(),
        _count(_is_error()).alias("errors"),
        _count(F.col("status") >= 400).alias("failures"),
        _count(F.col("verdict") == "refused").alias("refused"),
        _count(_is_token_failure()).alias("token_failures"),
        F.min("time").alias("first_seen"),
        F.max("time").alias("last_seen"),
    )


def streams(used: DataFrame) -> DataFrame:
    is_known = F.col("subject") != ""
    totals = (
        used.where("stream != ''")
        .groupBy("date", "stream")
        .agg(
            *map(_sum, USAGE_SUMS),
            _count(is_known).alias("subjects"),
            _count(is_known & (F.col("reads") > 0)).alias("readers"),
            F.min("first_seen").alias("first_seen"),
            F.max("last_seen").alias("last_seen"),
        )
    )
    return totals.withColumns(
        {
            "hit_ratio": _share(F.col("hits") + F.col("stale")),
            "collapsed_ratio": _share(F.col("collapsed")),
            "hub_ratio": _share(F.col("hub")),
        }
    )


def subjects(used: DataFrame) -> DataFrame:
    return used.groupBy("date", "subject").agg(
        *map(_sum, USAGE_SUMS),
        _count(F.col("stream") != "").alias("streams"),
        F.min("first_seen").alias("first_seen"),
        F.max("last_seen").alias("last_seen"),
    )


def latency(requests: DataFrame) -> DataFrame:
    """A histogram whose bins are durations truncated to two digits: accurate to 10 %, and additive
    over days and streams."""
    return _binned(requests, ["date", "stream", "mode"])


def latency_by_minute(requests: DataFrame) -> DataFrame:
    timed = requests.withColumn("minute", F.date_trunc("minute", "time"))
    return _binned(timed, ["date", "minute", "mode"])


def latency_percentiles(bins: DataFrame) -> DataFrame:
    return _percentiles(bins, ["date", "stream", "mode"])


def latency_by_mode(bins: DataFrame) -> DataFrame:
    sums = [_sum(name) for name in ("requests", "duration_us", "wait_us", "upstream_us")]
    whole = bins.groupBy("date", "mode", "bin_us").agg(*sums, F.max("max_us").alias("max_us"))
    return _percentiles(whole, ["date", "mode"])


def sse_sessions(requests: DataFrame) -> DataFrame:
    """Opened sessions; refused ones are among the errors."""
    return requests.where("mode = 'sse' and status = 200").select(
        "date",
        "request_id",
        "gateway",
        "worker",
        "stream",
        "subject",
        F.col("time").alias("started"),
        _us("duration_ms").alias("duration_us"),
        "bytes_sent",
        "verdict",
        "ended",
    )


def errors(requests: DataFrame) -> DataFrame:
    """Every status of 400 and above, and verdict error."""
    return (
        requests.where((F.col("status") >= 400) | _is_error())
        .groupBy("date", "status", "error", "mode")
        .agg(
            _count().alias("requests"),
            _count(_is_token_failure()).alias("token_failures"),
            F.countDistinct(F.when(F.col("stream") != "", F.col("stream"))).alias("streams"),
            F.countDistinct("client").alias("clients"),
            F.min("time").alias("first_seen"),
            F.max("time").alias("last_seen"),
        )
    )


# -- log quality -----------------------------------------------------------------------------------


def log_runs(requests: DataFrame) -> DataFrame:
    """Runs of lines that one process wrote to one file. Within a file numbers increase until the
    process is restarted. (Not across files: long requests are written late, to the file of the
    hour in which they started.)"""
    hour = F.expr(f"time_ms div {HOUR_MS}")
    in_file = Window.partitionBy("date", "gateway", "worker", "hour").orderBy("position", "seq")
    before = F.lag("seq").over(in_file)
    begins = F.when(before.isNull(), F.col("seq") == FIRST_SEQ).otherwise(F.col("seq") <= before)
    return (
        requests.select("date", "gateway", "worker", hour.alias("hour"), "position", "seq")
        .withColumn("begins", begins.cast("int"))
        .withColumn("stretch", F.sum("begins").over(in_file))
        .groupBy("date", "gateway", "worker", "hour", "stretch")
        .agg(
            F.max("begins").alias("starts"),
            F.min("seq").alias("first_seq"),
            F.max("seq").alias("last_seq"),
            _count().alias("lines"),
        )
    )


def log_quality(runs: DataFrame, files: DataFrame) -> DataFrame:
    """For each worker over all time. Numbers missing between the first and the last of a process
    were dropped by the gateway."""
    so_far = Window.partitionBy("gateway", "worker").orderBy("hour", "stretch")
    missing = F.col("last") - F.col("first") + 1 - F.col("lines")
    written = (
        runs.withColumn("process", F.sum("starts").over(so_far))
        .groupBy("gateway", "worker", "process")
        .agg(
            F.min("first_seq").alias("first"),
            F.max("last_seq").alias("last"),
            _sum("lines"),
            F.max("starts").alias("starts"),
        )
        .groupBy("gateway", "worker")
        .agg(
            _sum("lines", "requests"),
            _sum("starts"),
            F.sum(F.greatest(missing, F.lit(0))).alias("missing"),
        )
    )
    name = r"(?:^|/)access-(.+)-(\d+)-\d{8}T\d{2}\.jsonl(?:\.gz)?$"
    read = (
        files.withColumn("gateway", F.regexp_extract("file", name, 1))
        .withColumn("worker", F.regexp_extract("file", name, 2))
        .withColumn("worker", F.col("worker").try_cast("bigint"))
        .groupBy("gateway", "worker")
        .agg(
            F.countDistinct("file").alias("files"),
            *map(_sum, ("lines", "duplicates", "quarantined")),
        )
    )
    same = (written["gateway"] == read["gateway"]) & (written["worker"].eqNullSafe(read["worker"]))
    counts = ("files", "lines", "duplicates", "quarantined", "requests", "starts", "missing")
    return written.join(read, same, "full").select(
        F.coalesce(written["gateway"], read["gateway"]).alias("gateway"),
        F.coalesce(written["worker"], read["worker"]).alias("worker"),
        *(F.coalesce(F.col(count), F.lit(0)).alias(count) for count in counts),
    )


def quarantine_reasons(quarantined: DataFrame) -> DataFrame:
    return quarantined.groupBy("reason").agg(
        _count().alias("lines"), F.countDistinct("file").alias("files")
    )


# -- columns ---------------------------------------------------------------------------------------


def _count(condition: Column | None = None) -> Column:
    return F.count(F.lit(1)) if condition is None else F.count_if(condition)


def _sum(name: str, alias: str = "") -> Column:
    return F.sum(name).alias(alias or name)


def _is_read() -> Column:
    return F.col("verdict").isin(*READ_VERDICTS)


def _is_write() -> Column:
    return F.col("method").isin("PUT", "POST", "DELETE", "PATCH")


def _is_collapsed() -> Column:
    return _is_read() & (F.col("role") == "follower")


def _is_saved() -> Column:
    return _is_read() & (F.col("upstream_requests") == 0)


def _bytes_saved() -> Column:
    return F.sum(F.when(_is_saved(), F.col("bytes_sent")).otherwise(0)).alias("bytes_saved")


def _is_error() -> Column:
    return (F.col("status") >= 500) | (F.col("verdict") == "error")


def _is_token_failure() -> Column:
    return F.col("status").isin(401, 403)


def _share(part: Column) -> Column:
    """Share of the reads; null without any."""
    return F.try_divide(part, F.col("reads"))


def _us(milliseconds: str) -> Column:
    return F.round(F.col(milliseconds) * 1000).cast("bigint")


def _binned(requests: DataFrame, keys: Sequence[str]) -> DataFrame:
    timed = requests.withColumn("us", _us("duration_ms"))
    return timed.groupBy(*keys, bin_of(F.col("us")).alias("bin_us")).agg(
        _count().alias("requests"),
        F.max("us").alias("max_us"),
        F.sum("us").alias("duration_us"),
        F.sum(_us("wait_ms")).alias("wait_us"),
        F.sum(_us("upstream_ms")).alias("upstream_us"),
    )


def bin_of(us: Column) -> Column:
    """The number with all but its first two digits set to zero."""
    cut = F.when(us < 100, us)
    for digits in range(3, 16):
        unit = 10 ** (digits - 2)
        cut = cut.when(us < 10**digits, us - us % unit)
    return cut.otherwise(us - us % 10**14)


def _percentiles(bins: DataFrame, keys: list[str]) -> DataFrame:
    """By nearest rank: the lowest bin with at least that percentage of requests at or below it."""
    up_to = Window.partitionBy(*keys).orderBy("bin_us")
    whole = Window.partitionBy(*keys)
    ranked = bins.withColumn("reached", F.sum("requests").over(up_to)).withColumn(
        "all", F.sum("requests").over(whole)
    )
    return ranked.groupBy(*keys).agg(
        _sum("requests"),
        *(
            F.min(F.when(F.col("reached") * 100 >= F.col("all") * share, F.col("bin_us"))).alias(
                f"p{share}_us"
            )
            for share in PERCENTILES
        ),
        F.max("max_us").alias("max_us"),
        *map(_sum, ("duration_us", "wait_us", "upstream_us")),
    )
