"""The report's numbers about state: entities by type, their changes over time, and the traffic
and state of streams. `summary` has the others.
"""

from datetime import datetime
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from spark.report.data import Pair, State, StateMoment, TypeState, choose_step
from spark.tables import Tables


class StateSummary:
    def __init__(self, session: SparkSession, tables: Tables, most: int) -> None:
        """`most` types and pairs are shown by name."""
        self._session = session
        self._tables = tables
        self._most = most

    def summarise(self, until: datetime) -> State | None:
        streams, counts = self._find("state_streams"), self._find("state_counts")
        if streams is None or counts is None:
            return None
        messages = F.coalesce(F.sum("messages"), F.lit(0))
        [read] = (
            streams.where("status = 'read'")
            .agg(F.count(F.lit(1)).alias("streams"), messages.alias("messages"))
            .collect()
        )
        bad = self._find("state_quarantine")
        reasons = [] if bad is None else bad.groupBy("reason").count().collect()
        types = self._types(counts)
        step_ms, moments, left_out = self._moments([one.type for one in types], until)
        return State(
            streams=read["streams"],
            messages=read["messages"],
            quarantined={row["reason"]: row["count"] for row in reasons},
            types=types,
            all_types=counts.select("type").distinct().count(),
            step_ms=step_ms,
            moments=moments,
            left_out=left_out,
        )

    def _types(self, counts: DataFrame) -> list[TypeState]:
        """The largest by name, and all others combined."""
        sums = [F.sum(name).alias(name) for name in ("entities", "inserts", "updates", "deletes")]
        largest = (
            counts.groupBy("type")
            .agg(*sums)
            .orderBy(F.desc("entities"), "type")
            .limit(self._most)
            .collect()
        )
        of_type = _named([row["type"] for row in largest]).alias("type")
        holding = F.count_distinct(F.when(F.col("entities") > 0, F.col("stream")))
        rows = counts.groupBy(of_type).agg(holding.alias("streams"), *sums).collect()
        return [TypeState(**row.asDict()) for row in sorted(rows, key=lambda row: row["type"])]

    def _moments(self, types: list[str], until: datetime) -> tuple[int, list[StateMoment], int]:
        """Writers set the times of changes; those in the future are only counted."""
        table = self._find("state_by_minute")
        if table is None:
            return 1, [], 0
        is_past = F.col("minute") <= F.lit(until)
        changes = F.col("inserts") + F.col("updates") + F.col("deletes")
        [ends] = table.agg(
            F.unix_millis(F.min(F.when(is_past, F.col("minute")))).alias("first"),
            F.unix_millis(F.max(F.when(is_past, F.col("minute")))).alias("last"),
            F.coalesce(F.sum(F.when(~is_past, changes)), F.lit(0)).alias("left_out"),
        ).collect()
        if ends["first"] is None:
            return 1, [], ends["left_out"]
        step_ms = choose_step(ends["first"], ends["last"])
        names = ("inserts", "updates", "deletes", "growth")
        rows = (
            table.where(is_past)
            .groupBy(slot_of("minute", step_ms).alias("slot"), _named(types).alias("type"))
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
                **{name: sum(row[name] for row in here) for name in names[:3]},
            )
        return step_ms, list(moments.values()), ends["left_out"]

    def largest_pairs(self) -> list[Pair]:
        """Those with the most reads, the most entities, and the most unread entities."""
        table = self._find("traffic_and_state")
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
        largest = [
            rows.orderBy(F.desc(order), "stream").limit(self._most) for rows, order in orders
        ]
        found = {
            row["stream"]: row
            for row in reduce(lambda one, other: one.unionByName(other), largest).collect()
        }
        pairs = (Pair(**row.asDict()) for row in found.values())
        return sorted(pairs, key=lambda pair: (-pair.reads, -pair.entities, pair.stream))

    def count_pairs(self) -> int:
        table = self._find("traffic_and_state")
        return 0 if table is None else table.count()

    def _find(self, table: str) -> DataFrame | None:
        return self._tables.find(self._session, table)


def _named(types: list[str]) -> Column:
    """Types by name, others as the empty name, which no type has."""
    return F.when(F.col("type").isin(types), F.col("type")).otherwise("")


def slot_of(column: str, step_ms: int) -> Column:
    """The start of the step that contains a time."""
    at = F.unix_millis(column)
    return at - at % step_ms
