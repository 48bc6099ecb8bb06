"""State in Spark: equal to the Python materialiser, wherever a history is cut into runs.

`WEIR_STATE_HISTORIES=100` tries more of them, `WEIR_STATE_SEED` others.
"""

import json
import os
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from protocol.state import Change
from spark.messages import judge
from spark.state import CURRENT, KNOWN, MOVES, add_moves, advance, counts, moves
from tests.helpers.offsets import nameless
from tests.spark.histories import (
    Row,
    expected,
    history,
    parse,
    places,
    snapshot,
    snapshot_rows,
)

COLUMNS = (
    "stream string, offset string, position int, kind string, message string, data binary, "
    "incarnation string, next_offset string"
)
HISTORIES = int(os.environ.get("WEIR_STATE_HISTORIES", "10"))
SEED = int(os.environ.get("WEIR_STATE_SEED", "1"))

pytestmark = pytest.mark.timeout(900)


def found(current: DataFrame) -> dict[tuple[str, str, str], str]:
    rows = [(row.stream, row.type, row.key, row.value) for row in current.collect()]
    assert len({row[:3] for row in rows}) == len(rows)
    return {row[:3]: row[3] for row in rows}


def by_stream(rows: DataFrame) -> dict[str, Counter[Any]]:
    """The other columns; nothing for streams that have no rows."""
    found: dict[str, Counter[Any]] = defaultdict(Counter)
    for row in rows.select("stream", *(n for n in rows.columns if n != "stream")).collect():
        found[row.stream][tuple(map(str, row[1:]))] += 1
    return found


