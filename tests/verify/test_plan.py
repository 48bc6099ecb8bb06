"""The plan of a run."""

from hypothesis import given
from hypothesis import strategies as st

from loadtest.verify.plan import Step, make_plan

PARTS = ["origin", "redis", "faults", "gateway-0", "gateway-1", "envoy", "network"]
STREAMS = ["verify/a/json", "verify/b/text"]


def test_a_seed_repeats_a_plan_and_another_does_not() -> None:
    assert make_plan(7, 60, PARTS, STREAMS) == make_plan(7, 60, PARTS, STREAMS)
    assert make_plan(7, 60, PARTS, STREAMS) != make_plan(8, 60, PARTS, STREAMS)


@given(st.integers(0, 1000))
def test_a_plan_leaves_the_beginning_and_the_end_in_peace(seed: int) -> None:
    plan = make_plan(seed, 60, PARTS, STREAMS)
    assert [step.at for step in plan] == sorted(step.at for step in plan)
    assert plan[0].at >= 6
    assert max(step.at + step.secs for step in plan) <= 54


@given(st.integers(0, 1000))
def test_five_minutes_have_everything_that_can_happen(seed: int) -> None:
    done = {(step.action, step.target) for step in make_plan(seed, 300, PARTS, STREAMS)}
    assert {("kill", "origin"), ("pause", "origin"), ("kill", "redis"), ("kill", "envoy")} <= done
    assert {("kill", "gateway-0"), ("stop", "gateway-1"), ("inject", "faults")} <= done
    assert ("inject", "network") in done
    assert {"rotate", "recreate", "snapshot", "close"} <= {action for action, _ in done}


@given(st.integers(0, 1000))
def test_a_closed_stream_is_made_anew_next(seed: int) -> None:
    last: dict[str, str] = {}
    for step in make_plan(seed, 120, [], STREAMS):
        if last.get(step.target) == "close":
            assert step.action == "recreate"
        last[step.target] = step.action


def test_a_step_reads_well() -> None:
    assert str(Step(3.25, "kill", "origin", 1.5)) == "   3.2 s  kill origin for 1.5 s"
