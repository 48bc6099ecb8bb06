"""How often clients were served, and why not where they were not. Pure.

This is apart from integrity: a refused connection breaks no promise. What was being done to the
fleet at that moment is told beside it.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from math import inf

from loadtest.verify.history import SHUT_OUT, Fault, Operation, ReadResult
from loadtest.verify.timeline import Timeline

QUIET = "nothing"
REFUSED = "shut-out"  # in spite of a good token
AFTERMATH_SECS = 3.0  # in which a fault that is over may still be felt


@dataclass(slots=True)
class Share:
    """Requests in one minute, or during one kind of fault."""

    asked: int = 0
    failed: Counter[str] = field(default_factory=Counter)

    @property
    def percent(self) -> float:
        return 100.0 * (1 - self.failed.total() / self.asked) if self.asked else 100.0


@dataclass(slots=True)
class Availability:
    by_minute: dict[int, Share]
    by_fault: dict[str, Share]
    outages: list[tuple[float, float, str]]  # longest first: seconds, since when, during what


def measure(line: Timeline) -> Availability:
    """Of all who had the right to be served, and whose key was not gone when they were answered."""
    operations = [
        each
        for each in line.operations
        if each.allowed and each.ended < line.withdrawn.get(each.key, inf)
    ]
    by_minute: dict[int, Share] = defaultdict(Share)
    by_fault: dict[str, Share] = defaultdict(Share)
    for operation in operations:
        during = causes(line.faults, operation.began, operation.ended)
        minute = by_minute[int(operation.ended // 60)]
        for share in (minute, *(by_fault[cause] for cause in during)):
            share.asked += 1
            if trouble := trouble_of(operation):
                share.failed[trouble] += 1
    outages = _outages(operations, line.faults)
    return Availability(dict(sorted(by_minute.items())), dict(by_fault), outages)


def trouble_of(operation: Operation) -> str:
    return REFUSED if operation.status in SHUT_OUT else operation.trouble


def causes(faults: list[Fault], began: float, ended: float) -> list[str]:
    """All that was being done to the fleet while a request was out."""
    found = {
        f"{fault.what} {fault.target.partition('-')[0]}"
        for fault in faults
        if fault.began <= ended and began <= fault.ended + AFTERMATH_SECS
    }
    return sorted(found) or [QUIET]


def _outages(operations: list[Operation], faults: list[Fault]) -> list[tuple[float, float, str]]:
    """Times in which requests failed and none succeeded, at any door."""
    found: list[tuple[float, float, str]] = []
    last_good, failed = 0.0, False
    for operation in sorted(operations, key=lambda operation: operation.ended):
        if trouble_of(operation):
            failed = True
        elif not (isinstance(operation, ReadResult) and operation.mode == "sse"):
            if failed:
                during = ", ".join(causes(faults, last_good, operation.ended))
                found.append((operation.ended - last_good, last_good, during))
            last_good, failed = operation.ended, False
    return sorted(found, reverse=True)
