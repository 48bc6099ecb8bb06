"""The table that a person reads. Pure: figures and judgements in, text out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from loadtest.load.contest import Contest, Trial
from loadtest.load.goals import Bound, Figures, Goal, Judgement, Measure, Verdict, compare, typical
from loadtest.peers.names import WORDS

Scenario = Contest | Trial
LEFT_ALIGNED = {"scenario", "measure", "target", "reached"}


@dataclass(frozen=True, slots=True)
class Board:
    """The columns: a figure for each peer, and the ratio to some; else one ratio a target."""

    peers: Mapping[str, str]
    ratios: tuple[str, ...] = ()

    @property
    def headings(self) -> list[str]:
        ratios = [f"vs {WORDS[peer]}" for peer in self.ratios]
        end = ["target", "reached"] if ratios else ["target", "ratio", "reached"]
        return ["scenario", "measure", *self.peers.values(), *ratios, *end]


def format_figure(value: float | None) -> str:
    """About three digits that matter, whatever the size."""
    if value is None:
        return "-"
    if value >= 100 or value == round(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def format_ratio(value: float | None) -> str:
    return "-" if value is None else f"{format_figure(value)}x"


def format_goal(goal: Goal) -> str:
    if goal.peer is None:
        return f"< {goal.value:g}"
    peer = WORDS[goal.peer]
    match goal.bound:
        case Bound.AT_LEAST:
            return f">= {goal.value:g}x {peer}"
        case Bound.NO_WORSE:
            return f"no worse than {peer}"
        case _:
            return f"> {goal.value:g}x {peer}"


def format_verdict(judgement: Judgement) -> str:
    """With how far it is from the bound: a limit has no peer whose ratio says so."""
    goal, figure, verdict = judgement.goal, judgement.figure, str(judgement.verdict.value)
    if figure is None:
        return verdict
    if goal.peer is None or judgement.verdict is Verdict.MISSED:
        return f"{verdict} ({figure / goal.value:.0%} of it)"
    if goal.bound is Bound.NO_WORSE and figure < goal.value:
        return f"{verdict} (within noise)"
    return verdict


def build_rows(
    scenarios: Sequence[Scenario], figures: Figures, judgements: Sequence[Judgement], board: Board
) -> list[list[str]]:
    """One row a measure, and one more for each further target on it."""
    rows: list[list[str]] = []
    for scenario in scenarios:
        label = scenario.label
        for measure in scenario.measures:
            place = (scenario.name, measure.name)
            if not any(key[:2] == place for key in figures):
                continue
            on_this = [
                _goal_cells(judgement, board)
                for judgement in judgements
                if (judgement.scenario, judgement.measure) == place
            ]
            cells = _measure_cells(scenario.name, measure, figures, board)
            rows += _measure_rows([label, *cells], on_this, board)
            label = ""
    return rows


def _measure_cells(scenario: str, measure: Measure, figures: Figures, board: Board) -> list[str]:
    cells = [f"{measure.name} {measure.unit}".replace(" /s", "/s")]
    cells += [format_figure(typical(scenario, measure, figures, peer)) for peer in board.peers]
    return cells + [
        format_ratio(compare(scenario, measure, figures, peer)) for peer in board.ratios
    ]


def _goal_cells(judgement: Judgement, board: Board) -> list[str]:
    cells = [format_goal(judgement.goal), format_verdict(judgement)]
    if not board.ratios:
        ratio = judgement.figure if judgement.goal.peer else None
        cells.insert(1, format_ratio(ratio))
    return cells


def _measure_rows(start: list[str], on_this: list[list[str]], board: Board) -> list[list[str]]:
    """The targets on a measure below each other, beside its figures."""
    blank = [""] * len(start)
    if not on_this:
        return [[*start, *[""] * (len(board.headings) - len(start))]]
    return [[*(blank if number else start), *cells] for number, cells in enumerate(on_this)]


def render_table(rows: Sequence[Sequence[str]], board: Board) -> str:
    headings = board.headings
    lines = [headings, *map(list, rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headings))]
    left = [heading in LEFT_ALIGNED for heading in headings]
    lines.insert(1, ["-" * width for width in widths])
    return "\n".join(_render_line(line, widths, left) for line in lines)


def render_markdown(rows: Sequence[Sequence[str]], board: Board) -> list[str]:
    headings = board.headings
    rule = ["---" if heading in LEFT_ALIGNED else "---:" for heading in headings]
    return [f"| {' | '.join(row)} |" for row in (headings, rule, *rows)]


def _render_line(line: Sequence[str], widths: Sequence[int], left: Sequence[bool]) -> str:
    cells = [
        cell.ljust(width) if is_left else cell.rjust(width)
        for cell, width, is_left in zip(line, widths, left, strict=True)
    ]
    return "  ".join(cells).rstrip()
