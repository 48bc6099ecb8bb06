"""Elements of charts: bars, lines, symbols, swatches. Pure.

Horizontally everything is a percentage of the width, vertically pixels.
"""

import math
from collections.abc import Sequence

from pages.markup import Markup, tag
from pages.scales import Scale

EDGE = 8  # pixels above and below a plot, so that labels and strokes are not clipped
LINE_UNITS = 10  # of a line's own coordinates in one slot
SHAPES = {"square": "M-5-5H5V5H-5z", "diamond": "M0-6.5 6.5 0 0 6.5-6.5 0z"}


def percent(part: float) -> str:
    return f"{part * 100:.3f}".rstrip("0").rstrip(".") + "%"


def height_of(scale: Scale, value: float, height: int) -> float:
    """Pixels from the top of a plot."""
    return EDGE + height * (1 - scale.at(value))


def rule(y: float, style: str) -> Markup:
    return tag("line", x1=0, x2="100%", y1=y, y2=y, class_=style)


def upright(place: float, height: int, style: str) -> Markup:
    return tag("line", x1=percent(place), x2=percent(place), y1=0, y2=height, class_=style)


def symbol(style: str, place: float, y: float, tip: str = "") -> Markup:
    """A circle, square or diamond."""
    shape = SHAPES.get(style)
    return tag(
        "svg",
        tag("path", d=shape) if shape else tag("circle", r=5),
        x=percent(place),
        y=y,
        overflow="visible",
        class_=f"point {style}",
        data_tip=tip or None,
    )


def swatch(style: str, form: str) -> Markup:
    """A legend symbol for a series: a block, a line or a point."""
    wide = 22 if form == "line" else 14
    if form == "line":
        drawn = tag("line", x1=0, x2=wide, y1=7, y2=7, class_=f"line {style}")
    elif form == "point":
        drawn = symbol(style, 0.5, 7)
    else:
        drawn = tag("rect", class_=style, width=wide, height=14)
    return tag("svg", drawn, class_="swatch", width=wide, height=14, aria_hidden="true")


def key(style: str, name: str, form: str) -> Markup:
    """One entry of a legend within text."""
    return tag("span", swatch(style, form), name, class_="key")


def meter(length: float, style: str = "plain") -> Markup:
    """A bar without a figure; tiny values stay visible."""
    wide = percent(max(length, 0.004)) if length > 0 else "0"
    drawn = tag("rect", class_=style, width=wide, height="100%")
    return tag("svg", drawn, class_="meter", aria_hidden="true")


def split(parts: Sequence[tuple[float, str, str]]) -> Markup:
    """Shares of a whole side by side: (amount, style, words)."""
    whole = sum(amount for amount, _, _ in parts)
    drawn, at = [], 0.0
    for amount, style, tip in parts:
        wide = amount / whole if whole > 0 else 0.0
        if wide > 0:
            place = {"x": percent(at), "width": percent(wide)}
            drawn.append(tag("rect", class_=style, height=14, data_tip=tip, **place))
        at += wide
    spoken = "; ".join(words.replace("\n", ": ") for _, _, words in parts)
    return tag("svg", drawn, class_="split", height=14, role="img", aria_label=spoken)


def reach(values: Sequence[tuple[float, str]], scale: Scale) -> Markup:
    """Several values on a line, each with its symbol."""
    places = [scale.at(value) for value, _ in values]
    ends = {"x1": percent(min(places)), "x2": percent(max(places))}
    drawn = [
        *(upright(scale.at(tick), 24, "grid") for tick in scale.ticks),
        tag("line", y1=12, y2=12, class_="reach", **ends),
        *(symbol(style, place, 12) for place, (_, style) in zip(places, values, strict=True)),
    ]
    return tag("svg", drawn, class_="range", height=24, aria_hidden="true")


def sparkline(values: Sequence[float], top: float | None = None) -> Markup | None:
    """A small line chart without axes; None if there is nothing to show."""
    known = [value for value in values if math.isfinite(value)]
    if len(known) < 3:
        return None
    scale = Scale(0.0, top or max(known) or 1.0, ())
    drawn = (
        tag("path", class_="area", d=area(values, scale, 24)),
        tag("path", class_="line", d=line(values, scale, 24)),
    )
    return stretched(drawn, len(values), 24, "spark")


def stretched(drawn: Sequence[Markup], slots: int, height: int, style: str) -> Markup:
    """Paths cannot use percentages: they are drawn in their own units and stretched."""
    return tag(
        "svg",
        *drawn,
        viewBox=f"0 0 {slots * LINE_UNITS} {height + 2 * EDGE}",
        preserveAspectRatio="none",
        width="100%",
        height=height + 2 * EDGE,
        class_=style,
        aria_hidden="true",
    )


def line(values: Sequence[float], scale: Scale, height: int) -> str:
    """Through the middle of the slots, interrupted at missing values."""
    words, drawing = [], False
    for slot, value in enumerate(values):
        if math.isfinite(value):
            words.append(f"{'L' if drawing else 'M'}{_place(slot, value, scale, height)}")
        drawing = math.isfinite(value)
    return "".join(words)


def dots(values: Sequence[float], scale: Scale, height: int) -> str:
    """Isolated values, which no line would show: strokes of zero length."""
    known = [math.nan, *values, math.nan]
    return "".join(
        f"M{_place(slot, value, scale, height)}h0"
        for slot, value in enumerate(values)
        if math.isfinite(value) and math.isnan(known[slot]) and math.isnan(known[slot + 2])
    )


def area(values: Sequence[float], scale: Scale, height: int) -> str:
    """The area below a line."""
    words: list[str] = []
    run: list[str] = []
    floor = height + EDGE
    for slot, value in enumerate([*values, math.nan]):
        if math.isfinite(value):
            run.append(_place(slot, value, scale, height))
        elif run:
            first, last = run[0].split()[0], run[-1].split()[0]
            words.append(f"M{first} {floor}L{'L'.join(run)}L{last} {floor}z")
            run = []
    return "".join(words)


def _place(slot: int, value: float, scale: Scale, height: int) -> str:
    return f"{(slot + 0.5) * LINE_UNITS:g} {height_of(scale, value, height):.1f}"
