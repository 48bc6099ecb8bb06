"""A history sorted for the checks: each incarnation's life, bytes and promises; and what a broken
promise looks like. Pure."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import inf
from operator import itemgetter
from typing import Any

from loadtest.verify.history import (
    Append,
    Change,
    End,
    Fault,
    ForkResult,
    Injected,
    Operation,
    Published,
    ReadResult,
    Record,
    Round,
    Run,
    Stall,
    Truth,
    Withdrawn,
)
from loadtest.verify.messages import PLAIN_WRITER, generation_of
from loadtest.verify.plan import Step

# How long after an outage a notice may be late: reconnecting, and telling everyone of the gap.
NOTICE_SECS = 8.0
CARRIER_OF_NOTICES = "redis"


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken promise: its name, where and when, and what was seen."""

    name: str
    stream: str
    at: float
    text: str

    def __str__(self) -> str:
        return f"{self.name}: {self.stream} at {self.at:.3f} s: {self.text}"


def seen_by(name: str, operation: Operation, text: str) -> Violation:
    how = f", {operation.mode}" if isinstance(operation, ReadResult) else ""
    who = f"{operation.who} by {operation.door}{how}"
    return Violation(name, operation.stream, operation.ended, f"{who}: {text}")


def is_first(append: Append) -> bool:
    """Whether an acknowledgement is of something new, and has its end. A producer's 204 is of what
    was there before, and has the tail of the moment."""
    return append.outcome == "ok" and (append.status == 200 or append.who.startswith(PLAIN_WRITER))


@dataclass(slots=True)
class Sent:
    """All that was tried for one message."""

    id: str
    began: float = inf
    acknowledged: float = inf
    offsets: list[str] = field(default_factory=list)  # that a 200 said it ends at
    may_be_there: bool = False


@dataclass(slots=True)
class Life:
    """One incarnation of a stream: what it held, and from when until when it was there."""

    stream: str
    generation: int
    created: float = inf  # acknowledged
    delete_began: float = inf
    deleted: float = inf  # acknowledged
    close_began: float = inf
    closed: float = inf  # acknowledged
    is_audited: bool = False  # at its end
    ends_closed: bool = False
    tail: str = ""
    ids: list[str] = field(default_factory=list)
    places: dict[str, int] = field(default_factory=dict)
    offsets: dict[str, int] = field(default_factory=dict)  # offset -> messages before it
    sent: dict[str, Sent] = field(default_factory=dict)
    snapshots: list[Change] = field(default_factory=list)
    damage: list[str] = field(default_factory=list)
    acks: list[tuple[float, str]] = field(default_factory=list)  # time, greatest offset until then

    def is_certain(self, began: float, ended: float) -> bool:
        """Whether this incarnation was there all the time."""
        return self.created <= began and ended <= self.delete_began

    def acknowledged_before(self, moment: float) -> str:
        """The greatest offset that a writer had been told by then; empty if none."""
        found = bisect_left(self.acks, moment, key=itemgetter(0))
        return self.acks[found - 1][1] if found else ""


@dataclass(slots=True)
class Timeline:
    heading: Run | None
    is_over: bool
    appends: list[Append]
    reads: list[ReadResult]
    changes: list[Change]
    faults: list[Fault]
    injected: list[Injected]
    published: dict[str, float]  # key -> when
    withdrawn: dict[str, float]
    rounds: list[Round] = field(default_factory=list)
    stalls: list[Stall] = field(default_factory=list)
    forks: list[ForkResult] = field(default_factory=list)
    lives: dict[tuple[str, int], Life] = field(default_factory=dict)
    _of_stream: dict[str, list[Life]] = field(default_factory=lambda: defaultdict(list))

    @property
    def plan(self) -> list[Step]:
        return self.heading.plan if self.heading else []

    @property
    def operations(self) -> list[Operation]:
        return [*self.appends, *self.reads, *self.changes]

    def life(self, stream: str, generation: int) -> Life:
        key = (stream, generation)
        if key not in self.lives:
            self.lives[key] = Life(stream, generation)
            self._of_stream[stream].append(self.lives[key])
        return self.lives[key]

    @property
    def audited(self) -> list[Life]:
        """Incarnations. A run that was cut short leaves others: they are `Findings.missing`."""
        return [life for life in self.lives.values() if life.is_audited]

    def life_of(self, read: ReadResult) -> Life | None:
        """The incarnation that an answer is of; None where that is unknown, or not audited."""
        if read.ids:
            own = [id_ for id_ in read.ids if "/" not in id_]
            life = self.lives.get((read.stream, generation_of(own[0]))) if own else None
        elif read.snapshot_of >= 0:
            life = self.lives.get((read.stream, read.snapshot_of))
        else:
            life = self.certain_life(read.stream, read.began, read.ended)
        return life if life is not None and life.is_audited else None

    def certain_life(self, stream: str, began: float, ended: float) -> Life | None:
        """The incarnation that must have answered, where only one can have."""
        lives = self._of_stream.get(stream, [])
        return next((life for life in lives if life.is_certain(began, ended)), None)

    def was_refused_for_its_key(self, operation: Operation) -> bool:
        return operation.status == 401 and self.withdrawn.get(operation.key, inf) < operation.ended

    def notices_were_late(self, life: Life, until: float) -> bool:
        """Whether gateways could not tell each other of a deletion: a limit that is documented."""
        return any(
            fault.target == CARRIER_OF_NOTICES
            and fault.began <= life.deleted
            and max(life.delete_began, until) <= fault.ended + NOTICE_SECS
            for fault in self.faults
        )


