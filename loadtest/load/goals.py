"""What was asked of the server, as a table, and whether the measured figures reach it. Pure.

A ratio says how many times better ours is than a peer: above 1 is better, for rates and for
times alike. It is taken round by round, because peers of one round met the same noise, and the
median of the rounds counts. "No worse" forgives 5 %, a choice: rounds can differ by far more.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from loadtest.load.metrics import median

OURS, FILE, MEMORY = "ours", "node-file", "node-memory"
NGINX, VARNISH, ENVOY, PLAIN_ENVOY = "nginx", "varnish", "envoy", "envoy-plain"
NODE, NCHAN = "node", "nchan"
REPLAY = "replay"
DUCK, GOACCESS, PYTHON = "duckdb", "goaccess", "python"
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
class Measure:
    """One figure of a scenario."""

    scenario: str
    name: str
    unit: str
    better: Better


@dataclass(frozen=True, slots=True)
class Target:
    """A bound on a measure: on its ratio to a peer, or (without one) on the figure itself."""

    scenario: str
    measure: str
    bound: Bound
    value: float
    peer: str | None = None


class Verdict(Enum):
    REACHED = "yes"
    MISSED = "NO"
    UNKNOWN = "not measured"


@dataclass(frozen=True, slots=True)
class Judgement:
    target: Target
    figure: float | None
    verdict: Verdict


Figures = Mapping[tuple[str, str, str], Mapping[int, float]]
"""(scenario, measure, peer) -> round -> figure."""

MEASURES = (
    Measure("append64", "rate", "/s", Better.MORE),
    Measure("append64", "p50", "ms", Better.LESS),
    Measure("append64", "p99", "ms", Better.LESS),
    Measure("unlike64", "rate", "/s", Better.MORE),
    Measure("unlike64", "p99", "ms", Better.LESS),
    Measure("append1", "p50", "ms", Better.LESS),
    Measure("append1", "p99", "ms", Better.LESS),
    Measure("read64", "rate", "/s", Better.MORE),
    Measure("bulk1", "rate", "/s", Better.MORE),
    Measure("bulk4", "rate", "/s", Better.MORE),
    Measure("crowd", "last byte", "s", Better.LESS),
    Measure("idle", "resident", "MB", Better.LESS),
    Measure("idle", "ready", "s", Better.LESS),
    Measure("bigread", "growth", "MB", Better.LESS),
    Measure("cached", "per core", "/s", Better.MORE),
    Measure("cached", "rate", "/s", Better.MORE),
    Measure("cached", "p99", "ms", Better.LESS),
    Measure("polls", "last answer", "ms", Better.LESS),
    Measure("polls", "at origin", "requests", Better.LESS),
    Measure("fanout", "messages", "/s", Better.MORE),
    Measure("fanout", "events", "/s", Better.MORE),
    Measure("miss", "added p50", "ms", Better.LESS),
    Measure("miss", "p99", "ms", Better.LESS),
    Measure("readers", "resident", "KiB", Better.LESS),
    Measure("compacted", "materialised", "ms", Better.LESS),
    Measure("compacted", "bytes only", "ms", Better.LESS),
    Measure("compacted", "received", "kB", Better.LESS),
    Measure("compacted", "gateway, materialised", "ms", Better.LESS),
    Measure("compacted", "gateway, bytes only", "ms", Better.LESS),
    Measure("compacted", "disk", "MB", Better.LESS),
    Measure("compacted", "without journal", "MB", Better.LESS),
    Measure("compacted", "weir compact", "s", Better.LESS),
    Measure("loglines", "input", "lines", Better.MORE),
    Measure("loglines", "lines", "/s", Better.MORE),
    Measure("loglines", "took", "s", Better.LESS),
    Measure("loglines", "CPU", "s", Better.LESS),
    Measure("loglines", "peak", "MB", Better.LESS),
    Measure("loglines", "tenth, took", "s", Better.LESS),
    Measure("loglines", "tenth, CPU", "s", Better.LESS),
    Measure("loglines", "tenth, peak", "MB", Better.LESS),
    Measure("loglines", "times as long", "for 10x", Better.LESS),
    Measure("loglines", "times the peak", "for 10x", Better.LESS),
    Measure("messages", "messages", "/s", Better.MORE),
    Measure("messages", "took", "s", Better.LESS),
    Measure("messages", "CPU", "s", Better.LESS),
    Measure("messages", "peak", "MB", Better.LESS),
)

TARGETS = (
    Target("append64", "rate", Bound.AT_LEAST, 5.0, FILE),
    Target("append64", "rate", Bound.ABOVE, 1.0, MEMORY),
    Target("append64", "p99", Bound.NO_WORSE, 1.0, FILE),
    Target("append1", "p50", Bound.NO_WORSE, 1.0, FILE),
    Target("append1", "p99", Bound.NO_WORSE, 1.0, FILE),
    Target("read64", "rate", Bound.AT_LEAST, 4.0, FILE),
    Target("read64", "rate", Bound.AT_LEAST, 4.0, MEMORY),
    Target("bulk1", "rate", Bound.NO_WORSE, 1.0, FILE),
    Target("bulk4", "rate", Bound.NO_WORSE, 1.0, FILE),
    Target("crowd", "last byte", Bound.ABOVE, 1.0, FILE),
    Target("crowd", "last byte", Bound.ABOVE, 1.0, MEMORY),
    Target("idle", "resident", Bound.BELOW_LIMIT, 500.0),
    Target("idle", "ready", Bound.BELOW_LIMIT, 15.0),
    Target("bigread", "growth", Bound.BELOW_LIMIT, 64.0),
    Target("cached", "per core", Bound.AT_LEAST, 1.0, NGINX),
    Target("cached", "per core", Bound.AT_LEAST, 5.0, ENVOY),
    Target("cached", "per core", Bound.AT_LEAST, 5.0, PLAIN_ENVOY),
    Target("polls", "last answer", Bound.AT_LEAST, 2.0, VARNISH),
    Target("polls", "last answer", Bound.AT_LEAST, 10.0, NGINX),
    Target("fanout", "messages", Bound.AT_LEAST, 2.0, NODE),
    Target("fanout", "messages", Bound.AT_LEAST, 1.0, NCHAN),
    Target("miss", "added p50", Bound.BELOW_LIMIT, 1.0),
    Target("readers", "resident", Bound.BELOW_LIMIT, 40.0),
    Target("compacted", "materialised", Bound.AT_LEAST, 50.0, REPLAY),
    Target("compacted", "bytes only", Bound.AT_LEAST, 50.0, REPLAY),
    Target("compacted", "received", Bound.AT_LEAST, 100.0, REPLAY),
    Target("compacted", "gateway, materialised", Bound.AT_LEAST, 50.0, REPLAY),
    Target("loglines", "times as long", Bound.BELOW_LIMIT, 11.0),
    Target("loglines", "times the peak", Bound.BELOW_LIMIT, 1.5),
)


def find_measure(scenario: str, name: str) -> Measure:
    for measure in MEASURES:
        if (measure.scenario, measure.name) == (scenario, name):
            return measure
    raise KeyError(f"no measure {name} in {scenario}")


def typical(measure: Measure, figures: Figures, peer: str) -> float | None:
    rounds = figures.get((measure.scenario, measure.name, peer))
    return median(list(rounds.values())) if rounds else None


def compare(measure: Measure, figures: Figures, peer: str) -> float | None:
    """How many times better ours is than the peer, over the rounds that measured both."""
    ours = figures.get((measure.scenario, measure.name, OURS), {})
    theirs = figures.get((measure.scenario, measure.name, peer), {})
    ratios = [_ratio(measure.better, ours[n], theirs[n]) for n in ours.keys() & theirs.keys()]
    return median(ratios) if ratios else None


def _ratio(better: Better, ours: float, theirs: float) -> float:
    above, below = (ours, theirs) if better is Better.MORE else (theirs, ours)
    return above / below if below else float("inf")


def judge(target: Target, figures: Figures) -> Judgement:
    figure = _figure(target, figures)
    if figure is None:
        return Judgement(target, None, Verdict.UNKNOWN)
    return Judgement(
        target, figure, Verdict.REACHED if _reaches(target, figure) else Verdict.MISSED
    )


def judge_all(figures: Figures, targets: Sequence[Target] = TARGETS) -> list[Judgement]:
    return [judge(target, figures) for target in targets]


def _figure(target: Target, figures: Figures) -> float | None:
    measure = find_measure(target.scenario, target.measure)
    if target.peer is None:
        return typical(measure, figures, OURS)
    return compare(measure, figures, target.peer)


def _reaches(target: Target, figure: float) -> bool:
    match target.bound:
        case Bound.AT_LEAST:
            return figure >= target.value
        case Bound.ABOVE:
            return figure > target.value
        case Bound.NO_WORSE:
            return figure >= target.value * (1 - NOISE)
        case Bound.BELOW_LIMIT:
            return figure < target.value
