"""Which request meets which fault: a plan is a seed and a rate for each kind. Pure.

The choice hangs on the seed and on the request (its method, path, mode, and how many like it came
before), not on the order in which requests of different streams happen to arrive. So a seed repeats
its faults although a run never repeats its timing.

Runs in mitmproxy's environment too: nothing but the standard library.
"""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any
from urllib.parse import parse_qs, urlsplit


class Kind(StrEnum):
    # Before the origin has seen the request.
    DELAY = "delay"  # it arrives later
    DROP = "drop"  # it never arrives: the connection ends
    ERROR = "error"  # it never arrives: a 5xx is answered
    REPEAT = "repeat"  # it arrives twice, the first answer is lost
    # When the origin has answered.
    RESET = "reset"  # the connection breaks (RST), before or amid the answer
    TRUNCATE = "truncate"  # the connection ends (FIN) amid the answer
    STALL = "stall"  # the answer stands still: before its first byte, an event stream amid it
    GARBLE = "garble"  # a header is broken in a way that a careful reader can see


STATUSES = (500, 502, 503, 504)
BREAKS = ("no-offset", "bad-offset", "bad-name", "two-lengths", "huge", "bad-version")
MODES = ("create", "append", "delete", "head", "catch-up", "long-poll", "sse")
# Sent twice, these are done twice; an append only without a producer's number.
ONLY_ONCE = ("create", "append", "delete")

STREAM_PATHS = "^/(v1/stream|ds)/"
_METHODS = {"PUT": "create", "POST": "append", "DELETE": "delete", "HEAD": "head"}
_RANGES: Mapping[str, tuple[int, int]] = {
    Kind.DELAY: (1, 250),
    Kind.STALL: (500, 3000),
}  # milliseconds
MAX_CUT_BYTES = 4096


