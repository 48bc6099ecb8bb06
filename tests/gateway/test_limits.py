from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.limits import RateLimits, Shares, Short

START = 1_794_805_200.0
rates = st.floats(0.1, 10_000)
bursts = st.integers(1, 20)
pauses = st.lists(st.floats(0, 5), min_size=1, max_size=100)
crowds = st.lists(st.tuples(st.sampled_from("abcdefgh"), st.floats(0, 2)), max_size=100)


def test_a_burst_passes_at_once_and_the_next_must_wait() -> None:
    limits = RateLimits(10, 5)
    assert [limits.take("a", START) for _ in range(5)] == [0.0] * 5
    assert limits.take("a", START) == pytest.approx(0.1)
    assert limits.take("b", START) == 0.0


@given(rates, bursts, pauses)
def test_no_more_pass_than_burst_and_rate_allow(
    rate: float, burst: int, times: list[float]
) -> None:
    limits, now, passed = RateLimits(rate, burst), START, 0
    for pause in times:
        now += pause / rate
        passed += limits.take("a", now) == 0.0
        assert passed <= burst + (now - START) * rate + 0.01


@given(rates, bursts, pauses)
def test_who_waits_as_long_as_told_passes(rate: float, burst: int, times: list[float]) -> None:
    limits, now = RateLimits(rate, burst), START
    for pause in times:
        now += pause / rate
        wait = limits.take("a", now)
        assert 0.0 <= wait <= 1 / rate
        if wait:
            now += wait + 0.000001
            assert limits.take("a", now) == 0.0


@given(rates, bursts, st.integers(1, 200))
def test_who_keeps_to_the_rate_is_never_refused(rate: float, burst: int, count: int) -> None:
    limits = RateLimits(rate, burst)
    steady = [
        limits.take("a", START + number / rate + number * 0.000001) for number in range(count)
    ]
    assert not any(steady)


def test_asking_while_refused_costs_nothing() -> None:
    limits = RateLimits(1, 1)
    limits.take("a", START)
    for tick in range(9):
        assert limits.take("a", START + tick / 10) > 0
    assert limits.take("a", START + 1) == 0.0


def test_a_clock_set_back_neither_locks_out_nor_lets_through() -> None:
    limits = RateLimits(1, 2)
    limits.take("a", START)
    limits.take("a", START)
    assert limits.take("a", START - 3600) == pytest.approx(1)
    assert limits.take("a", START - 3599) == 0.0


@given(st.floats(0, 1e12), st.integers(0, 5))
def test_a_rate_of_zero_is_no_limit_and_remembers_nobody(now: float, burst: int) -> None:
    limits = RateLimits(0, burst)
    assert [limits.take("a", now) for _ in range(10)] == [0.0] * 10
    assert len(limits) == 0


@given(crowds, bursts, st.integers(1, 4))
def test_little_memory_never_lets_more_through_than_much_memory(
    crowd: list[tuple[str, float]], burst: int, room: int
) -> None:
    """Of one subject, up to any moment; which requests these are may differ."""
    small, large, now = RateLimits(1, burst, max_subjects=room), RateLimits(1, burst), START
    lead: Counter[str] = Counter()
    for subject, pause in crowd:
        now += pause
        lead[subject] += (large.take(subject, now) == 0) - (small.take(subject, now) == 0)
        assert lead[subject] >= 0
        assert len(small) <= room


def test_many_subjects_do_not_free_a_limited_one() -> None:
    limits = RateLimits(1, 3, max_subjects=100)
    for _ in range(3):
        limits.take("limited", START)
    for number in range(10_000):
        limits.take(f"s{number}", START)
    assert limits.take("limited", START) > 0
    assert len(limits) == 100


def test_a_subject_whose_bucket_is_full_again_makes_room() -> None:
    limits = RateLimits(1, 3, max_subjects=2)
    limits.take("a", START)
    limits.take("b", START)
    assert [limits.take("c", START + 1) for _ in range(3)] == [0.0] * 3
    assert limits.take("c", START + 1) > 0
    assert len(limits) == 2


def test_newcomers_share_one_bucket_while_nobody_can_be_forgotten() -> None:
    limits = RateLimits(1, 3, max_subjects=1)
    for _ in range(3):
        limits.take("busy", START)
    passed = [limits.take(f"new{number}", START) == 0.0 for number in range(5)]
    assert passed == [True, True, True, False, False]


def test_a_busy_subject_does_not_keep_others_from_being_forgotten() -> None:
    limits = RateLimits(1, 100, max_subjects=50)
    for number in range(20):  # these stay busy, and are the longest unused
        for _ in range(100):
            limits.take(f"busy{number}", START)
    for number in range(30):
        limits.take(f"idle{number}", START)
    for number in range(30):
        limits.take(f"new{number}", START + 2)
    remembered = set(limits._buckets)
    assert {f"busy{number}" for number in range(20)} <= remembered
    assert len(remembered & {f"new{number}" for number in range(30)}) > 20


def test_who_is_refused_is_told_whose_limit_it_is() -> None:
    slots = Shares(3, 2)
    assert [slots.take("a"), slots.take("a"), slots.take("a")] == [None, None, Short.FOR_SUBJECT]
    assert [slots.take("b"), slots.take("b")] == [None, Short.FOR_ALL]
    slots.release("a")
    assert slots.take("b") is None


def test_amounts_are_taken_whole_or_not_at_all() -> None:
    room = Shares(100, 60)
    assert [room.take("a", 61), room.take("a", 60), room.take("b", 41)] == [
        Short.FOR_SUBJECT,
        None,
        Short.FOR_ALL,
    ]
    room.release("a", 20)
    assert (room.take("b", 60), room.total) == (None, 100)


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=200),
    st.integers(1, 6),
    st.integers(1, 4),
)
def test_slots_are_never_exceeded_nor_lost(
    steps: list[tuple[str, bool]], most: int, each: int
) -> None:
    slots, held = Shares(most, each), Counter[str]()
    for subject, comes in steps:
        if comes:
            free = held.total() < most and held[subject] < each
            assert (slots.take(subject) is None) == free
            held[subject] += free
        elif held[subject]:
            slots.release(subject)
            held[subject] -= 1
        assert slots.total == held.total()


def test_subjects_without_readers_are_forgotten() -> None:
    slots = Shares(10, 10)
    for number in range(1000):
        slots.take(f"s{number}")
        slots.release(f"s{number}")
    assert (slots.total, slots._held) == (0, {})


def test_a_slot_that_nobody_holds_cannot_be_released() -> None:
    slots = Shares(1, 1)
    with pytest.raises(KeyError):
        slots.release("a")
    assert slots.total == 0
