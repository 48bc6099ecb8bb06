"""Sections about usage: streams, subjects, SSE sessions, failures."""

import math
from collections.abc import Sequence

from pages.blocks import Section, data_table, empty, names, numbers, pictures, section, side_by_side
from pages.charts import Bar, Frame, Series, bar_list, column_chart, stacked_chart
from pages.figures import (
    NBSP,
    count,
    duration,
    exact,
    moment,
    plural,
    ratio,
    share,
    size,
    step_name,
)
from pages.marks import key, split
from pages.markup import Markup
from pages.scales import linear_scale
from pages.times import HOUR_MS, MINUTE_MS
from spark.report.data import SESSION_BORDERS_MS, Failure, Percentiles, ReportData, StreamTraffic
from spark.report.traffic import NO_REQUESTS, axis_of, over_time

ENDINGS = {
    "rotated": "scheduled rotation; the client reconnects",
    "client-left": "the client closed the connection",
    "closed": "the stream was closed",
    "token-expired": "the token expired",
    "token-revoked": "the token was revoked",
    "slow": "the client read too slowly",
    "deleted": "the stream was deleted",
    "trimmed": "a snapshot replaced its unread data",
    "drained": "the gateway stopped",
    "upstream-error": "the origin failed",
}
UNFORTUNATE = {"slow", "upstream-error"}
ANSWERS = (
    ("stored", "v-hit"),
    ("hub", "v-hub"),
    ("collapsed", "v-revalidated"),
    ("own fetch", "v-miss"),
)


def streams_section(data: ReportData) -> Section:
    title, streams = "Streams", data.streams
    if not streams:
        return section("streams", title, None, empty(NO_REQUESTS))
    requests, bytes_sent = data.totals.requests, data.totals.bytes_sent
    columns = [
        names("Stream", [s.stream for s in streams], "(no stream)"),
        numbers("Requests", [s.requests for s in streams], count, bars=True),
        numbers("Bytes sent", [s.bytes_sent for s in streams], size, bars=True),
        pictures("How reads were served", [_answers(s) for s in streams]),
        numbers("Hit", [ratio(s.hits, s.reads) for s in streams], share),
        numbers("Hub", [ratio(s.hub, s.reads) for s in streams], share),
        numbers("Collapsed", [ratio(s.collapsed, s.reads) for s in streams], share),
        numbers("To the origin", [s.origin_requests for s in streams], count, bars=True),
        numbers("Bytes saved", [s.bytes_saved for s in streams], size),
        numbers("Readers", [s.readers for s in streams], count),
        numbers("p50", [_percentile(s.latency, "p50_ms") for s in streams], duration),
        numbers("p99", [_percentile(s.latency, "p99_ms") for s in streams], duration),
    ]
    shown, there = len(streams), max(data.totals.streams, len(streams))
    part = f"all {exact(there)}" if shown == there else f"{exact(shown)} of {exact(there)}"
    top = streams[0]
    lead = (
        f"The busiest one has {share(ratio(top.requests, requests))} of all requests"
        f" and {share(ratio(top.bytes_sent, bytes_sent))} of all bytes."
    )
    note = [f"By requests, {part}. ", [key(style, name, "block") for name, style in ANSWERS]]
    table = data_table("Top streams", note, columns, find="Find a stream")
    return section("streams", title, lead, table)


def subjects_section(data: ReportData) -> Section:
    title, subjects = "Subjects", data.subjects
    if not subjects:
        return section("subjects", title, None, empty(NO_REQUESTS))
    columns = [
        names("Subject", [s.subject for s in subjects], "(no valid token)"),
        numbers("Requests", [s.requests for s in subjects], count, bars=True),
        numbers("Streams", [s.streams for s in subjects], count),
        numbers("Bytes sent", [s.bytes_sent for s in subjects], size, bars=True),
        numbers("Bytes received", [s.bytes_received for s in subjects], size),
        numbers("Failed", [s.errors for s in subjects], count),
        numbers("Last seen (UTC)", [s.last_ms for s in subjects], moment),
    ]
    note = f"By requests, {exact(len(subjects))} shown."
    lead = f"Who reads and writes: {plural(data.totals.subjects, 'token subject')}."
    table = data_table("Subjects", note, columns, find="Find a subject")
    return section("subjects", title, lead, table)


