"""From checked State messages to current rows and changes over time. Built-in functions only.

`offset` and `position` order the messages of a stream. Everything before the last *barrier*, a
`reset` or the start of a snapshot, is void; after it, the last change of a key counts. Both are
maxima, not sequential scans, so all tasks share the work on a large stream. The result does not
depend on how messages are split into batches.

An entity *grows* its type by 1 when it appears and by -1 when it disappears: by a delete, by a
barrier, or with its stream. A snapshot that still contains it changes nothing. If a batch has
resets between the messages of a stream, that stream alone is sorted by one task.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from protocol.offsets import START
from protocol.state import DELETE, INSERT, RESET, UPDATE, UPSERT
from spark.messages import MESSAGE, SNAPSHOT

CURRENT = (
    "stream string, type string, key string, value string, offset string, position int, "
    "operation string, txid string, timestamp string, time timestamp"
)
MOVES = (
    "stream string, type string, minute timestamp, inserts bigint, updates bigint, deletes bigint, "
    "growth bigint"
)
CHANGED = "stream string, type string, key string, date date"
KNOWN = "stream string, last_time timestamp, is_over boolean"

_ENTITY = ("stream", "type", "key")
_COLUMNS = [field.split()[0] for field in CURRENT.split(", ")]
_COUNTS = ("inserts", "updates", "deletes", "growth")
_HAS_MOVED = "inserts + updates + deletes > 0 or growth != 0"
_BEFORE_ALL = -(2**31)  # the position of a snapshot's start
_ENDED = -2  # the epoch of removed streams: no other follows it


def advance(before: DataFrame, judged: DataFrame) -> DataFrame:
    """The current rows after these messages."""
    barriers = _barriers(judged).groupBy("stream").agg(F.max("order").alias("barrier"))
    changes = before.select(*_COLUMNS).unionByName(_changes(judged).select(*_COLUMNS))
    last = F.max_by(F.struct(*(name for name in _COLUMNS if name not in _ENTITY)), _order())
    return (
        changes.join(barriers, "stream", "left")
        .where(F.col("barrier").isNull() | (_order() > F.col("barrier")))
        .groupBy(*_ENTITY)
        .agg(last.alias("last"))
        .where(F.col("last.operation") != DELETE)
        .select(*_ENTITY, "last.*")
    )


def moves(before: DataFrame, judged: DataFrame, known: DataFrame) -> DataFrame:
    """Changes and growth by minute, null without a time. `known` (KNOWN) has the previous streams:
    their latest time, and whether their rows are void because they have ended."""
    rows = _with_epochs(before, judged, known.where("is_over"))
    of_key = Window.partitionBy(*_ENTITY).orderBy("order")
    is_alive = F.col("operation") != DELETE
    told = rows.withColumns(
        {
            "before": F.lag(F.struct("epoch", is_alive.alias("alive"))).over(of_key),
            "after": F.lead(F.struct("epoch", "kind")).over(of_key),
        }
    )
    was_alive = F.coalesce(
        F.col("before.alive") & _continues(F.col("before.epoch"), F.col("epoch"), F.col("kind")),
        F.lit(False),
    )
    is_new = F.col("kind").isNotNull()
    grown = F.when(is_new & is_alive & ~was_alive, 1).when(is_new & ~is_alive & was_alive, -1)
    goes_on = F.coalesce(
        _continues(F.col("epoch"), F.col("after.epoch"), F.col("after.kind")),
        F.col("epoch") == F.col("last_epoch"),
    )
    is_upsert, stored_as = F.col("operation") == UPSERT, F.when(was_alive, UPDATE).otherwise(INSERT)
    done = F.when(is_upsert, stored_as).otherwise(F.col("operation"))
    counted = told.select(
        *("stream", "type", "time", "epoch"),
        F.date_trunc("minute", "time").alias("minute"),
        *(
            (done.eqNullSafe(operation) & is_new & (F.col("kind") != SNAPSHOT))
            .cast("bigint")
            .alias(name)
            for name, operation in (("inserts", INSERT), ("updates", UPDATE), ("deletes", DELETE))
        ),
        F.coalesce(grown, F.lit(0)).alias("growth"),
        (is_alive & ~goes_on).alias("is_dropped"),
    )
    # Few rows, because they are needed three times.
    summed = counted.groupBy("stream", "type", "epoch", "minute").agg(
        *(F.sum(name).alias(name) for name in _COUNTS),
        F.count_if("is_dropped").alias("dropped"),
        F.max("time").alias("time"),
    )
    by_minute = summed.select("stream", "type", "minute", *_COUNTS)
    return add_moves(by_minute, _drops(summed, known), "stream", "type", "minute")


def add_moves(before: DataFrame, new: DataFrame, *keys: str) -> DataFrame:
    """Tables of moves are sums, so new rows are added to existing ones."""
    both = before.select(*keys, *_COUNTS).unionByName(new.select(*keys, *_COUNTS))
    sums = both.groupBy(*keys).agg(*(F.sum(name).alias(name) for name in _COUNTS))
    return sums.where(_HAS_MOVED)


def changed(judged: DataFrame) -> DataFrame:
    """Entities by the days on which messages with a time changed them. Kept individually, so that
    days can be combined without counting an entity twice."""
    told = _changes(judged).where((F.col("kind") == MESSAGE) & F.col("time").isNotNull())
    return told.select(*_ENTITY, F.col("time").cast("date").alias("date")).distinct()


def counts(current: DataFrame, churn: DataFrame) -> DataFrame:
    """Per stream and type: current entities and their changes. `growth` covers changes with a time,
    null if there are none."""
    entities = current.groupBy("stream", "type").agg(
        F.count(F.lit(1)).alias("entities"), F.sum(F.octet_length("value")).alias("value_bytes")
    )
    changed = churn.groupBy("stream", "type").agg(
        *(F.sum(name).alias(name) for name in _COUNTS[:3]),
        F.sum(F.when(F.col("date").isNotNull(), F.col("growth"))).alias("growth"),
        F.min("date").alias("first_date"),
        F.max("date").alias("last_date"),
    )
    none = F.lit(0).cast("bigint")
    whole = ("entities", "value_bytes", *_COUNTS[:3])
    return (
        entities.join(changed, ["stream", "type"], "full")
        .withColumns({name: F.coalesce(name, none) for name in whole})
        .select(
            *("stream", "type"),
            *whole,
            (F.col("inserts") + F.col("updates") + F.col("deletes")).alias("changes"),
            *("growth", "first_date", "last_date"),
        )
    )


# -- order -----------------------------------------------------------------------------------------


def _order(position: Column | None = None) -> Column:
    """Offsets are ordered as strings, but `-1` comes first (DS 8)."""
    at = F.col("position") if position is None else position
    return F.struct(
        (F.col("offset") != START).alias("is_after"), F.col("offset"), at.alias("position")
    )


def _changes(judged: DataFrame) -> DataFrame:
    return judged.where("fault is null and operation is not null")


def _barriers(judged: DataFrame) -> DataFrame:
    """Resets and starts of snapshots: whatever these contain, they replace everything before."""
    is_reset = F.col("fault").isNull() & F.col("control").eqNullSafe(RESET)
    resets = judged.where(is_reset).select("stream", _order().alias("order"))
    begins = _order(F.lit(_BEFORE_ALL)).alias("order")
    snapshots = judged.where(F.col("kind") == SNAPSHOT).select("stream", begins).distinct()
    return resets.unionByName(snapshots)


def _with_epochs(before: DataFrame, judged: DataFrame, ended: DataFrame) -> DataFrame:
    """Old rows and new changes, each with the number of barriers before it in the batch."""
    changes = _changes(judged).select(
        *_ENTITY, "operation", "kind", "time", _order().alias("order")
    )
    barriers = _barriers(judged)
    first = changes.groupBy("stream").agg(F.min("order").alias("first_change"))
    walls = (
        barriers.groupBy("stream")
        .agg(F.count(F.lit(1)).alias("last_epoch"), F.max("order").alias("last"))
        .join(first, "stream", "left")
        .select("stream", "last_epoch", (F.col("last") > F.col("first_change")).alias("is_cut"))
    )
    placed = changes.join(F.broadcast(walls), "stream", "left")
    is_cut, last_epoch = F.coalesce("is_cut", F.lit(False)), F.coalesce("last_epoch", F.lit(0))
    # Only streams with a barrier between their changes need all of them in one task.
    up_to = Window.partitionBy("stream").orderBy("order")
    cut = (
        placed.where(is_cut)
        .withColumn("wall", F.lit(0))
        .unionByName(barriers.withColumn("wall", F.lit(1)), allowMissingColumns=True)
        .withColumn("epoch", F.sum("wall").over(up_to))
        .where("wall = 0")
        .drop("wall")
    )
    uncut = placed.where(~is_cut).withColumn("epoch", last_epoch)
    new = uncut.unionByName(cut).withColumn("last_epoch", last_epoch).drop("is_cut")
    over = ended.select("stream").distinct().withColumn("is_over", F.lit(True))
    old = (
        before.select(*_ENTITY, "operation", "time", _order().alias("order"))
        .join(walls.select("stream", "last_epoch"), "stream", "left")
        .join(over, "stream", "left")
        .withColumn("epoch", F.when(F.col("is_over"), F.lit(_ENDED)).otherwise(0).cast("bigint"))
        .withColumn("last_epoch", last_epoch)
        .drop("is_over")
    )
    return _before_new(old).unionByName(_before_new(new, 1), allowMissingColumns=True)


def _before_new(rows: DataFrame, age: int = 0) -> DataFrame:
    """Old rows sort before new ones, also in a re-created stream, whose offsets are lower."""
    return rows.withColumn("order", F.struct(F.lit(age).alias("age"), F.col("order")))


def _continues(epoch: Column, next_epoch: Column, next_kind: Column) -> Column:
    """Whether an entity still exists at the next change of its key."""
    is_kept = (next_kind == SNAPSHOT) & (next_epoch == epoch + 1)
    return (epoch == next_epoch) | F.coalesce(is_kept, F.lit(False))


def _drops(summed: DataFrame, known: DataFrame) -> DataFrame:
    """Entities removed by a barrier count at the latest time before it."""
    epoch = F.when(F.col("is_over"), F.lit(_ENDED)).otherwise(0).cast("bigint")
    old = known.select("stream", epoch.alias("epoch"), F.col("last_time").alias("time"))
    latest = summed.select("stream", "epoch", "time").unionByName(old)
    so_far = Window.partitionBy("stream", F.col("epoch") == _ENDED).orderBy("epoch")
    times = (
        latest.groupBy("stream", "epoch")
        .agg(F.max("time").alias("time"))
        .select(
            "stream", "epoch", F.date_trunc("minute", F.max("time").over(so_far)).alias("minute")
        )
    )
    return (
        summed.where("dropped > 0")
        .select("stream", "type", "epoch", (-F.col("dropped")).alias("growth"))
        .join(times, ["stream", "epoch"])
        .withColumns({name: F.lit(0).cast("bigint") for name in _COUNTS[:3]})
        .drop("epoch")
    )
