"""The figures of a run against a cluster, in words. Pure."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from loadtest.verify.availability import measure
from loadtest.verify.check import Findings
from loadtest.verify.cluster.pauses import Pause, find_pauses, quantile
from loadtest.verify.timeline import Timeline
from loadtest.verify.verdict import describe

KINDS = {  # columns, and the violations that they count
    "lost": ("lost-acknowledgement", "lost-producer"),
    "doubled": ("written-twice",),
    "reordered": ("out-of-order",),
    "stale": ("missed-write", "stale-incarnation", "reopened", "vanished"),
    "hangs": ("hang",),
}
OTHER = "other"
TAKEOVERS = (
    "kill-owner",
    "kill-machine",
    "kill-flushing",
    "wipe-node",
    "pause-owner",
)  # others take its shards
HEAD = ("fault", "rounds", "acknowledged", *KINDS, OTHER, "refused", "unknown", "longest pause")


@dataclass(slots=True)
class Row:
    """One kind of fault."""

    rounds: int = 0
    writes: Counter[str] = field(default_factory=Counter)  # by outcome
    violations: Counter[str] = field(default_factory=Counter)  # by column
    pauses: list[float] = field(default_factory=list)

    def add(self, other: "Row") -> None:
        self.rounds += other.rounds
        self.writes.update(other.writes)
        self.violations.update(other.violations)
        self.pauses += other.pauses

    def cells(self, name: str) -> list[str]:
        found = [str(self.violations[kind]) for kind in (*KINDS, OTHER)]
        writes = self.writes
        longest = f"{max(self.pauses, default=0.0):.1f} s"
        counted = [name, str(self.rounds), str(writes["ok"]), *found]
        return [*counted, str(writes["refused"]), str(writes["unknown"]), longest]


@dataclass(slots=True)
class Tally:
    """What came of one episode."""

    name: str
    line: Timeline
    findings: Findings
    shards: int

    def describe(self) -> str:
        verdict = describe(self.line, self.findings, measure(self.line))
        return f"== {self.name}\n{verdict}\n"

    def summary(self) -> "Summary":
        rows: dict[str, Row] = {}
        began = [each.began for each in self.line.rounds]
        names = [each.fault for each in self.line.rounds]

        def row_at(moment: float) -> Row:
            """Of the round that it belongs to: from its beginning to that of the next."""
            at = max(0, bisect_right(began, moment) - 1)
            return rows.setdefault(names[at] if names else "none", Row())

        for name in names:
            rows.setdefault(name, Row()).rounds += 1
        for append in self.line.appends:
            row_at(append.began).writes[append.outcome] += 1
        for violation in self.findings.violations:
            row_at(violation.at).violations[_column(violation.name)] += 1
        pauses = find_pauses(self.line, self.shards)
        for pause in pauses:
            rows[pause.fault].pauses.append(pause.secs)
        taken = [each for each in pauses if each.was_hit and each.fault in TAKEOVERS]
        return Summary(rows, taken)


@dataclass(slots=True)
class Summary:
    rows: dict[str, Row]
    takeovers: list[Pause]


def describe_cluster(summaries: Sequence[Summary]) -> str:
    rows: dict[str, Row] = {}
    for summary in summaries:
        for name, row in summary.rows.items():
            rows.setdefault(name, Row()).add(row)
    total = Row()
    for row in rows.values():
        total.add(row)
    table = [list(HEAD), *(row.cells(name) for name, row in rows.items()), total.cells("all")]
    takeovers = [pause for summary in summaries for pause in summary.takeovers]
    return "\n".join([*_aligned(table), "", *_takeovers(takeovers)])


def _takeovers(pauses: Sequence[Pause]) -> Iterable[str]:
    """Until a shard whose owner was gone took writes again."""
    for fault in TAKEOVERS:
        secs = [pause.secs for pause in pauses if pause.fault == fault]
        if secs:
            shown = ", ".join(f"{name} {pick(secs):.1f} s" for name, pick in PICKS.items())
            yield f"takeover after {fault}: {len(secs)} shards, {shown}"


PICKS: dict[str, Callable[[list[float]], float]] = {
    "p50": lambda secs: quantile(secs, 0.5),
    "p90": lambda secs: quantile(secs, 0.9),
    "max": max,
}


def _column(name: str) -> str:
    return next((column for column, names in KINDS.items() if name in names), OTHER)


def _aligned(table: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = []
    for first, *rest in table:
        cells = [first.ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True)]
        lines.append("  ".join(cells).rstrip())
    return lines
