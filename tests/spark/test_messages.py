"""State messages in Spark: the same verdict as `protocol.state`, field by field."""

import json
from collections.abc import Iterator
from random import Random
from typing import Any

from pyspark.sql import SparkSession

from protocol.state import RULES, Change, StateError, parse_message
from protocol.timestamps import timestamp_ms
from spark.messages import EARLIEST_MS, LATEST_MS, judge, quarantine

COLUMNS = (
    "stream string, offset string, position int, kind string, message string, data binary, "
    "incarnation string, next_offset string"
)

DEEP = "[" * 100 + '"]"' + "]" * 100
LONG = '"' + r"a\n" * 2_000 + '"'
TEXTS = (
    *('"user"', '"1"', '""', '"a b"', '"ü😀"', r'"\u0041\n\"\\"', r'"\/"', r'"\ud83d\ude00"'),
    *(r'"\ud800"', r'"\udc00x"', r'"\ud800\u0041"', r'"\\ud800"', r'"\u0000"', '"$1[null]{"'),
)
OTHERS = ("1", "-0", "1e5", "1.50", "1e999", "true", "null", "[]", '["a"]', "{}", '{"a" : [ 1 ]}')
VALUES = (*TEXTS, *OTHERS, '{"value":{"key":"}"}}', '[ "a" ,null,{"b":"\\""} ]', DEEP, "12" * 700)
OPERATIONS = ('"insert"', '"update"', '"delete"', '"upsert"', '"UPSERT"', r'"\u0069nsert"')
CONTROLS = ('"reset"', '"snapshot-start"', '"snapshot-end"', '"stop"')
OFFSETS = ('"-1"', '"0000000000000000_0000000000000431"', '"a,b"', '"' + "x" * 256 + '"', '"a\\n"')
TIMES = (
    *("2026-11-16T12:00:00Z", "2026-11-16t12:00:00.5z", "2026-11-16 12:00:00.123456789+01:30"),
    *("2024-02-29T00:00:00-23:59", "2023-02-29T00:00:00Z", "1900-02-29T00:00:00Z"),
    *("0000-02-29T00:00:00Z", "0000-01-01T00:00:00+00:01", "9999-12-31T23:59:59.999-00:01"),
    *("2016-12-31T23:59:60Z", "2016-12-31T23:59:60.5Z", "2016-12-31T12:59:60Z"),
    *("2017-01-01T05:29:60+05:30", "1969-12-31T23:59:59.9995Z", "2026-04-31T00:00:00Z"),
    *("2026-00-01T00:00:00Z", "2026-01-00T00:00:00Z", "2026-13-01T00:00:00Z", "2026-1-1T0:0:0Z"),
    *("2026-11-16T24:00:00Z", "2026-11-16T12:60:00Z", "2026-11-16T12:00:00", "2026-11-16"),
    *("2026-11-16T12:00:00Z\\n", "2026-11-16T12:00:00.Z", "2026-11-16T12:00:00+24:00", ""),
    *("٢٠٢٦-11-16T12:00:00Z", "0001-01-01T00:00:00+23:59", " 2026-11-16T12:00:00Z"),
)
NO_MESSAGES = (
    *("", " ", "1", '"x"', "null", "[]", "[{}]", "{", "{}}", "{} {}", "{},{}", '{"a"}', "{'a':1}"),
    *('{"a":1,}', '{"a":NaN}', '{"a":-Infinity}', '{"a":01}', '{"a":.5}', '{"a":"\x01"}', "nul"),
    *('{"a":"\\x"}', '{"a":"\\u12g4"}', "{a:1}", "\ufeff{}", '{"a":tru}', "/**/{}", "{\x0b}"),
)


def member(chance: Random, name: str, value: str) -> str:
    blank = chance.choice(("", "", "", " ", "\n\t"))
    if chance.random() < 0.05:
        name = "".join(f"\\u{ord(letter):04x}" for letter in name)
    return f'{blank}"{name}"{blank}:{blank}{value}{blank}'


def an_object(chance: Random, *fields: tuple[str, float, tuple[str, ...]]) -> str:
    """Of fields with their likelihood and values; some of them twice, some others between."""
    members = [
        member(chance, name, chance.choice(values))
        for name, likely, values in fields
        for _ in range(1 + (chance.random() < 0.05))
        if chance.random() < likely
    ]
    while chance.random() < 0.2:
        name = chance.choice(("old_value", "Value", "", "null", r"\ud800", r"\u0022,", "}{", "x"))
        members.append(member(chance, name, chance.choice((*VALUES, LONG))))
    chance.shuffle(members)
    return "{" + ",".join(members) + "}"


