"""Small statistics over samples. Pure."""

from collections.abc import Sequence


def percentile(values: Sequence[float], share: float) -> float:
    """The value that `share` (0 to 1) of the samples do not exceed."""
    if not values:
        raise ValueError("no samples")
    ordered = sorted(values)
    rank = -int(-share * len(ordered) // 1)  # ceiling
    return ordered[min(max(rank, 1), len(ordered)) - 1]


def median(values: Sequence[float]) -> float:
    """The middle sample; of an even number the mean of the middle two."""
    if not values:
        raise ValueError("no samples")
    ordered = sorted(values)
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[middle]
    return (ordered[middle - 1] + ordered[middle]) / 2
