"""Runs scenarios: starts the servers, lets them take turns, and keeps every figure."""

import json
import os
import shutil
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

from loadtest.errors import RunFailedError
from loadtest.load.goals import OURS
from loadtest.load.origin import Contest, Plan, Sample, Trial
from loadtest.load.suites import Suite
from loadtest.peers.memory import OtherWork, await_idle
from loadtest.peers.process import Server

SETTLE_LIMIT_S = 3.0
BUSY_CLIENT = 0.9


@dataclass(slots=True)
class Results:
    """Everything one bench has seen, written out line by line as it comes."""

    out: Path | None
    figures: dict[tuple[str, str, str], dict[int, float]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    skips: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    other_cpu: list[float] = field(default_factory=list)

    def write(self, kind: str, **values: object) -> None:
        if self.out is not None:
            with self.out.open("a") as sink:
                sink.write(json.dumps({"kind": kind, **values}) + "\n")

    def add(
        self, scenario: str, peer: str, number: int, sample: Sample, others: float = 0.0
    ) -> None:
        self.other_cpu.append(others)
        for name, value in sample.figures.items():
            self.figures.setdefault((scenario, name, peer), {})[number] = value
        if sample.client_cpu is not None and sample.client_cpu > BUSY_CLIENT:
            busy = f"{sample.client_cpu:.0%} of a core: the figure may be the client's limit"
            self.notes.append(f"{scenario}, {peer}, round {number}: the client used {busy}")
        self.write(
            "sample", scenario=scenario, peer=peer, round=number, other_cpu=others, **asdict(sample)
        )

    def fail(self, scenario: str, peer: str, number: int, error: RunFailedError) -> None:
        """Round 0 is the start and the preparation."""
        reason = f"{scenario}, {peer}, round {number}: {error}"
        self.failures.append(reason)
        self.write("failure", scenario=scenario, peer=peer, round=number, reason=str(error))
        print(f"  failed: {reason}", file=sys.stderr)

    def skip(self, what: str, reason: str) -> None:
        self.skips.append(f"{what}: {reason}")
        self.write("skip", what=what, reason=reason)


def run_trial(trial: Trial, suite: Suite, plan: Plan, scratch: Path, results: Results) -> None:
    print(f"{trial.name}: {OURS}", file=sys.stderr)
    os.sync()
    others = OtherWork([])  # the servers count as ours once they have ended
    try:
        with suite.open_stage(scratch) as launch:
            sides = trial.run(partial(launch, OURS), plan)
        cores = others.cores()
        for side, samples in sides.items():
            for number, sample in enumerate(samples, 1):
                results.add(trial.name, side, number, sample, cores)
    except RunFailedError as error:
        results.fail(trial.name, OURS, 0, error)
    finally:
        shutil.rmtree(scratch / OURS, ignore_errors=True)


def run_contest(
    contest: Contest,
    suite: Suite,
    peers: Sequence[str],
    plan: Plan,
    scratch: Path,
    results: Results,
) -> None:
    """All peers stay up; each round goes through them, starting with another one."""
    with ExitStack() as stack:
        launch = stack.enter_context(suite.open_stage(scratch))
        servers: dict[str, Server] = {}
        for peer in peers:
            if contest.peers is not None and peer not in contest.peers:
                continue
            stack.callback(shutil.rmtree, scratch / peer, ignore_errors=True)
            try:
                server = stack.enter_context(launch(peer))
                contest.prepare(server, plan)
                settle(server)
                servers[peer] = server
            except RunFailedError as error:
                results.fail(contest.name, peer, 0, error)
        take_turns(contest, servers, plan, results)


def take_turns(contest: Contest, servers: dict[str, Server], plan: Plan, results: Results) -> None:
    rounds = contest.count_rounds(plan)
    for number in range(1, rounds + 1):
        print(f"{contest.name}: round {number} of {rounds}", file=sys.stderr)
        for peer in turn_order(list(servers), number):
            others = OtherWork([server.pid for server in servers.values()])
            try:
                sample = contest.measure(servers[peer], plan)
                results.add(contest.name, peer, number, sample, others.cores())
            except RunFailedError as error:
                results.fail(contest.name, peer, number, error)
            settle(servers[peer])


def turn_order(peers: list[str], number: int) -> list[str]:
    turn = (number - 1) % len(peers) if peers else 0
    return peers[turn:] + peers[:turn]


def settle(server: Server) -> None:
    """What one peer has left to do or to write must not slow the next."""
    await_idle(server.pid, SETTLE_LIMIT_S)
    os.sync()
