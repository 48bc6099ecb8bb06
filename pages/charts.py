"""Charts as SVG that need no script and fit any width.

Charts over time have a table of their values below, which also feeds the tooltips. Fills have
patterns and lines have dashes: colour is never the only distinction.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pages.figures import Format
from pages.marks import (
    EDGE,
    area,
    dots,
    height_of,
    line,
    meter,
    percent,
    rule,
    stretched,
    swatch,
    symbol,
    upright,
)
from pages.markup import Child, Markup, tag
from pages.scales import Axis, Scale, shares_of

HEIGHT = 180


@dataclass(frozen=True, slots=True)
class Frame:
    """A chart over time or other steps, without its values."""

    title: str
    note: str
    axis: Axis
    scale: Scale
    shown: Format
    height: int = HEIGHT


@dataclass(frozen=True, slots=True)
class Series:
    """`style` is the class of its marks: pattern or dash and colour are in the style sheet."""

    name: str
    style: str
    values: Sequence[float]  # one per slot; NaN if missing
    figure: str = ""  # summary of all values, for the legend


@dataclass(frozen=True, slots=True)
class Bar:
    label: Child
    value: float
    shown: str
    style: str = "plain"
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Point:
    name: str
    x: float
    y: float
    style: str  # circle, diamond or square
    tip: str
    labelled: bool = False


@dataclass(frozen=True, slots=True)
class Measure:
    """One side of a scatter chart."""

    name: str
    scale: Scale
    shown: Format


def stacked_chart(frame: Frame, series: Sequence[Series]) -> Markup:
    """Amounts that add up, one stack per slot."""
    slots = frame.axis.slots
    piles = []
    for slot in range(slots):
        base = 0.0
        for one in series:
            if not one.values[slot] > 0:
                continue
            bottom = height_of(frame.scale, base, frame.height)
            base += one.values[slot]
            top = height_of(frame.scale, base, frame.height)
            across = {"x": percent(slot / slots), "width": percent(1 / slots)}
            tall = max(bottom - top, 0.5)  # nonzero values stay visible
            piles.append(tag("rect", class_=one.style, y=top, height=tall, **across))
    return _time_figure(frame, series, piles, "block")


def line_chart(frame: Frame, series: Sequence[Series], *, filled: bool = False) -> Markup:
    """Lines; `filled` below the first one."""
    scale, height = frame.scale, frame.height
    drawn: list[Markup] = []
    if filled:
        drawn.append(tag("path", class_="area", d=area(series[0].values, scale, height)))
    for one in series:
        drawn.append(tag("path", class_=f"line {one.style}", d=line(one.values, scale, height)))
        if lonely := dots(one.values, scale, height):
            drawn.append(tag("path", class_=f"line dot {one.style}", d=lonely))
    lines = stretched(drawn, frame.axis.slots, height, "lines")
    return _time_figure(frame, series, [lines], "line")


def bar_list(title: str, note: str, bars: Sequence[Bar]) -> Markup:
    """One bar per row, between its label and its figure."""
    lengths = shares_of([bar.value for bar in bars])
    rows = [
        tag(
            "li",
            tag("span", bar.label, tag("small", bar.hint) if bar.hint else None, class_="what"),
            meter(length, bar.style),
            tag("span", bar.shown, class_="number"),
        )
        for bar, length in zip(bars, lengths, strict=True)
    ]
    return figure(title, note, tag("ul", rows, class_="bars"))


def column_chart(title: str, note: str, columns: Sequence[Bar], measure: str) -> Markup:
    """A histogram, with the figure above each column."""
    height, room = 170, 18
    wide = 1 / len(columns)
    drawn: list[Markup] = []
    labels: list[Markup] = []
    for slot, (bar, part) in enumerate(
        zip(columns, shares_of([bar.value for bar in columns]), strict=True)
    ):
        tall = max(part * height, 0.5) if bar.value else 0.0
        top, middle = room + height - tall, percent((slot + 0.5) * wide)
        across = {"x": percent((slot + 0.08) * wide), "width": percent(0.84 * wide)}
        tip = f"{bar.label}\n{bar.shown}"
        drawn.append(tag("rect", class_=bar.style, y=top, height=tall, data_tip=tip, **across))
        drawn.append(tag("text", bar.hint, x=middle, y=top - 4, class_="figure"))
        labels.append(tag("text", bar.label, x=middle, y=12, class_="middle"))
    drawn.append(rule(room + height, "axis"))
    plot = tag(
        "div",
        tag("svg", drawn, class_="marks", aria_hidden="true", height=room + height + 1),
        tag("svg", labels, class_="dates", aria_hidden="true", height=16),
        class_="plot alone",
        role="img",
        aria_label=f"{title}. The values are in the table below.",
    )
    rows = [(str(bar.label), [bar.shown]) for bar in columns]
    return figure(title, note, plot, _values(title, ["", measure], rows))


def scatter_chart(
    title: str,
    note: str,
    points: Sequence[Point],
    across: Measure,
    up: Measure,
    meanings: Sequence[tuple[str, str]],
) -> Markup:
    """Things by two measures; `meanings` are styles and their labels."""
    height = 300
    drawn = _grid(up.scale, height)
    drawn += [upright(across.scale.at(tick), height + EDGE, "grid") for tick in across.scale.ticks]
    places = [(p, across.scale.at(p.x), height_of(up.scale, p.y, height)) for p in points]
    drawn += [symbol(point.style, x, y, point.tip) for point, x, y in places]
    drawn += _point_labels(places)
    ticks = [(across.scale.at(tick), across.shown(tick)) for tick in across.scale.ticks]
    plot = tag(
        "div",
        _levels(up.scale, up.shown, height),
        tag("svg", drawn, class_="marks", aria_hidden="true", height=height + 2 * EDGE),
        _dates(ticks),
        class_="plot",
        role="img",
        aria_label=f"{title}. The values are in the table below.",
    )
    legend = _legend([Series(meaning, style, ()) for style, meaning in meanings], "point")
    axes = tag("p", f"↑ {up.name} · → {across.name}, both logarithmic", class_="axes")
    return figure(title, note, legend, axes, plot)


def figure(title: str, note: Child, *content: Child) -> Markup:
    caption = tag("figcaption", tag("h3", title), tag("p", note) if note else None)
    return tag("figure", caption, *content, class_="card")


def _time_figure(
    frame: Frame, series: Sequence[Series], drawn: Sequence[Markup], form: str
) -> Markup:
    axis, tall = frame.axis, frame.height + 2 * EDGE
    cursor = tag(
        "rect", class_="cursor", y=EDGE, height=frame.height, width=percent(1 / axis.slots)
    )
    plot = tag(
        "div",
        _levels(frame.scale, frame.shown, frame.height),
        tag(
            "svg",
            _grid(frame.scale, frame.height),
            cursor,
            drawn,
            class_="marks",
            aria_hidden="true",
            height=tall,
        ),
        _dates(axis.ticks()),
        class_="plot timed",
        role="img",
        tabindex=0,
        data_axis=axis.key,
        aria_label=_summary(frame, series),
    )
    rows = [
        (axis.name(slot), [frame.shown(s.values[slot]) for s in series])
        for slot in range(axis.slots)
    ]
    values = _values(frame.title, [axis.heading, *(s.name for s in series)], rows)
    return figure(frame.title, frame.note, _legend(series, form), plot, values)


def _summary(frame: Frame, series: Sequence[Series]) -> str:
    """A text alternative for the chart."""
    axis = frame.axis
    spoken = [f"{frame.title}, {axis.span}"]
    for one in series:
        known = [value for value in one.values if math.isfinite(value)]
        if known:
            low, high = frame.shown(min(known)), frame.shown(max(known))
            spoken.append(f"{one.name} from {low} to {high}")
    return "; ".join(spoken) + ". Use the arrow keys to read single values."


def _legend(series: Sequence[Series], form: str) -> Markup | None:
    items = [
        tag("li", swatch(s.style, form), s.name, tag("b", s.figure) if s.figure else None)
        for s in series
    ]
    is_told = len(series) == 1 and not series[0].figure  # the title is enough
    return None if is_told else tag("ul", items, class_="legend")


def _levels(scale: Scale, shown: Format, height: int) -> Markup:
    """Labels of the vertical axis."""
    texts = [shown(tick) for tick in scale.ticks]
    if scale.floored:
        texts[0] = f"≤{texts[0]}"
    labels = [
        tag("text", text, x="100%", y=height_of(scale, tick, height) + 4, class_="end")
        for tick, text in zip(scale.ticks, texts, strict=True)
    ]
    return tag("svg", labels, class_="levels", aria_hidden="true", height=height + 2 * EDGE)


def _grid(scale: Scale, height: int) -> list[Markup]:
    lines = [rule(height_of(scale, tick, height), "grid") for tick in scale.ticks[1:]]
    return [*lines, rule(height + EDGE, "axis")]


def _dates(ticks: Sequence[tuple[float, str]]) -> Markup:
    """Labels of the horizontal axis; narrow charts skip every second one."""
    labels = []
    for number, (place, text) in enumerate(ticks):
        side = "start" if place < 0.04 else "end" if place > 0.96 else "middle"
        seldom = " seldom" if number % 2 else ""
        labels.append(tag("text", text, x=percent(place), y=13, class_=side + seldom))
    return tag("svg", labels, class_="dates", aria_hidden="true", height=18)


def _values(title: str, headings: Sequence[str], rows: Sequence[tuple[str, list[str]]]) -> Markup:
    head = tag("tr", [tag("th", heading, scope="col") for heading in headings])
    body = [
        tag("tr", tag("th", first, scope="row"), [tag("td", value) for value in rest])
        for first, rest in rows
    ]
    table = tag("table", tag("thead", head), tag("tbody", body))
    box = tag("div", table, class_="scroll", tabindex=0, role="region", aria_label=title)
    return tag("details", tag("summary", "Values as a table"), box, class_="values")


def _point_labels(places: Sequence[tuple[Point, float, float]]) -> list[Markup]:
    """Labels that have room, assuming a chart of usual width."""
    taken: list[tuple[float, float, float]] = []
    labels = []
    for point, x, y in places:
        text = point.name if len(point.name) <= 24 else point.name[:23] + "…"
        wide = 0.011 * len(text) + 0.02
        left = x - wide if x > 0.6 else x
        free = all(
            abs(y - at) > 16 or left > end or left + wide < begin for begin, end, at in taken
        )
        if not point.labelled or not free:
            continue
        taken.append((left, left + wide, y))
        side, shift = ("end", 4) if x > 0.6 else ("start", -4)
        known = {"x": percent(x), "class_": f"{side} tag", "aria_hidden": "true"}
        labels.append(tag("text", text, y=y - 8, dx=shift, **known))
    return labels