class Fold:
    """Batches one after another, by way of files as in a run."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._folder = folder
        self._number = 0
        self.current = spark.createDataFrame([], CURRENT)
        self.moves = spark.createDataFrame([], MOVES)
        self.known = spark.createDataFrame([], KNOWN)

    def take(self, rows: list[Row], ended: Sequence[str] = ()) -> None:
        whole = [(*row, None, None) for row in rows]
        judged = self._keep(judge(self._spark.createDataFrame(whole, COLUMNS)))
        is_over = self.known.stream.isin(*ended).alias("is_over")
        known = self.known.select("stream", "last_time", is_over)
        moved = moves(self.current, judged, known)
        self.moves = self._keep(add_moves(self.moves, moved, "stream", "type", "minute"))
        left = self.current.join(known.where("is_over"), "stream", "left_anti")
        self.current = self._keep(advance(left, judged))
        good = judged.where("fault is null and operation is not null")
        times = known.where("not is_over").select("stream", "last_time")
        times = times.unionByName(good.selectExpr("stream", "time as last_time"))
        latest = times.groupBy("stream").agg({"last_time": "max"})
        self.known = self._keep(latest.toDF("stream", "last_time").selectExpr("*", "false is_over"))

    def _keep(self, rows: DataFrame) -> DataFrame:
        self._number += 1
        path = str(self._folder / str(self._number))
        rows.write.parquet(path)
        return self._spark.read.schema(rows.schema).parquet(path)


def insert(key: str, time: str = "", type_: str = "t") -> str:
    headers = {"operation": "insert"} | ({"timestamp": time} if time else {})
    return json.dumps({"type": type_, "key": key, "value": 1, "headers": headers})


def lay(stream: str, *texts: str, first: int = 0) -> list[Row]:
    return [(stream, nameless(n), 0, "message", text, None) for n, text in enumerate(texts, first)]


GROWN = lay(
    "grown",
    insert("a", "2026-11-16T12:00:01Z"),
    insert("b", "2026-11-16T12:00:59Z"),
    insert("a", "2026-11-16T12:01:00Z"),  # is there already
    '{"headers":{"control":"reset"}}',  # both go, at the latest time before
    insert("c", "2026-11-16T12:02:00Z"),
    insert("d"),
    insert("x", type_="u"),
    '{"type":"u","key":"x","headers":{"operation":"delete"}}',
)
UPSERTED = lay(
    "upserted",
    *[insert("a").replace("insert", "upsert")] * 3,  # is there from the second on
    insert("b"),
    insert("b").replace("insert", "upsert"),
    insert("b").replace("insert", "delete"),
    insert("b").replace("insert", "upsert"),
    '{"headers":{"control":"reset"}}',
    insert("a").replace("insert", "upsert"),
)
COMPACTED = [
    *lay("compacted", insert("kept", "2026-11-16T12:00:00Z")),
    *lay("compacted", insert("lost", "2026-11-16T12:05:00Z"), first=1),
    ("compacted", nameless(9), -2, "snapshot", insert("kept"), None),
    ("compacted", nameless(9), -1, "snapshot", insert("new"), None),
]


@dataclass(frozen=True)
class Folded:
    """Histories read at once, and the same histories read by several runs: each of `copies` is a
    stream of its own whose history was cut at other places. Those of `others` had something happen
    to them between two runs."""

    histories: dict[str, list[Row]]
    copies: dict[str, str]  # of which history
    others: dict[str, list[Row]]  # what they are now
    whole: Fold
    pieces: Fold


class Runs:
    """What each of several runs reads, and which streams had ended before it."""

    def __init__(self) -> None:
        self.rows: list[list[Row]] = [[], [], []]
        self.ended: list[list[str]] = [[], [], []]

    def lay(self, stream: str, *parts: Sequence[Row]) -> None:
        for run, rows in zip(self.rows, parts, strict=False):
            run += [(stream, *row[1:]) for row in rows]


@pytest.fixture(scope="module")
def folded(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Folded:
    chance, folder = Random(SEED), tmp_path_factory.mktemp("state")
    histories = {
        f"s{n}": history(chance, f"s{n}", chance.randrange(1, 40), resets=0.05, snapshots=0.05)
        for n in range(HISTORIES)
    }
    histories |= {"grown": GROWN, "compacted": COMPACTED, "upserted": UPSERTED}
    runs, copies, others = Runs(), {}, {}
    for name, rows in histories.items():
        for at in places(rows):
            copies[f"{name}@{at}"] = name
            runs.lay(f"{name}@{at}", rows[:at], rows[at:])
        first, second = sorted(chance.choices(places(rows), k=2))
        copies[f"{name}@{first},{second}"] = name
        runs.lay(f"{name}@{first},{second}", rows[:first], rows[first:second], rows[second:])
        for what, news in happenings(chance, rows).items():
            at = chance.choice(places(rows))
            stream = f"{name} {what}@{at}"
            others[stream] = news
            runs.lay(stream, rows[:at], news)
            if what != "compacted":
                runs.ended[1].append(stream)
    runs.lay("anew", lay("anew", insert("old"), first=50), lay("anew", insert("new")))
    runs.ended[1].append("anew")
    together = [row for rows in histories.values() for row in rows]
    whole, pieces = Fold(spark, folder / "whole"), Fold(spark, folder / "pieces")
    whole.take(chance.sample(together, len(together)))
    for rows, ended in zip(runs.rows, runs.ended, strict=True):
        pieces.take(chance.sample(rows, len(rows)), ended)
    return Folded(histories, copies, others, whole, pieces)


def happenings(chance: Random, rows: Sequence[Row]) -> dict[str, list[Row]]:
    """What the next run may find instead of the rest of a history, by what was done meanwhile. A
    snapshot lies beyond all that was there, and with it some of what no run has seen."""
    offset, news = "9" * 33, history(chance, "", 9)
    later = [(*row[:1], f"{offset}{n:04}", *row[2:]) for n, row in enumerate(news)]
    return {
        "compacted": [*snapshot_rows("", offset, list(snapshot(chance, rows, offset))), *later],
        "anew": history(chance, "", 9),
        "deleted": [],
    }


def test_random_histories_end_as_the_materialiser_says(folded: Folded) -> None:
    assert found(folded.whole.current) == expected(folded.histories)


def test_the_result_does_not_depend_on_where_a_history_is_cut(folded: Folded) -> None:
    for whole, pieces in (
        (folded.whole.current, folded.pieces.current),
        (folded.whole.moves, folded.pieces.moves),
    ):
        wanted, cut = by_stream(whole), by_stream(pieces)
        assert {copy: cut[copy] for copy in folded.copies} == {
            copy: wanted[name] for copy, name in folded.copies.items()
        }


def test_what_happens_between_two_runs_is_followed(folded: Folded) -> None:
    current = found(folded.pieces.current.where("stream like '% %'"))
    assert current == expected(folded.others)
    growth = folded.pieces.moves.where("stream like '% %'").groupBy("stream", "type").sum("growth")
    entities = Counter((stream, type_) for stream, type_, _ in current)
    assert {row[:2]: row[2] for row in map(tuple, growth.collect()) if row[2]} == entities


def test_growth_adds_up_to_what_there_is(folded: Folded) -> None:
    entities = Counter((stream, type_) for stream, type_, _ in expected(folded.histories))
    growth = folded.whole.moves.groupBy("stream", "type").sum("growth").collect()
    assert {(stream, type_): number for stream, type_, number in growth if number} == entities


def test_changes_are_counted_as_they_are_written(folded: Folded) -> None:
    """Those of snapshots were counted when they were made."""
    stores = ("insert", "update", "upsert")
    operations = Counter(
        (row[0], parsed.type, "store" if parsed.operation in stores else "delete")
        for row in chain(*folded.histories.values())
        if row[3] == "message" and isinstance(parsed := parse(row[4]), Change)
    )
    moved = folded.whole.moves.selectExpr("*", "inserts + updates as stores")
    sums = moved.groupBy("stream", "type").sum("stores", "deletes")
    assert {
        (row[0], row[1], operation): row[n]
        for row in sums.collect()
        for n, operation in enumerate(("store", "delete"), 2)
        if row[n]
    } == operations


def test_an_upsert_counts_as_what_it_does(folded: Folded) -> None:
    moved = folded.whole.moves.where("stream = 'upserted'")
    sums = moved.selectExpr("sum(inserts)", "sum(updates)", "sum(deletes)", "sum(growth)")
    assert tuple(*sums.collect()) == (4, 3, 1, 1)


def by_minute(moved: DataFrame, stream: str) -> set[tuple[Any, ...]]:
    rows = moved.where(f"stream = '{stream}' and type = 't'")
    return {tuple(row) for row in rows.selectExpr("string(minute)", "inserts", "growth").collect()}


def test_growth_is_told_for_the_minute_in_which_it_was(folded: Folded) -> None:
    assert by_minute(folded.whole.moves, "grown") == {
        ("2026-11-16 12:00:00", 2, 2),
        ("2026-11-16 12:01:00", 1, -2),
        ("2026-11-16 12:02:00", 1, 1),
        (None, 1, 1),
    }


def test_a_snapshot_moves_only_what_it_adds_or_lacks(folded: Folded) -> None:
    assert by_minute(folded.whole.moves, "compacted") == {
        ("2026-11-16 12:00:00", 1, 1),
        ("2026-11-16 12:05:00", 1, 0),
        (None, 0, 1),
    }


def test_a_stream_created_anew_starts_from_nothing(folded: Folded) -> None:
    rows = folded.pieces.current.where("stream = 'anew'").collect()
    assert {row.key for row in rows} == {"new"}
    assert by_minute(folded.pieces.moves, "anew") == {(None, 2, 1)}


def test_counts_stand_beside_churn_also_where_nothing_is_left(folded: Folded) -> None:
    moved = folded.whole.moves
    table = counts(folded.whole.current, moved.withColumn("date", moved["minute"].cast("date")))
    rows = {row.type: row.asDict() for row in table.where("stream = 'grown'").collect()}
    assert (rows["t"]["entities"], rows["t"]["value_bytes"], rows["t"]["growth"]) == (2, 2, 1)
    assert (rows["u"]["entities"], rows["u"]["changes"], rows["u"]["growth"]) == (0, 2, None)
