"""Histories of a server that keeps its promises, made without one: a stream is a list of ids.

Every operation takes a moment of its own, so there is just one right answer to each.
"""

from itertools import count
from typing import Any, TypeVar

from loadtest.verify.history import (
    LIVE,
    Append,
    Change,
    End,
    Fault,
    Injected,
    Published,
    ReadResult,
    Record,
    Truth,
    Withdrawn,
)

STREAM = "verify/a/json"

Kind = TypeVar("Kind", Append, ReadResult, Change)
START = "-1"


def offset(place: int) -> str:
    return f"{place:04d}"


class Honest:
    """One stream; what is done to it is written down as a client would."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.ids: list[str] = []
        self.generation = -1
        self.is_closed = False
        self._clock = count(1)
        self._numbers: dict[str, int] = {}
        self._audited = 0
        self._earliest = 0

    # -- changes -----------------------------------------------------------------------------------

    def create(self) -> Change:
        self.generation += 1
        self.ids, self._numbers, self.is_closed = [], {}, False
        self._audited = self._earliest = 0
        return self._change("create", status=201, next=offset(0))

    def close(self) -> Change:
        self.is_closed = True
        return self._change("close", status=204)

    def delete(self) -> Change:
        self.audit()
        return self._change("delete", status=204)

    def snapshot(self) -> Change:
        self.audit()
        self._earliest = len(self.ids)
        return self._change("snapshot", status=204, offset=offset(len(self.ids)))

    def audit(self) -> Truth:
        """What is new since the last one."""
        began, ended = self.moment()
        truth = Truth(
            stream=STREAM,
            generation=self.generation,
            began=began,
            ended=ended,
            asked=offset(self._audited) if self._audited else START,
            next=offset(len(self.ids)),
            ids=self.ids[self._audited :],
            closed=self.is_closed,
        )
        self._audited = len(self.ids)
        self.records.append(truth)
        return truth

    # -- clients -----------------------------------------------------------------------------------

    def append(self, producer: str = "p0", **different: Any) -> Append:
        """Acknowledged, unless it is closed or `different` says otherwise."""
        number = self._numbers.get(producer, 0)
        id_ = f"{self.generation}.{producer}.{number}"
        told: dict[str, Any] = {"outcome": "refused", "status": 409, "code": "closed"}
        if not self.is_closed:
            self.ids.append(id_)
            self._numbers[producer] = number + 1
            told = {"outcome": "ok", "status": 200, "next": offset(len(self.ids))}
        return self._add(Append, id=id_, who=producer, **(told | different))

    def read(self, asked: str = START, limit: int = 1000, **different: Any) -> ReadResult:
        place = int(asked) if asked.isdigit() else 0
        if place < self._earliest:
            told: dict[str, Any] = {"status": 410, "outcome": "refused"}
        else:
            ids = self.ids[place : place + limit]
            end = place + len(ids)
            up_to_date = end == len(self.ids)
            told = {"ids": ids, "next": offset(end), "up_to_date": up_to_date, "status": 200}
            told |= {"closed": up_to_date and self.is_closed, "outcome": "ok"}
        base = {"who": "reader", "mode": "catch-up", "asked": asked}
        return self._add(ReadResult, **(base | told | different))

    def look_last(self) -> None:
        """Through the only door there is: at what is there, and at what comes. Then all is over."""
        self.audit()
        begin = offset(self._earliest) if self._earliest else START
        self.read(begin, mode="final", who="last")
        for mode in LIVE:
            self.read(begin, mode=mode, who=f"last {mode}", last=True)
        self.records.append(End(at=self.moment()[1]))

    def bootstrap(self) -> ReadResult:
        return self._add(
            ReadResult,
            who="reader",
            mode="bootstrap",
            outcome="ok",
            status=200,
            ids=self.ids[self._earliest :],
            next=offset(len(self.ids)),
            snapshot=self._earliest,
            snapshot_of=self.generation if self._earliest else -1,
        )

    def fault(self, what: str, target: str) -> None:
        began, ended = self.moment()
        self.records.append(Fault(what=what, target=target, began=began, ended=ended))

    def inject(self, place: str, *kinds: str) -> None:
        self.fault("inject", place)
        self.records += [Injected(place=place, fault=kind, count=1) for kind in kinds]

    def publish(self, key: str) -> None:
        self.records.append(Published(key=key, at=self.moment()[0]))

    def withdraw(self, key: str) -> None:
        self.records.append(Withdrawn(key=key, at=self.moment()[0]))

    def refuse(self, status: int = 401, **different: Any) -> ReadResult:
        told: dict[str, Any] = {"ids": [], "next": "", "up_to_date": False, "closed": False}
        return self.read(status=status, outcome="refused", **(told | different))

    def wait(self, seconds: int) -> None:
        for _ in range(seconds):
            next(self._clock)

    # -- pieces ------------------------------------------------------------------------------------

    def moment(self) -> tuple[float, float]:
        now = next(self._clock)
        return now, now + 0.5

    def _change(self, action: str, **told: Any) -> Change:
        return self._add(
            Change, action=action, generation=self.generation, who="keeper", outcome="ok", **told
        )

    def _add(self, kind: type[Kind], **told: Any) -> Kind:
        began, ended = self.moment()
        times = {"began": began, "ended": ended}
        record = kind(**({"stream": STREAM, "door": "envoy"} | times | told))
        self.records.append(record)
        return record