class PlanError(ValueError):
    """A plan that cannot be meant, in words for whoever wrote it."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a plan looks at."""

    method: str
    target: str  # path and query
    is_producer: bool = False  # whether the origin would recognise a repetition

    @property
    def path(self) -> str:
        return urlsplit(self.target).path

    @property
    def mode(self) -> str:
        live = parse_qs(urlsplit(self.target).query).get("live", [""])[0]
        return _METHODS.get(self.method) or (live if live in MODES else "catch-up")


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens to one request; which fields count depends on the kind."""

    kind: str
    number: int  # of the request among those like it, from 1
    ms: int = 0  # delay, stall
    after_bytes: int = 0  # reset, truncate, stall of an event stream
    status: int = 0  # error
    broken: str = ""  # garble: one of BREAKS

    def details(self) -> dict[str, object]:
        """What is not said by its kind."""
        values = {"ms": self.ms, "status": self.status, "broken": self.broken}
        if self.kind in (Kind.RESET, Kind.TRUNCATE):
            return {"after_bytes": self.after_bytes}
        return {name: value for name, value in values.items() if value}


@dataclass(frozen=True, slots=True)
class Rule:
    """How often a kind happens, and to which requests. Raises PlanError."""

    kind: str
    rate: float
    modes: Sequence[str] = MODES
    paths: str = STREAM_PATHS  # regular expression
    ms: Sequence[int] = (0, 0)  # least and most
    statuses: Sequence[int] = STATUSES
    breaks: Sequence[str] = BREAKS

    def __post_init__(self) -> None:
        if type(self.rate) not in (int, float) or not 0 <= self.rate <= 1:
            raise PlanError(f"{self.kind}: rate is not a number from 0 to 1")
        least, most = self.ms
        if not 0 <= least <= most:
            raise PlanError(f"{self.kind}: ms is not [least, most]")
        known = {"modes": MODES, "statuses": range(500, 600), "breaks": BREAKS}
        for name, values in known.items():
            given = getattr(self, name)
            if not isinstance(given, list | tuple) or not given or not set(given) <= set(values):
                expected = ", ".join(map(str, values))
                raise PlanError(f"{self.kind}: {name}: not a list of {expected}")
        try:
            re.compile(self.paths)
        except re.error as error:
            raise PlanError(f"{self.kind}: paths: {error}") from None

    def concerns(self, asked: Asked) -> bool:
        if self.kind == Kind.REPEAT and asked.mode in ONLY_ONCE and not asked.is_producer:
            return False
        return asked.mode in self.modes and re.search(self.paths, asked.path) is not None


@dataclass(frozen=True, slots=True)
class Plan:
    seed: int = 0
    place: str = ""  # where the proxy stands, for the log
    rules: tuple[Rule, ...] = ()

    def choose(self, asked: Asked, number: int) -> Fault | None:
        """At most one fault: the rates of the rules that concern a request add up."""
        key = f"{self.seed}|{self.place}|{asked.method}|{asked.mode}|{asked.path}|{number}"
        dice = _dice(key)
        left = next(dice) / 2**32
        for rule in self.rules:
            if not rule.concerns(asked):
                continue
            if left < rule.rate:
                return _make_fault(rule, number, dice)
            left -= rule.rate
        return None


@dataclass(slots=True)
class Planned:
    """A plan at work: it counts the requests. Another plan may take over at any time."""

    plan: Plan
    _seen: Counter[tuple[str, str, str]] = field(default_factory=Counter)

    def next_fault(self, asked: Asked) -> Fault | None:
        alike = asked.method, asked.mode, asked.path
        self._seen[alike] += 1
        return self.plan.choose(asked, self._seen[alike])


def parse_plan(text: str) -> Plan:
    """A plan from JSON; raises PlanError.

    {"seed": 1, "place": "origin", "faults": {"drop": 0.01, "delay": {"rate": 0.1, "ms": [5, 80]}}}

    A rule may also have `modes` and `paths`, an error `statuses`, a garbling `breaks`.
    """
    try:
        told = json.loads(text)
    except ValueError as error:
        raise PlanError(f"no JSON: {error}") from None
    if not isinstance(told, dict):
        raise PlanError("not an object")
    _refuse_others(told, ("seed", "place", "faults"), "the plan")
    faults = told.get("faults", {})
    if not isinstance(faults, dict):
        raise PlanError("faults: not an object")
    rules = tuple(_parse_rule(kind, rule) for kind, rule in faults.items())
    if sum(rule.rate for rule in rules) > 1:
        raise PlanError("faults: the rates add up to more than 1")
    return Plan(int(told.get("seed", 0)), str(told.get("place", "")), rules)


def _parse_rule(kind: str, told: Any) -> Rule:
    if kind not in list(Kind):
        raise PlanError(f"{kind}: not one of {', '.join(Kind)}")
    given: Mapping[str, Any] = told if isinstance(told, dict) else {"rate": told}
    _refuse_others(given, ("rate", "modes", "paths", "ms", "statuses", "breaks"), kind)
    return Rule(kind, **{"rate": None, "ms": _RANGES.get(kind, (0, 0)), **given})


def _refuse_others(told: Mapping[str, Any], known: tuple[str, ...], what: str) -> None:
    for name in told:
        if name not in known:
            raise PlanError(f"{what}: unknown key {name}")


def _make_fault(rule: Rule, number: int, dice: Iterator[int]) -> Fault:
    first, second = next(dice), next(dice)
    least, most = rule.ms
    kind = rule.kind
    return Fault(
        kind,
        number,
        ms=least + first % (most - least + 1) if kind in _RANGES else 0,
        # Half of the cuts come before the first byte, the others anywhere.
        after_bytes=max(0, second % (2 * MAX_CUT_BYTES) - MAX_CUT_BYTES),
        status=rule.statuses[first % len(rule.statuses)] if kind == Kind.ERROR else 0,
        broken=rule.breaks[first % len(rule.breaks)] if kind == Kind.GARBLE else "",
    )


def _dice(key: str) -> Iterator[int]:
    """Numbers below 2**32 that hang on nothing but the key."""
    digest = hashlib.blake2b(key.encode()).digest()
    return (int.from_bytes(digest[at : at + 4], "big") for at in range(0, len(digest), 4))
