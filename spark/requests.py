"""Lines to cleaned requests, or to the quarantine with a reason. Built-in functions only.

Fields that this version does not know are ignored, missing ones get the default of `AccessRecord`.
Spark's JSON reader stops behind the first value of a line and says nothing about the rest, so every
line is read as a member of an object whose last member must come out too.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from protocol.accesslog import VERSION
from spark.schema import FIELDS, LINE, NUMBERS, REQUESTS, Field

QUARANTINE = "file string, position long, reason string, line string, date date"
QUARANTINE_CHARACTERS = 4096  # of a line that is kept

EARLIEST_MS = 1_577_836_800_000  # 2020, before there was a gateway
LATEST_MS = 4_102_444_800_000  # 2100

_CORRUPT = "_corrupt"
_JSON = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": _CORRUPT,
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
}
_HOUR_OF_NAME = r"-(\d{8})T\d{2}\.jsonl(?:\.gz)?$"


def parse(lines: DataFrame) -> DataFrame:
    """Rows of the log source with every column of a request and `reason`, null for good lines."""
    seen = lines.withColumn("read", _read_as(LINE.simpleString())).select(
        "file",
        "position",
        "line",
        "problem",
        F.col("read.record").alias("record"),
        (F.col("read._corrupt").isNull() & (F.col("read.end") == 1)).alias("is_json"),
    )
    values = [_value(field).alias(field.name) for field in FIELDS]
    return (
        seen.withColumn("reason", F.coalesce(F.col("problem"), _reason()))
        .withColumn("line_id", F.sha2(F.col("line"), 256))
        .select("file", "position", "line", "reason", "line_id", *values)
        .withColumn(
            "time", F.when(_is_time(F.col("time_ms")), F.timestamp_millis(F.col("time_ms")))
        )
        .withColumn("date", F.coalesce(F.to_date("time"), date_of_file(F.col("file"))))
    )


def requests(parsed: DataFrame) -> DataFrame:
    """The good ones; copies are still among them."""
    return parsed.where("reason is null").select(REQUESTS.fieldNames())


def quarantine(parsed: DataFrame) -> DataFrame:
    return parsed.where("reason is not null").select(
        "file",
        "position",
        "reason",
        F.substring("line", 1, QUARANTINE_CHARACTERS).alias("line"),
        date_of_file(F.col("file")).alias("date"),
    )


def without_copies(new: DataFrame, earlier: DataFrame) -> DataFrame:
    """Each line once, and only those that were not there before. Of several copies the one that
    comes first by file and position is kept, so that the result does not depend on chance."""
    copies = Window.partitionBy("line_id").orderBy("file", "position")
    unseen = new.join(earlier.select("line_id"), "line_id", "left_anti")
    return unseen.withColumn("copy", F.row_number().over(copies)).where("copy = 1").drop("copy")


def date_of_file(file: Column) -> Column:
    """Of the hour in its name; null for foreign files."""
    day = F.regexp_extract(file, _HOUR_OF_NAME, 1)
    return F.when(day != "", F.try_to_date(day, "yyyyMMdd"))


def _read_as(record: str) -> Column:
    """The line as `record`, of that type; `end` is 1 and `_corrupt` null if all of it was read."""
    whole = F.concat(F.lit('{"record":'), F.col("line"), F.lit(',"end":1}'))
    return F.from_json(whole, f"record {record}, end int, {_CORRUPT} string", _JSON)


def _value(field: Field) -> Column:
    value = F.col("record")[field.name]
    return value if field.default is None else F.coalesce(value, F.lit(field.default))


def _reason() -> Column:
    """The first thing that is wrong with a line."""
    is_json, record = F.col("is_json"), F.col("record")
    reason = F.when(~F.coalesce(is_json, F.lit(False)), _reason_of_text())
    reason = reason.when(record.isNull(), "not-an-object")
    for field in FIELDS:
        if field.default is None:
            reason = reason.when(record[field.name].isNull(), f"missing:{field.name}")
    reason = reason.when(_value(_named("v")) != VERSION, "version")
    reason = reason.when(~_is_time(record["time_ms"]), "bad-time")
    for field in NUMBERS:
        value = record[field.name]
        reason = reason.when((value < 0) | (value > field.most), f"bad-value:{field.name}")
    return reason


def _reason_of_text() -> Column:
    """Why the line could not be read as a record. Rare, so it may cost: the line is read again."""
    text = _read_as("string")
    reason = F.when(F.trim("line") == "", "empty")
    reason = reason.when(text[_CORRUPT].isNotNull() | text["end"].isNull(), "not-json")
    reason = reason.when(~F.ltrim("line").startswith("{"), "not-an-object")
    for field in NUMBERS:
        alone = _read_as(f"struct<{field.name}: {field.type.simpleString()}>")
        reason = reason.when(alone[_CORRUPT].isNotNull(), f"wrong-type:{field.name}")
    return reason.otherwise("not-json")


def _named(name: str) -> Field:
    return next(field for field in FIELDS if field.name == name)


def _is_time(time_ms: Column) -> Column:
    return (time_ms >= EARLIEST_MS) & (time_ms < LATEST_MS)
