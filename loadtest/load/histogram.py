"""Times, counted by size: a file of them stays small, and percentiles can be had of any sum. Pure.

Each bin is 5 % wider than the one below it, so that a percentile is right within 5 %.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

SMALLEST_SECS = 1e-5
WIDTH = math.log(1.05)

Histogram = Mapping[int, int]
"""Bin -> how many."""


def bin_of(seconds: float) -> int:
    return max(0, math.ceil(math.log(max(seconds, SMALLEST_SECS) / SMALLEST_SECS) / WIDTH))


def top_of(number: int) -> float:
    """The longest time, in seconds, that the bin counts."""
    return SMALLEST_SECS * math.exp(number * WIDTH)


def total(histograms: Iterable[Histogram]) -> Counter[int]:
    result: Counter[int] = Counter()
    for histogram in histograms:
        result.update(histogram)
    return result


def percentile(histogram: Histogram, share: float) -> float:
    """The time, in seconds, that `share` (0 to 1) of them do not exceed; NaN without any."""
    left = math.ceil(share * sum(histogram.values()))
    for number in sorted(histogram):
        left -= histogram[number]
        if left <= 0:
            return top_of(number)
    return math.nan


def nearest_rank(values: Sequence[float], share: float) -> float:
    """The sample that `share` (0 to 1) of the samples do not exceed: exact, where there are few."""
    ordered = sorted(values)
    return ordered[max(math.ceil(share * len(ordered)), 1) - 1]