def sort_history(records: Iterable[Record]) -> Timeline:
    of: dict[type[Record], list[Any]] = defaultdict(list)
    for record in records:
        of[type(record)].append(record)
    line = Timeline(
        heading=next(iter(of[Run]), None),
        is_over=bool(of[End]),
        appends=of[Append],
        reads=of[ReadResult],
        changes=of[Change],
        faults=of[Fault],
        injected=of[Injected],
        published={key.key: key.at for key in of[Published]},
        withdrawn={key.key: key.at for key in of[Withdrawn]},
        rounds=of[Round],
        stalls=of[Stall],
        forks=of[ForkResult],
    )
    truths: dict[tuple[str, int], list[Truth]] = defaultdict(list)
    for truth in of[Truth]:
        truths[truth.stream, truth.generation].append(truth)
    for change in line.changes:
        _live(line.life(change.stream, change.generation), change)
    for (stream, generation), found in truths.items():
        life = line.life(stream, generation)
        _hold(life, found)
        # Those for a snapshot are earlier: where a run was cut short, they say too little.
        life.is_audited = line.is_over or life.delete_began < inf
    _promise(line)
    return line


def _live(life: Life, change: Change) -> None:
    done = change.ended if change.outcome == "ok" else inf
    match change.action:
        case "create":
            life.created = min(life.created, done)
            if change.outcome == "ok" and change.next:
                life.offsets.setdefault(change.next, 0)
        case "delete":
            life.delete_began = min(life.delete_began, change.began)
            life.deleted = min(life.deleted, done)
        case "close":
            life.close_began = min(life.close_began, change.began)
            life.closed = min(life.closed, done)
        case "snapshot":
            life.snapshots.append(change)


def _hold(life: Life, truths: list[Truth]) -> None:
    for truth in truths:
        life.offsets[truth.asked] = len(life.ids)
        life.ids += truth.ids
        life.offsets[truth.next] = len(life.ids)
        life.tail, life.ends_closed = truth.next, truth.closed
        if truth.damage:
            life.damage.append(truth.damage)
    for place, id_ in enumerate(life.ids):
        life.places.setdefault(id_, place)


def _promise(line: Timeline) -> None:
    for append in line.appends:
        life = line.life(append.stream, generation_of(append.id))
        sent = life.sent.setdefault(append.id, Sent(append.id))
        sent.began = min(sent.began, append.began)
        if append.outcome == "ok":
            sent.acknowledged = min(sent.acknowledged, append.ended)
            if is_first(append):
                sent.offsets.append(append.next)
                life.acks.append((append.ended, append.next))
                if append.id in life.places:
                    life.offsets.setdefault(append.next, life.places[append.id] + 1)
        # A gateway or Envoy may send it twice; if the close comes between the two, the second is
        # refused, and the protocol has no way to say that the first was not (DS 5.2.1).
        sent.may_be_there |= append.outcome != "refused" or append.code == "closed"
    for life in line.lives.values():
        reached = ""
        for number, (ended, offset) in enumerate(sorted(life.acks)):
            reached = max(reached, offset)
            life.acks[number] = (ended, reached)
