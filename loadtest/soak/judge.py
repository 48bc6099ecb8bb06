"""Whether anything grew in a soak, and whether its crowd was there. Pure.

Growth is a straight line through samples that jump. The line is Theil's: the median of the slopes
between pairs. One bad sample, or a sawtooth of many teeth, does not move it; what climbs does.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median, median_low

from loadtest.load.records import Run

MOST_POINTS = 300  # their pairs are looked at
MOST_FAILURES = 0.001  # of all that was asked
LEAST_READERS = 0.95  # of the crowd, at the median: some are always on their way


@dataclass(frozen=True, slots=True)
class Tolerance:
    """What a line may rise by from beginning to end: a share of its level, but at least so much."""

    share: float
    least: float

    def allowed(self, level: float) -> float:
        return max(level * self.share, self.least)


TOLERANCES = {
    "memory_mb": Tolerance(share=0.05, least=5.0),
    "descriptors": Tolerance(share=0.02, least=20.0),
    "tasks": Tolerance(share=0.05, least=20.0),
}


@dataclass(frozen=True, slots=True)
class Trend:
    """A series seen as a line: its level, and what it gained from the first sample to the last."""

    samples: int
    level: float
    growth: float
    allowed: float

    @property
    def is_flat(self) -> bool:
        return self.samples > 1 and self.growth <= self.allowed


def find_trend(points: Sequence[tuple[float, float]], tolerance: Tolerance) -> Trend:
    """`points` are (time, value), in order."""
    if not points:
        return Trend(0, 0.0, 0.0, 0.0)
    level = median([value for _, value in points])
    seen = points[:: -(-len(points) // MOST_POINTS)]
    slopes = [(b - a) / (at_b - at_a) for (at_a, a), (at_b, b) in combinations(seen, 2)]
    growth = median(slopes) * (points[-1][0] - points[0][0]) if slopes else 0.0
    return Trend(len(points), level, growth, tolerance.allowed(level))


@dataclass(frozen=True, slots=True)
class Verdict:
    trends: Mapping[str, Trend]
    done: Mapping[str, int]
    failed: Mapping[str, int]
    complaints: list[str]


def judge(run: Run, warm_up_s: float, readers: int) -> Verdict:
    """What was before the end of the warm-up is not judged."""
    seconds = (one for one in run.seconds if one.second >= warm_up_s)
    run = Run([run.started, *seconds, *(one for one in run.gauges if one.second >= warm_up_s)])
    names = dict.fromkeys(name for one in run.gauges for name in one.values)
    trends: dict[str, Trend] = {}
    for name in names:
        _, of_process, measure = name.rpartition(" ")
        if of_process and measure in TOLERANCES:
            trends[name] = find_trend(run.gauge(name), TOLERANCES[measure])
    done, failed = {what: run.done(what) for what in run.kinds}, run.failures()
    complaints = [
        f"{name} grew by {trend.growth:.1f}, {trend.allowed:.1f} is allowed"
        for name, trend in trends.items()
        if not trend.is_flat
    ]
    failures = sum(failed.values())
    asked = sum(done.values()) + failures
    if failures > asked * MOST_FAILURES:
        complaints.append(f"{failures} of {asked} requests failed: {failed}")
    present = median_low([one.values.get("waiting", 0.0) for one in run.gauges] or [0.0])
    if present < readers * LEAST_READERS:
        complaints.append(f"{present:.0f} readers were there at the median, not {readers}")
    if not trends:
        complaints.append("nothing was sampled after the warm-up")
    return Verdict(trends, done, failed, complaints)


def describe(verdict: Verdict) -> str:
    lines = [f"{'measure':24} {'level':>9} {'growth':>9} {'allowed':>9}"]
    for name, trend in verdict.trends.items():
        mark = "" if trend.is_flat else "  GREW"
        lines.append(
            f"{name:24} {trend.level:9.1f} {trend.growth:+9.1f} {trend.allowed:9.1f}{mark}"
        )
    counts = ", ".join(f"{what} {count:,}" for what, count in sorted(verdict.done.items()))
    lines += ["", f"done: {counts}", f"failed: {verdict.failed or 'nothing'}"]
    lines += ["", *verdict.complaints] if verdict.complaints else ["", "flat: nothing grew"]
    return "\n".join(lines)
