"""Counts what a scenario does, second by second."""

import math
from collections import Counter
from dataclasses import dataclass, field

from loadtest.load.histogram import bin_of
from loadtest.load.records import Second


@dataclass(slots=True)
class _Tally:
    done: int = 0
    bytes: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    verdicts: Counter[str] = field(default_factory=Counter)
    times: Counter[int] = field(default_factory=Counter)


class Meter:
    """`take` empties it: once a second, into a file."""

    def __init__(self) -> None:
        self._tallies: dict[str, _Tally] = {}
        self.lateness: Counter[int] = Counter()
        self.lag: Counter[int] = Counter()
        self.sums: Counter[str] = Counter()
        """Of all seconds: how often each kind was done."""

    def done(self, what: str, took_s: float, size: int = 0, verdict: str = "") -> None:
        tally = self._of(what)
        tally.done += 1
        tally.bytes += size
        tally.times[bin_of(took_s)] += 1
        if verdict:
            tally.verdicts[verdict] += 1
        self.sums[what] += 1

    def failed(self, what: str, reason: str, count: int = 1) -> None:
        self._of(what).failed[reason] += count

    def left(self, late_s: float) -> None:
        """A request was sent, so much later than it was due."""
        self.lateness[bin_of(late_s)] += 1

    def lagged(self, late_s: float, every_s: float) -> None:
        """Our own loop came round so late; all who asked it meanwhile waited, too."""
        for look in range(math.ceil(round(late_s / every_s, 6))):
            self.lag[bin_of(late_s - look * every_s)] += 1

    def take(self, second: int) -> list[Second]:
        tallies, self._tallies = self._tallies, {}
        return [
            Second(
                second,
                what,
                one.done,
                one.bytes,
                dict(one.failed),
                dict(one.verdicts),
                dict(one.times),
            )
            for what, one in tallies.items()
        ]

    def _of(self, what: str) -> _Tally:
        return self._tallies.setdefault(what, _Tally())
