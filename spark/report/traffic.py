"""Sections about requests: their number and outcome, savings, and latency."""

import math
from collections.abc import Callable, Mapping

from pages.blocks import Section, data_table, empty, numbers, pictures, section, side_by_side, words
from pages.charts import Bar, Frame, Series, bar_list, line_chart, stacked_chart
from pages.figures import count, duration, ratio, share, size, step_name, times
from pages.marks import key, reach, split
from pages.markup import Child, Markup, tag
from pages.scales import DURATIONS_MS, SHARE, Scale, TimeAxis, linear_scale, log_scale, time_axis
from protocol.accesslog import READ_VERDICTS, VERDICTS
from spark.report.data import MAX_SLOTS, ModeTimes, Moment, ReportData, Totals

# From bottom to top of a stack: served by the gateway alone, with the origin, not at all.
PILE = ("hit", "hub", "stale", "revalidated", "miss", "pass", "refused", "error")
assert set(PILE) == set(VERDICTS)
# Percentiles and components of a mode's time: names and styles.
RANKS = {"p50": "circle", "p95": "square", "p99": "diamond"}
PARTS = {"origin": "t-upstream", "shared fetch or hub": "t-wait", "gateway and client": "t-own"}
RATIOS = (("hit", "hits", "line-1"), ("hub", "hub", "line-2"), ("collapsed", "collapsed", "line-4"))
LOG_SPREAD = 30  # ratio of largest to smallest from which a logarithmic scale is better
NO_REQUESTS = "No requests: the log files contain no usable lines."


def reads_of(verdicts: Mapping[str, int]) -> int:
    return sum(verdicts.get(verdict, 0) for verdict in READ_VERDICTS)


def part_of_reads(which: str) -> Callable[[Moment | Totals], float]:
    """The share of hits, hub or collapsed reads."""
    return lambda some: ratio(getattr(some, which), reads_of(some.verdicts))


def axis_of(data: ReportData) -> TimeAxis:
    return time_axis([moment.at_ms for moment in data.moments], data.step_ms, 2 * MAX_SLOTS)


def over_time(
    data: ReportData, value: Callable[[Moment], float], otherwise: float = math.nan
) -> list[float]:
    """One value per slot; `otherwise` for slots without requests."""
    axis = axis_of(data)
    values = [otherwise] * axis.slots
    for moment in data.moments:
        values[axis.slot(moment.at_ms)] = value(moment)
    return values


def traffic_section(data: ReportData) -> Section:
    title = "Traffic"
    if not data.moments:
        return section("traffic", title, None, empty(NO_REQUESTS))
    lead = "Requests, and where their responses came from: the cache, a hub, or the origin."
    below = side_by_side(_hit_chart(data), _volume_chart(data))
    return section("traffic", title, lead, _verdict_chart(data), below)


def savings_section(data: ReportData) -> Section:
    title, totals = "Savings", data.totals
    reads = reads_of(totals.verdicts)
    if not reads or not data.moments:
        why = "No reads that could have been served from stored bytes, so nothing was saved."
        return section("savings", title, None, empty(why))
    fetched = max(totals.bytes_sent - totals.bytes_saved, 0)
    never = totals.requests_saved
    requests = bar_list(
        "Requests",
        "Reads by clients, and how many reached the origin.",
        [
            Bar("by clients", reads, count(reads), "good"),
            Bar("at the origin", totals.origin_reads, count(totals.origin_reads), "cost"),
            Bar("saved", never, count(never), "plain"),
        ],
    )
    volume = bar_list(
        "Bytes",
        "Sent to clients, and how much of it was fetched from the origin.",
        [
            Bar("sent to clients", totals.bytes_sent, size(totals.bytes_sent), "good"),
            Bar("from the origin", fetched, size(fetched), "cost"),
            Bar("saved", totals.bytes_saved, size(totals.bytes_saved), "plain"),
        ],
    )
    lead = "Load that caching, collapsing and fan-out kept off the origin."
    below = side_by_side(_saved_chart(data), _collapse_chart(data))
    return section("savings", title, lead, side_by_side(requests, volume), below)


def latency_section(data: ReportData) -> Section:
    title = "Latency"
    if not data.modes or not data.moments:
        return section("latency", title, None, empty(NO_REQUESTS))
    lead = "From the request head to the end of the response, measured at the gateway."
    return section("latency", title, lead, _latency_chart(data), _mode_table(data))


def _verdict_chart(data: ReportData) -> Markup:
    """The verdicts that occur; unknown verdicts are combined."""
    totals = data.totals.verdicts
    whole = sum(totals.values())
    found = [(verdict, f"v-{verdict}", over_time(data, _number_of(verdict), 0)) for verdict in PILE]
    found.append(("other", "v-other", over_time(data, _others, 0)))
    series = [
        Series(name, style, values, share(ratio(sum(values), whole)))
        for name, style, values in found
        if any(values)
    ]
    piles = over_time(data, lambda m: sum(m.verdicts.values()), 0)
    frame = Frame(
        "Requests by verdict",
        f"How the gateway served them, per {step_name(data.step_ms)}.",
        axis_of(data),
        linear_scale(piles, whole=True),
        count,
    )
    return stacked_chart(frame, series)


def _hit_chart(data: ReportData) -> Markup:
    note = "Shares of all reads; the rest went to the origin."
    series = []
    for name, which, style in RATIOS:
        part = part_of_reads(which)
        series.append(Series(name, style, over_time(data, part), share(part(data.totals))))
    frame = Frame("Hit ratio", note, axis_of(data), SHARE, share, 110)
    return line_chart(frame, series, filled=True)


