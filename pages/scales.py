"""Positions of values and ticks on an axis. Pure."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from pages.figures import duration, moment, slot_name
from pages.times import DAY_MS, HOUR_MS, MINUTE_MS, STEPS_MS

MOST_LABELS = 9
FEWEST_SLOTS = 15  # so that a few bars are not too wide
NICE = (1, 2, 2.5, 5, 10)
DECADES = tuple(10.0**power for power in range(-2, 31))
DURATIONS_MS = (
    *(0.01, 0.1, 1.0, 10.0, 100.0, 1e3, 1e4),
    *(MINUTE_MS * n for n in (1.0, 10.0)),
    *(HOUR_MS * n for n in (1.0, 10.0)),
    *(DAY_MS * 10.0**power for power in range(1, 16)),
)


@dataclass(frozen=True, slots=True)
class Scale:
    """From `low` at 0 to `high` at 1; values outside are clamped."""

    low: float
    high: float
    ticks: tuple[float, ...]
    logarithmic: bool = False
    floored: bool = False  # some values are below `low`

    def at(self, value: float) -> float:
        value = min(max(value, self.low), self.high)
        if self.logarithmic:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


def linear_scale(values: Iterable[float], *, whole: bool = False) -> Scale:
    """From 0; `whole` for integers."""
    top = max((v for v in values if math.isfinite(v)), default=0.0)
    if top <= 0:
        return Scale(0.0, 1.0, (0.0, 1.0))
    rough = top / 4
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(nice * power for nice in NICE if nice * power >= rough * 0.999)
    if whole:
        step = max(1.0, step if step == int(step) else math.ceil(step))
    steps = math.ceil(top / step - 1e-9)
    return Scale(0.0, steps * step, tuple(n * step for n in range(steps + 1)))


SHARE = Scale(0.0, 1.0, (0.0, 0.25, 0.5, 0.75, 1.0))


def log_scale(values: Iterable[float], marks: Sequence[float] = DECADES) -> Scale:
    """From the last mark below the values to the first above them; zeros are at the bottom."""
    known = [value for value in values if math.isfinite(value)]
    low, high = min(known, default=1.0), max(known, default=1.0)
    first = max((n for n, mark in enumerate(marks) if mark <= low), default=0)
    last = min((n for n, mark in enumerate(marks) if mark >= high), default=len(marks) - 1)
    last = min(max(last, first + 1), len(marks) - 1)
    every = -(-(last - first) // 6)  # label some of them only
    return Scale(
        marks[first], marks[last], tuple(marks[first : last + 1 : every]), True, low < marks[0]
    )


def shares_of(values: Sequence[float]) -> list[float]:
    """Each relative to the largest: the length of its bar."""
    top = max((v for v in values if math.isfinite(v)), default=0)
    return [max(v, 0) / top if top > 0 and math.isfinite(v) else 0.0 for v in values]


class Axis(Protocol):
    """Steps side by side."""

    @property
    def slots(self) -> int: ...

    @property
    def key(self) -> str:
        """Charts with the same key share a cursor."""

    @property
    def heading(self) -> str:
        """Heading of the step column in a table."""

    @property
    def span(self) -> str:
        """The range in words, for screen readers."""

    def name(self, slot: int) -> str: ...

    def ticks(self) -> list[tuple[float, str]]:
        """Position (0 to 1) and label of each tick."""


@dataclass(frozen=True, slots=True)
class NamedAxis:
    heading: str
    names: tuple[str, ...]

    @property
    def slots(self) -> int:
        return len(self.names)

    @property
    def key(self) -> str:
        return f"{self.heading}/{self.slots}"

    @property
    def span(self) -> str:
        return f"{self.names[0]} to {self.names[-1]}"

    def name(self, slot: int) -> str:
        return self.names[slot]

    def ticks(self) -> list[tuple[float, str]]:
        return [((slot + 0.5) / self.slots, name) for slot, name in enumerate(self.names)]


@dataclass(frozen=True, slots=True)
class TimeAxis:
    """From `first_ms` on."""

    first_ms: int
    step_ms: int
    slots: int

    @property
    def key(self) -> str:
        return f"{self.first_ms}/{self.step_ms}/{self.slots}"

    @property
    def span_ms(self) -> int:
        return self.step_ms * self.slots

    def slot(self, at_ms: int) -> int:
        return (at_ms - self.first_ms) // self.step_ms

    def start(self, slot: int) -> int:
        return self.first_ms + slot * self.step_ms

    @property
    def heading(self) -> str:
        return "Time (UTC)"

    @property
    def span(self) -> str:
        return f"{moment(self.first_ms)} to {moment(self.start(self.slots))} UTC"

    def name(self, slot: int) -> str:
        return slot_name(self.start(slot), self.step_ms)

    def ticks(self) -> list[tuple[float, str]]:
        longest = STEPS_MS[-1]
        beyond = -(-self.span_ms // (MOST_LABELS * longest)) * longest
        step = next((s for s in STEPS_MS if self.span_ms / s <= MOST_LABELS), beyond)
        first = -(-self.first_ms // step) * step
        last = self.first_ms + self.span_ms
        times = range(first, last, step)
        return [((at - self.first_ms) / self.span_ms, self._label(at, step)) for at in times]

    def _label(self, at_ms: int, tick_ms: int) -> str:
        if tick_ms >= 3640 * DAY_MS:
            return moment(at_ms, "%Y")
        if tick_ms >= 91 * DAY_MS:
            return moment(at_ms, "%b %Y")
        if at_ms % DAY_MS == 0:
            return moment(at_ms, "%-d %b")
        return moment(at_ms, "%H:%M" if tick_ms >= MINUTE_MS else "%H:%M:%S")


class ElapsedAxis(TimeAxis):
    """Counted from its own start."""

    @property
    def heading(self) -> str:
        return "After"

    @property
    def span(self) -> str:
        return f"over {duration(self.span_ms)}"

    def name(self, slot: int) -> str:
        return duration(self.start(slot + 1))

    def _label(self, at_ms: int, tick_ms: int) -> str:
        return duration(at_ms) if at_ms else "0"


def time_axis(times_ms: Sequence[int], step_ms: int, most_slots: int) -> TimeAxis:
    """Covers all times; ValueError if the step is too small."""
    first, last = min(times_ms), max(times_ms)
    slots = (last - first) // step_ms + 1
    if slots > most_slots:
        raise ValueError(f"{slots} steps of {step_ms} ms are too many to show: see choose_step")
    if (more := FEWEST_SLOTS - slots) > 0:
        before = min(more // 2, first // step_ms)
        return TimeAxis(first - before * step_ms, step_ms, FEWEST_SLOTS)
    return TimeAxis(first, step_ms, slots)
