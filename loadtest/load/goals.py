"""What is measured, what was asked of it, and whether the figures reach it. Pure.

A ratio says how many times better ours is than a peer: above 1 is better, for rates and for times
alike. It is taken round by round, because peers of one round met the same noise, and the median of
the rounds counts. "No worse" forgives 5 %, a choice: rounds can differ by far more.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from statistics import median

from loadtest.peers.names import OURS

NOISE = 0.05


class Better(Enum):
    MORE = "more"
    LESS = "less"


class Bound(Enum):
    AT_LEAST = "at least"
    ABOVE = "above"
    NO_WORSE = "no worse"
    BELOW_LIMIT = "below"


@dataclass(frozen=True, slots=True)
class Goal:
    """A bound on a measure: on its ratio to a peer, or (without one) on the figure itself."""

    bound: Bound
    value: float
    peer: str | None = None


@dataclass(frozen=True, slots=True)
class Measure:
    """One figure of a scenario."""

    name: str
    unit: str
    better: Better
    goals: tuple[Goal, ...] = ()


class Verdict(Enum):
    REACHED = "yes"
    MISSED = "NO"
    UNKNOWN = "not measured"


@dataclass(frozen=True, slots=True)
class Judgement:
    scenario: str
    measure: str
    goal: Goal
    figure: float | None
    verdict: Verdict


Figures = Mapping[tuple[str, str, str], Mapping[int, float]]
"""(scenario, measure, peer) -> round -> figure."""


def more(name: str, unit: str, *goals: Goal) -> Measure:
    return Measure(name, unit, Better.MORE, goals)


def less(name: str, unit: str, *goals: Goal) -> Measure:
    return Measure(name, unit, Better.LESS, goals)


def at_least(value: float, peer: str) -> Goal:
    return Goal(Bound.AT_LEAST, value, peer)


def above(value: float, peer: str) -> Goal:
    return Goal(Bound.ABOVE, value, peer)


def no_worse(peer: str) -> Goal:
    return Goal(Bound.NO_WORSE, 1.0, peer)


def below(value: float) -> Goal:
    return Goal(Bound.BELOW_LIMIT, value)


def typical(scenario: str, measure: Measure, figures: Figures, peer: str) -> float | None:
    rounds = figures.get((scenario, measure.name, peer))
    return median(list(rounds.values())) if rounds else None


def compare(scenario: str, measure: Measure, figures: Figures, peer: str) -> float | None:
    """How many times better ours is than the peer, over the rounds that measured both."""
    ours = figures.get((scenario, measure.name, OURS), {})
    theirs = figures.get((scenario, measure.name, peer), {})
    ratios = [_ratio(measure.better, ours[n], theirs[n]) for n in ours.keys() & theirs.keys()]
    return median(ratios) if ratios else None


def _ratio(better: Better, ours: float, theirs: float) -> float:
    top, bottom = (ours, theirs) if better is Better.MORE else (theirs, ours)
    return top / bottom if bottom else float("inf")


def judge(scenario: str, measures: Iterable[Measure], figures: Figures) -> list[Judgement]:
    return [
        _judge(scenario, measure, goal, figures) for measure in measures for goal in measure.goals
    ]


def _judge(scenario: str, measure: Measure, goal: Goal, figures: Figures) -> Judgement:
    if goal.peer is None:
        figure = typical(scenario, measure, figures, OURS)
    else:
        figure = compare(scenario, measure, figures, goal.peer)
    if figure is None:
        return Judgement(scenario, measure.name, goal, None, Verdict.UNKNOWN)
    verdict = Verdict.REACHED if _reaches(goal, figure) else Verdict.MISSED
    return Judgement(scenario, measure.name, goal, figure, verdict)


def _reaches(goal: Goal, figure: float) -> bool:
    match goal.bound:
        case Bound.AT_LEAST:
            return figure >= goal.value
        case Bound.ABOVE:
            return figure > goal.value
        case Bound.NO_WORSE:
            return figure >= goal.value * (1 - NOISE)
        case Bound.BELOW_LIMIT:
            return figure < goal.value
