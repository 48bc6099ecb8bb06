"""Lines become requests that say what `decode_line` says, or are put away with a reason."""

import random
from typing import Any

import msgspec
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from protocol.accesslog import AccessRecord, decode_line, encode_line
from spark.intake import LOG_FILES
from spark.loglines import COLUMNS
from spark.requests import copies, parse, quarantine, requests, seen_twice
from spark.schema import MOST_COUNT, MOST_MS, NUMBERS, REQUESTS
from spark.traffic import latency, log_quality, log_runs, traffic_by_minute, usage
from tests.spark.logs import START_MS, WRONG_FIELDS, WRONG_LINES, Truth, other_writers, record

NAME = "access-edge-1-0-20260601T22.jsonl"


def parsed(spark: SparkSession, lines: list[str]) -> Any:
    rows = [(NAME, number, line, None) for number, line in enumerate(lines)]
    return parse(spark.createDataFrame(rows, COLUMNS))


@pytest.fixture(scope="module")
def records() -> list[AccessRecord]:
    rng = random.Random(3)
    return [record(rng, "edge-1", 0, number + 1, START_MS + number) for number in range(50)]


def test_requests_are_what_the_protocol_decodes(
    spark: SparkSession, records: list[AccessRecord]
) -> None:
    lines = [encode_line(each).decode().rstrip("\n") for each in records]
    lines += [line.decode() for line in other_writers(random.Random(4), Truth())]
    found = requests(parsed(spark, lines)).orderBy("position").toArrow().to_pylist()
    expected = [msgspec.to_builtins(decode_line(line.encode())) for line in lines]
    assert [{name: row[name] for name in expected[0]} for row in found] == expected
    assert all(row["time"].timestamp() * 1000 == row["time_ms"] for row in found)


def test_two_million_lines_of_the_largest_numbers_can_be_added_up(
    spark: SparkSession, records: list[AccessRecord]
) -> None:
    bounded = {"v", "time_ms", "status"}
    most = {field.name: field.most for field in NUMBERS if field.name not in bounded}
    line = msgspec.json.encode(msgspec.to_builtins(records[0]) | most)
    beyond = line.replace(str(MOST_COUNT).encode(), str(MOST_COUNT + 1).encode())
    both = parsed(spark, [line.decode(), beyond.decode()])
    assert [row["reason"] for row in quarantine(both).collect()] == ["bad-value:worker"]
    assert 2_000_000 * max(MOST_COUNT, int(MOST_MS) * 1000) < 2**63
    many = requests(both).crossJoin(spark.range(20_000))  # as exact, and sooner
    rows = [make(many).collect()[0] for make in (traffic_by_minute, usage, latency)]
    assert rows[0]["bytes_sent"] == rows[1]["bytes_sent"] == 20_000 * MOST_COUNT
    assert rows[2]["duration_us"] == 20_000 * int(MOST_MS) * 1000


def test_a_file_name_with_a_number_beyond_all_others_stops_nothing(spark: SparkSession) -> None:
    name = f"access-edge-{10**30}-20260601T22.jsonl"
    files = spark.createDataFrame([(name, 1, 0, 0, 1, None)], LOG_FILES)
    runs = log_runs(spark.createDataFrame([], REQUESTS))
    assert [row["quarantined"] for row in log_quality(runs, files).collect()] == [1]


def test_what_is_wrong_with_a_line_is_told(
    spark: SparkSession, records: list[AccessRecord]
) -> None:
    whole = msgspec.to_builtins(records[0])
    cases = [
        (reason, line.decode())
        for reason, texts in WRONG_LINES.items()
        if reason != "not-utf-8"  # which the source tells
        for line in texts
    ]
    cases += [
        (reason, msgspec.json.encode(whole | change).decode())
        for reason, change in WRONG_FIELDS.items()
    ]
    good = encode_line(records[0]).decode().rstrip("\n")
    cases += [("not-json", good + "}"), ("not-json", good + good), ("not-json", good + " x")]
    cases += [("wrong-type:worker", good.replace('"worker":0', '"worker":"0"'))]
    cases += [("not-json", good.replace('"worker":0', '"worker":NaN'))]
    result = parsed(spark, [line for _, line in cases])
    found = {row["position"]: row["reason"] for row in quarantine(result).collect()}
    assert [(found.get(at), line) for at, (_, line) in enumerate(cases)] == cases


def test_a_copy_counts_once_and_never_again(
    spark: SparkSession, records: list[AccessRecord]
) -> None:
    lines = [encode_line(each).decode().rstrip("\n") for each in records]
    earlier = requests(parsed(spark, lines[:10]))
    new = requests(parsed(spark, lines[5:20] + lines[5:20])).withColumn("part", F.lit("a"))
    twice = seen_twice(new, earlier)
    found = copies(new, earlier, twice).collect()
    assert sorted(row["position"] for row in found) == [*range(5), *range(15, 30)]
    assert twice.count() == 15
