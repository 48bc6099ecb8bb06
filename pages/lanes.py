"""Pictures of who tells whom what: a lane for each, time going down. Pure.

A picture is data. `lay_out` gives everything in it its place, as shapes that can be looked at
without drawing them; `draw` writes them as one SVG file, for pages that show it as an image.

Fonts differ from reader to reader. Words are given the room that they take in Helvetica, and a
little more.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from importlib.resources import files

from pages.markup import Markup, tag

WIDTH = 860
EDGE = 18  # between the border and whatever is drawn
HEAD_WIDTH, HEAD_HEIGHT = 116, 44
BAND_HEIGHT = 24  # of a bracket with its name
LINE_HEIGHT = 16
STEP_GAP = 14
LABEL_GAP = 5  # between words and their arrow
NOTE_WIDTH, NOTE_SIDE, NOTE_TOP = 236, 10, 7
STRIP_HEIGHT = 24
CLEAR = 12  # what a note keeps from a neighbour's lane
MANY = 3  # lines that stand for a crowd
MANY_APART = 5
TIP = 8

# Thousandths of the font's size, in Helvetica; letters and digits that are not here have 556.
_THOUSANDTHS = {
    **dict.fromkeys("ijl'", 222),
    **dict.fromkeys(" !,./:;I[]ft\\·", 278),
    **dict.fromkeys('()-r`"|{}', 340),
    **dict.fromkeys("ckJsvxyz*", 500),
    **dict.fromkeys("FTZ", 611),
    **dict.fromkeys("ABEKPSVXY&", 667),
    **dict.fromkeys("CDHNRUw", 722),
    **dict.fromkeys("GOQ", 778),
    **dict.fromkeys("mM", 833),
    **dict.fromkeys("W%", 944),
    **dict.fromkeys("…—@→", 1015),
    **dict.fromkeys("+=<>~×≥≤", 584),
}
_USUAL = 556
_SLACK, _BOLD = 1.04, 1.05
SIZES = {"name": 14, "about": 12, "band": 12, "when": 12, "verdict": 12}  # the others have 13
BOLD = ("name", "verdict")


class Kind(StrEnum):
    """What a colour says. A picture's legend has the words."""

    PLAIN = "plain"
    SPARED = "spared"
    SHARED = "shared"
    ASIDE = "aside"


# -- what a picture says -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Lane:
    name: str
    about: str = ""
    crowd: bool = False


@dataclass(frozen=True, slots=True)
class Band:
    """Lanes side by side that are parts of one thing."""

    first: str
    last: str
    name: str


@dataclass(frozen=True, slots=True)
class Says:
    """An arrow from lane to lane; `many` when a whole crowd sends or gets it."""

    source: str
    target: str
    text: str
    kind: Kind = Kind.PLAIN
    many: bool = False


@dataclass(frozen=True, slots=True)
class Does:
    """A note on one lane."""

    lane: str
    text: str
    kind: Kind = Kind.PLAIN


Simple = Says | Does


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    when: str
    steps: Sequence[Simple]
    kind: Kind = Kind.PLAIN


@dataclass(frozen=True, slots=True)
class Either:
    """One of these happens."""

    cases: Sequence[Case]


@dataclass(frozen=True, slots=True)
class Picture:
    title: str
    about: str  # for those who cannot see it
    lanes: Sequence[Lane]
    steps: Sequence[Simple | Either]
    bands: Sequence[Band] = ()
    legend: Mapping[Kind, str] = field(default_factory=dict)


# -- shapes ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Words:
    """One line; `x` is its middle or its left end, `y` its baseline."""

    x: float
    y: float
    text: str
    style: str
    middle: bool = True

    @property
    def left(self) -> float:
        return self.x - self.width / 2 if self.middle else self.x

    @property
    def right(self) -> float:
        return self.left + self.width

    @property
    def width(self) -> float:
        return width_of(self.text, self.style)


@dataclass(frozen=True, slots=True)
class Box:
    x: float
    y: float
    width: float
    height: float
    style: str
    radius: float = 6


@dataclass(frozen=True, slots=True)
class Arrow:
    source: float
    target: float
    y: float
    kind: Kind
    small: bool = False  # one of a crowd's


@dataclass(frozen=True, slots=True)
class Life:
    """A lane's line."""

    x: float
    top: float
    bottom: float


@dataclass(frozen=True, slots=True)
class Bracket:
    left: float
    right: float
    y: float


Shape = Words | Box | Arrow | Life | Bracket


@dataclass(frozen=True, slots=True)
class Layout:
    """`lanes` has the middle of each lane."""

    height: float
    lanes: Mapping[str, float]
    shapes: Sequence[Shape]


