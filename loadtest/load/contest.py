"""Scenarios that are measured in short rounds, with goals: how they run, and what is kept of them.

In a `Contest` all peers stay up, and each round goes through them, starting with another one. A
`Trial` is of our server alone: it starts it more than once on the same data, or looks at the same
data in more than one way.
"""

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import uvloop

from loadtest.errors import RunFailedError
from loadtest.load.goals import Measure
from loadtest.peers.clusters import LEASE_SECS
from loadtest.peers.memory import OtherWork, await_idle, cpu_seconds
from loadtest.peers.names import OURS
from loadtest.peers.process import Server

SETTLE_LIMIT_SECS = 3.0
BUSY_CPU = 0.9
BUSY = f"the client used more than {BUSY_CPU:.0%} of a core: the figure may be its own limit"


@dataclass(frozen=True, slots=True)
class Plan:
    """How often, how long and how much; the quick plan trades certainty for time."""

    rounds: int = 7
    crowd_rounds: int = 3
    warm_up_s: float = 1.0
    load_s: float = 2.0
    bulk_s: float = 1.5
    lines: int = 10_000_000  # of access logs
    kills: int = 6  # of owners in a cluster
    lease_secs: float = LEASE_SECS
    journal_bytes: int = 1_000_000_000  # that a new owner replays
    bound_bytes: int = 10_000_000_000  # written where memory and disk must stay bounded
    streams: int = 100_000  # that are recovered
    folder: Path = Path(".bench")  # for what trials write themselves
    seconds: float | None = None  # of a paced scenario, if not its own
    peers: tuple[str, ...] = ()  # who takes part


QUICK = Plan(
    rounds=1,
    crowd_rounds=1,
    load_s=1.0,
    bulk_s=1.0,
    lines=500_000,
    kills=1,
    lease_secs=LEASE_SECS / 2,
    journal_bytes=64_000_000,
    bound_bytes=500_000_000,
    streams=5_000,
    seconds=2.0,
)


@dataclass(frozen=True, slots=True)
class Sample:
    """The figures of one run, and who used how much CPU meanwhile (1 = one core)."""

    figures: Mapping[str, float]
    server_cpu: float | None = None
    client_cpu: float | None = None
    notes: tuple[str, ...] = ()
    """Why the figures may be the generator's own."""


class Stopwatch:
    """How long something takes, and how much CPU time server and client use meanwhile."""

    def __init__(self, server: Server) -> None:
        self._pid = server.pid
        self._server_cpu_s = cpu_seconds(server.pid)
        self._client_cpu_s = time.process_time()
        self._start = time.perf_counter()

    @property
    def took_s(self) -> float:
        return time.perf_counter() - self._start

    def sample(self, figures: Mapping[str, float]) -> Sample:
        took_s = self.took_s
        server_cpu_s = cpu_seconds(self._pid) - self._server_cpu_s
        client_cpu_s = time.process_time() - self._client_cpu_s
        return Sample(figures, server_cpu_s / took_s, client_cpu_s / took_s)


LaunchPeer = Callable[[str], AbstractContextManager[Server]]
Launch = Callable[[], AbstractContextManager[Server]]
Sides = Mapping[str, Sequence[Sample]]
"""The rounds of those who are compared; most trials have `OURS` only."""


@dataclass(frozen=True, slots=True)
class Contest:
    name: str
    label: str
    measures: tuple[Measure, ...]
    prepare: Callable[[Server, Plan], Coroutine[Any, Any, object]]
    measure: Callable[[Server, Plan], Coroutine[Any, Any, Sample]]
    count_rounds: Callable[[Plan], int] = lambda plan: plan.rounds
    in_quick: bool = True
    needs_wrk: bool = False
    peers: tuple[str, ...] | None = None
    """Those who can take part; None: all."""


@dataclass(frozen=True, slots=True)
class Trial:
    name: str
    label: str
    measures: tuple[Measure, ...]
    run: Callable[[Launch, Plan], Coroutine[Any, Any, Sides]]
    in_quick: bool = True
    needs_wrk: bool = False


