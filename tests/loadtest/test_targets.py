import pytest

from loadtest.load.goals import (
    FILE,
    MEASURES,
    MEMORY,
    OURS,
    TARGETS,
    Bound,
    Target,
    Verdict,
    compare,
    find_measure,
    judge,
    judge_all,
    typical,
)
from loadtest.load.suites import SUITES

RATE = Target("append64", "rate", Bound.AT_LEAST, 5.0, FILE)
FASTER = Target("append64", "rate", Bound.ABOVE, 1.0, MEMORY)
LATENCY = Target("append64", "p99", Bound.NO_WORSE, 1.0, FILE)
LIMIT = Target("idle", "ready", Bound.BELOW_LIMIT, 15.0)


def test_ratio_above_one_is_better_for_rates_and_times() -> None:
    rates = {("append64", "rate", OURS): {1: 30.0}, ("append64", "rate", FILE): {1: 10.0}}
    times = {("append64", "p99", OURS): {1: 10.0}, ("append64", "p99", FILE): {1: 30.0}}
    assert compare(find_measure("append64", "rate"), rates, FILE) == 3.0
    assert compare(find_measure("append64", "p99"), times, FILE) == 3.0
    assert compare(find_measure("append64", "p99"), times, MEMORY) is None


def test_ratio_is_the_middle_of_the_rounds_that_measured_both() -> None:
    measure = find_measure("append1", "p50")
    figures = {
        ("append1", "p50", OURS): {1: 1.0, 2: 10.0, 3: 2.0, 5: 1.0},
        ("append1", "p50", FILE): {1: 2.0, 2: 30.0, 3: 2.0, 4: 900.0},
    }
    assert compare(measure, figures, FILE) == 2.0
    assert typical(measure, figures, OURS) == 1.5


@pytest.mark.parametrize(
    ("target", "ours", "theirs", "verdict"),
    [
        (RATE, 50.0, 10.0, Verdict.REACHED),
        (RATE, 49.9, 10.0, Verdict.MISSED),
        (FASTER, 10.1, 10.0, Verdict.REACHED),
        (FASTER, 10.0, 10.0, Verdict.MISSED),
        (LATENCY, 9.0, 10.0, Verdict.REACHED),
        (LATENCY, 10.4, 10.0, Verdict.REACHED),
        (LATENCY, 10.8, 10.0, Verdict.MISSED),
    ],
)
def test_verdicts_on_ratios(target: Target, ours: float, theirs: float, verdict: Verdict) -> None:
    peer = str(target.peer)
    figures = {
        (target.scenario, target.measure, OURS): {1: ours},
        (target.scenario, target.measure, peer): {1: theirs},
    }
    assert judge(target, figures).verdict is verdict


@pytest.mark.parametrize(("seconds", "verdict"), [(14.9, Verdict.REACHED), (15.0, Verdict.MISSED)])
def test_verdicts_on_limits(seconds: float, verdict: Verdict) -> None:
    assert judge(LIMIT, {("idle", "ready", OURS): {1: seconds}}).verdict is verdict


def test_nothing_measured_is_not_reached() -> None:
    assert {judgement.verdict for judgement in judge_all({})} == {Verdict.UNKNOWN}


def test_tables_fit_together() -> None:
    names = {scenario.name for suite in SUITES for scenario in suite.scenarios}
    assert {measure.scenario for measure in MEASURES} == names
    assert {target.scenario for target in TARGETS} == names - {"unlike64", "messages"}
    for target in TARGETS:
        assert find_measure(target.scenario, target.measure)
        assert (target.peer is None) == (target.bound is Bound.BELOW_LIMIT)
