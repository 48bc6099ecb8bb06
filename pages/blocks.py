"""Building blocks of sections: headings, empty states, tables.

Table cells carry plain values for sorting. The script adds the sort buttons, so that without it
there are none that do nothing.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pages.figures import Format, exact
from pages.marks import meter
from pages.markup import Child, Markup, name_of, tag
from pages.scales import shares_of

SHORT_ROWS = 10  # shown until the reader expands the table


@dataclass(frozen=True, slots=True)
class Section:
    anchor: str
    title: str
    body: Markup


@dataclass(frozen=True, slots=True)
class Column:
    """One column: its cells and their sort values."""

    title: str
    cells: Sequence[Child]
    values: Sequence[float | str]
    hints: Sequence[str] = ()
    bars: bool = False
    drawn: bool = False  # a picture, which cannot be sorted


def section(anchor: str, title: str, lead: Child, *content: Child) -> Section:
    head = tag("header", tag("h2", title), tag("p", lead) if lead else None)
    return Section(anchor, title, tag("section", head, *content, id=anchor))


def empty(why: str) -> Markup:
    return tag("p", why, class_="empty card")


def side_by_side(*cards: Child) -> Markup:
    return tag("div", *cards, class_="pair")


def names(title: str, texts: Sequence[str], otherwise: str = "(none)") -> Column:
    return Column(title, [name_of(text, otherwise) for text in texts], texts)


def words(title: str, texts: Sequence[str]) -> Column:
    return Column(title, texts, texts)


def numbers(title: str, values: Sequence[float], shown: Format, *, bars: bool = False) -> Column:
    """Rounded by `shown`; exact whole numbers appear as tooltips."""
    hints = [exact(value) if isinstance(value, int) else "" for value in values]
    return Column(title, [shown(value) for value in values], values, hints, bars=bars)


def pictures(title: str, cells: Sequence[Markup]) -> Column:
    return Column(title, cells, [math.nan] * len(cells), drawn=True)


def data_table(title: str, note: Child, columns: Sequence[Column], *, find: str = "") -> Markup:
    """The first column names the rows; with `find` the script adds a filter field for it."""
    head = tag("tr", [_heading(column) for column in columns])
    lengths = [shares_of(_floats(column)) if column.bars else [] for column in columns]
    rows = [
        tag("tr", [_cell(c, row, bars) for c, bars in zip(columns, lengths, strict=True)])
        for row in range(len(columns[0].cells))
    ]
    table = tag(
        "table",
        tag("caption", title, class_="away"),
        tag("thead", head),
        tag("tbody", rows),
        class_="sortable",
        data_short=SHORT_ROWS,
        data_find=find or None,
    )
    box = tag("div", table, class_="scroll", tabindex=0, role="region", aria_label=title)
    caption = tag("div", tag("h3", title), tag("p", note) if note else None, class_="caption")
    return tag("div", caption, box, class_="card")


def _heading(column: Column) -> Markup:
    return tag("th", column.title, scope="col", class_=_style(column), data_fixed=column.drawn)


def _cell(column: Column, row: int, lengths: Sequence[float]) -> Markup:
    value = column.values[row]
    plain = "" if isinstance(value, str) or not math.isfinite(value) else repr(value)
    bar = meter(lengths[row]) if lengths else None
    hint = column.hints[row] if column.hints else ""
    text = tag("span", column.cells[row], title=hint or None)
    if isinstance(value, str):
        return tag("td", text, class_=_style(column))
    return tag("td", text, bar, class_=_style(column), data_value=plain)


def _style(column: Column) -> str | None:
    if column.drawn:
        return "drawn"
    return "number" if any(not isinstance(value, str) for value in column.values) else None


def _floats(column: Column) -> list[float]:
    return [math.nan if isinstance(value, str) else value for value in column.values]
