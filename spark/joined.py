"""A stream's traffic and state in one row. docs/analytics.md has the columns.

A stream known to only one side has null on the other; ratios without a denominator are null. Hot
streams with little state have the most `reads_per_entity`, large unread state has the most
`unread_entities`. Growth and changed entities cover the days of the log, so that they match the
traffic; streams without timestamps have neither.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

_TRAFFIC = ("requests", "reads", "writes", "bytes_sent", "bytes_received", "bytes_saved")
_STATE = ("entities", "value_bytes", "inserts", "updates", "deletes", "changes")


def traffic_and_state(
    usage: DataFrame, counts: DataFrame, churn: DataFrame, changed: DataFrame
) -> DataFrame:
    """From usage by stream and day, entities per type, their growth by day, and changed entities by
    day."""
    days = F.broadcast(usage.select("date").distinct())
    state = _state(
        counts, churn.join(days, "date", "left_semi"), changed.join(days, "date", "left_semi")
    )
    reads, entities = F.coalesce("reads", F.lit(0)), F.coalesce("entities", F.lit(0))
    return (
        _traffic(usage)
        .join(state, "stream", "full")
        .withColumns(
            {
                "reads_per_entity": _ratio("reads", "entities"),
                "readers_per_entity": _ratio("readers", "entities"),
                "bytes_sent_per_entity": _ratio("bytes_sent", "entities"),
                "bytes_sent_per_changed_entity": _ratio("bytes_sent", "changed_entities"),
                "unread_entities": F.when(reads == 0, entities).otherwise(0),
            }
        )
    )


def _traffic(usage: DataFrame) -> DataFrame:
    """Over all days: a subject counts once, however many days it has."""
    is_known = F.col("subject") != ""
    return (
        usage.where("stream != ''")
        .groupBy("stream", "subject")
        .agg(*(F.sum(name).alias(name) for name in _TRAFFIC), F.max("last_seen").alias("last_seen"))
        .groupBy("stream")
        .agg(
            *(F.sum(name).alias(name) for name in _TRAFFIC),
            F.count_if(is_known).alias("subjects"),
            F.count_if(is_known & (F.col("reads") > 0)).alias("readers"),
            F.max("last_seen").alias("last_seen"),
        )
    )


def _state(counts: DataFrame, churn: DataFrame, changed: DataFrame) -> DataFrame:
    whole = counts.groupBy("stream").agg(
        F.count_if(F.col("entities") > 0).alias("types"),
        *(F.sum(name).alias(name) for name in _STATE),
        F.max("last_date").alias("last_change_date"),
    )
    grown = churn.groupBy("stream").agg(F.sum("growth").alias("growth"))
    entities = changed.select("stream", "type", "key").distinct()
    touched = entities.groupBy("stream").agg(F.count(F.lit(1)).alias("changed_entities"))
    has_times = F.col("last_change_date").isNotNull()
    return (
        whole.join(grown, "stream", "left")
        .join(touched, "stream", "left")
        .withColumns(
            {
                name: F.when(has_times, F.coalesce(name, F.lit(0).cast("bigint")))
                for name in ("growth", "changed_entities")
            }
        )
    )


def _ratio(part: str, whole: str) -> Column:
    return F.try_divide(F.col(part), F.col(whole))
