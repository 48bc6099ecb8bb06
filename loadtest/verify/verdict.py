"""The verdict in words: short, the worst first. Pure."""

from collections import Counter, defaultdict
from collections.abc import Sequence

from loadtest.verify.availability import Availability, Share
from loadtest.verify.check import Findings
from loadtest.verify.history import Append, Change, Fault, Injected, ReadResult, Record, Run, Truth

SHOWN = 10  # violations of a kind
OUTAGES = 3


def describe(records: Sequence[Record], findings: Findings, availability: Availability) -> str:
    return "\n".join(
        [
            *_traffic(records),
            "",
            *_availability(availability),
            "",
            *_tolerated(findings),
            *_violations(findings),
            *_missing(findings),
        ]
    )


def _traffic(records: Sequence[Record]) -> list[str]:
    appends = [record for record in records if isinstance(record, Append)]
    reads = [record for record in records if isinstance(record, ReadResult)]
    changes: Counter[str] = Counter(
        record.action for record in records if isinstance(record, Change) and record.outcome == "ok"
    )
    faults = Counter(
        f"{record.what} {record.target}" for record in records if isinstance(record, Fault)
    )
    acknowledged = {(a.stream, a.id) for a in appends if a.outcome == "ok"}
    tried = {(a.stream, a.id) for a in appends if a.allowed}
    messages = sum(len(read.ids) for read in reads)
    shut_out = sum(not read.allowed for read in reads)
    audited = sum(len(record.ids) for record in records if isinstance(record, Truth))
    modes = Counter(read.mode for read in reads)
    run = next((record for record in records if isinstance(record, Run)), None)
    about = f"seed {run.seed}, {run.seconds:.0f} s, {', '.join(run.parts)}" if run else "no heading"
    return [
        f"Run:      {about}",
        f"Writers:  {len(acknowledged)} of {len(tried)} messages acknowledged, "
        f"{len(appends)} tries; {audited} found in the streams",
        f"Readers:  {len(reads)} answers ({_counts(modes)}), {messages} messages; "
        f"{shut_out} tries without the right to read",
        f"Streams:  {_counts(changes) or 'no changes'}",
        f"Faults:   {_counts(faults) or 'none'}",
        *_injected(records),
    ]


def _injected(records: Sequence[Record]) -> list[str]:
    """What the proxies did, a line for each."""
    by_place: dict[str, Counter[str]] = defaultdict(Counter)
    for record in records:
        if isinstance(record, Injected):
            by_place[record.place][record.fault] += record.count
    return [f"  at {place}: {_counts(kinds)}" for place, kinds in by_place.items()]


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
        "could not tell each other (docs/caching.md)",
    ]


def _violations(findings: Findings) -> list[str]:
    if not findings.violations:
        return [] if findings.missing else ["INTACT: no promise was broken."]
    names = Counter(violation.name for violation in findings.violations)
    lines = [f"BROKEN: {len(findings.violations)} violations ({_counts(names)})"]
    for name in names:
        of_kind = [str(found) for found in findings.violations if found.name == name]
        lines += [f"  {text}" for text in of_kind[:SHOWN]]
        if len(of_kind) > SHOWN:
            lines.append(f"  and {len(of_kind) - SHOWN} more of {name}")
    return lines


def _missing(findings: Findings) -> list[str]:
    if not findings.missing:
        return []
    lines = ["INCOMPLETE: the history does not show enough to say that nothing else was broken:"]
    lines += [f"  {what} is missing" for what in findings.missing[:SHOWN]]
    if len(findings.missing) > SHOWN:
        lines.append(f"  and {len(findings.missing) - SHOWN} more")
    return lines


def _counts(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.most_common())
