"""Whether something grows: a straight line through samples that jump, and how much is too much.

The line is Theil's: the median of the slopes between pairs. One bad sample, or a sawtooth of many
teeth, does not move it; what climbs does. Pure.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median

MOST_POINTS = 300  # their pairs are looked at


@dataclass(frozen=True, slots=True)
class Tolerance:
    """What a line may rise by from beginning to end: a share of its level, but at least so much."""

    share: float
    least: float

    def allowed(self, level: float) -> float:
        return max(level * self.share, self.least)


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
