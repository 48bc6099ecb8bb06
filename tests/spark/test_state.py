"""State in Spark: equal to the Python materialiser, however the history is cut into batches."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from protocol.offsets import format_offset
from protocol.state import Change, Materialised, StateError, parse_message
from protocol.state import snapshot_messages as encode_snapshot
from spark.messages import judge
from spark.state import CURRENT, KNOWN, MOVES, add_moves, advance, counts, moves

COLUMNS = (
    "stream string, offset string, position int, kind string, message string, data binary, "
    "incarnation string, next_offset string"
)
KEYS = ("1", "a b", "ü", "😀", "\x00", "null", "{}", '"', "\\", "1 ")
TIMES = ("2026-11-16T12:00:%02dZ", "2026-11-17T00:30:%02d+01:00", "1500-01-01T00:00:%02dZ")
VALUES: tuple[Any, ...] = (None, 1.50, "x", {"n": 1e-7}, [], "")
SEED = 1

pytestmark = pytest.mark.timeout(300)

Row = tuple[Any, ...]


def change(chance: Random) -> dict[str, Any]:
    operation = chance.choices(("insert", "update", "delete"), (4, 3, 3))[0]
    headers = {"operation": operation}
    if chance.random() < 0.5:
        headers["timestamp"] = chance.choice(TIMES) % chance.randrange(60)
    message: dict[str, Any] = {
        "type": chance.choice("tuv"),
        "key": chance.choice(KEYS),
        "headers": headers,
    }
    if operation != "delete" or chance.random() < 0.3:
        message["value"] = chance.choice((*VALUES, chance.random()))
    return message


def message(chance: Random) -> str:
    kind = chance.random()
    if kind < 0.01:
        return '{"headers":{"control":"reset"}}'
    if kind < 0.03:
        return '{"headers":{"control":"snapshot-start"}}'
    if kind < 0.06:
        return '{"type":"t","headers":{"operation":"insert"},"value":1}'
    return json.dumps(change(chance), ensure_ascii=chance.random() < 0.5)


def history(chance: Random, stream: str, length: int) -> list[Row]:
    """Rows as the source has them; now and then a snapshot stands for all before it. Some streams
    have offsets of other servers, of which messages share one."""
    is_ours = chance.random() < 0.7
    rows: list[Row] = []
    for at in range(length):
        offset = format_offset(at) if is_ours else ("-1" if at < 9 else f"{at // 9:06}")
        if chance.random() < 0.02 and (is_ours or (at >= 9 and at % 9 == 0)):
            texts: list[str | None] = list(snapshot(chance, rows, offset)) or [None]
            rows += [
                (stream, offset, n - len(texts), "snapshot", text, None if text else b"[]")
                for n, text in enumerate(texts)
            ]
        rows.append((stream, offset, 0 if is_ours else at % 9, "message", message(chance), None))
    return rows


def snapshot(chance: Random, rows: Sequence[Row], offset: str) -> Iterator[str]:
    """Of what was before, or of what nobody has seen, or of nothing."""
    told = chance.random()
    if told < 0.6:
        elements = json.loads(encode_snapshot(replay(rows), offset))
        yield from (json.dumps(element) for element in elements)
    elif told < 0.9:
        yield from (message(chance) for _ in range(5))


def replay(rows: Sequence[Row]) -> Materialised:
    """What protocol.state makes of the rows of one stream, read in order."""
    state, snapshot_offset = Materialised(), None
    for _, offset, _, kind, text, _ in rows:
        if kind == "snapshot" and offset != snapshot_offset:
            state, snapshot_offset = Materialised(), offset
        if (parsed := parse(text)) is not None:
            state.apply(parsed)
    return state


def parse(text: str | None) -> Any:
    try:
        return None if text is None else parse_message(text.encode())
    except StateError:
        return None


def expected(histories: dict[str, list[Row]]) -> dict[tuple[str, str, str], str]:
    return {
        (stream, type_, key): value.decode()
        for stream, rows in histories.items()
        for type_, entities in replay(rows).entities.items()
        for key, value in entities.items()
    }


def cut(chance: Random, rows: list[Row]) -> tuple[list[Row], list[Row]]:
    """Between any two rows, but not within a snapshot: a task reads all of it."""
    at = chance.choice([n for n in range(len(rows)) if rows[n][3] == "message"])
    return rows[:at], rows[at:]


def found(current: DataFrame) -> dict[tuple[str, str, str], str]:
    rows = [(row.stream, row.type, row.key, row.value) for row in current.collect()]
    assert len({row[:3] for row in rows}) == len(rows)
    return {row[:3]: row[3] for row in rows}


def plain(rows: DataFrame) -> Counter[Any]:
    return Counter(tuple(map(str, row)) for row in rows.collect())


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
        known = self.known.selectExpr(
            "stream", "last_time", f"array_contains(split('{','.join(ended)}', ','), stream)"
        ).toDF("stream", "last_time", "is_over")
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
    return [
        (stream, format_offset(n), 0, "message", text, None) for n, text in enumerate(texts, first)
    ]


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
COMPACTED = [
    *lay("compacted", insert("kept", "2026-11-16T12:00:00Z")),
    *lay("compacted", insert("lost", "2026-11-16T12:05:00Z"), first=1),
    ("compacted", format_offset(9), -2, "snapshot", insert("kept"), None),
    ("compacted", format_offset(9), -1, "snapshot", insert("new"), None),
]


@dataclass(frozen=True)
class Folded:
    """All of some random and some known histories at once, and the same in two batches. In the
    second batch the stream `anew` has ended and begun again."""

    histories: dict[str, list[Row]]
    whole: Fold
    pieces: Fold


@pytest.fixture(scope="module")
def folded(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Folded:
    chance, folder = Random(SEED), tmp_path_factory.mktemp("state")
    histories = {f"s{n}": history(chance, f"s{n}", chance.randrange(1, 300)) for n in range(12)}
    histories |= {"grown": GROWN, "compacted": COMPACTED}
    together = [row for rows in histories.values() for row in rows]
    whole, pieces = Fold(spark, folder / "whole"), Fold(spark, folder / "pieces")
    whole.take(chance.sample(together, len(together)))
    first, second = zip(*(cut(chance, rows) for rows in histories.values()), strict=True)
    pieces.take([*chain(*first), *lay("anew", insert("old"), first=50)])
    pieces.take([*chain(*second), *lay("anew", insert("new"))], ended=["anew"])
    return Folded(histories, whole, pieces)


def test_random_histories_end_as_the_materialiser_says(folded: Folded) -> None:
    assert found(folded.whole.current) == expected(folded.histories)


def test_the_result_does_not_depend_on_how_a_history_is_cut(folded: Folded) -> None:
    whole, pieces = folded.whole, folded.pieces
    assert plain(pieces.current.where("stream != 'anew'")) == plain(whole.current)
    is_move = "stream != 'anew' and (growth != 0 or inserts + updates + deletes > 0)"
    assert plain(pieces.moves.where(is_move)) == plain(whole.moves)


def test_growth_adds_up_to_what_there_is(folded: Folded) -> None:
    entities = Counter((stream, type_) for stream, type_, _ in expected(folded.histories))
    growth = folded.whole.moves.groupBy("stream", "type").sum("growth").collect()
    assert {(stream, type_): number for stream, type_, number in growth if number} == entities


def test_changes_are_counted_as_they_are_written(folded: Folded) -> None:
    """Those of snapshots were counted when they were made."""
    operations = Counter(
        (row[0], parsed.type, parsed.operation)
        for row in chain(*folded.histories.values())
        if row[3] == "message" and isinstance(parsed := parse(row[4]), Change)
    )
    moved = folded.whole.moves.groupBy("stream", "type").sum("inserts", "updates", "deletes")
    assert {
        (row[0], row[1], operation): row[n]
        for row in moved.collect()
        for n, operation in enumerate(("insert", "update", "delete"), 2)
        if row[n]
    } == operations


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