def headers(chance: Random) -> str:
    times = tuple(f'"{time}"' for time in TIMES)
    odd = (*TEXTS, *OTHERS) if chance.random() < 0.1 else ()
    is_control = chance.random() < 0.25
    return an_object(
        chance,
        ("operation", 0.02 if is_control else 0.97, OPERATIONS[: chance.choice((4, 6))] + odd),
        ("control", 0.97 if is_control else 0.02, CONTROLS + odd),
        ("txid", 0.3, ('"t-1"', *odd)),
        ("timestamp", 0.4, (*times, *odd)),
        ("offset", 0.3, (*OFFSETS, *odd)),
    )


def texts(seed: int, count: int) -> Iterator[str]:
    chance = Random(seed)
    yield from NO_MESSAGES
    for _ in range(count):
        odd = (*TEXTS, *OTHERS) if chance.random() < 0.2 else ('"user"', '"ü"')
        yield an_object(
            chance,
            ("type", 0.98, odd),
            ("key", 0.98, odd),
            ("value", 0.95, VALUES),
            ("headers", 0.98, (headers(chance),) if chance.random() < 0.95 else OTHERS),
        )


def rows(*messages: str | None, kind: str = "message", data: bytes | None = None) -> list[Any]:
    return [("s", f"{n:08}", 0, kind, text, data, None, None) for n, text in enumerate(messages)]


def expected(message: str) -> tuple[Any, ...]:
    try:
        parsed = parse_message(message.encode())
    except StateError as error:
        return (error.field,)
    if not isinstance(parsed, Change):
        return (None, parsed.control)
    value = None if parsed.value is None or parsed.operation == "delete" else parsed.value.decode()
    ms = None if parsed.timestamp is None else timestamp_ms(parsed.timestamp)
    worth = ms if ms is not None and EARLIEST_MS <= ms <= LATEST_MS else None
    return (None, parsed.operation, parsed.type, parsed.key, value, parsed.txid, worth)


def found(row: Any) -> tuple[Any, ...]:
    if row.fault is not None:
        return (row.fault,)
    if row.control is not None:
        return (None, row.control)
    return (None, row.operation, row.type, row.key, row.value, row.txid, row.ms)


def test_every_message_is_judged_as_the_protocol_judges_it(spark: SparkSession) -> None:
    messages = list(texts(seed=5, count=3000))
    judged = judge(spark.createDataFrame(rows(*messages), COLUMNS))
    timed = judged.selectExpr("*", "unix_millis(time) as ms").drop("time").orderBy("offset")
    verdicts = list(map(found, timed.collect()))
    wanted = list(map(expected, messages))
    for message, is_, should_be in zip(messages, verdicts, wanted, strict=True):
        assert is_ == should_be, message
    # The generator reaches every rule, and good messages too.
    assert {verdict[0] for verdict in wanted} == {None, *RULES}
    assert sum(verdict[0] is None for verdict in wanted) > 500


def test_what_is_no_message_goes_to_the_quarantine_with_field_and_rule(
    spark: SparkSession,
) -> None:
    good = '{"type":"t","key":"k","value":1,"headers":{"operation":"insert"}}'
    bad = good.replace('"key":"k"', '"key":""')
    judged = judge(spark.createDataFrame(rows(good, bad, "7"), COLUMNS))
    assert [tuple(row) for row in quarantine(judged).orderBy("offset").collect()] == [
        ("s", "00000001", 0, "key", RULES["key"]),
        ("s", "00000002", 0, "", RULES[""]),
    ]


def test_a_snapshot_may_be_empty_but_not_unreadable(spark: SparkSession) -> None:
    snapshots = [
        *rows(None, kind="snapshot", data=b" [ ] "),
        *rows(None, kind="snapshot", data=b"\x89PNG"),
        *rows(None, kind="chunk", data=b"no message at all"),
    ]
    judged = judge(spark.createDataFrame(snapshots, COLUMNS))
    assert [(row.kind, row.fault) for row in judged.collect()] == [
        ("snapshot", None),
        ("snapshot", ""),
    ]


def test_messages_are_read_as_json_dumps_writes_them(spark: SparkSession) -> None:
    value: dict[str, Any] = {"text": 'a "b" \\ \u2028', "list": [None, 1.5, {"": []}]}
    message = {"type": "t", "key": "k", "value": value, "headers": {"operation": "update"}}
    judged = judge(spark.createDataFrame(rows(json.dumps(message, indent=2)), COLUMNS))
    [row] = judged.collect()
    assert row.fault is None and json.loads(row.value) == value