class Results:
    """Everything one suite has seen: records, written out as they come and read back later."""

    def __init__(self, out: Path | None = None) -> None:
        self._out = out
        self.facts: dict[str, Any] = {}
        """About the machine and the run."""
        self.figures: dict[tuple[str, str, str], dict[int, float]] = {}
        self.failures: list[str] = []
        self.skips: list[str] = []
        self.notes: list[str] = []
        self.other_cpu: list[float] = []
        if out is not None:
            out.parent.mkdir(parents=True, exist_ok=True)
            out.write_text("")

    @classmethod
    def read(cls, path: Path) -> "Results":
        """A torn last line is left out: its run was killed."""
        results = cls()
        for line in path.read_text().splitlines(keepends=True):
            if line.endswith("\n"):
                results._take(json.loads(line))
        return results

    def _keep(self, kind: str, **values: object) -> None:
        record = {"kind": kind, **values}
        self._take(record)
        if self._out is not None:
            with self._out.open("a") as sink:
                sink.write(json.dumps(record) + "\n")

    def _take(self, record: Mapping[str, Any]) -> None:
        match record:
            case {"kind": "facts", **facts}:
                self.facts |= facts
            case {"kind": "skip", "what": what, "reason": reason}:
                self.skips.append(f"{what}: {reason}")
            case {"scenario": scenario, "peer": peer, "round": number, **seen}:
                if record["kind"] == "failure":
                    reason = f"{scenario}, {peer}, round {number}: {seen['reason']}"
                    self.failures.append(reason)
                    return
                self.other_cpu.append(seen["other_cpu"])
                notes = [*seen["notes"], *([BUSY] if (seen["client_cpu"] or 0) > BUSY_CPU else [])]
                told = [f"{scenario}, {peer}: {note}" for note in notes]
                self.notes += [note for note in told if note not in self.notes]
                for name, value in seen["figures"].items():
                    self.figures.setdefault((scenario, name, peer), {})[number] = value

    def tell(self, **facts: object) -> None:
        self._keep("facts", **facts)

    def add(
        self, scenario: str, peer: str, number: int, sample: Sample, others: float = 0.0
    ) -> None:
        seen = asdict(sample) | {"other_cpu": others}
        self._keep("sample", scenario=scenario, peer=peer, round=number, **seen)

    def fail(self, scenario: str, peer: str, number: int, error: RunFailedError) -> None:
        """Round 0 is the start and the preparation."""
        self._keep("failure", scenario=scenario, peer=peer, round=number, reason=str(error))
        print(f"  failed: {self.failures[-1]}", file=sys.stderr)

    def skip(self, what: str, reason: str) -> None:
        self._keep("skip", what=what, reason=reason)


def run_trial(trial: Trial, launch: LaunchPeer, plan: Plan, results: Results) -> None:
    print(f"{trial.name}: {OURS}", file=sys.stderr)
    os.sync()
    others = OtherWork([])  # the servers count as ours once they have ended
    try:
        sides = uvloop.run(trial.run(partial(launch, OURS), plan))
        cores = others.cores()
        for side, samples in sides.items():
            for number, sample in enumerate(samples, 1):
                results.add(trial.name, side, number, sample, cores)
    except RunFailedError as error:
        results.fail(trial.name, OURS, 0, error)
    finally:
        shutil.rmtree(plan.folder / OURS, ignore_errors=True)


def run_contest(
    contest: Contest, launch: LaunchPeer, peers: Sequence[str], plan: Plan, results: Results
) -> None:
    with ExitStack() as stack:
        servers: dict[str, Server] = {}
        for peer in peers:
            if contest.peers is not None and peer not in contest.peers:
                continue
            stack.callback(shutil.rmtree, plan.folder / peer, ignore_errors=True)
            try:
                server = stack.enter_context(launch(peer))
                uvloop.run(contest.prepare(server, plan))
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
                sample = uvloop.run(contest.measure(servers[peer], plan))
                results.add(contest.name, peer, number, sample, others.cores())
            except RunFailedError as error:
                results.fail(contest.name, peer, number, error)
            settle(servers[peer])


def turn_order(peers: list[str], number: int) -> list[str]:
    turn = (number - 1) % len(peers) if peers else 0
    return peers[turn:] + peers[:turn]


def settle(server: Server) -> None:
    """What one peer has left to do or to write must not slow the next."""
    await_idle(server.pid, SETTLE_LIMIT_SECS)
    os.sync()
