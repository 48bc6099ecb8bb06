"""The table that a person reads. Pure: figures and judgements in, text out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from loadtest.load.goals import (
    DUCK,
    ENVOY,
    FILE,
    GOACCESS,
    MEASURES,
    MEMORY,
    NCHAN,
    NGINX,
    NODE,
    OURS,
    PLAIN_ENVOY,
    PYTHON,
    REPLAY,
    VARNISH,
    Bound,
    Figures,
    Judgement,
    Measure,
    Target,
    Verdict,
    compare,
    typical,
)

LEFT_ALIGNED = {"scenario", "measure", "target", "reached"}
PEER_WORDS = {
    FILE: "file",
    MEMORY: "memory",
    NGINX: "nginx",
    VARNISH: "Varnish",
    ENVOY: "Envoy",
    PLAIN_ENVOY: "plain Envoy",
    NODE: "Node",
    NCHAN: "nchan",
    REPLAY: "replay",
    DUCK: "DuckDB",
    GOACCESS: "goaccess",
    PYTHON: "Python",
}


@dataclass(frozen=True, slots=True)
class Board:
    """The columns: a figure for each peer, and the ratio to some; else one ratio a target."""

    peers: Mapping[str, str]
    ratios: tuple[str, ...] = ()

    @property
    def headings(self) -> list[str]:
        ratios = [f"vs {PEER_WORDS[peer]}" for peer in self.ratios]
        end = ["target", "reached"] if ratios else ["target", "ratio", "reached"]
        return ["scenario", "measure", *self.peers.values(), *ratios, *end]


ORIGIN_BOARD = Board(
    {OURS: "ours", FILE: "node file", MEMORY: "node memory"}, ratios=(FILE, MEMORY)
)
GATEWAY_PEERS = (NGINX, VARNISH, ENVOY, PLAIN_ENVOY, NODE, NCHAN)
GATEWAY_BOARD = Board({OURS: "gateway", **{peer: PEER_WORDS[peer] for peer in GATEWAY_PEERS}})
STATE_BOARD = Board({OURS: "bootstrap", REPLAY: "replay"}, ratios=(REPLAY,))
ANALYTICS_PEERS = (DUCK, GOACCESS, PYTHON)
ANALYTICS_BOARD = Board(
    {OURS: "ours", **{peer: PEER_WORDS[peer] for peer in ANALYTICS_PEERS}}, ratios=ANALYTICS_PEERS
)


def format_figure(value: float | None) -> str:
    """About three digits that matter, whatever the size."""
    if value is None:
        return "-"
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def format_ratio(value: float | None) -> str:
    return "-" if value is None else f"{format_figure(value)}x"


def format_target(target: Target) -> str:
    if target.peer is None:
        return f"< {target.value:g}"
    peer = PEER_WORDS[target.peer]
    match target.bound:
        case Bound.AT_LEAST:
            return f">= {target.value:g}x {peer}"
        case Bound.NO_WORSE:
            return f"no worse than {peer}"
        case _:
            return f"> {target.value:g}x {peer}"


def format_verdict(judgement: Judgement) -> str:
    """With how far it is from the bound: a limit has no peer whose ratio says so."""
    target, figure, verdict = judgement.target, judgement.figure, str(judgement.verdict.value)
    if figure is None:
        return verdict
    if target.peer is None or judgement.verdict is Verdict.MISSED:
        return f"{verdict} ({figure / target.value:.0%} of it)"
    if target.bound is Bound.NO_WORSE and figure < target.value:
        return f"{verdict} (within noise)"
    return verdict


def build_rows(
    figures: Figures,
    judgements: Sequence[Judgement],
    labels: Mapping[str, str],
    board: Board = ORIGIN_BOARD,
) -> list[list[str]]:
    """One row a measure, and one more for each further target on it."""
    rows = []
    last_scenario = None
    for measure in MEASURES:
        if not any(key[:2] == (measure.scenario, measure.name) for key in figures):
            continue
        label = labels[measure.scenario] if measure.scenario != last_scenario else ""
        last_scenario = measure.scenario
        on_this = [
            _target_cells(judgement, board)
            for judgement in judgements
            if (judgement.target.scenario, judgement.target.measure)
            == (measure.scenario, measure.name)
        ]
        rows += _measure_rows([label, *_measure_cells(measure, figures, board)], on_this, board)
    return rows


def _measure_cells(measure: Measure, figures: Figures, board: Board) -> list[str]:
    cells = [f"{measure.name} {measure.unit}".replace(" /s", "/s")]
    cells += [format_figure(typical(measure, figures, peer)) for peer in board.peers]
    return cells + [format_ratio(compare(measure, figures, peer)) for peer in board.ratios]


def _target_cells(judgement: Judgement, board: Board) -> list[str]:
    cells = [format_target(judgement.target), format_verdict(judgement)]
    if not board.ratios:
        ratio = judgement.figure if judgement.target.peer else None
        cells.insert(1, format_ratio(ratio))
    return cells


def _measure_rows(start: list[str], on_this: list[list[str]], board: Board) -> list[list[str]]:
    """The targets on a measure below each other, beside its figures."""
    blank = [""] * len(start)
    if not on_this:
        return [[*start, *[""] * (len(board.headings) - len(start))]]
    return [[*(blank if number else start), *cells] for number, cells in enumerate(on_this)]


def render_table(rows: Sequence[Sequence[str]], board: Board = ORIGIN_BOARD) -> str:
    headings = board.headings
    lines = [headings, *map(list, rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headings))]
    left = [heading in LEFT_ALIGNED for heading in headings]
    lines.insert(1, ["-" * width for width in widths])
    return "\n".join(_render_line(line, widths, left) for line in lines)


def _render_line(line: Sequence[str], widths: Sequence[int], left: Sequence[bool]) -> str:
    cells = [
        cell.ljust(width) if is_left else cell.rjust(width)
        for cell, width, is_left in zip(line, widths, left, strict=True)
    ]
    return "  ".join(cells).rstrip()
