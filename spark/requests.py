"""Lines to cleaned requests, or to the quarantine with a reason. Built-in functions only.

Unknown fields are ignored, missing ones get the default of `AccessRecord`. Spark's JSON reader
stops after the first value of a line and ignores the rest, so every line is wrapped in an object
whose last member must be parsed too.

Both kinds have the columns of a request, so that one pass writes both: if `is_good` is false,
`error` is the reason and `user_agent` the line.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, StructField, StructType

from protocol.accesslog import VERSION
from spark.schema import FIELDS, LINE, NUMBERS, REQUESTS, Field

QUARANTINE = "file string, position long, reason string, line string, date date"
QUARANTINE_CHARACTERS = 4096  # kept of a line

EARLIEST_MS = 1_577_836_800_000  # 2020, before the first gateway
LATEST_MS = 4_102_444_800_000  # 2100

PARSED = StructType([*REQUESTS.fields, StructField("is_good", BooleanType())])

_CORRUPT = "_corrupt"
_JSON = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": _CORRUPT,
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
}
_HOUR_OF_NAME = r"-(\d{8})T\d{2}\.jsonl(?:\.gz)?$"


def parse(lines: DataFrame) -> DataFrame:
    """Rows of the log source, valid and invalid, still with duplicates."""
    seen = lines.withColumn("read", _read_as(LINE.simpleString())).select(
        "file",
        "position",
        "line",
        "problem",
        F.col("read.record").alias("record"),
        (F.col("read._corrupt").isNull() & (F.col("read.end") == 1)).alias("is_json"),
    )
    values = [_value(field).alias(field.name) for field in FIELDS]
    is_good, sample = F.col("reason").isNull(), F.substring("line", 1, QUARANTINE_CHARACTERS)
    return (
        seen.withColumn("reason", F.coalesce(F.col("problem"), _reason()))
        .withColumn("line_id", F.sha2(F.col("line"), 256))
        .select("file", "position", "line", "reason", "line_id", *values)
        .withColumn(
            "time", F.when(_is_time(F.col("time_ms")), F.timestamp_millis(F.col("time_ms")))
        )
        .withColumns(
            {
                "date": F.coalesce(F.to_date("time"), date_of_file(F.col("file"))),
                "error": F.when(is_good, F.col("error")).otherwise(F.col("reason")),
                "user_agent": F.when(is_good, F.col("user_agent")).otherwise(sample),
                "is_good": is_good,
            }
        )
        .select(PARSED.fieldNames())
    )


def requests(parsed: DataFrame) -> DataFrame:
    return parsed.where("is_good").select(REQUESTS.fieldNames())


def quarantine(parsed: DataFrame) -> DataFrame:
    return parsed.where("not is_good").select(
        "file",
        "position",
        F.col("error").alias("reason"),
        F.col("user_agent").alias("line"),
        date_of_file(F.col("file")).alias("date"),
    )


def seen_twice(new: DataFrame, earlier: DataFrame) -> DataFrame:
    """Hashes of lines that have duplicates, and perhaps of a few others. Numbers only, because this
    runs for every line."""
    both = new.select(_hash().alias("hash")).unionAll(earlier.select(_hash().alias("hash")))
    return both.groupBy("hash").count().where("count > 1").select("hash")


def copies(new: DataFrame, earlier: DataFrame, twice: DataFrame) -> DataFrame:
    """All equal lines but the first, by file and position, so that the result is deterministic; all
    of them if the line is already in the tables. `part` names the file that has them."""
    place = ("line_id", "date", "part", "file", "position")
    old = earlier.select("line_id", "date", F.lit("").alias("part"), "file", "position")
    both = (
        new.select(*place, F.lit(1).alias("age"))
        .unionByName(old.withColumn("age", F.lit(0)))
        .withColumn("hash", _hash())
        .join(twice, "hash", "left_semi")
    )
    same = Window.partitionBy("line_id").orderBy("age", "file", "position")
    return (
        both.withColumn("copy", F.row_number().over(same))
        .where("copy > 1 and age = 1")
        .select(*place[1:])
    )


def _hash() -> Column:
    return F.xxhash64("line_id")


def date_of_file(file: Column) -> Column:
    """The date of the hour in its name; null for foreign files."""
    day = F.regexp_extract(file, _HOUR_OF_NAME, 1)
    return F.when(day != "", F.try_to_date(day, "yyyyMMdd"))


def _read_as(record: str) -> Column:
    """The line as `record`, of that type; `end` is 1 and `_corrupt` null if it was fully parsed."""
    whole = F.concat(F.lit('{"record":'), F.col("line"), F.lit(',"end":1}'))
    return F.from_json(whole, f"record {record}, end int, {_CORRUPT} string", _JSON)


def _value(field: Field) -> Column:
    value = F.col("record")[field.name]
    return value if field.default is None else F.coalesce(value, F.lit(field.default))


def _reason() -> Column:
    """The first problem of a line."""
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
    """Why the line could not be parsed. Rare, so the line may be parsed again."""
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