def width_of(text: str, style: str = "") -> float:
    first = style.partition(" ")[0]
    thousandths = sum(_THOUSANDTHS.get(c, 667 if c.isupper() else _USUAL) for c in text)
    wide = thousandths / 1000 * SIZES.get(first, 13) * _SLACK
    return wide * _BOLD if first in BOLD else wide


def wrap(text: str, width: float, style: str = "") -> list[str]:
    """Lines of about the same length: as few as there must be, and none longer than needed. A
    newline in the text stays."""
    return [line for part in text.split("\n") for line in _balance(part, width, style)]


def _balance(text: str, width: float, style: str) -> list[str]:
    lines = _fill(text, width, style)
    for narrower in range(int(width), 0, -4):
        tried = _fill(text, narrower, style)
        if len(tried) > len(lines) or any(width_of(line, style) > narrower for line in tried):
            break
        lines = tried
    return lines


def _fill(text: str, width: float, style: str) -> list[str]:
    lines: list[str] = []
    for word in text.split(" "):
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and width_of(longer, style) <= width:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


# -- places ------------------------------------------------------------------------------------


def lay_out(picture: Picture) -> Layout:
    plan = _Plan(picture)
    plan.place_heads()
    for step in picture.steps:
        plan.place(step)
    plan.place_legend()
    return plan.finish()


class _Plan:
    """Shapes so far, and `y`, down to which there are some."""

    def __init__(self, picture: Picture) -> None:
        self._picture = picture
        self._shapes: list[Shape] = []
        self._y: float = EDGE
        self._life_top = self._life_bottom = 0.0
        first, last = EDGE + HEAD_WIDTH / 2, WIDTH - EDGE - HEAD_WIDTH / 2
        apart = (last - first) / max(1, len(picture.lanes) - 1)
        self._lanes = {lane.name: first + apart * at for at, lane in enumerate(picture.lanes)}
        self._crowds = {lane.name for lane in picture.lanes if lane.crowd}

    def place_heads(self) -> None:
        if self._picture.bands:
            for band in self._picture.bands:
                self._place_band(band)
            self._y += BAND_HEIGHT
        top = self._y
        for lane in self._picture.lanes:
            x = self._lanes[lane.name]
            left = x - HEAD_WIDTH / 2
            for shift in (8, 4, 0) if lane.crowd else (0,):  # cards behind the first
                box = Box(left + shift, top - shift, HEAD_WIDTH - 8, HEAD_HEIGHT, "head")
                self._add(box if lane.crowd else Box(left, top, HEAD_WIDTH, HEAD_HEIGHT, "head"))
            middle = x - 4 if lane.crowd else x
            self._add(Words(middle, top + (19 if lane.about else 27), lane.name, "name"))
            if lane.about:
                self._add(Words(middle, top + 35, lane.about, "about"))
        self._life_top = top + HEAD_HEIGHT
        self._y = self._life_top + STEP_GAP

    def _place_band(self, band: Band) -> None:
        left = self._lanes[band.first] - HEAD_WIDTH / 2
        right = self._lanes[band.last] + HEAD_WIDTH / 2
        self._add(Words((left + right) / 2, self._y + 11, band.name, "band"))
        self._add(Bracket(left, right, self._y + BAND_HEIGHT - 6))

    def place(self, step: Simple | Either) -> None:
        match step:
            case Says():
                self._place_arrow(step)
            case Does():
                self._place_note(step)
            case Either():
                self._place_cases(step)

    def _place_arrow(self, step: Says) -> None:
        source, target = self._lanes[step.source], self._lanes[step.target]
        room = abs(target - source) - 2 * CLEAR
        self._y += 11
        for line in wrap(step.text, room):
            self._add(Words((source + target) / 2, self._y, line, f"said {step.kind}"))
            self._y += LINE_HEIGHT
        self._y += LABEL_GAP - 11
        heading = 1 if target > source else -1
        source += heading * self._half(step.source)
        target -= heading * self._half(step.target)
        for at in range(MANY if step.many else 1):
            self._add(Arrow(source, target, self._y + at * MANY_APART, step.kind, small=step.many))
        self._y += (MANY - 1) * MANY_APART * step.many + STEP_GAP

    def _half(self, lane: str) -> float:
        """From a lane's middle to its outer line."""
        return MANY_APART if lane in self._crowds else 0

    def _place_note(self, step: Does) -> None:
        x = self._lanes[step.lane]
        left = max((lane for lane in self._lanes.values() if lane < x), default=EDGE - CLEAR)
        right = min(
            (lane for lane in self._lanes.values() if lane > x), default=WIDTH - EDGE + CLEAR
        )
        lowest, highest = left + CLEAR, right - CLEAR
        is_first, is_last = lowest == EDGE, highest == WIDTH - EDGE
        room = highest - lowest if is_first or is_last else 2 * min(highest - x, x - lowest)
        lines = wrap(step.text, min(room, NOTE_WIDTH) - 2 * NOTE_SIDE)
        wide = max(map(width_of, lines)) + 2 * NOTE_SIDE
        high = len(lines) * LINE_HEIGHT + 2 * NOTE_TOP - 3
        at = min(max(x - wide / 2, lowest), highest - wide)
        self._add(Box(at, self._y, wide, high, f"note {step.kind}"))
        for number, line in enumerate(lines):
            y = self._y + NOTE_TOP + 11 + number * LINE_HEIGHT
            self._add(Words(at + wide / 2, y, line, f"done {step.kind}"))
        self._y += high + STEP_GAP

    def _place_cases(self, step: Either) -> None:
        self._y += 2
        for case in step.cases:
            self._add(Box(1, self._y, WIDTH - 2, STRIP_HEIGHT, "strip", 0))
            baseline = self._y + STRIP_HEIGHT / 2 + 4
            name = Words(EDGE + 2, baseline, case.name, f"verdict {case.kind}", middle=False)
            self._add(name)
            self._add(Words(name.right + 7, baseline, case.when, "when", middle=False))
            self._y += STRIP_HEIGHT + STEP_GAP - 3
            for inner in case.steps:
                self.place(inner)
        self._add(Box(1, self._y, WIDTH - 2, 2, "strip", 0))
        self._y += STEP_GAP

    def place_legend(self) -> None:
        is_ruled = isinstance(self._picture.steps[-1], Either)
        self._life_bottom = self._y - STEP_GAP if is_ruled else self._y
        legend = self._picture.legend
        if not legend:
            return
        x, y = float(EDGE), self._y + (8 if is_ruled else 20)
        for kind, text in legend.items():
            self._add(Arrow(x, x + 26, y - 4, kind))
            words = Words(x + 34, y, text, "when", middle=False)
            self._add(words)
            x = words.right + 26
        self._y = y

    def finish(self) -> Layout:
        lives = [
            Life(x + shift, self._life_top, self._life_bottom)
            for name, x in self._lanes.items()
            for shift in ((-MANY_APART, 0, MANY_APART) if name in self._crowds else (0,))
        ]
        return Layout(self._y + EDGE, self._lanes, [*lives, *self._shapes])

    def _add(self, shape: Shape) -> None:
        self._shapes.append(shape)


