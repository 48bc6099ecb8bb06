import pytest

from loadtest.load.goals import (
    Bound,
    Goal,
    Verdict,
    above,
    at_least,
    below,
    compare,
    judge,
    less,
    more,
    no_worse,
    typical,
)
from loadtest.load.suites import SUITES
from loadtest.peers.names import FILE, MEMORY, OURS, WORDS

RATE, P99 = more("rate", "/s"), less("p99", "ms")


def test_ratio_above_one_is_better_for_rates_and_times() -> None:
    rates = {("append64", "rate", OURS): {1: 30.0}, ("append64", "rate", FILE): {1: 10.0}}
    times = {("append64", "p99", OURS): {1: 10.0}, ("append64", "p99", FILE): {1: 30.0}}
    assert compare("append64", RATE, rates, FILE) == 3.0
    assert compare("append64", P99, times, FILE) == 3.0
    assert compare("append64", P99, times, MEMORY) is None


def test_ratio_is_the_middle_of_the_rounds_that_measured_both() -> None:
    figures = {
        ("append1", "p99", OURS): {1: 1.0, 2: 10.0, 3: 2.0, 5: 1.0},
        ("append1", "p99", FILE): {1: 2.0, 2: 30.0, 3: 2.0, 4: 900.0},
    }
    assert compare("append1", P99, figures, FILE) == 2.0
    assert typical("append1", P99, figures, OURS) == 1.5


@pytest.mark.parametrize(
    ("goal", "ours", "verdict"),
    [
        (at_least(5, FILE), 50.0, Verdict.REACHED),
        (at_least(5, FILE), 49.9, Verdict.MISSED),
        (above(1, FILE), 10.1, Verdict.REACHED),
        (above(1, FILE), 10.0, Verdict.MISSED),
        (no_worse(FILE), 11.0, Verdict.REACHED),
        (no_worse(FILE), 9.6, Verdict.REACHED),
        (no_worse(FILE), 9.4, Verdict.MISSED),
    ],
)
def test_verdicts_on_ratios(goal: Goal, ours: float, verdict: Verdict) -> None:
    figures = {("a", "rate", OURS): {1: ours}, ("a", "rate", FILE): {1: 10.0}}
    [judgement] = judge("a", [more("rate", "/s", goal)], figures)
    assert judgement.verdict is verdict


@pytest.mark.parametrize(("seconds", "verdict"), [(14.9, Verdict.REACHED), (15.0, Verdict.MISSED)])
def test_verdicts_on_limits(seconds: float, verdict: Verdict) -> None:
    [judgement] = judge("a", [less("s", "s", below(15))], {("a", "s", OURS): {1: seconds}})
    assert judgement.verdict is verdict


def test_nothing_measured_is_not_reached() -> None:
    [judgement] = judge("a", [less("s", "s", below(15))], {})
    assert judgement.verdict is Verdict.UNKNOWN


def test_goals_name_peers_of_their_suite() -> None:
    without = set()
    for suite in SUITES:
        for scenario in suite.scenarios:
            goals = [goal for measure in scenario.measures for goal in measure.goals]
            if not goals:
                without.add(scenario.name)
            for goal in goals:
                assert (goal.peer is None) == (goal.bound is Bound.BELOW_LIMIT)
                assert goal.peer is None or (goal.peer in suite.board.peers and WORDS[goal.peer])
    cluster = {name for name in without if name.startswith("cluster-")}
    assert without - cluster == {"unlike64", "messages"}
    assert not cluster & {"cluster-append64", "cluster-takeover"}
