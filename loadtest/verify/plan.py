"""What will happen in a run, and when: a list made from a seed. Pure.

Disturbances of processes come one after another with rests between them, in which clients get
forward and a fault that hides behind another shows; sometimes two meet. Streams are changed all the
time. The last part of a run is quiet, so that everyone can catch up.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf
from random import Random

ORIGIN, REDIS, ENVOY = "origin", "redis", "envoy"
FAULTS, NETWORK = "faults", "network"  # proxies that do harm
FULL_JOURNAL = "full-journal"
CLUSTER = "cluster"  # the origins of a cluster and what they stand on: harm to any is felt at all
HARM = {  # gateways are killed and stopped
    ORIGIN: ("kill", "pause"),
    REDIS: ("kill",),
    ENVOY: ("kill",),
    FAULTS: ("inject",),
    NETWORK: ("inject",),
}
QUIET_SECS, QUIET_SHARE = 6.0, 0.1  # of the run at most, at its beginning and at its end
REST_SECS = (1.0, 4.0)
AWAY_SECS = (0.2, 3.0)
FAULTY_SECS = (4.0, 12.0)
CHANGE_SECS = (1.0, 4.0)
OVERLAP = 0.2
ROTATION_SECS = 45.0
# Of requests while a proxy does harm. Together less than half, so that some get through.
NETWORK_RATES = {
    "delay": 0.08,
    "drop": 0.03,
    "error": 0.03,
    "repeat": 0.04,
    "reset": 0.04,
    "truncate": 0.04,
    "stall": 0.02,
}
# A gateway must notice broken headers; before it, they would be the proxy's own lie.
FAULT_RATES = {NETWORK: NETWORK_RATES, FAULTS: NETWORK_RATES | {"garble": 0.03}}


@dataclass(frozen=True, slots=True)
class Step:
    """At `at` seconds: do `action` to `target`, a part of the fleet or a stream, for `secs`."""

    at: float
    action: str
    target: str
    secs: float = 0.0

    def __str__(self) -> str:
        lasting = f" for {self.secs:.1f} s" if self.secs else ""
        return f"{self.at:6.1f} s  {self.action} {self.target}{lasting}"


def make_plan(
    seed: int, seconds: float, parts: Sequence[str], streams: Sequence[str]
) -> list[Step]:
    random = Random(seed)
    quiet = min(QUIET_SECS, QUIET_SHARE * seconds)
    steps = [
        *_disturbances(random, quiet, seconds - quiet, parts),
        *_changes(random, quiet, seconds - quiet, streams),
        *_rotations(random, quiet, seconds - quiet),
    ]
    return sorted(steps, key=lambda step: step.at)


def endless_changes(random: Random, streams: Sequence[str]) -> Iterator[Step]:
    """For a run whose end is not known yet."""
    return _changes(random, 0.0, inf, streams)


def _disturbances(random: Random, at: float, until: float, parts: Sequence[str]) -> Iterator[Step]:
    """Each kind in turn, in an order of its own each time, so that a short run has all."""
    kinds: list[tuple[str, str]] = []
    while parts:
        if not kinds:
            kinds = [(kind, part) for part in parts for kind in HARM.get(part, ("kill", "stop"))]
            random.shuffle(kinds)
        action, target = kinds.pop()
        secs = random.uniform(*(FAULTY_SECS if action == "inject" else AWAY_SECS))
        at += random.uniform(*REST_SECS)
        if at + secs >= until:
            return
        yield Step(at, action, target, secs)
        if random.random() >= OVERLAP:
            at += secs


def _changes(random: Random, at: float, until: float, streams: Sequence[str]) -> Iterator[Step]:
    """A closed stream is made anew by its next change: nothing more can happen to it."""
    closed: set[str] = set()
    while streams:
        at += random.uniform(*CHANGE_SECS)
        if at >= until:
            return
        stream = random.choice(streams)
        action = random.choice(("recreate", "recreate", "snapshot", "snapshot", "close"))
        if stream in closed:
            closed.discard(stream)
            action = "recreate"
        elif action == "close":
            closed.add(stream)
        yield Step(at, action, stream)


def _rotations(random: Random, at: float, until: float) -> Iterator[Step]:
    at += random.uniform(0, 5)
    while at < until:
        yield Step(at, "rotate", "keys")
        at += ROTATION_SECS
