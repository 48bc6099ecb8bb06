"""Both sides of a stream in one row: its traffic and its state. docs/analytics.md has the columns.

A stream that only one side knows stays, with null on the other; what has nothing to be divided by
is null. Hot streams with little state have most `reads_per_entity`, large state that nobody reads
has most `unread_entities`.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

_TRAFFIC = ("requests", "reads", "writes", "bytes_sent", "bytes_received", "bytes_saved")
_STATE = ("entities", "value_bytes", "inserts", "updates", "deletes", "changes", "growth")


def traffic_and_state(usage: DataFrame, counts: DataFrame) -> DataFrame:
    """From who used which stream on which day, and entities per type."""
    reads, entities = F.coalesce("reads", F.lit(0)), F.coalesce("entities", F.lit(0))
    return (
        _traffic(usage)
        .join(_state(counts), "stream", "full")
        .withColumns(
            {
                "reads_per_entity": _ratio("reads", "entities"),
                "readers_per_entity": _ratio("readers", "entities"),
                "bytes_sent_per_entity": _ratio("bytes_sent", "entities"),
                "bytes_sent_per_change": _ratio("bytes_sent", "changes"),
                "unread_entities": F.when(reads == 0, entities).otherwise(0),
            }
        )
    )


def _traffic(usage: DataFrame) -> DataFrame:
    """Over all days: a subject of several days is one."""
    is_known = F.col("subject") != ""
    return (
        usage.where("stream != ''")
        .groupBy("stream", "subject")
        .agg(
            *(F.sum(name).alias(name) for name in _TRAFFIC),
            F.max("last_seen").alias("last_seen"),
        )
        .groupBy("stream")
        .agg(
            *(F.sum(name).alias(name) for name in _TRAFFIC),
            F.count_if(is_known).alias("subjects"),
            F.count_if(is_known & (F.col("reads") > 0)).alias("readers"),
            F.max("last_seen").alias("last_seen"),
        )
    )


def _state(counts: DataFrame) -> DataFrame:
    return counts.groupBy("stream").agg(
        F.count_if(F.col("entities") > 0).alias("types"),
        *(F.sum(name).alias(name) for name in _STATE),
        F.max("last_date").alias("last_change_date"),
    )


def _ratio(part: str, whole: str) -> Column:
    return F.try_divide(F.col(part), F.col(whole))
