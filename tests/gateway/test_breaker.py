"""The circuit breaker, by the clock that is passed in."""

from contextlib import ExitStack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.breaker import Attempt, Breaker, Shut, State


def fail(breaker: Breaker, now: float, ended: float | None = None) -> None:
    with breaker.attempt(now) as attempt:
        attempt.fail(now if ended is None else ended)


def opened(failures: int = 2, open_s: float = 10.0, now: float = 100.0) -> Breaker:
    breaker = Breaker(failures, open_s)
    for _ in range(failures):
        fail(breaker, now)
    return breaker


def test_it_opens_after_failures_in_a_row() -> None:
    breaker = Breaker(3, 10.0)
    for _ in range(2):
        fail(breaker, 0.0)
    assert breaker.state(0.0) is State.CLOSED and breaker.is_closed
    fail(breaker, 0.0)
    assert breaker.state(0.0) is State.OPEN and not breaker.is_closed
    assert breaker.opened == 1


def test_a_success_in_between_starts_the_count_anew() -> None:
    breaker = Breaker(2, 10.0)
    for _ in range(5):
        fail(breaker, 0.0)
        breaker.succeed()
    assert breaker.state(0.0) is State.CLOSED


def test_an_open_one_says_how_long_to_wait() -> None:
    breaker = opened(open_s=10.0, now=100.0)
    assert breaker.wait_s(103.0) == 7.0
    with pytest.raises(Shut) as shut, breaker.attempt(103.0):
        pass
    assert shut.value.wait_s == 7.0


def test_asking_hands_nothing_out() -> None:
    breaker = opened(now=100.0)
    assert [breaker.wait_s(110.0) for _ in range(5)] == [0.0] * 5
    breaker.attempt(110.0)  # never entered
    with breaker.attempt(110.0):
        pass


def test_failures_of_earlier_requests_do_not_prolong_it() -> None:
    breaker = Breaker(1, 10.0)
    with breaker.attempt(0.0) as early:
        fail(breaker, 0.0)
        early.fail(9.0)
    assert breaker.state(10.0) is State.HALF_OPEN
    assert breaker.opened == 1


def test_half_open_lets_one_probe_through() -> None:
    breaker = opened(now=100.0)
    with breaker.attempt(110.0):
        assert breaker.wait_s(110.0) == 10.0
        assert breaker.state(110.0) is State.HALF_OPEN


def test_a_good_probe_closes_it() -> None:
    breaker = opened(now=100.0)
    with breaker.attempt(110.0):
        breaker.succeed()
    assert breaker.state(110.0) is State.CLOSED
    assert breaker.wait_s(110.0) == 0.0


def test_a_failed_probe_opens_it_anew() -> None:
    breaker = opened(failures=5, now=100.0)
    fail(breaker, 110.0, ended=111.0)
    assert breaker.state(120.9) is State.OPEN
    assert breaker.wait_s(121.0) == 0.0


@pytest.mark.parametrize("error", [KeyError, GeneratorExit, KeyboardInterrupt])
def test_a_probe_that_ends_without_a_word_makes_room_for_the_next(
    error: type[BaseException],
) -> None:
    breaker = opened(now=100.0)
    with pytest.raises(error), breaker.attempt(110.0):
        raise error
    assert breaker.wait_s(110.0) == 0.0


def test_only_the_probe_itself_makes_room() -> None:
    breaker = Breaker(1, 10.0)
    with ExitStack() as early:
        early.enter_context(breaker.attempt(0.0))
        fail(breaker, 0.0)
        with breaker.attempt(10.0):
            early.close()
            assert breaker.wait_s(10.0) == 10.0


def test_a_probe_that_fails_after_others_succeeded_is_one_failure() -> None:
    breaker = opened(failures=2, now=100.0)
    with breaker.attempt(110.0) as probe:
        breaker.succeed()
        probe.fail(111.0)
    assert breaker.state(111.0) is State.CLOSED


Out = tuple[Attempt, ExitStack]


@given(st.lists(st.sampled_from(["begin", "succeed", "fail", "leave", "wait"]), max_size=60))
def test_never_more_than_one_probe_is_out_and_never_one_for_ever(steps: list[str]) -> None:
    breaker, now, out, probes = Breaker(2, 10.0), 0.0, list[Out](), list[Out]()
    for step in steps:
        if step == "wait":
            now += 6.0
        elif step == "begin" and not breaker.wait_s(now):
            stack = ExitStack()
            is_probe = not breaker.is_closed
            out.append((stack.enter_context(breaker.attempt(now)), stack))
            probes += out[-1:] if is_probe else []
        elif step == "succeed":
            breaker.succeed()
            probes.clear()  # whoever is still out is no probe any more
        elif step in ("fail", "leave") and out:
            attempt, stack = left = out.pop()
            if step == "fail":
                attempt.fail(now)
            stack.close()
            probes = [probe for probe in probes if probe is not left]
        assert len(probes) <= 1
    for _, stack in out:
        stack.close()
    assert breaker.wait_s(now + 10.0) == 0.0


@given(st.lists(st.booleans(), max_size=40))
def test_it_always_closes_again_when_the_origin_is_back(results: list[bool]) -> None:
    breaker, now = Breaker(2, 10.0), 0.0
    for good in results:
        if wait_s := breaker.wait_s(now):
            now += wait_s
        elif good:
            breaker.succeed()
        else:
            fail(breaker, now)
    now += 10.0
    with breaker.attempt(now):
        breaker.succeed()
    assert breaker.state(now) is State.CLOSED
