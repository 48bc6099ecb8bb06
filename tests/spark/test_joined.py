"""Traffic beside state: nothing is lost, and nothing is divided by nothing."""

from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark.joined import traffic_and_state

USAGE = (
    "stream string, subject string, requests bigint, reads bigint, writes bigint, "
    "bytes_sent bigint, bytes_received bigint, bytes_saved bigint, last_seen timestamp"
)
COUNTS = (
    "stream string, type string, entities bigint, value_bytes bigint, inserts bigint, "
    "updates bigint, deletes bigint, changes bigint, growth bigint, last_date date"
)


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> dict[str, dict[str, Any]]:
    usage = [
        ("hot", "ann", 100, 90, 10, 5000, 50, 0, None),
        ("hot", "ann", 100, 90, 10, 5000, 50, 0, None),  # on another day
        ("hot", "bob", 10, 0, 10, 0, 50, 0, None),
        ("hot", "", 7, 0, 0, 0, 0, 0, None),
        ("bytes", "ann", 5, 5, 0, 100, 0, 0, None),
        ("emptied", "ann", 5, 5, 0, 100, 0, 0, None),
        ("", "ann", 1, 0, 0, 0, 0, 0, None),
    ]
    counts = [
        ("hot", "t", 1, 10, 1, 4, 0, 5, 1, None),
        ("hot", "u", 1, 10, 5, 5, 10, 20, None, None),
        ("archive", "t", 5000, 10, 5000, 0, 0, 5000, 12, None),
        ("emptied", "t", 0, 0, 2, 0, 2, 4, 0, None),
    ]
    joined = traffic_and_state(
        spark.createDataFrame(usage, USAGE), spark.createDataFrame(counts, COUNTS)
    )
    return {row.stream: row.asDict() for row in joined.collect()}


def test_streams_of_either_side_stay(rows: dict[str, dict[str, Any]]) -> None:
    assert set(rows) == {"hot", "bytes", "emptied", "archive"}


def test_subjects_are_counted_once_over_all_days(rows: dict[str, dict[str, Any]]) -> None:
    assert (rows["hot"]["requests"], rows["hot"]["subjects"], rows["hot"]["readers"]) == (217, 2, 1)


def test_ratios_are_those_of_the_whole_stream(rows: dict[str, dict[str, Any]]) -> None:
    hot = rows["hot"]
    assert (hot["entities"], hot["types"], hot["growth"], hot["changes"]) == (2, 2, 1, 25)
    assert (hot["reads_per_entity"], hot["readers_per_entity"]) == (90.0, 0.5)
    assert (hot["bytes_sent_per_entity"], hot["bytes_sent_per_change"]) == (5000.0, 400.0)


def test_large_state_that_nobody_reads_stands_out(rows: dict[str, dict[str, Any]]) -> None:
    unread = {stream: row["unread_entities"] for stream, row in rows.items()}
    assert unread == {"archive": 5000, "hot": 0, "bytes": 0, "emptied": 0}


def test_what_has_nothing_to_be_divided_by_is_null(rows: dict[str, dict[str, Any]]) -> None:
    assert rows["bytes"]["reads_per_entity"] is None
    assert rows["archive"]["reads_per_entity"] is None
    assert rows["emptied"]["reads_per_entity"] is None
    assert rows["emptied"]["bytes_sent_per_change"] == 25.0
