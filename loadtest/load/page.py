"""Charts of runs: one HTML file for all of them, and pictures for documents."""

import math
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from loadtest.debian import ensure_debian
from loadtest.errors import RunFailedError
from loadtest.load.histogram import percentile
from loadtest.load.records import Run, Second
from loadtest.load.scenarios import SCENARIOS, Scenario
from loadtest.load.summary import HOME, Summary, describe_knobs, limits_of, summarise
from pages.blocks import Section, data_table, numbers, section, side_by_side, words
from pages.charts import Bar, Frame, Series, bar_list, line_chart
from pages.figures import count, duration, exact, moment, size, times
from pages.markup import Markup, tag
from pages.page import render_page
from pages.scales import DURATIONS_MS, ElapsedAxis, Scale, linear_scale, log_scale

STYLES = ("line-1", "line-2", "line-3", "line-4", "line-5", "line-rest")
PICTURE = (1000, 1130)
SHOT_TIMEOUT_S = 60.0

Figure = Callable[[Sequence[Second]], float]


def write_report(runs: Sequence[Run], folder: Path, images: Path | None = None) -> Path:
    """The page; and with `images` a picture for each scenario there."""
    folder.mkdir(parents=True, exist_ok=True)
    page = folder / "load.html"
    page.write_text(render(runs), "utf-8")
    if images is not None:
        images.mkdir(parents=True, exist_ok=True)
        for scenario, own in by_scenario(runs):
            draw_picture(render(own), images / f"{scenario.name}.png")
    return page


def render(runs: Sequence[Run]) -> str:
    sections = [scenario_section(scenario, own) for scenario, own in by_scenario(runs)]
    first = runs[0].started
    machine = ", ".join(f"{name} {value}" for name, value in first.machine.items())
    foot = [
        tag("p", f"Begun {moment(first.at * 1000)} UTC. Machine: {machine}."),
        tag("p", "Times count from when a request was due, whenever it could be sent."),
    ]
    return render_page("Weir load", sections, foot)


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
    knobs = describe_knobs(runs[0].started.knobs)
    charts = [
        side_by_side(
            _over_time(
                scenario,
                runs,
                "Latency, 99th percentile",
                _slowest,
                lambda values: log_scale(values, DURATIONS_MS),
                duration,
            ),
            _over_time(
                scenario,
                runs,
                "Done a second",
                lambda seconds: float(sum(one.done for one in seconds)),
                linear_scale,
                count,
            ),
        ),
        side_by_side(_sharing(peers, summaries), _memory(runs)),
    ]
    lead = f"{scenario.sentence}: {knobs}. Times are of “{scenario.headline}”."
    table = _table(scenario, peers, summaries)
    return section(scenario.name, scenario.name.capitalize(), lead, table, *charts, _limits(runs))


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


def _over_time(
    scenario: Scenario,
    runs: Sequence[Run],
    title: str,
    figure: Figure,
    scale: Callable[[Sequence[float]], Scale],
    shown: Callable[[float], str],
) -> Markup:
    axis = ElapsedAxis(0, 1000, max(run.length for run in runs))
    lines = []
    for run, style in zip(runs, STYLES, strict=False):
        seconds = run.of(scenario.headline)
        values = [figure([one for one in seconds if one.second == n]) for n in range(axis.slots)]
        lines.append(Series(run.started.peer, style, values))
    every = [value for one in lines for value in one.values if math.isfinite(value)]
    frame = Frame(title, f"of “{scenario.headline}”, each second", axis, scale(every), shown)
    return line_chart(frame, lines)


def _slowest(seconds: Sequence[Second]) -> float:
    return percentile(seconds[0].times, 0.99) * 1000 if seconds else math.nan


def _sharing(peers: Sequence[str], summaries: Sequence[Summary]) -> Markup:
    """How many requests of readers one read at the origin has answered."""
    bars = []
    for peer, one in zip(peers, summaries, strict=True):
        known = not math.isnan(one.upstream) and one.asked > 0
        shown = times(one.collapse) if known and math.isfinite(one.collapse) else "–"
        hint = (
            f"{exact(one.asked)} asked, {exact(int(one.upstream))} at the origin" if known else ""
        )
        bars.append(Bar(peer, one.collapse if known else math.nan, shown, "good", hint))
    note = "requests of readers for one read at the origin"
    return bar_list("Collapse factor", note, bars)


def _memory(runs: Sequence[Run]) -> Markup:
    axis = ElapsedAxis(0, 1000, max(run.length for run in runs))
    lines = []
    for run, style in zip(runs, STYLES, strict=False):
        known = dict(run.gauge("memory_mb"))
        values = [known.get(slot, math.nan) * 1e6 for slot in range(axis.slots)]
        lines.append(Series(run.started.peer, style, values))
    every = [value for one in lines for value in one.values if math.isfinite(value)]
    frame = Frame("Memory", "resident, of the peer's processes", axis, linear_scale(every), size)
    return line_chart(frame, lines)


def _limits(runs: Sequence[Run]) -> Markup | None:
    found = [(run.started.peer, limit) for run in runs for limit in limits_of(run)]
    items = [
        tag(
            "li",
            tag("span", "limit", class_="mark"),
            tag("span", f"{peer}: {limit}"),
            class_="warn",
        )
        for peer, limit in found
    ]
    return tag("ul", items, class_="findings") if items else None


def draw_picture(html: str, path: Path) -> None:
    """By a browser, which draws the page as people see it."""
    ensure_debian("chromium", "chromium")
    with tempfile.TemporaryDirectory(prefix="weir-shot-") as folder:
        page = Path(folder, "page.html")
        page.write_text(html, "utf-8")
        wide, tall = PICTURE
        command = ["chromium", "--headless=new", "--no-sandbox", "--disable-gpu"]
        command += ["--hide-scrollbars", f"--window-size={wide},{tall}"]
        command += [f"--user-data-dir={folder}/profile", f"--screenshot={path.resolve()}"]
        subprocess.run(
            [*command, page.as_uri()],
            check=False,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=SHOT_TIMEOUT_S,
        )
    if not path.exists():
        raise RunFailedError(f"the browser drew no {path.name}")