def _volume_chart(data: ReportData) -> Markup:
    sent = over_time(data, lambda m: m.bytes_sent, 0)
    saved = over_time(data, lambda m: m.bytes_saved, 0)
    fetched = over_time(data, lambda m: max(m.bytes_sent - m.bytes_saved, 0), 0)
    note = f"Bodies as sent, per {step_name(data.step_ms)}."
    frame = Frame("Bytes to clients", note, axis_of(data), linear_scale(sent), size, 110)
    series = [
        Series("without the origin", "good", saved, size(sum(saved))),
        Series("from the origin", "cost", fetched, size(sum(fetched))),
    ]
    return stacked_chart(frame, series)


def _saved_chart(data: ReportData) -> Markup:
    origin = over_time(data, lambda m: m.origin_reads, 0)
    saved = over_time(data, lambda m: m.requests_saved, 0)
    scale = linear_scale([a + b for a, b in zip(origin, saved, strict=True)], whole=True)
    note = f"Reads per {step_name(data.step_ms)}."
    title = "Reads that reached the origin, and reads that did not"
    series = [
        Series("reached the origin", "cost", origin, count(sum(origin))),
        Series("saved", "good", saved, count(sum(saved))),
    ]
    return stacked_chart(Frame(title, note, axis_of(data), scale, count, 130), series)


def _collapse_chart(data: ReportData) -> Markup:
    factors = over_time(data, lambda m: ratio(reads_of(m.verdicts), m.origin_reads))
    known = [factor for factor in factors if factor > 0]
    if not known:
        return empty("No collapse factor: no read reached the origin.")
    steep = max(known) > LOG_SPREAD * min(known)
    note = (
        "Client reads per read at the origin."
        + (" Logarithmic scale." if steep else "")
        + " Gaps: no reads, or none that needed the origin."
    )
    scale = log_scale(known) if steep else linear_scale(known)
    frame = Frame("Collapse factor", note, axis_of(data), scale, times, 130)
    return line_chart(frame, [Series("collapse factor", "good", factors)], filled=True)


def _number_of(verdict: str) -> Callable[[Moment], int]:
    return lambda moment: moment.verdicts.get(verdict, 0)


def _others(moment: Moment) -> int:
    return sum(requests for verdict, requests in moment.verdicts.items() if verdict not in PILE)


def _latency_chart(data: ReportData) -> Markup:
    levels = {
        "p50": over_time(data, lambda m: m.latency.p50_ms if m.latency else math.nan),
        "p95": over_time(data, lambda m: m.latency.p95_ms if m.latency else math.nan),
        "p99": over_time(data, lambda m: m.latency.p99_ms if m.latency else math.nan),
    }
    known = [value for values in levels.values() for value in values if math.isfinite(value)]
    if not known:
        return empty("Only long-polls and SSE so far. They wait by design and are excluded here.")
    whole = data.totals.latency
    figures = (whole.p50_ms, whole.p95_ms, whole.p99_ms) if whole else (math.nan,) * 3
    series = [
        Series(name, name, values, duration(figure))
        for (name, values), figure in zip(levels.items(), figures, strict=True)
    ]
    note = (
        f"Per {step_name(data.step_ms)}, without long-polls and SSE, which wait by design."
        " Logarithmic scale."
    )
    scale = log_scale(known, DURATIONS_MS)
    return line_chart(Frame("Latency over time", note, axis_of(data), scale, duration), series)


def _mode_table(data: ReportData) -> Markup:
    modes = sorted(data.modes, key=lambda mode: -mode.requests)
    ends = [value for m in modes for value in (m.latency.p50_ms, m.latency.p99_ms)]
    scale = log_scale(ends, DURATIONS_MS)
    columns = [
        words("Mode", [m.mode for m in modes]),
        numbers("Requests", [m.requests for m in modes], count, bars=True),
        numbers("p50", [m.latency.p50_ms for m in modes], duration),
        numbers("p95", [m.latency.p95_ms for m in modes], duration),
        numbers("p99", [m.latency.p99_ms for m in modes], duration),
        pictures(
            f"{duration(scale.low)} to {duration(scale.high)}, log",
            [_time_range(m, scale) for m in modes],
        ),
        pictures("Where the time went", [_time_split(m) for m in modes]),
    ]
    note: list[Child] = [
        *(key(style, name, "point") for name, style in RANKS.items()),
        tag("br"),
        *(key(style, name, "block") for name, style in PARTS.items()),
    ]
    return data_table("Latency by mode", note, columns)


def _time_range(mode: ModeTimes, scale: Scale) -> Markup:
    values = (mode.latency.p50_ms, mode.latency.p95_ms, mode.latency.p99_ms)
    return reach(list(zip(values, RANKS.values(), strict=True)), scale)


def _time_split(mode: ModeTimes) -> Markup:
    own = max(mode.duration_ms - mode.wait_ms - mode.upstream_ms, 0.0)
    amounts = (mode.upstream_ms, mode.wait_ms, own)
    whole = sum(amounts)
    return split(
        [
            (amount, style, f"{name}\n{duration(amount)}, {share(ratio(amount, whole))}")
            for amount, (name, style) in zip(amounts, PARTS.items(), strict=True)
        ]
    )
