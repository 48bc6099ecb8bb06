import pytest

from loadtest.load.metrics import median, percentile


@pytest.mark.parametrize(
    ("share", "expected"), [(0.0, 1), (0.01, 1), (0.5, 50), (0.99, 99), (0.991, 100), (1.0, 100)]
)
def test_percentile_is_a_sample(share: float, expected: float) -> None:
    assert percentile(list(range(100, 0, -1)), share) == expected


@pytest.mark.parametrize(
    ("values", "expected"), [([3.0], 3.0), ([9.0, 1.0, 2.0], 2.0), ([4.0, 1.0, 2.0, 3.0], 2.5)]
)
def test_median(values: list[float], expected: float) -> None:
    assert median(values) == expected


def test_no_samples_have_no_middle() -> None:
    with pytest.raises(ValueError):
        median([])
    with pytest.raises(ValueError):
        percentile([], 0.5)
