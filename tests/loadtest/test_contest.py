from contextlib import nullcontext
from pathlib import Path

from loadtest.errors import RunFailedError
from loadtest.load.contest import (
    Contest,
    Launch,
    LaunchPeer,
    Plan,
    Results,
    Sample,
    Sides,
    Trial,
    run_trial,
    take_turns,
    turn_order,
)
from loadtest.peers.process import Server

NOBODY = 2**22 + 1  # above the largest process id: always idle
PEERS = {"a": Server(NOBODY, 1, 0.0), "b": Server(NOBODY, 2, 0.0)}


LAUNCH: LaunchPeer = lambda peer: nullcontext(PEERS["a"])  # noqa: E731


async def nothing(server: Server, plan: Plan) -> None:
    pass


def test_every_peer_comes_first_in_turn() -> None:
    orders = ["".join(turn_order(["a", "b", "c"], number)) for number in (1, 2, 3, 4)]
    assert orders == ["abc", "bca", "cab", "abc"]
    assert turn_order([], 1) == []


def test_figures_are_kept_by_round_and_failures_apart(tmp_path: Path) -> None:
    ports: list[int] = []

    async def measure(server: Server, plan: Plan) -> Sample:
        ports.append(server.port)
        if len(ports) == 4:
            raise RunFailedError("not today")
        return Sample({"rate": float(len(ports))})

    out = tmp_path / "out.jsonl"
    results = Results(out)
    contest = Contest("read64", "", (), nothing, measure)
    take_turns(contest, PEERS, Plan(rounds=2), results)

    assert ports == [1, 2, 2, 1]
    assert results.figures == {
        ("read64", "rate", "a"): {1: 1.0},
        ("read64", "rate", "b"): {1: 2.0, 2: 3.0},
    }
    assert results.failures == ["read64, a, round 2: not today"]
    again = Results.read(out)
    assert (again.figures, again.failures) == (results.figures, results.failures)


def test_a_trial_keeps_the_rounds_of_each_side(tmp_path: Path) -> None:
    async def run(launch: Launch, plan: Plan) -> Sides:
        with launch() as server:
            size = float(server.port + plan.rounds)
        return {"before": [Sample({"size": 9.0})], "after": [Sample({"size": size})] * 2}

    results = Results()
    plan = Plan(rounds=2, folder=tmp_path)
    run_trial(Trial("t", "", (), run), LAUNCH, plan, results)
    assert results.figures == {
        ("t", "size", "before"): {1: 9.0},
        ("t", "size", "after"): {1: 3.0, 2: 3.0},
    }
    assert results.failures == []


def test_a_trial_that_breaks_is_a_failure(tmp_path: Path) -> None:
    async def run(launch: Launch, plan: Plan) -> Sides:
        raise RunFailedError("not today")

    results = Results()
    run_trial(Trial("t", "", (), run), LAUNCH, Plan(folder=tmp_path), results)
    assert results.failures == ["t, ours, round 0: not today"]


def test_a_busy_client_is_noted() -> None:
    results = Results()
    results.add("read64", "a", 1, Sample({"rate": 1.0}, server_cpu=0.9, client_cpu=0.5))
    for number in (1, 2):
        busy = Sample({"rate": 1.0}, server_cpu=0.5, client_cpu=0.95)
        results.add("read64", "b", number, busy)
    [note] = results.notes
    assert note.startswith("read64, b: the client used more than 90% of a core")
