"""The top of the page: one sentence, the headline figures, and findings."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from pages.blocks import Section
from pages.figures import (
    count,
    duration,
    exact,
    moment,
    period,
    plural,
    ratio,
    share,
    size,
    slot_name,
    times,
)
from pages.marks import sparkline
from pages.markup import Child, Markup, name_of, tag, visible
from spark.report.data import ReportData
from spark.report.state import unread_pairs
from spark.report.traffic import over_time, part_of_reads, reads_of

MANY_ERRORS = 0.01
MUCH = 0.5  # share of all bytes by one stream
FEW_STREAMS = 5  # with fewer, one stream may well dominate
SLOW_SSE = 0.05
MOST_FINDINGS = 6


@dataclass(frozen=True, slots=True)
class Finding:
    """`level` is bad, warn or good; `anchor` is the section with details."""

    level: str
    text: Child
    anchor: str


def overview_section(data: ReportData) -> Section:
    found = list(findings(data))[:MOST_FINDINGS]
    marks = {"bad": "Problem", "warn": "Check", "good": "Good"}
    listed = [
        tag(
            "li",
            tag("strong", marks[one.level], class_="mark"),
            tag("span", one.text),
            tag("a", "more", href=f"#{one.anchor}", aria_label=f"more, in section {one.anchor}"),
            class_=one.level,
        )
        for one in found
    ]
    notes = [
        tag("li", tag("strong", "Note", class_="mark"), tag("span", visible(n))) for n in data.notes
    ]
    body = tag(
        "section",
        tag("h1", _sentence(data)),
        tag("p", _subject(data), class_="about"),
        tag("div", _main_tiles(data), class_="tiles main"),
        tag("div", _other_tiles(data), class_="tiles"),
        tag("ul", listed, notes, class_="findings") if listed or notes else None,
        id="overview",
    )
    return Section("overview", "Overview", body)


def findings(data: ReportData) -> Iterator[Finding]:
    """What an operator should know first, worst first."""
    totals, quality = data.totals, data.quality
    if not totals.requests:
        return
    if data.moments and ratio(totals.errors, totals.requests) > MANY_ERRORS:
        worst = max(data.moments, key=lambda m: m.errors)
        when = slot_name(worst.at_ms, data.step_ms)
        failed = share(ratio(totals.errors, totals.requests))
        yield Finding("bad", f"{failed} of all requests failed, most at {when} UTC.", "errors")
    if missing := sum(gap.missing for gap in quality.gaps):
        text = f"{plural(missing, 'log line')} missing, so the counts are too low."
        yield Finding("warn", text, "quality")
    if bad := sum(quality.quarantined.values()):
        text = f"{plural(bad, 'log line')} could not be parsed and went to quarantine."
        yield Finding("warn", text, "quality")
    sessions = data.sessions
    slow = sessions.endings.get("slow", 0)
    if ratio(slow, sessions.sessions) > SLOW_SSE:
        part = share(ratio(slow, sessions.sessions))
        yield Finding("warn", f"{part} of SSE readers were disconnected as too slow.", "sessions")
    if len(data.streams) >= FEW_STREAMS:
        top = max(data.streams, key=lambda s: s.bytes_sent)
        if (part_of := ratio(top.bytes_sent, totals.bytes_sent)) > MUCH:
            text_of = [name_of(top.stream), f" accounts for {share(part_of)} of all bytes."]
            yield Finding("warn", text_of, "streams")
    if unread := unread_pairs(data.pairs):
        largest = unread[0]
        held = plural(largest.entities, "entity", "entities")
        yield Finding("warn", [name_of(largest.stream), f" has {held} nobody reads."], "joined")
    if saved := totals.requests_saved:
        text = f"{plural(saved, 'origin request')} and {size(totals.bytes_saved)} saved."
        yield Finding("good", text, "savings")


def _sentence(data: ReportData) -> Child:
    totals = data.totals
    reads = reads_of(totals.verdicts)
    if not totals.requests:
        return "No requests yet"
    if not reads:
        return [tag("em", plural(totals.requests, "request")), ", no reads"]
    if not totals.origin_reads:
        return [tag("em", plural(reads, "read")), ", none of which reached the origin"]
    factor = ratio(reads, totals.origin_reads)
    if factor < 1:
        saved = share(ratio(totals.requests_saved, reads))
        return [tag("em", saved), " of all reads never reached the origin"]
    return ["For each read that reached the origin, clients made ", tag("em", _spoken(factor))]


def _subject(data: ReportData) -> str:
    totals = data.totals
    if not totals.requests:
        return f"Read from {data.logs}."
    return (
        f"{plural(totals.requests, 'request')} for {plural(totals.streams, 'stream')} from "
        f"{plural(totals.subjects, 'subject')} through {plural(len(totals.gateways), 'gateway')},"
        f" {period(totals.first_ms, totals.last_ms)}."
    )


def _main_tiles(data: ReportData) -> list[Markup]:
    totals = data.totals
    reads = reads_of(totals.verdicts)
    runs: list[list[float]] = [[], [], [], []]
    if data.moments:
        runs = [
            over_time(data, lambda m: sum(m.verdicts.values()), 0),
            over_time(data, part_of_reads("hits")),
            over_time(data, lambda m: m.requests_saved, 0),
            over_time(data, lambda m: m.latency.p99_ms if m.latency else math.nan),
        ]
    latency = totals.latency
    return [
        tile("Requests", count(totals.requests), plural(reads, "read"), runs[0]),
        tile(
            "Hit ratio",
            share(part_of_reads("hits")(totals)),
            f"and {share(part_of_reads('hub')(totals))} by hubs, "
            f"{share(part_of_reads('collapsed')(totals))} collapsed",
            runs[1],
            1.0,
        ),
        tile(
            "Origin requests saved",
            count(totals.requests_saved),
            f"{count(totals.origin_requests)} were made, {count(totals.origin_reads)} for reads",
            runs[2],
        ),
        tile(
            "p99 latency",
            duration(latency.p99_ms if latency else math.nan),
            f"p50 {duration(latency.p50_ms)}, p95 {duration(latency.p95_ms)}"
            if latency
            else "only long-polls and SSE",
            runs[3],
        ),
    ]


def _other_tiles(data: ReportData) -> list[Markup]:
    totals = data.totals
    reads = reads_of(totals.verdicts)
    span = totals.last_ms - totals.first_ms
    errors = share(ratio(totals.errors, totals.requests))
    shown = ", ".join(map(visible, totals.gateways[:3])) + (
        ", …" if len(totals.gateways) > 3 else ""
    )
    state = data.state
    entities = sum(one.entities for one in state.types) if state else 0
    return [
        tile("Collapse factor", times(ratio(reads, totals.origin_reads)), "reads per origin read"),
        tile("Bytes to clients", size(totals.bytes_sent), f"{size(totals.bytes_received)} in"),
        tile(
            "Bytes saved",
            size(totals.bytes_saved),
            f"{share(ratio(totals.bytes_saved, totals.bytes_sent))} of bytes sent",
        ),
        tile("Streams", count(totals.streams), plural(totals.subjects, "subject")),
        tile("Errors", count(totals.errors), f"{errors} of all requests"),
        tile("Token failures", count(totals.token_failures), "status 401 or 403"),
        tile(
            "SSE sessions",
            count(data.sessions.sessions),
            f"median {duration(data.sessions.median_ms)}" if data.sessions.sessions else "none",
        ),
        tile(
            "Entities",
            count(entities) if state else "–",
            f"in {plural(state.streams, 'stream')}" if state else "no streams were read",
        ),
        tile(
            "Time",
            duration(span) if totals.requests else "–",
            moment(totals.last_ms, "to %-d %b, %H:%M UTC") if totals.requests else "",
        ),
        tile(
            "Gateways",
            exact(len(totals.gateways)),
            [plural(totals.workers, "worker"), ": ", shown] if shown else "",
        ),
    ]


def tile(
    label: str, value: str, note: Child, run: list[float] | None = None, top: float | None = None
) -> Markup:
    return tag(
        "div",
        tag("span", label, class_="label"),
        tag("strong", value),
        tag("small", note),
        sparkline(run, top) if run else None,
        class_="tile",
    )


def _spoken(factor: float) -> str:
    return count(round(factor)) if factor >= 10 else count(factor)
