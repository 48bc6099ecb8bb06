"""The verdict in words: short, the worst first. Pure."""

from collections import Counter, defaultdict

from loadtest.verify.availability import Availability, Share
from loadtest.verify.check import Findings
from loadtest.verify.timeline import Timeline

SHOWN = 10  # of a kind
OUTAGES = 3


def describe(line: Timeline, findings: Findings, availability: Availability) -> str:
    return "\n".join(
        [
            *_traffic(line),
            "",
            *_availability(availability),
            "",
            *_tolerated(findings),
            *_violations(findings),
            *_missing(findings),
        ]
    )


def _traffic(line: Timeline) -> list[str]:
    acknowledged = {(a.stream, a.id) for a in line.appends if a.outcome == "ok"}
    tried = {(a.stream, a.id) for a in line.appends if a.allowed}
    audited = sum(len(life.ids) for life in line.lives.values())
    messages = sum(len(read.ids) for read in line.reads)
    shut_out = sum(not read.allowed for read in line.reads)
    modes = Counter(read.mode for read in line.reads)
    changes = Counter[str](change.action for change in line.changes if change.outcome == "ok")
    faults = Counter(f"{fault.what} {fault.target}" for fault in line.faults)
    injected: dict[str, Counter[str]] = defaultdict(Counter)
    for each in line.injected:
        injected[each.place][each.fault] += each.count
    run = line.heading
    about = f"seed {run.seed}, {run.seconds:.0f} s, {', '.join(run.parts)}" if run else "no heading"
    return [
        f"Run:      {about}",
        f"Writers:  {len(acknowledged)} of {len(tried)} messages acknowledged, "
        f"{len(line.appends)} tries; {audited} found in the streams",
        f"Readers:  {len(line.reads)} answers ({_counts(modes)}), {messages} messages; "
        f"{shut_out} tries without the right to read",
        f"Streams:  {_counts(changes) or 'no changes'}",
        f"Faults:   {_counts(faults) or 'none'}",
        *(f"  at {proxy}: {_counts(kinds)}" for proxy, kinds in injected.items()),
    ]


def _availability(availability: Availability) -> list[str]:
    lines = ["Availability (not part of the verdict):"]
    for minute, share in availability.by_minute.items():
        lines.append(f"  minute {minute + 1:<20} {_share(share)}")
    for fault, share in sorted(availability.by_fault.items(), key=lambda item: item[1].percent):
        lines.append(f"  {fault:<27} {_share(share)}")
    for seconds, since, during in availability.outages[:OUTAGES]:
        lines.append(f"  nobody served for {seconds:.2f} s from {since:.1f} s on ({during})")
    return lines


def _share(share: Share) -> str:
    failed = f"  {_counts(share.failed)}" if share.failed else ""
    return f"{share.percent:6.2f} % of {share.asked}{failed}"


def _tolerated(findings: Findings) -> list[str]:
    if not findings.tolerated:
        return []
    return [
        f"Tolerated: {len(findings.tolerated)} answers of a deleted incarnation while gateways "
        "could not tell each other (docs/caching.md)"
    ]


def _violations(findings: Findings) -> list[str]:
    if not findings.violations:
        return [] if findings.missing else ["INTACT: no promise was broken."]
    names = Counter(violation.name for violation in findings.violations)
    lines = [f"BROKEN: {len(findings.violations)} violations ({_counts(names)})"]
    for name in names:
        of_kind = [str(found) for found in findings.violations if found.name == name]
        lines += _first(of_kind, f" of {name}")
    return lines


def _missing(findings: Findings) -> list[str]:
    if not findings.missing:
        return []
    lines = ["INCOMPLETE: the history does not show enough to say that nothing else was broken:"]
    return lines + _first([f"{what} is missing" for what in findings.missing])


def _first(lines: list[str], of: str = "") -> list[str]:
    more = len(lines) - SHOWN
    shown = [*lines[:SHOWN], f"and {more} more{of}"] if more > 0 else lines
    return [f"  {line}" for line in shown]


def _counts(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.most_common())
