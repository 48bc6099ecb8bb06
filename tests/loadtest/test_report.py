import pytest

from loadtest.load.goals import (
    FILE,
    MEMORY,
    NGINX,
    OURS,
    Bound,
    Judgement,
    Target,
    Verdict,
    judge_all,
)
from loadtest.load.table import (
    GATEWAY_BOARD,
    build_rows,
    format_figure,
    format_target,
    format_verdict,
    render_table,
)

FIGURES = {
    ("append64", "rate", OURS): {1: 20_000.0},
    ("append64", "rate", FILE): {1: 2_000.0},
    ("append64", "rate", MEMORY): {1: 25_000.0},
    ("idle", "ready", OURS): {1: 3.0},
}
LABELS = {"append64": "append 100 B", "idle": "idle streams"}


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (12_345.6, "12,346"), (100.4, "100"), (45.67, "45.7"), (0.1234, "0.12")],
)
def test_figures(value: float | None, text: str) -> None:
    assert format_figure(value) == text


@pytest.mark.parametrize(
    ("bound", "peer", "text"),
    [
        (Bound.AT_LEAST, FILE, ">= 2x file"),
        (Bound.ABOVE, MEMORY, "> 2x memory"),
        (Bound.NO_WORSE, FILE, "no worse than file"),
        (Bound.BELOW_LIMIT, None, "< 2"),
    ],
)
def test_targets_in_words(bound: Bound, peer: str | None, text: str) -> None:
    assert format_target(Target("idle", "ready", bound, 2.0, peer)) == text


@pytest.mark.parametrize(
    ("bound", "peer", "figure", "verdict", "text"),
    [
        (Bound.AT_LEAST, FILE, 6.0, Verdict.REACHED, "yes"),
        (Bound.AT_LEAST, FILE, 3.0, Verdict.MISSED, "NO (75% of it)"),
        (Bound.BELOW_LIMIT, None, 1.0, Verdict.REACHED, "yes (25% of it)"),
        (Bound.AT_LEAST, FILE, None, Verdict.UNKNOWN, "not measured"),
    ],
)
def test_verdicts_in_words(
    bound: Bound, peer: str | None, figure: float | None, verdict: Verdict, text: str
) -> None:
    judgement = Judgement(Target("append64", "rate", bound, 4.0, peer), figure, verdict)
    assert format_verdict(judgement) == text


def test_even_is_called_noise() -> None:
    target = Target("append64", "p99", Bound.NO_WORSE, 1.0, FILE)
    assert format_verdict(Judgement(target, 0.97, Verdict.REACHED)) == "yes (within noise)"


def test_table_of_what_was_measured() -> None:
    rows = build_rows(FIGURES, judge_all(FIGURES), LABELS)
    assert rows == [
        "append 100 B|rate/s|20,000|2,000|25,000|10.0x|0.80x|>= 5x file|yes".split("|"),
        "|||||||> 1x memory|NO (80% of it)".split("|"),
        "idle streams|ready s|3.00|-|-|-|-|< 15|yes (20% of it)".split("|"),
    ]
    lines = render_table(rows).splitlines()
    assert len(lines) == 5
    assert lines[2].startswith("append 100 B  rate/s   20,000")


def test_a_board_without_ratio_columns_shows_one_ratio_a_target() -> None:
    figures = {
        ("polls", "last answer", OURS): {1: 20.0},
        ("polls", "last answer", NGINX): {1: 500.0},
        ("readers", "resident", OURS): {1: 10.0},
    }
    judgements = [j for j in judge_all(figures) if j.target.scenario in ("polls", "readers")]
    labels = {"polls": "long-polls", "readers": "idle readers"}
    rows = build_rows(figures, judgements, labels, GATEWAY_BOARD)
    assert rows == [
        "long-polls|last answer ms|20.0|500|-|-|-|-|-|>= 2x Varnish|-|not measured".split("|"),
        "|||||||||>= 10x nginx|25.0x|yes".split("|"),
        "idle readers|resident KiB|10.0|-|-|-|-|-|-|< 40|-|yes (25% of it)".split("|"),
    ]
    heading = render_table(rows, GATEWAY_BOARD).splitlines()[0].split()
    assert heading[-3:] == ["target", "ratio", "reached"]
