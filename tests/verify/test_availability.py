"""Availability: counted apart from integrity, beside what was being done to the fleet."""

import pytest

from loadtest.verify.availability import AFTERMATH_SECS, QUIET, Availability, causes, measure
from loadtest.verify.history import Fault, ReadResult, Record, Withdrawn
from loadtest.verify.timeline import sort_history


def read(ended: float, trouble: str = "", **different: object) -> ReadResult:
    told = {"who": "r", "mode": "catch-up", "stream": "verify/a/json", "door": "envoy"}
    outcome = "unknown" if trouble else "ok"
    times = {"began": ended - 0.1, "ended": ended}
    return ReadResult(**(told | times | {"outcome": outcome, "trouble": trouble} | different))  # type: ignore[arg-type]


def of(records: list[Record]) -> Availability:
    return measure(sort_history(records))


def kill(began: float, ended: float) -> Fault:
    return Fault(what="kill", target="gateway-1", began=began, ended=ended)


def test_failures_are_counted_by_minute_and_by_what_was_done() -> None:
    history: list[Record] = [read(10), kill(60, 62), read(61, "refused"), read(63), read(100)]
    found = of(history)
    assert [share.percent for share in found.by_minute.values()] == [
        100,
        pytest.approx(66.7, abs=0.05),
    ]
    assert found.by_fault["kill gateway"].failed == {"refused": 1}
    assert found.by_fault[QUIET].asked == 2


def test_a_fault_is_felt_a_little_longer_than_it_lasts() -> None:
    faults = [kill(10, 12)]
    assert causes(faults, 12 + AFTERMATH_SECS, 20) == ["kill gateway"]
    assert causes(faults, 12.1 + AFTERMATH_SECS, 20) == [QUIET]


def test_who_meets_two_faults_is_counted_with_both() -> None:
    pause = Fault(what="pause", target="origin", began=11, ended=13)
    found = of([kill(10, 12), pause, read(11.5, "504")]).by_fault
    assert found.keys() == {"kill gateway", "pause origin"}


def test_the_longest_time_without_one_success_is_the_longest_outage() -> None:
    history: list[Record] = [read(1), read(2, "502"), read(3, "502"), read(4), read(9), read(9.5)]
    assert of(history).outages == [(3, 1, QUIET)]


def test_an_event_on_an_open_connection_is_no_proof_of_service() -> None:
    history: list[Record] = [read(1), read(2, "502"), read(3, mode="sse"), read(5)]
    assert of(history).outages == [(4, 1, QUIET)]


def test_who_has_no_right_to_be_served_is_not_counted() -> None:
    history: list[Record] = [read(1), read(2, status=403, allowed=False)]
    assert of(history).by_minute[0].asked == 1


@pytest.mark.parametrize("status", [401, 403])
def test_who_is_shut_out_in_spite_of_a_good_token_was_not_served(status: int) -> None:
    found = of([read(1), read(2, status=status), read(4, status=status), read(6)])
    assert found.by_minute[0].failed == {"shut-out": 2}
    assert found.outages == [(5, 1, QUIET)]


def test_who_has_a_token_of_a_withdrawn_key_is_not_counted() -> None:
    gone = Withdrawn(key="old", at=3)
    found = of([read(2, key="old"), gone, read(4, status=401, key="old"), read(5, key="new")])
    assert found.by_minute[0].asked == 2
    assert found.by_minute[0].failed == {}