def sessions_section(data: ReportData) -> Section:
    title, sessions = "SSE sessions", data.sessions
    if not sessions.sessions:
        return section("sessions", title, None, empty("No SSE session ended in this period."))
    lead = (
        f"{plural(sessions.sessions, 'event stream')} with {size(sessions.bytes_sent)}; "
        f"half of them lasted {duration(sessions.median_ms)} or more, "
        f"the longest {duration(sessions.longest_ms)}."
    )
    lengths = [
        Bar(label, number, exact(number), "plain", count(number))
        for label, number in zip(_length_names(), sessions.lengths, strict=True)
    ]
    while len(lengths) > 3 and not lengths[-1].value:
        lengths.pop()
    histogram = column_chart(
        "How long they lasted", "The bars cover different spans of time.", lengths, "Sessions"
    )
    endings = sorted(sessions.endings.items(), key=lambda pair: -pair[1])
    whole = sum(number for _, number in endings)
    reasons = bar_list(
        "Why they ended",
        "",
        [
            Bar(
                reason or "(not noted)",
                number,
                f"{count(number)} · {share(ratio(number, whole))}",
                "bad" if reason in UNFORTUNATE else "plain",
                ENDINGS.get(reason, ""),
            )
            for reason, number in endings
            if number
        ],
    )
    return section("sessions", title, lead, side_by_side(histogram, reasons))


def errors_section(data: ReportData) -> Section:
    title = "Errors and tokens"
    if not data.failures:
        why = "No requests failed or were refused." if data.totals.requests else NO_REQUESTS
        return section("errors", title, None, empty(why))
    totals = data.totals
    lead = (
        f"{share(ratio(totals.errors, totals.requests))} of all requests failed at the gateway"
        f" or the origin; {count(totals.token_failures)} were refused because of their token."
    )
    tokens = [f for f in data.failures if f.status in (401, 403)]
    others = [f for f in data.failures if f.status not in (401, 403)]
    tables = [
        _failure_table("Errors", others) if others else empty("No other errors."),
        _failure_table("Token failures", tokens) if tokens else empty("No token failures."),
    ]
    return section("errors", title, lead, _failure_chart(data), tables)


def _failure_chart(data: ReportData) -> Markup | None:
    if not data.moments:
        return None
    errors = over_time(data, lambda m: m.errors, 0)
    tokens = over_time(data, lambda m: m.token_failures, 0)
    both = [a + b for a, b in zip(errors, tokens, strict=True)]
    if not any(both):
        return None
    series = [
        Series("errors", "bad", errors, count(sum(errors))),
        Series("token failures", "warn", tokens, count(sum(tokens))),
    ]
    note = f"Per {step_name(data.step_ms)}."
    scale = linear_scale(both, whole=True)
    frame = Frame("Failures over time", note, axis_of(data), scale, count, 100)
    return stacked_chart(frame, series)


def _failure_table(title: str, failures: Sequence[Failure]) -> Markup:
    ordered = sorted(failures, key=lambda f: -f.requests)
    columns = [
        names("Code", [f.error for f in ordered], "(no code)"),
        numbers("Status", [f.status for f in ordered], lambda status: f"{status:.0f}"),
        names("Mode", [f.mode for f in ordered]),
        numbers("Requests", [f.requests for f in ordered], count, bars=True),
        numbers("Streams per day", [f.most_streams for f in ordered], count),
        numbers("Last (UTC)", [f.last_ms for f in ordered], moment),
    ]
    return data_table(title, "", columns)


def _answers(stream: StreamTraffic) -> Markup:
    own = max(stream.reads - stream.hits - stream.hub - stream.collapsed, 0)
    amounts = (stream.hits, stream.hub, stream.collapsed, own)
    return split(
        [
            (number, style, f"{name}\n{count(number)}, {share(ratio(number, stream.reads))}")
            for number, (name, style) in zip(amounts, ANSWERS, strict=True)
        ]
    )


def _percentile(latency: Percentiles | None, name: str) -> float:
    return float(getattr(latency, name)) if latency else math.nan


def _length_names() -> list[str]:
    short = {MINUTE_MS: "min", HOUR_MS: "h", 1000: "s"}
    borders = []
    for border in SESSION_BORDERS_MS:
        unit = next(u for u in (HOUR_MS, MINUTE_MS, 1000) if border % u == 0)
        borders.append(f"{border // unit}{NBSP}{short[unit]}")
    return [f"<{borders[0]}", *(f"{border}+" for border in borders)]
