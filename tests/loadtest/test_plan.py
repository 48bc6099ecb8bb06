import json
from collections import Counter
from typing import Any

import pytest

from loadtest.faults.plan import (
    BREAKS,
    MAX_CUT_BYTES,
    Asked,
    Fault,
    Kind,
    Plan,
    PlanError,
    Planned,
    Rule,
    parse_plan,
)

READ = Asked("GET", "/v1/stream/a?offset=-1")


def plan(*, seed: int = 1, place: str = "", **faults: Any) -> Plan:
    return parse_plan(json.dumps({"seed": seed, "place": place, "faults": faults}))


def faults_of(made: Plan, count: int = 2000, asked: Asked = READ) -> list[Fault | None]:
    planned = Planned(made)
    return [planned.next_fault(asked) for _ in range(count)]


def kinds_of(faults: list[Fault | None]) -> Counter[str]:
    return Counter(fault.kind for fault in faults if fault)


@pytest.mark.parametrize(
    ("method", "target", "mode"),
    [
        ("PUT", "/v1/stream/a", "create"),
        ("POST", "/v1/stream/a", "append"),
        ("DELETE", "/v1/stream/a", "delete"),
        ("HEAD", "/v1/stream/a", "head"),
        ("GET", "/v1/stream/a", "catch-up"),
        ("GET", "/v1/stream/a?live=what", "catch-up"),
        ("GET", "/v1/stream/a?offset=-1&live=long-poll", "long-poll"),
        ("GET", "/ds/b/s?live=sse&offset=now", "sse"),
    ],
)
def test_a_request_has_a_mode(method: str, target: str, mode: str) -> None:
    assert Asked(method, target).mode == mode


def test_a_seed_repeats_its_faults_and_another_has_others() -> None:
    assert faults_of(plan(drop=0.1)) == faults_of(plan(drop=0.1))
    assert faults_of(plan(drop=0.1)) != faults_of(plan(drop=0.1, seed=2))
    assert faults_of(plan(drop=0.1)) != faults_of(plan(drop=0.1, place="front"))


def test_other_requests_between_change_nothing() -> None:
    planned = Planned(plan(drop=0.1))
    alone = faults_of(planned.plan, 200)
    mixed = []
    for number in range(200):
        planned.next_fault(Asked("POST", f"/v1/stream/{number % 3}"))
        mixed.append(planned.next_fault(READ))
        planned.next_fault(Asked("GET", "/v1/stream/a?live=sse"))
    assert mixed == alone


def test_each_kind_comes_at_its_rate() -> None:
    seen = kinds_of(faults_of(Plan(rules=tuple(Rule(kind, 0.1) for kind in Kind)), 5000))
    assert set(seen) == set(Kind)
    assert all(400 < count < 600 for count in seen.values()), seen


def test_rates_of_one_and_nothing_are_taken_at_their_word() -> None:
    assert kinds_of(faults_of(plan(drop=1), 100)) == {"drop": 100}
    assert kinds_of(faults_of(plan(drop=0), 100)) == {}
    assert kinds_of(faults_of(Plan(), 100)) == {}


def test_a_rule_holds_for_its_modes_and_paths_only() -> None:
    made = plan(drop={"rate": 1, "modes": ["sse"], "paths": "^/ds/b/"})
    assert made.choose(Asked("GET", "/ds/b/s?live=sse"), 1)
    assert not made.choose(Asked("GET", "/ds/b/s"), 1)
    assert not made.choose(Asked("GET", "/ds/c/s?live=sse"), 1)


def test_health_checks_are_left_alone() -> None:
    made = plan(drop=1)
    assert [made.choose(Asked("GET", path), 1) for path in ("/healthz", "/readyz")] == [None, None]


@pytest.mark.parametrize("method", ["PUT", "POST", "DELETE"])
def test_a_write_is_repeated_only_when_the_origin_can_tell(method: str) -> None:
    made = plan(repeat=1)
    assert made.choose(Asked(method, "/v1/stream/a"), 1) is None
    assert made.choose(Asked(method, "/v1/stream/a", is_producer=True), 1)
    assert made.choose(READ, 1)


def test_a_fault_says_how_much() -> None:
    made = faults_of(plan(delay={"rate": 0.3, "ms": [5, 8]}, garble=0.3, error=0.2, truncate=0.2))
    found = [fault for fault in made if fault]
    assert {fault.ms for fault in found if fault.kind == "delay"} == {5, 6, 7, 8}
    assert {fault.broken for fault in found if fault.kind == "garble"} == set(BREAKS)
    assert {fault.status for fault in found if fault.kind == "error"} == {500, 502, 503, 504}
    cuts = [fault.after_bytes for fault in found if fault.kind == "truncate"]
    assert 0 in cuts and 0 < max(cuts) < MAX_CUT_BYTES
    assert {fault.ms for fault in found if fault.kind != "delay"} == {0}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "no JSON"),
        ("[]", "not an object"),
        ('{"sed": 1}', "unknown key sed"),
        ('{"faults": []}', "not an object"),
        ('{"faults": {"burn": 1}}', "burn: not one of"),
        ('{"faults": {"drop": "often"}}', "rate is not a number"),
        ('{"faults": {"drop": 2}}', "rate is not a number"),
        ('{"faults": {"drop": {"rate": 1, "mode": []}}}', "unknown key mode"),
        ('{"faults": {"drop": {"rate": 1, "modes": ["read"]}}}', "modes: not a list of"),
        ('{"faults": {"drop": {"rate": 1, "paths": "("}}}', "paths:"),
        ('{"faults": {"delay": {"rate": 1, "ms": [9, 1]}}}', "ms is not"),
        ('{"faults": {"error": {"rate": 1, "statuses": [200]}}}', "statuses: not a list"),
        ('{"faults": {"drop": 0.6, "reset": 0.6}}', "more than 1"),
    ],
)
def test_a_plan_that_cannot_be_meant_is_refused(text: str, said: str) -> None:
    with pytest.raises(PlanError, match=said):
        parse_plan(text)
