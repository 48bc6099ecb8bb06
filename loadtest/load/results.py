"""`docs/results.md`, written by `weir load compare`. Pure: runs in, text out."""

import math
import textwrap
from collections.abc import Sequence
from datetime import UTC, datetime

from loadtest.load.histogram import percentile
from loadtest.load.paced import SCENARIOS, Scenario
from loadtest.load.records import Run
from loadtest.load.summary import HOME, Summary, describe_knobs, summarise

COLUMNS = (
    "",
    "p50 ms",
    "p99 ms",
    "done/s",
    "failed",
    "readers' requests",
    "at the origin",
    "peak MB",
)
WIDTH = 120
MACHINE = {"cores": "{} cores", "python": "Python {}"}
OPENING = """\
# Results

Written by `weir load compare` on {at}: {machine}; {versions}. This is one run. The peers run one
after another, each in a fresh process in front of a fresh in-memory origin (node is the reference
server alone). Other programs used {others:.2f} of the cores. Weir and Envoy check a token on every
request, and Weir writes its access log; nginx, Varnish and node check nothing. nginx caches on
disk, so its cache survives a restart; the others start empty. Load generator, peer and origin share
the cores. Load is open-loop: a request is timed from when it was due, so a stalled server is
charged for every waiting request. Absolute times depend on the machine. Ratios are the peer's time
divided by Weir's: above 1, Weir was faster. `weir load report` draws the charts and every second of
every run.
"""
MISSING = "Not measured: {}.\n"


def render_results(
    runs: Sequence[Run],
    others: float,
    versions: Sequence[str] = (),
    missing: Sequence[str] = (),
) -> str:
    """`others` is how many cores were busy with something else."""
    parts = [_opening(runs, others, versions)]
    if missing:
        parts.append(MISSING.format("; ".join(missing)))
    for scenario in SCENARIOS.values():
        own = [run for run in runs if run.started.scenario == scenario.name]
        if own:
            parts.append(render_scenario(scenario, own))
    return "\n".join(parts)


def _opening(runs: Sequence[Run], others: float, versions: Sequence[str]) -> str:
    started = runs[0].started
    machine = [MACHINE.get(name, "{}").format(it) for name, it in started.machine.items()]
    text = OPENING.format(
        at=_date(started.at),
        machine=", ".join(machine),
        versions=", ".join(versions),
        others=others,
    )
    return "\n\n".join(textwrap.fill(part, WIDTH) for part in text.split("\n\n")) + "\n"


def _date(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%-d %B %Y")


def render_scenario(scenario: Scenario, runs: Sequence[Run]) -> str:
    summaries = {run.started.peer: summarise(run, scenario.headline) for run in runs}
    rows = [COLUMNS, *(_row(peer, summary) for peer, summary in summaries.items())]
    knobs = runs[0].started.knobs
    lines = [
        f"## {scenario.name}",
        "",
        f"{scenario.sentence(knobs)}: {describe_knobs(knobs)}. Times are of `{scenario.headline}`.",
        "",
        *_table(rows),
        "",
        f"![{scenario.name}](images/{scenario.name}.png)",
        "",
        *_ratios(summaries),
        *_restarts(runs),
    ]
    lines += [
        f"- {peer}: {limit}." for peer, summary in summaries.items() for limit in summary.limits
    ]
    return "\n".join(lines).rstrip() + "\n"


def _row(peer: str, summary: Summary) -> tuple[str, ...]:
    shared = summary.asked > 0 and not math.isnan(summary.upstream)
    origin = f"{summary.upstream:,.0f}" if shared else "-"
    return (
        peer,
        _ms(summary.p50_ms),
        _ms(summary.p99_ms),
        f"{summary.rate:,.0f}",
        f"{summary.failed:,}",
        f"{summary.asked:,}" if summary.asked else "-",
        origin,
        "-" if math.isnan(summary.peak_mb) else f"{summary.peak_mb:,.0f}",
    )


def _ms(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:,.2f}" if value < 100 else f"{value:,.0f}"


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    head, *body = rows
    rule = ["---", *("---:" for _ in head[1:])]
    return [f"| {' | '.join(row)} |" for row in (head, rule, *body)]


def _ratios(summaries: dict[str, Summary]) -> list[str]:
    ours = summaries.get(HOME)
    if ours is None:
        return []
    return [
        f"- {peer}: {_ratio(other.p50_ms, ours.p50_ms)} at p50, "
        f"{_ratio(other.p99_ms, ours.p99_ms)} at p99."
        for peer, other in summaries.items()
        if peer != HOME
    ]


def _restarts(runs: Sequence[Run]) -> list[str]:
    return [
        f"- {run.started.peer}: down for {percentile(times, 1.0):.1f} s; requests failed meanwhile."
        for run in runs
        if (times := run.times("restart"))
    ]


def _ratio(theirs: float, ours: float) -> str:
    if math.isnan(theirs) or math.isnan(ours) or not ours:
        return "no figure"
    return f"{theirs / ours:.2f}x"
