"""Traffic and state: nothing is lost, and nothing is divided by nothing."""

from datetime import date
from typing import Any

import pytest
from pyspark.sql import SparkSession

from spark.joined import traffic_and_state
from spark.state import CHANGED

USAGE = (
    "date date, stream string, subject string, requests bigint, reads bigint, writes bigint, "
    "bytes_sent bigint, bytes_received bigint, bytes_saved bigint, last_seen timestamp"
)
COUNTS = (
    "stream string, type string, entities bigint, value_bytes bigint, inserts bigint, "
    "updates bigint, deletes bigint, changes bigint, last_date date"
)
CHURN = "stream string, type string, date date, growth bigint"
BEFORE, FIRST, SECOND = (date(2026, 11, day) for day in (1, 16, 17))


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> dict[str, dict[str, Any]]:
    usage = [
        (FIRST, "hot", "ann", 100, 90, 10, 5000, 50, 0, None),
        (SECOND, "hot", "ann", 100, 90, 10, 5000, 50, 0, None),
        (FIRST, "hot", "bob", 10, 0, 10, 0, 50, 0, None),
        (FIRST, "hot", "", 7, 0, 0, 0, 0, 0, None),
        (FIRST, "bytes", "ann", 5, 5, 0, 100, 0, 0, None),
        (FIRST, "emptied", "ann", 5, 5, 0, 100, 0, 0, None),
        (FIRST, "", "ann", 1, 0, 0, 0, 0, 0, None),
    ]
    counts = [
        ("hot", "t", 1, 10, 1, 4, 0, 5, SECOND),
        ("hot", "u", 1, 10, 5, 5, 10, 20, None),
        ("archive", "t", 5000, 10, 5000, 0, 0, 5000, BEFORE),
        ("emptied", "t", 0, 0, 2, 0, 2, 4, None),
    ]
    churn = [
        ("hot", "t", BEFORE, 7),
        ("hot", "t", FIRST, -9),
        ("hot", "t", SECOND, 3),
        ("hot", "u", None, 1),
        ("archive", "t", BEFORE, 5000),
        ("emptied", "t", None, 0),
    ]
    changed = [
        ("hot", "t", "1", BEFORE),
        ("hot", "t", "2", FIRST),
        ("hot", "t", "2", SECOND),  # one entity all the same
        ("hot", "u", "2", SECOND),
        ("archive", "t", "1", BEFORE),
    ]
    joined = traffic_and_state(
        spark.createDataFrame(usage, USAGE),
        spark.createDataFrame(counts, COUNTS),
        spark.createDataFrame(churn, CHURN),
        spark.createDataFrame(changed, CHANGED),
    )
    return {row.stream: row.asDict() for row in joined.collect()}


def test_streams_of_either_side_stay(rows: dict[str, dict[str, Any]]) -> None:
    assert set(rows) == {"hot", "bytes", "emptied", "archive"}


def test_subjects_are_counted_once_over_all_days(rows: dict[str, dict[str, Any]]) -> None:
    assert (rows["hot"]["requests"], rows["hot"]["subjects"], rows["hot"]["readers"]) == (217, 2, 1)


def test_ratios_are_those_of_the_whole_stream(rows: dict[str, dict[str, Any]]) -> None:
    hot = rows["hot"]
    assert (hot["entities"], hot["types"], hot["changes"]) == (2, 2, 25)
    assert (hot["reads_per_entity"], hot["readers_per_entity"]) == (90.0, 0.5)
    assert hot["bytes_sent_per_entity"] == 5000.0


def test_growth_and_changed_entities_are_those_of_the_days_of_the_log(
    rows: dict[str, dict[str, Any]],
) -> None:
    names = ("growth", "changed_entities", "bytes_sent_per_changed_entity")
    found = {stream: tuple(row[name] for name in names) for stream, row in rows.items()}
    assert found == {
        "hot": (-6, 2, 5000.0),
        "archive": (0, 0, None),
        "emptied": (None, None, None),  # its messages have no times
        "bytes": (None, None, None),
    }


def test_large_state_that_nobody_reads_stands_out(rows: dict[str, dict[str, Any]]) -> None:
    unread = {stream: row["unread_entities"] for stream, row in rows.items()}
    assert unread == {"archive": 5000, "hot": 0, "bytes": 0, "emptied": 0}


def test_what_has_nothing_to_be_divided_by_is_null(rows: dict[str, dict[str, Any]]) -> None:
    assert rows["bytes"]["reads_per_entity"] is None
    assert rows["archive"]["reads_per_entity"] is None
    assert rows["emptied"]["reads_per_entity"] is None
