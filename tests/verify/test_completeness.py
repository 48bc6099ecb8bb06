"""Silence about a history means something only if the history shows enough."""

from collections.abc import Callable

import pytest

from loadtest.verify.check import check_history
from loadtest.verify.history import MODES, Append, Read, Record, Run, Truth
from tests.verify.honest import Honest, offset


def make_busy() -> Honest:
    """In its second incarnation, and not at its end."""
    stream = Honest()
    stream.records.append(Run(7, 60, "2026-01-01T00:00:00+00:00", ["origin"]))
    stream.create()
    stream.append()
    for mode in MODES:
        stream.read(mode=mode)
    stream.delete()
    stream.create()
    stream.append()
    return stream


def a_run() -> Honest:
    """Complete."""
    stream = make_busy()
    stream.look_last()
    return stream


def missing(records: list[Record]) -> list[str]:
    return check_history(records).missing


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
        lambda r: isinstance(r, Read) and r.mode == "long-poll" and not r.last
    ),
    "the audit of verify/a/json, incarnation 0, at its end": (
        lambda r: isinstance(r, Truth) and r.generation == 0
    ),
    "the last look at verify/a/json through envoy": (
        lambda r: isinstance(r, Read) and r.mode == "final"
    ),
    "the last look at verify/a/json through envoy by sse": (
        lambda r: isinstance(r, Read) and r.mode == "sse" and r.last
    ),
}


@pytest.mark.parametrize("what", LEFT_OUT)
def test_what_is_left_out_is_missing(what: str) -> None:
    assert missing([r for r in a_run().records if not LEFT_OUT[what](r)]) == [what]


def test_every_door_that_was_used_must_be_looked_through() -> None:
    stream = a_run()
    stream.read(door="network")
    assert len(missing(stream.records)) == 3


def test_wherever_a_run_is_killed_it_is_incomplete_and_nobody_is_blamed() -> None:
    """An audit for a snapshot says nothing about what was acknowledged after it."""
    stream = make_busy()
    stream.snapshot()
    written = stream.append()
    stream.read(offset(1), next=written.next)
    stream.close()
    stream.look_last()
    assert missing(stream.records) == []
    for end in range(len(stream.records)):
        findings = check_history(stream.records[:end])
        assert findings.violations == []
        assert findings.missing