# -- drawing -----------------------------------------------------------------------------------


def draw(picture: Picture) -> str:
    """A whole SVG file, that asks nobody for anything."""
    layout = lay_out(picture)
    wide, high = WIDTH, round(layout.height)
    card = Box(0.5, 0.5, wide - 1, high - 1, "card", 10)
    children = [
        tag("title", picture.title, id="title"),
        tag("desc", picture.about, id="about"),
        tag("style", Markup(f"\n{files('pages').joinpath('lanes.css').read_text('utf-8')}")),
        *_markup([card, *layout.shapes]),
    ]
    return (
        tag(
            "svg",
            Markup("\n"),
            [Markup(f"{child}\n") for child in children],
            xmlns="http://www.w3.org/2000/svg",
            viewBox=f"0 0 {wide} {high}",
            width=wide,
            height=high,
            role="img",
            aria_labelledby="title about",
        )
        + "\n"
    )


def _markup(shapes: Iterable[Shape]) -> Iterator[Markup]:
    for shape in shapes:
        match shape:
            case Words(x, y, text, style, middle):
                # Whatever font there is, words take the room that was planned for them.
                yield tag(
                    "text",
                    text,
                    x=x,
                    y=y,
                    class_=f"{style} middle" if middle else style,
                    textLength=round(shape.width),
                    lengthAdjust="spacingAndGlyphs",
                )
            case Box(x, y, width, height, style, radius):
                rounded = radius or None
                yield tag("rect", x=x, y=y, width=width, height=height, rx=rounded, class_=style)
            case Arrow():
                yield _arrow(shape)
            case Life(x, top, bottom):
                yield tag("line", x1=x, x2=x, y1=top, y2=bottom, class_="life")
            case Bracket(left, right, y):
                yield tag("path", d=f"M{left} {y + 4}V{y}H{right}V{y + 4}", class_="bracket")


def _arrow(arrow: Arrow) -> Markup:
    heading = 1 if arrow.target > arrow.source else -1
    size = TIP * 0.75 if arrow.small else TIP
    back = arrow.target - heading * size
    tip = f"M{arrow.target:.2f} {arrow.y}L{back:.2f} {arrow.y - size / 2}V{arrow.y + size / 2}z"
    return tag(
        "g",
        tag("line", x1=arrow.source, x2=back, y1=arrow.y, y2=arrow.y, class_=f"arrow {arrow.kind}"),
        tag("path", d=tip, class_=f"tip {arrow.kind}"),
    )
