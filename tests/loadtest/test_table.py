import pytest

from loadtest.load.goals import Goal, Judgement, Verdict, above, at_least, below, judge, no_worse
from loadtest.load.suites import SUITES
from loadtest.load.table import (
    build_rows,
    format_figure,
    format_goal,
    format_verdict,
    render_table,
)
from loadtest.peers.names import FILE, MEMORY, NGINX, OURS

FIGURES = {
    ("append64", "rate", OURS): {1: 20_000.0},
    ("append64", "rate", FILE): {1: 2_000.0},
    ("append64", "rate", MEMORY): {1: 25_000.0},
    ("idle", "ready", OURS): {1: 3.0},
}
ORIGIN, _, GATEWAY = SUITES[:3]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (12_345.6, "12,346"),
        (100.4, "100"),
        (45.67, "45.7"),
        (0.1234, "0.12"),
        (0, "0"),
    ],
)
def test_figures(value: float | None, text: str) -> None:
    assert format_figure(value) == text


@pytest.mark.parametrize(
    ("goal", "text"),
    [
        (at_least(2, FILE), ">= 2x file"),
        (above(2, MEMORY), "> 2x memory"),
        (no_worse(FILE), "no worse than file"),
        (below(2), "< 2"),
    ],
)
def test_goals_in_words(goal: Goal, text: str) -> None:
    assert format_goal(goal) == text


@pytest.mark.parametrize(
    ("goal", "figure", "verdict", "text"),
    [
        (at_least(4, FILE), 6.0, Verdict.REACHED, "yes"),
        (at_least(4, FILE), 3.0, Verdict.MISSED, "NO (75% of it)"),
        (below(4), 1.0, Verdict.REACHED, "yes (25% of it)"),
        (at_least(4, FILE), None, Verdict.UNKNOWN, "not measured"),
        (no_worse(FILE), 0.97, Verdict.REACHED, "yes (within noise)"),
    ],
)
def test_verdicts_in_words(goal: Goal, figure: float | None, verdict: Verdict, text: str) -> None:
    assert format_verdict(Judgement("append64", "rate", goal, figure, verdict)) == text


def test_table_of_what_was_measured() -> None:
    judgements = [j for one in ORIGIN.scenarios for j in judge(one.name, one.measures, FIGURES)]
    rows = build_rows(ORIGIN.scenarios, FIGURES, judgements, ORIGIN.board)
    append = "append 100 B, 64 connections"
    assert rows == [
        f"{append}|rate/s|20,000|2,000|25,000|10x|0.80x|>= 5x file|yes".split("|"),
        "|||||||> 1x memory|NO (80% of it)".split("|"),
        "100,000 idle streams|ready s|3|-|-|-|-|< 15|yes (20% of it)".split("|"),
    ]
    lines = render_table(rows, ORIGIN.board).splitlines()
    assert len(lines) == 5
    assert lines[2].startswith(f"{append}  rate/s   20,000")


def test_a_board_without_ratio_columns_shows_one_ratio_a_target() -> None:
    figures = {
        ("polls", "last answer", OURS): {1: 20.0},
        ("polls", "last answer", NGINX): {1: 500.0},
        ("readers", "resident", OURS): {1: 10.0},
    }
    judgements = [j for one in GATEWAY.scenarios for j in judge(one.name, one.measures, figures)]
    rows = build_rows(GATEWAY.scenarios, figures, judgements, GATEWAY.board)
    polls, idle = "1,000 long-polls, one append", "2,000 idle SSE readers, each"
    assert rows == [
        f"{polls}|last answer ms|20|500|-|-|-|-|-|>= 2x Varnish|-|not measured".split("|"),
        "|||||||||>= 10x nginx|25x|yes".split("|"),
        f"{idle}|resident KiB|10|-|-|-|-|-|-|< 40|-|yes (25% of it)".split("|"),
    ]
    heading = render_table(rows, GATEWAY.board).splitlines()[0].split()
    assert heading[-3:] == ["target", "ratio", "reached"]
