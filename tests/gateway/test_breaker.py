"""The circuit breaker, by the clock that is passed in."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.breaker import Breaker, Permit, State


def opened(failures: int = 2, open_s: float = 10.0, now: float = 100.0) -> Breaker:
    breaker = Breaker(failures, open_s)
    for _ in range(failures):
        breaker.fail(breaker.admit(now), now)
    return breaker


def test_it_opens_after_failures_in_a_row() -> None:
    breaker = Breaker(3, 10.0)
    for _ in range(2):
        breaker.fail(breaker.admit(0.0), 0.0)
    assert breaker.state(0.0) is State.CLOSED
    breaker.fail(breaker.admit(0.0), 0.0)
    assert breaker.state(0.0) is State.OPEN
    assert breaker.opened == 1


def test_a_success_in_between_starts_the_count_anew() -> None:
    breaker = Breaker(2, 10.0)
    for _ in range(5):
        breaker.fail(breaker.admit(0.0), 0.0)
        breaker.succeed()
    assert breaker.state(0.0) is State.CLOSED


def test_an_open_one_says_how_long_to_wait() -> None:
    breaker = opened(open_s=10.0, now=100.0)
    assert breaker.admit(103.0) == Permit(wait_s=7.0)


def test_failures_of_earlier_requests_do_not_prolong_it() -> None:
    breaker = Breaker(1, 10.0)
    early = breaker.admit(0.0)
    breaker.fail(breaker.admit(0.0), 0.0)
    breaker.fail(early, 9.0)
    assert breaker.state(10.0) is State.HALF_OPEN
    assert breaker.opened == 1


def test_half_open_lets_one_probe_through() -> None:
    breaker = opened(now=100.0)
    assert breaker.admit(110.0).probe
    assert breaker.admit(110.0).wait_s == 10.0
    assert breaker.state(110.0) is State.HALF_OPEN


def test_a_good_probe_closes_it() -> None:
    breaker = opened(now=100.0)
    assert breaker.admit(110.0).probe
    breaker.succeed()
    assert breaker.state(110.0) is State.CLOSED
    assert breaker.admit(110.0) == Permit()


def test_a_failed_probe_opens_it_anew() -> None:
    breaker = opened(failures=5, now=100.0)
    breaker.fail(breaker.admit(110.0), 111.0)
    assert breaker.state(120.9) is State.OPEN
    assert breaker.admit(121.0).probe


def test_an_abandoned_probe_makes_room_for_the_next() -> None:
    breaker = opened(now=100.0)
    breaker.abandon(breaker.admit(110.0))
    assert breaker.admit(110.0).probe


def test_only_the_probe_itself_makes_room() -> None:
    breaker = Breaker(1, 10.0)
    early = breaker.admit(0.0)
    breaker.fail(breaker.admit(0.0), 0.0)
    assert breaker.admit(10.0).probe
    breaker.abandon(early)
    assert not breaker.admit(10.0).probe


def test_a_probe_that_fails_after_others_succeeded_is_one_failure() -> None:
    breaker = opened(failures=2, now=100.0)
    probe = breaker.admit(110.0)
    breaker.succeed()
    breaker.fail(probe, 111.0)
    assert breaker.state(111.0) is State.CLOSED


@given(st.lists(st.sampled_from(["admit", "succeed", "fail", "abandon", "wait"]), max_size=60))
def test_never_more_than_one_probe_is_out(steps: list[str]) -> None:
    breaker, now, out = Breaker(2, 10.0), 0.0, list[Permit]()
    for step in steps:
        if step == "wait":
            now += 6.0
        elif step == "admit":
            permit = breaker.admit(now)
            out += [] if permit.wait_s else [permit]
        elif step == "succeed":
            breaker.succeed()
            out.clear()  # whoever is still out is no probe any more
        elif out:
            breaker.fail(out.pop(), now) if step == "fail" else breaker.abandon(out.pop())
        assert sum(permit.probe for permit in out) <= 1


@given(st.lists(st.booleans(), max_size=40))
def test_it_always_closes_again_when_the_origin_is_back(results: list[bool]) -> None:
    breaker, now = Breaker(2, 10.0), 0.0
    for good in results:
        permit = breaker.admit(now)
        if permit.wait_s:
            now += permit.wait_s
        elif good:
            breaker.succeed()
        else:
            breaker.fail(permit, now)
    now += 10.0
    assert breaker.admit(now).wait_s == 0.0
    breaker.succeed()
    assert breaker.state(now) is State.CLOSED
