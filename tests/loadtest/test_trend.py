"""What counts as growth."""

import random

from loadtest.soak.trend import Tolerance, find_trend

FIVE_PERCENT = Tolerance(share=0.05, least=5.0)


def every_second(values: list[float]) -> list[tuple[float, float]]:
    return list(enumerate(values))


def test_a_climb_is_measured_from_its_beginning_to_its_end() -> None:
    trend = find_trend(every_second([100 + 0.5 * n for n in range(101)]), FIVE_PERCENT)
    assert (trend.level, trend.growth) == (125.0, 50.0)
    assert not trend.is_flat


def test_noise_is_flat() -> None:
    rng = random.Random(1)
    trend = find_trend(every_second([rng.gauss(100, 10) for _ in range(200)]), FIVE_PERCENT)
    assert trend.is_flat and abs(trend.growth) < 5


def test_a_climb_within_noise_is_found() -> None:
    rng = random.Random(2)
    values = [rng.gauss(100, 10) + n / 10 for n in range(400)]
    trend = find_trend(every_second(values), FIVE_PERCENT)
    assert not trend.is_flat and 30 < trend.growth < 50


def test_a_sawtooth_is_flat() -> None:
    assert find_trend(every_second([100 + n % 20 for n in range(200)]), FIVE_PERCENT).is_flat


def test_one_jump_at_the_end_moves_nothing() -> None:
    assert find_trend(every_second([100.0] * 50 + [10_000.0]), FIVE_PERCENT).growth == 0.0


def test_what_falls_is_flat() -> None:
    assert find_trend(every_second([200.0 - n for n in range(100)]), FIVE_PERCENT).is_flat


def test_a_small_level_may_grow_by_a_fixed_amount() -> None:
    points = every_second([10.0, 12.0, 14.0])
    assert find_trend(points, FIVE_PERCENT).is_flat
    assert not find_trend(points, Tolerance(share=0.05, least=3.0)).is_flat


def test_nothing_can_be_said_of_no_samples_or_one() -> None:
    assert not find_trend([], FIVE_PERCENT).is_flat
    assert not find_trend([(0.0, 1.0)], FIVE_PERCENT).is_flat
