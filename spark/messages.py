r"""State messages checked with built-in functions, by the rules of `protocol.state`.

Spark's JSON functions rewrite values (`1e5` becomes `100000.0`) and do not distinguish `null` from
absent, so they only decide whether a message is JSON. If it is, a regular expression extracts the
fields verbatim: the last of each name counts, and names may contain escapes. Java has no recursive
expressions, so nesting is spelled out up to a depth; deeper messages are rare and use a longer
one.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from protocol.jsonmode import MAX_DEPTH
from protocol.state import CONTROLS, DELETE, OPERATIONS, RULES

MESSAGE, SNAPSHOT = "message", "snapshot"  # kinds of rows that hold messages
FAILURE = "failure"  # kind of rows that say why there are none

USUAL_DEPTH = 12
DAY_MS = 86_400_000
# Range of times in tables; other timestamps are kept as text only.
EARLIEST_MS, LATEST_MS = 0, 4_102_444_800_000

_HEADERS = ("operation", "control", "txid", "timestamp", "offset")
_JSON = {
    "mode": "PERMISSIVE",
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
    "maxNestingDepth": "1000000",
    "maxNumLen": "1000000000",
}
# Possessive throughout: linear, and no recursion on long texts.
_STRING = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_ESCAPE_OF_PAIRS = r"\\u[dD][89a-fA-F]"
_NO_HALF_PAIR = r"^(?:[^\\]|\\(?:[^u]|u(?![dD][89a-fA-F])|u[dD][89abAB]..\\u[dD][c-fC-F]..))*+\z"
_COLON = r"\s*+:\s*+"
_CUT = "\x01"  # in no JSON text
_TIMESTAMP = (
    r"^\d{4}-\d\d-\d\d[Tt ](?:[01]\d|2[0-3]):[0-5]\d:(?:[0-5]\d|60)(?:\.\d+)?"
    r"(?:[Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d)\z"
)
_OFFSET = r"^[!-%'-+\-.0-<>@-~]{1,255}\z"


def judge(rows: DataFrame) -> DataFrame:
    """Rows of the `durable_stream` source with the fields of their messages. `fault` is the invalid
    field, null in valid messages; the other columns are meaningless if it is set. `failure` is the
    text of a failure, null in all other rows. Chunks of streams that are not JSON are excluded."""
    place = ("stream", "incarnation", "offset", "position", "next_offset", "kind")
    held = rows.where(F.col("kind").isin(MESSAGE, SNAPSHOT, FAILURE)).select(
        *place,
        F.when(F.col("kind") == FAILURE, F.col("message")).alias("failure"),
        _is_empty_snapshot().alias("is_empty"),
        F.when(_is_json(F.col("message")), F.col("message")).alias("message"),
    )
    cut = _with_fields(held, "fields", F.col("message"), ("type", "key"), ("value", "headers"))
    cut = _with_fields(cut, "headers", F.col("fields")[3], _HEADERS, ())
    raw = cut.select(
        *(*place, "failure", "is_empty"),
        F.col("fields").isNotNull().alias("is_object"),
        F.col("headers").isNotNull().alias("has_headers"),
        _text(F.col("fields")[0]).alias("type"),
        _text(F.col("fields")[1]).alias("key"),
        _or_null(F.col("fields")[2]).alias("value"),
        *(_or_null(F.col("headers")[n]).alias(f"raw_{name}") for n, name in enumerate(_HEADERS)),
    )
    read = raw.withColumns({name: _text(F.col(f"raw_{name}")) for name in _HEADERS[:-1]})
    timed = read.withColumn("time_ms", _timestamp_ms(F.col("timestamp")))
    is_worth = F.col("time_ms").between(EARLIEST_MS, LATEST_MS)
    return timed.select(
        *(*place, "failure"),
        F.when(~F.col("is_empty"), _fault()).alias("fault"),
        *("type", "key", "operation", "control"),
        F.when(F.col("operation") != DELETE, F.col("value")).alias("value"),
        *("txid", "timestamp"),
        F.when(is_worth, F.timestamp_millis("time_ms")).alias("time"),
    )


def quarantine(judged: DataFrame) -> DataFrame:
    reasons = F.create_map(*(F.lit(text) for rule in RULES.items() for text in rule))
    return judged.where("fault is not null").select(
        *("stream", "offset", "position"),
        F.col("fault").alias("field"),
        reasons[F.col("fault")].alias("reason"),
    )


# -- rules -----------------------------------------------------------------------------------------


def _fault() -> Column:
    """In the order of `protocol.state`."""
    operation, control = F.col("raw_operation"), F.col("raw_control")
    is_change, is_control = operation.isNotNull(), control.isNotNull()
    needs_value = F.col("operation") != DELETE
    return (
        F.when(~F.col("is_object"), "")
        .when(~F.col("has_headers") | (is_change == is_control), "headers")
        .when(is_control, _control_fault())
        .when(~_is_one_of("operation", OPERATIONS), "headers.operation")
        .when(_is_no_text("type"), "type")
        .when(_is_no_text("key"), "key")
        .when(needs_value & F.col("value").isNull(), "value")
        .when(F.col("raw_txid").isNotNull() & _is_no_text("txid"), "headers.txid")
        .when(F.col("raw_timestamp").isNotNull() & F.col("time_ms").isNull(), "headers.timestamp")
    )


def _control_fault() -> Column:
    is_offset = F.coalesce(_text(F.col("raw_offset")).rlike(_OFFSET), F.lit(False))
    return F.when(~_is_one_of("control", CONTROLS), "headers.control").when(
        F.col("raw_offset").isNotNull() & ~is_offset, "headers.offset"
    )


def _is_one_of(name: str, allowed: tuple[str, ...]) -> Column:
    return F.coalesce(F.col(name).isin(*allowed), F.lit(False))


def _is_no_text(name: str) -> Column:
    return F.coalesce(F.col(name), F.lit("")) == ""


def _timestamp_ms(text: Column) -> Column:
    """Like `protocol.timestamps`: null if invalid. Spark's own parser supports neither leap seconds
    nor all spellings."""

    def number(start: int, length: int, of: Column = text) -> Column:
        return F.substring(of, start, length).try_cast("bigint")

    zone = F.when(F.upper(F.right(text, F.lit(1))) != "Z", F.right(text, F.lit(6)))
    east = (number(2, 2, zone) * 60 + number(5, 2, zone)) * F.when(
        zone.startswith("-"), -1
    ).otherwise(1)
    digits = F.regexp_extract(F.substring(text, 20, 4), r"^\.(\d+)", 1)
    fraction = F.when(digits == "", 0).otherwise(F.rpad(digits, 3, "0").cast("bigint"))
    days = F.unix_date(F.substring(text, 1, 10).try_cast("date")).cast("bigint")
    minutes = number(12, 2) * 60 + number(15, 2) - F.coalesce(east, F.lit(0))
    ms = days * DAY_MS + minutes * 60_000 + number(18, 2) * 1000 + fraction
    # A leap second ends a day in UTC.
    is_time = (F.substring(text, 18, 2) != "60") | (F.pmod(ms, F.lit(DAY_MS)) < 1000)
    return F.when(text.rlike(_TIMESTAMP), F.when(is_time, ms))


# -- fields of JSON objects ------------------------------------------------------------------------


def _is_json(message: Column) -> Column:
    """A complete JSON object: the element after it in the array must be parsed too."""
    framed = F.concat(F.lit("["), message, F.lit(',{"end":1}]'))
    read = F.from_json(framed, "array<struct<end: string>>", _JSON)
    return (F.size(read) == 2) & read[1]["end"].isNotNull()


def _is_empty_snapshot() -> Column:
    """An array without messages becomes a row without one."""
    is_bare = F.col("data").cast("string").rlike(r"^\s*\[\s*\]\s*\z")
    return F.coalesce(F.col("message").isNull() & is_bare, F.lit(False))


def _with_fields(
    rows: DataFrame, column: str, json: Column, texts: tuple[str, ...], values: tuple[str, ...]
) -> DataFrame:
    """The raw values of these fields of a JSON object, "" if absent; null if it is not an object.
    Of `texts` only strings are complete; other values are cut to their first character."""
    count = len(texts) + len(values)

    def cut(depth: int) -> Column:
        parts = _CUT.join(f"${number}" for number in range(1, count + 1))
        return F.split(F.regexp_replace(json, _members(texts, values, depth), parts), _CUT)

    def if_whole(parts: Column) -> Column:
        return F.when(F.size(parts) == count, parts)

    # In two steps, because Spark would evaluate the first one twice.
    first = rows.withColumn(column, cut(USUAL_DEPTH))
    found = F.coalesce(if_whole(F.col(column)), if_whole(cut(MAX_DEPTH)))
    return first.withColumn(column, found)


def _members(texts: tuple[str, ...], values: tuple[str, ...], depth: int) -> str:
    value = rf'(?:{_STRING}|{_nested(depth)}|[^\s,\]}}"\[{{]++)'
    named = [f"{_spelled(name)}{_COLON}(?=({_STRING}|.))" for name in texts]
    named += [f"{_spelled(name)}{_COLON}(?=({value}))" for name in values]
    member = "|".join([*named, _STRING + _COLON])
    return rf"^\s*+\{{(?:\s*+(?:{member}){value}\s*+,?+)*+\}}\s*+\z"


def _nested(depth: int) -> str:
    """An array or object, of at most this depth."""
    within = _STRING
    for _ in range(depth):
        within = rf'{_STRING}|[\[{{](?:[^"\[\]{{}}]++|{within})*+[\]}}]'
    return within


def _spelled(name: str) -> str:
    r"""A name in a JSON text, also as `"\u006eame"`."""
    letters = (rf"(?:{letter}|\\u00(?i:{ord(letter):02x}))" for letter in name)
    return f'"{"".join(letters)}"'


def _or_null(raw: Column) -> Column:
    return F.when(raw != "", raw)


def _text(raw: Column) -> Column:
    """The text of a JSON string; null if invalid, such as a lone surrogate."""
    is_plain = ~raw.contains("\\")
    is_text = ~raw.rlike(_ESCAPE_OF_PAIRS) | raw.rlike(_NO_HALF_PAIR)
    decoded = F.from_json(F.concat(F.lit("["), raw, F.lit("]")), "array<string>", _JSON)[0]
    bare = raw.substr(F.lit(2), F.length(raw) - 2)
    return F.when(
        raw.startswith('"') & (F.length(raw) > 1),
        F.when(is_plain, bare).otherwise(F.when(is_text, decoded)),
    )
