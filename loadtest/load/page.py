"""Charts of runs: one HTML file for all of them, and pictures for documents."""

import math
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from loadtest.errors import RunFailedError
from loadtest.load.histogram import percentile
from loadtest.load.paced import SCENARIOS, Scenario
from loadtest.load.records import Run, Second
from loadtest.load.summary import HOME, Summary, describe_knobs, summarise
from loadtest.peers.debian import ensure_debian
from pages.blocks import Section, data_table, empty, numbers, section, side_by_side, words
from pages.charts import Bar, Frame, Series, bar_list, line_chart
from pages.figures import count, duration, exact, moment, size, times
from pages.markup import Markup, tag
from pages.page import render_page
from pages.scales import DURATIONS_MS, ElapsedAxis, NamedAxis, Scale, linear_scale, log_scale

STYLES = ("line-1", "line-2", "line-3", "line-4", "line-5", "line-rest")
PICTURE = (1000, 1840)
HEADLINE = "polls"
HEADLINE_PICTURE = (1000, 480)
SHARES = {"p50": 0.5, "p75": 0.75, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p99.9": 0.999, "max": 1.0}
SHOT_TIMEOUT_SECS = 60.0

Figure = Callable[[Sequence[Second]], float]


def write_page(runs: Sequence[Run], tables: Sequence[Section], folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    page = folder / "load.html"
    page.write_text(render(runs, tables), "utf-8")
    return page


def write_pictures(runs: Sequence[Run], folder: Path) -> None:
    """One for each scenario, and the one that the README shows."""
    folder.mkdir(parents=True, exist_ok=True)
    for scenario, own in by_scenario(runs):
        draw_picture(render(own), folder / f"{scenario.name}.png", PICTURE)
        if scenario.name == HEADLINE:
            draw_picture(render_headline(scenario, own), folder / "headline.png", HEADLINE_PICTURE)


def render(runs: Sequence[Run], tables: Sequence[Section] = ()) -> str:
    sections = [scenario_section(scenario, own) for scenario, own in by_scenario(runs)]
    return render_page("Weir load", [*tables, *sections], _foot(runs[0]) if runs else [])


def render_headline(scenario: Scenario, runs: Sequence[Run]) -> str:
    """What the README shows: how soon readers have it, and what that costs the origin."""
    summaries = {run.started.peer: summarise(run, scenario.headline) for run in runs}
    waits = [
        Bar(peer, one.p99_ms, duration(one.p99_ms), _style(peer)) for peer, one in summaries.items()
    ]
    most = max(one.asked for one in summaries.values())
    costs = [Bar("asked", most, exact(most), "cost")]
    costs += [
        Bar(peer, one.upstream, exact(int(one.upstream)), _style(peer))
        for peer, one in summaries.items()
        if math.isfinite(one.upstream)
    ]
    cards = side_by_side(
        bar_list("Until a reader has it", "99th percentile, from when the append was due", waits),
        bar_list("Reads at the origin", "of all long-polls that readers asked", costs),
    )
    knobs = runs[0].started.knobs
    told = section(scenario.name, scenario.sentence(knobs), describe_knobs(knobs), cards)
    return render_page("Weir", [told], _foot(runs[0]), bare=True)


def _foot(run: Run) -> list[Markup]:
    machine = ", ".join(f"{name} {value}" for name, value in run.started.machine.items())
    return [
        tag("p", f"Begun {moment(run.started.at * 1000)} UTC. Machine: {machine}."),
        tag("p", "Times count from when a request was due, whenever it could be sent."),
    ]


def by_scenario(runs: Sequence[Run]) -> list[tuple[Scenario, list[Run]]]:
    """Our own first, so that it has the same colour everywhere."""
    ordered = sorted(runs, key=lambda run: run.started.peer != HOME)
    found = [
        (scenario, [run for run in ordered if run.started.scenario == name])
        for name, scenario in SCENARIOS.items()
    ]
    return [(scenario, own) for scenario, own in found if own]


def scenario_section(scenario: Scenario, runs: Sequence[Run]) -> Section:
    summaries = [summarise(run, scenario.headline) for run in runs]
    peers = [run.started.peer for run in runs]
    knobs = runs[0].started.knobs
    charts = [
        side_by_side(
            _percentiles(scenario, runs),
            _over_time(
                scenario,
                runs,
                "Latency, 99th percentile",
                _slowest,
                lambda values: log_scale(values, DURATIONS_MS),
                duration,
            ),
        ),
        side_by_side(_asked(peers, summaries), _sharing(peers, summaries)),
        side_by_side(
            _over_time(
                scenario,
                runs,
                "Done a second",
                lambda seconds: float(sum(one.done for one in seconds)),
                linear_scale,
                count,
            ),
            _memory(runs),
        ),
    ]
    table, limits = _table(scenario, peers, summaries), _limits(peers, summaries)
    title, lead = scenario.name.capitalize(), scenario.lead(knobs)
    return section(scenario.name, title, lead, table, *charts, limits)


def _table(scenario: Scenario, peers: Sequence[str], summaries: Sequence[Summary]) -> Markup:
    columns = [
        words("", peers),
        numbers("p50", [one.p50_ms for one in summaries], duration, bars=True),
        numbers("p90", [one.p90_ms for one in summaries], duration),
        numbers("p99", [one.p99_ms for one in summaries], duration, bars=True),
        numbers("done", [one.done for one in summaries], count),
        numbers("failed", [one.failed for one in summaries], count),
    ]
    return data_table(f"{scenario.name}, by peer", "", columns)


def _series(runs: Sequence[Run], values: Callable[[Run], list[float]]) -> list[Series]:
    """Each run as a line of its own."""
    return [
        Series(run.started.peer, style, values(run))
        for run, style in zip(runs, STYLES, strict=False)
    ]


def _percentiles(scenario: Scenario, runs: Sequence[Run]) -> Markup:
    def values(run: Run) -> list[float]:
        times = run.times(scenario.headline)
        return [percentile(times, share) * 1000 for share in SHARES.values()]

    lines = _series(runs, values)
    axis, scale = NamedAxis("Share", tuple(SHARES)), log_scale(_known(lines), DURATIONS_MS)
    note = f"of “{scenario.headline}”, whole run"
    return line_chart(Frame("Latency by percentile", note, axis, scale, duration), lines)


def _over_time(
    scenario: Scenario,
    runs: Sequence[Run],
    title: str,
    figure: Figure,
    scale: Callable[[Sequence[float]], Scale],
    shown: Callable[[float], str],
) -> Markup:
    axis = ElapsedAxis(0, 1000, max(run.length for run in runs))

    def values(run: Run) -> list[float]:
        seconds = run.of(scenario.headline)
        return [figure([one for one in seconds if one.second == n]) for n in range(axis.slots)]

    lines = _series(runs, values)
    note = f"of “{scenario.headline}”, each second"
    return line_chart(Frame(title, note, axis, scale(_known(lines)), shown), lines)


def _known(lines: Sequence[Series]) -> list[float]:
    return [value for one in lines for value in one.values if math.isfinite(value)]


def _slowest(seconds: Sequence[Second]) -> float:
    return percentile(seconds[0].times, 0.99) * 1000 if seconds else math.nan


def _asked(peers: Sequence[str], summaries: Sequence[Summary]) -> Markup:
    """What readers asked beside what of it reached the origin."""
    bars = []
    for peer, one in zip(peers, summaries, strict=True):
        bars.append(Bar(f"{peer}: readers", one.asked, exact(one.asked)))
        if math.isfinite(one.upstream):
            bars.append(Bar("at the origin", one.upstream, exact(int(one.upstream)), "cost"))
    return bar_list("Requests", "of readers, and reads that reached the origin", bars)


def _sharing(peers: Sequence[str], summaries: Sequence[Summary]) -> Markup:
    """How many requests of readers one read at the origin has answered."""
    bars = []
    for peer, one in zip(peers, summaries, strict=True):
        known = math.isfinite(one.collapse) and one.asked > 0
        factor = one.collapse if known else math.nan
        bars.append(Bar(peer, factor, times(factor), _style(peer)))
    note = "requests of readers for one read at the origin"
    return bar_list("Collapse factor", note, bars)


def _style(peer: str) -> str:
    return "good" if peer == HOME else "plain"


def _memory(runs: Sequence[Run]) -> Markup:
    axis = ElapsedAxis(0, 1000, max(run.length for run in runs))

    def values(run: Run) -> list[float]:
        known = dict(run.gauge("memory_mb"))
        return [known.get(slot, math.nan) * 1e6 for slot in range(axis.slots)]

    lines = _series(runs, values)
    if not _known(lines):
        return empty("Nobody watched the memory of the target (--pid).")
    note = "resident, of the peer's processes"
    return line_chart(Frame("Memory", note, axis, linear_scale(_known(lines)), size), lines)


def _limits(peers: Sequence[str], summaries: Sequence[Summary]) -> Markup | None:
    found = [
        (peer, limit) for peer, one in zip(peers, summaries, strict=True) for limit in one.limits
    ]
    items = [
        tag(
            "li",
            tag("strong", "limit", class_="mark"),
            tag("span", f"{peer}: {limit}"),
            class_="warn",
        )
        for peer, limit in found
    ]
    return tag("ul", items, class_="findings") if items else None


def draw_picture(html: str, path: Path, wide_and_tall: tuple[int, int]) -> None:
    """By a browser, which draws the page as people see it."""
    ensure_debian("chromium", "chromium")
    with tempfile.TemporaryDirectory(prefix="weir-shot-") as folder:
        page = Path(folder, "page.html")
        page.write_text(html, "utf-8")
        path.unlink(missing_ok=True)  # an old one is no proof of a new one
        wide, tall = wide_and_tall
        command = ["chromium", "--headless=new", "--no-sandbox", "--disable-gpu"]
        command += ["--no-first-run", "--disable-background-networking", "--disable-sync"]
        command += ["--disable-component-update", "--hide-scrollbars"]
        command += [f"--window-size={wide},{tall}"]
        command += [f"--user-data-dir={folder}/profile", f"--screenshot={path.resolve()}"]
        subprocess.run(
            [*command, page.as_uri()],
            check=False,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=SHOT_TIMEOUT_SECS,
        )
    if not path.exists():
        raise RunFailedError(f"the browser drew no {path.name}")
