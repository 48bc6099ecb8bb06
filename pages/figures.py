"""Human-readable numbers: three digits and a unit. Pure.

A share is never rounded to 0 % or 100 %, because those have a different meaning.
"""

import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from pages.times import DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS

NBSP = "\u00a0"
NOTHING = "–"
COUNT_UNITS = ("", "k", "M", "bn", "tn")
BYTE_UNITS = ("B", "kB", "MB", "GB", "TB", "PB", "EB")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LAST_MS = int((datetime(9999, 12, 31, tzinfo=UTC) - EPOCH) / timedelta(milliseconds=1))

Format = Callable[[float], str]


def count(value: float) -> str:
    """1234567 → 1.23 M"""
    return _scaled(value, COUNT_UNITS)


def exact(value: int) -> str:
    """1234567 → 1,234,567"""
    return f"{value:,}"


def size(value: float) -> str:
    """Decimal units: 1234567 → 1.23 MB"""
    return _scaled(value, BYTE_UNITS)


def times(value: float) -> str:
    """41.27 → 41.3 ×"""
    return f"{_scaled(value, COUNT_UNITS)}{NBSP}×" if math.isfinite(value) else NOTHING


def share(value: float) -> str:
    """0.99996 → >99.99 %"""
    if not math.isfinite(value):
        return NOTHING
    percent = value * 100
    if 0 < percent < 0.01:
        return f"<0.01{NBSP}%"
    if 99.99 < percent < 100:
        return f">99.99{NBSP}%"
    digits = 2 if 99 < percent < 100 or 0 < percent < 1 else 1
    return f"{_trim(f'{percent:.{digits}f}')}{NBSP}%"


def duration(ms: float) -> str:
    """0.421 → 0.42 ms, 65000 → 1 min 5 s"""
    if not math.isfinite(ms):
        return NOTHING
    if ms < 0:
        return f"−{duration(-ms)}"
    if ms < 999.5:
        return f"{_digits(ms)}{NBSP}ms"
    if ms < MINUTE_MS - 50:
        return f"{_digits(ms / 1000)}{NBSP}s"
    seconds = round(ms / 1000)
    if seconds < 3600:
        return _pair(seconds, 60, "min", "s")
    if seconds < 86400:
        return _pair(round(seconds / 60), 60, "h", "min")
    hours = round(seconds / 3600)
    if hours < 24 * 1000:
        return _pair(hours, 24, "d", "h")
    return f"{count(hours / 24)}{NBSP}d"


def moment(ms: float, pattern: str = "%-d %b %Y, %H:%M") -> str:
    """In UTC; limited to valid dates, because clocks may be wrong by any amount."""
    at = EPOCH + timedelta(milliseconds=min(max(ms, 0), LAST_MS))
    return at.strftime(pattern)


def period(first_ms: int, last_ms: int) -> str:
    """From one moment to another; a common day appears once."""
    day = "%-d %b %Y"
    clock = "%H:%M" if last_ms - first_ms >= HOUR_MS else "%H:%M:%S"
    first, last = moment(first_ms, day), moment(last_ms, day)
    if first == last:
        return f"{first}, {moment(first_ms, clock)} to {moment(last_ms, clock)} UTC"
    return f"{moment(first_ms)} to {moment(last_ms)} UTC"


def slot_name(at_ms: int, step_ms: int) -> str:
    """The name of one step on a time axis."""
    if step_ms < MINUTE_MS:
        return moment(at_ms, "%-d %b %Y, %H:%M:%S")
    if step_ms < DAY_MS:
        return f"{moment(at_ms)}–{moment(at_ms + step_ms, '%H:%M')}"
    day = "%-d %b %Y"
    if step_ms == DAY_MS:
        return moment(at_ms, day)
    return f"{moment(at_ms, day)} – {moment(at_ms + step_ms - DAY_MS, day)}"


def step_name(step_ms: int) -> str:
    """For captions: every minute, every 15 min."""
    singles = {
        SECOND_MS: "second",
        MINUTE_MS: "minute",
        HOUR_MS: "hour",
        DAY_MS: "day",
        7 * DAY_MS: "week",
    }
    return singles.get(step_ms) or duration(step_ms)


def plural(value: int, one: str, many: str | None = None) -> str:
    """In sentences: 1 stream, 2,345 streams, 1.23 M streams"""
    number = exact(value) if value < 1_000_000 else count(value)
    return f"{number} {one if value == 1 else many or one + 's'}"


def ratio(part: float, whole: float) -> float:
    """NaN if the whole is 0."""
    return part / whole if whole else math.nan


def _scaled(value: float, units: tuple[str, ...]) -> str:
    if not math.isfinite(value):
        return NOTHING
    if value < 0:
        return f"−{_scaled(-value, units)}"
    power = 0
    scaled = float(value)
    while scaled >= 999.5 and power < len(units) - 1:
        scaled /= 1000
        power += 1
    if scaled >= 999.5:  # beyond all units
        return f"{value:.3g}{NBSP}{units[0]}".strip().replace("e+", "e")
    digits = _digits(scaled)
    return f"{digits}{NBSP}{units[power]}" if units[power] else digits


def _digits(value: float) -> str:
    """Three significant digits, at most three decimals."""
    if 0 < value < 0.001:
        return "<0.001"
    decimals = 3 if value < 0.01 else 2 if value < 9.995 else 1 if value < 99.95 else 0
    return _trim(f"{value:.{decimals}f}")


def _trim(digits: str) -> str:
    return digits.rstrip("0").rstrip(".") if "." in digits else digits


def _pair(smaller: int, per: int, large: str, small: str) -> str:
    whole, rest = divmod(smaller, per)
    first = f"{whole}{NBSP}{large}"
    return f"{first} {rest}{NBSP}{small}" if rest else first
