"""What comparisons come to, for people: a table on the terminal, docs/results.md, and the page.

Everything is made from the kept results, so a report can be made again, and from several runs.
"""

import textwrap
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from loadtest.load.compare import run_path
from loadtest.load.contest import Results
from loadtest.load.goals import Judgement, Verdict, judge
from loadtest.load.page import by_scenario, write_page, write_pictures
from loadtest.load.records import Run, read_run
from loadtest.load.run import RESULTS
from loadtest.load.suites import SUITES, Suite
from loadtest.load.table import build_rows, render_markdown, render_table
from pages.blocks import Section, data_table, section, words

KEPT = RESULTS / "suites"
WIDTH = 120
OPENING = (
    "Written by `weir load compare` and `make bench`. All peers of a table ran on one machine in"
    " one run. Figures are the medians of the rounds. A ratio is the median of the per-round ratios"
    " and says how many times better Weir is: above 1 is better, for rates and for times. Absolute"
    " figures depend on the machine. [Benchmarks](benchmarks.md) says what limits the figures,"
    " [Load testing](load-testing.md) how they are made."
)
CHARTS = (
    "One run of each scenario of `weir load`. Load is open-loop: a request is timed from when it"
    " was due, so a stalled server is charged for every waiting request. `weir load report` draws"
    " every second of every run."
)


def judge_all(suite: Suite, results: Results) -> list[Judgement]:
    return [
        judgement
        for scenario in suite.scenarios
        for judgement in judge(scenario.name, scenario.measures, results.figures)
    ]


def rows_of(suite: Suite, results: Results) -> list[list[str]]:
    return build_rows(suite.scenarios, results.figures, judge_all(suite, results), suite.board)


def conditions(results: Results) -> str:
    facts = results.facts
    at = datetime.fromtimestamp(facts["at"], UTC).strftime("%-d %B %Y")
    machine = f"{facts['cores']} cores, {facts['processor']}, {facts['memory']}"
    versions = ", ".join([f"Python {facts['python']}", *facts["versions"]])
    return (
        f"{at}; {machine}; {versions}; fdatasync {facts['fdatasync_ms']:.2f} ms. Besides us, other"
        f" programs used {facts['other_cpu']:.2f} cores (median), other machines of the host"
        f" {facts['stolen_cpu']:.0%} of the CPU."
    )


def remarks(suite: Suite, results: Results) -> list[str]:
    judgements = judge_all(suite, results)
    reached = sum(judgement.verdict is Verdict.REACHED for judgement in judgements)
    return [
        *(f"skipped: {reason}" for reason in results.skips),
        *(f"note: {note}" for note in results.notes),
        *(f"FAILED: {reason}" for reason in results.failures),
        f"{reached} of {len(judgements)} targets reached, {results.facts['took_s']:.0f} s",
    ]


def render_text(suite: Suite, results: Results) -> str:
    table = render_table(rows_of(suite, results), suite.board)
    head = [suite.heading, conditions(results)]
    return "\n".join([*head, "", table, "", *remarks(suite, results)])


def render_document(kept: Mapping[str, Results], runs: Sequence[Run]) -> str:
    parts = ["# Results", _fill(OPENING)]
    for suite in SUITES:
        if suite.name in kept:
            parts += _render_suite(suite, kept[suite.name])
    if runs:
        parts += ["## Charts", _fill(CHARTS)]
    for scenario, own in by_scenario(runs):
        parts += [f"### {scenario.name}", _fill(scenario.lead(own[0].started.knobs))]
        parts.append(f"![{scenario.name}](images/{scenario.name}.png)")
    return "\n\n".join(parts) + "\n"


def _render_suite(suite: Suite, results: Results) -> list[str]:
    return [
        f"## {suite.name.capitalize()}",
        _fill(f"{suite.heading} {conditions(results)}"),
        "\n".join(render_markdown(rows_of(suite, results), suite.board)),
        "\n".join(_fill(f"- {remark}.", "  ") for remark in remarks(suite, results)),
    ]


def _fill(text: str, indent: str = "") -> str:
    return textwrap.fill(
        text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def suite_section(suite: Suite, results: Results) -> Section:
    rows, titles = rows_of(suite, results), suite.board.headings
    columns = [words(title, [row[at] for row in rows]) for at, title in enumerate(titles)]
    table = data_table(suite.name, "", columns)
    return section(f"suite-{suite.name}", suite.name.capitalize(), suite.heading, table)


def read_kept(folder: Path = KEPT) -> dict[str, Results]:
    """The last results of each suite, if its run came to an end."""
    paths = {suite.name: folder / f"{suite.name}.jsonl" for suite in SUITES}
    found = {name: Results.read(path) for name, path in paths.items() if path.exists()}
    return {name: results for name, results in found.items() if "took_s" in results.facts}


def read_compared(kept: Mapping[str, Results]) -> list[Run]:
    """The runs behind the last results of paced load."""
    if "load" not in kept:
        return []
    done = dict.fromkeys((scenario, peer) for scenario, _, peer in kept["load"].figures)
    return [read_run(run_path(scenario.removeprefix("load-"), peer)) for scenario, peer in done]


def write_report(runs: Sequence[Run], folder: Path, images: Path | None = None) -> Path:
    """The page; and with `images` a picture for each scenario there."""
    kept = read_kept()
    tables = [suite_section(suite, kept[suite.name]) for suite in SUITES if suite.name in kept]
    page = write_page(runs, tables, folder)
    if images is not None:
        write_pictures(runs, images)
    return page


def write_docs(docs: Path) -> None:
    kept = read_kept()
    runs = read_compared(kept)
    write_pictures(runs, docs / "images")
    (docs / "results.md").write_text(render_document(kept, runs))
