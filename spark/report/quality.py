"""The section about the data itself: lines read, excluded and missing."""

from collections.abc import Mapping

from pages.blocks import Section, data_table, empty, names, numbers, section, side_by_side
from pages.charts import Bar, bar_list
from pages.figures import count, exact, plural, ratio, share
from pages.markup import Markup, name_of
from spark.report.data import ReportData


def quality_section(data: ReportData) -> Section:
    title, quality = "Data quality", data.quality
    if not quality.lines:
        why = f"No lines: {plural(quality.files, 'log file')} read."
        return section("quality", title, None, empty(why))
    bad = sum(quality.quarantined.values())
    missing = sum(gap.missing for gap in quality.gaps)
    used = max(quality.lines - quality.duplicates - bad, 0)
    lead = f"{plural(quality.lines, 'line')} of {plural(quality.files, 'file')}."
    parts = [
        ("used", used, "good", ""),
        ("duplicates dropped", quality.duplicates, "plain", "copied files count once"),
        ("quarantined", bad, "warn", "truncated, foreign or unreadable"),
        ("never written", missing, "bad", "gaps in the workers' line numbers"),
    ]
    lines = bar_list(
        "Access log lines",
        "",
        [
            Bar(
                name, number, f"{count(number)} · {share(ratio(number, quality.lines))}", style, why
            )
            for name, number, style, why in parts
        ],
    )
    reasons = side_by_side(
        _reasons("Quarantined lines by reason", quality.quarantined, "No line was quarantined."),
        _reasons(
            "Quarantined State messages by reason",
            data.state.quarantined if data.state else {},
            "No State message was quarantined." if data.state else "No streams were read.",
        ),
    )
    return section("quality", title, lead, lines, reasons, _gap_table(data))


def _reasons(title: str, reasons: Mapping[str, int], otherwise: str) -> Markup:
    ordered = sorted(reasons.items(), key=lambda pair: -pair[1])
    bars = [Bar(name_of(reason), n, exact(n), "warn") for reason, n in ordered if n]
    return bar_list(title, "", bars) if bars else empty(otherwise)


def _gap_table(data: ReportData) -> Markup:
    gaps = sorted(data.quality.gaps, key=lambda gap: (-gap.missing, gap.gateway, gap.worker))
    if not gaps:
        return empty("No log lines from any worker.")
    columns = [
        names("Gateway", [gap.gateway for gap in gaps]),
        numbers("Worker", [gap.worker for gap in gaps], lambda worker: f"{worker:.0f}"),
        numbers("Lines", [gap.lines for gap in gaps], count, bars=True),
        numbers("Missing", [gap.missing for gap in gaps], count, bars=True),
        numbers("Share", [ratio(g.missing, g.lines + g.missing) for g in gaps], share),
    ]
    return data_table("Missing lines by worker", "Lines lost before they were written.", columns)
