"""The run on a terminal: one line a second, or a small board that is drawn anew. Pure."""

import math
from collections import deque
from collections.abc import Sequence

from loadtest.load.histogram import percentile, total
from loadtest.load.records import Gauges, Second, Started
from loadtest.load.summary import READS, Summary

BARS = " ▁▂▃▄▅▆▇█"
WIDTH = 60


class View:
    """Takes seconds as they pass; `board` is what a person sees now."""

    def __init__(self, started: Started, headline: str, tells: str) -> None:
        self._started = started
        self._headline = headline
        self._tells = tells
        self._rates: deque[float] = deque(maxlen=WIDTH)
        self._slowest: deque[float] = deque(maxlen=WIDTH)
        self._last: Sequence[Second] = ()
        self._asked = 0
        self._failed = 0
        self._gauges: Gauges | None = None

    def take(self, seconds: Sequence[Second], gauges: Gauges) -> None:
        self._last, self._gauges = seconds, gauges
        heads = [one for one in seconds if one.what == self._headline]
        self._rates.append(sum(one.done for one in heads))
        self._slowest.append(percentile(total(one.times for one in heads), 0.99))
        self._asked += sum(one.done for one in seconds if one.what in READS)
        self._failed += sum(sum(one.failed.values()) for one in seconds)

    def board(self) -> list[str]:
        started, gauges = self._started, self._gauges
        length = started.knobs["seconds"]
        passed = min((gauges.second + 1) if gauges else 0, length)
        filled = round(passed / length * 30) if length else 30
        lines = [
            f"{started.scenario} on {started.peer} ({started.target}): {self._tells}",
            f"  {'█' * filled}{'·' * (30 - filled)}  {passed:.0f} of {length:.0f} s",
            f"  {self._headline + '/s':<12} {sparkline(self._rates)} {_last(self._rates):,.0f}",
            f"  {'p99 ms':<12} {sparkline(self._slowest)} {_last(self._slowest) * 1000:,.1f}",
        ]
        lines += [_row(one) for one in self._last]
        if gauges is not None:
            lines.append("  " + "   ".join(_gauge(*pair) for pair in gauges.values.items()))
            lines += [f"  {words}" for words in self._sharing()]
        if self._failed:
            lines.append(f"  {self._failed:,} failed")
        return lines

    def line(self) -> str:
        """For a terminal that cannot draw."""
        gauges = self._gauges
        second = gauges.second + 1 if gauges else 0
        return "  ".join(
            [
                f"{second:4d} s",
                f"{self._headline} {_last(self._rates):,.0f}/s",
                f"p99 {_last(self._slowest) * 1000:,.1f} ms",
                *self._sharing(),
                f"failed {self._failed:,}",
            ]
        )

    def _sharing(self) -> list[str]:
        upstream = self._gauges.values.get("upstream") if self._gauges else None
        if not upstream:
            return []
        return [f"one read at the origin for {self._asked / upstream:,.1f} requests"]


def sparkline(values: Sequence[float]) -> str:
    highest = max((value for value in values if not math.isnan(value)), default=0.0)
    return "".join(_bar(value, highest) for value in values)


def _bar(value: float, highest: float) -> str:
    if math.isnan(value) or not highest:
        return BARS[0]
    return BARS[math.ceil(value / highest * (len(BARS) - 1))]


def _last(values: Sequence[float]) -> float:
    return values[-1] if values and not math.isnan(values[-1]) else 0.0


def _row(one: Second) -> str:
    p50, p99 = (percentile(one.times, share) * 1000 for share in (0.5, 0.99))
    verdicts = ", ".join(f"{name} {count:,}" for name, count in sorted(one.verdicts.items()))
    failed = ", ".join(f"{count:,} {name}" for name, count in sorted(one.failed.items()))
    words = [f"  {one.what:<12} {one.done:>8,}/s  p50 {p50:>8,.1f} ms  p99 {p99:>8,.1f} ms"]
    return "  ".join([*words, verdicts, failed]).rstrip()


def _gauge(name: str, value: float) -> str:
    digits = 0 if value >= 10 or value % 1 == 0 else 2
    return f"{name.replace('_', ' ')} {value:,.{digits}f}"


def closing_lines(summary: Summary, headline: str) -> list[str]:
    lines = [
        f"  {headline}: {summary.done:,} ({summary.rate:,.0f}/s), "
        f"p50 {summary.p50_ms:,.2f} ms, p90 {summary.p90_ms:,.2f} ms, p99 {summary.p99_ms:,.2f} ms"
    ]
    if not math.isnan(summary.upstream):
        lines.append(
            f"  {summary.asked:,} requests of readers, {summary.upstream:,.0f} reads at the origin"
        )
    lines.append(f"  {summary.failed:,} failed")
    lines += [f"  limit: {limit}" for limit in summary.limits]
    return lines
