"""Silence about a history means something only if the history shows enough."""

from collections.abc import Callable, Iterable

import pytest

from loadtest.verify.check import check_history
from loadtest.verify.history import (
    MODES,
    Append,
    Change,
    Fault,
    Injected,
    ReadResult,
    Record,
    Run,
    Truth,
    Withdrawn,
)
from loadtest.verify.plan import FAULT_RATES, FAULTS, NETWORK, Step
from loadtest.verify.timeline import sort_history
from tests.verify.honest import STREAM, Honest, offset

PLAN = [
    Step(1, "kill", "redis", 1.0),
    Step(2, "kill", "redis", 1.0),
    Step(3, "inject", FAULTS, 5.0),
    Step(3, "inject", NETWORK, 5.0),
    Step(4, "rotate", "keys"),
    Step(5, "recreate", STREAM),
    Step(6, "snapshot", STREAM),
    Step(7, "close", STREAM),
]


def make_busy() -> Honest:
    """In its second incarnation, and not at its end; all that was planned was done."""
    stream = Honest()
    stream.records.append(Run(7, 60, "2026-01-01T00:00:00+00:00", ["origin"], PLAN))
    stream.create()
    stream.append()
    for mode in MODES:
        stream.read(mode=mode)
    for _ in range(2):
        stream.fault("kill", "redis")
    stream.inject(FAULTS, *FAULT_RATES[FAULTS])
    stream.inject(NETWORK, "delay")
    stream.withdraw("key-1")
    stream.refuse(key="key-1")
    stream.delete()
    stream.create()
    stream.append()
    stream.snapshot()
    stream.append()
    stream.close()
    return stream


def a_run() -> Honest:
    """Complete."""
    stream = make_busy()
    stream.look_last()
    return stream


def missing(records: Iterable[Record]) -> list[str]:
    return check_history(sort_history(records)).missing


def test_nothing_is_missing_from_a_whole_run() -> None:
    assert missing(a_run().records) == []


def test_everything_is_missing_from_an_empty_history() -> None:
    assert missing([]) == [
        "the heading of the run",
        "the end of the run",
        "an append that was acknowledged",
        "a message that was read by catch-up",
        "a message that was read by long-poll",
        "a message that was read by sse",
    ]


LEFT_OUT: dict[str, Callable[[Record], bool]] = {
    "the heading of the run": lambda r: isinstance(r, Run),
    "an append that was acknowledged": lambda r: isinstance(r, Append),
    "a message that was read by long-poll": (
        lambda r: isinstance(r, ReadResult) and r.mode == "long-poll" and not r.last
    ),
    "the planned inject of faults": lambda r: isinstance(r, Fault) and r.target == FAULTS,
    "the planned create of verify/a/json": (
        lambda r: isinstance(r, Change) and r.action == "create" and r.generation == 1
    ),
    "the planned delete of verify/a/json": lambda r: isinstance(r, Change) and r.action == "delete",
    "the planned close of verify/a/json": lambda r: isinstance(r, Change) and r.action == "close",
    "a snapshot that was acknowledged": (
        lambda r: isinstance(r, Change) and r.action == "snapshot"
    ),
    "a token that was refused because its key had gone": (
        lambda r: isinstance(r, ReadResult) and r.status == 401
    ),
    "an injected stall": lambda r: isinstance(r, Injected) and r.fault == "stall",
    "an injected fault at network": lambda r: isinstance(r, Injected) and r.place == NETWORK,
    "the audit of verify/a/json, incarnation 0, at its end": (
        lambda r: isinstance(r, Truth) and r.generation == 0
    ),
    "the last look at verify/a/json through envoy": (
        lambda r: isinstance(r, ReadResult) and r.mode == "final"
    ),
    "the last look at verify/a/json through envoy by sse": (
        lambda r: isinstance(r, ReadResult) and r.mode == "sse" and r.last
    ),
}


@pytest.mark.parametrize("what", LEFT_OUT)
def test_what_is_left_out_is_missing(what: str) -> None:
    assert missing([r for r in a_run().records if not LEFT_OUT[what](r)]) == [what]


def test_what_is_planned_twice_is_done_twice() -> None:
    records = a_run().records
    records.remove(next(r for r in records if isinstance(r, Fault)))
    assert missing(records) == ["the planned kill of redis"]


def test_a_key_that_stays_is_refused_to_nobody() -> None:
    assert missing([r for r in a_run().records if not isinstance(r, Withdrawn)]) == [
        "the planned withdrawal of keys",
        "a token that was refused because its key had gone",
    ]


def test_proxies_that_do_nothing_are_told_with_all_that_they_did_not_do() -> None:
    records = [r for r in a_run().records if not isinstance(r, Injected)]
    kinds = [f"an injected {kind}" for kind in sorted(FAULT_RATES[FAULTS])]
    assert missing(records) == [
        *("an injected fault at faults", "an injected fault at network"),
        *kinds,
    ]


@pytest.mark.parametrize("action", ["delete", "snapshot", "close"])
def test_what_was_tried_in_vain_is_not_done(action: str) -> None:
    stream = a_run()
    for record in stream.records:
        if isinstance(record, Change) and record.action == action:
            record.outcome = "unknown"
    (lack,) = missing(stream.records)
    assert action in lack


def test_every_door_that_was_used_must_be_looked_through() -> None:
    stream = a_run()
    stream.read(door="network")
    assert len(missing(stream.records)) == 3


def test_wherever_a_run_is_killed_it_is_incomplete_and_nobody_is_blamed() -> None:
    """An audit for a snapshot says nothing about what was acknowledged after it."""
    stream = make_busy()
    stream.read(offset(1))
    stream.look_last()
    assert missing(stream.records) == []
    for end in range(len(stream.records)):
        findings = check_history(sort_history(stream.records[:end]))
        assert findings.violations == []
        assert findings.missing
