"""What a run comes to: the figures that people compare. Pure."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from loadtest.load.histogram import percentile
from loadtest.load.records import Run

HOME = "weir"
"""Who the others are compared with."""
READS = ("read", "long-poll", "connect")
"""Requests that a cache can answer; each is one at the origin if nothing is shared."""
BUSY_CORES = 0.9
LATE_MS = 20.0
CLOCK_MS = 2.0
"""Timers go by milliseconds: what seems so late need not be."""
OWN_SHARE = 0.25
"""Of the 99th percentile: above it, our own loop is part of the result."""


@dataclass(frozen=True, slots=True)
class Summary:
    done: int
    rate: float
    p50_ms: float
    p90_ms: float
    p99_ms: float
    failed: int
    asked: int
    """Requests of readers."""
    upstream: float
    """Reads at the origin; NaN if nobody counted."""
    peak_mb: float
    limits: tuple[str, ...]
    """Why these figures may be the load generator's own."""

    @property
    def collapse(self) -> float:
        """How many requests of readers one read at the origin has answered."""
        return self.asked / self.upstream if self.upstream else math.inf


def summarise(run: Run, headline: str) -> Summary:
    times = run.times(headline)
    done = run.done(headline)
    return Summary(
        done=done,
        rate=done / run.length,
        p50_ms=percentile(times, 0.5) * 1000,
        p90_ms=percentile(times, 0.9) * 1000,
        p99_ms=percentile(times, 0.99) * 1000,
        failed=sum(run.failures().values()),
        asked=sum(run.done(what) for what in READS),
        upstream=upstream_reads(run),
        peak_mb=max((value for _, value in run.gauge("memory_mb")), default=math.nan),
        limits=_limits_of(run, percentile(times, 0.99) * 1000),
    )


def upstream_reads(run: Run) -> float:
    counts = [value for _, value in run.gauge("upstream")]
    return counts[-1] if counts else math.nan


def _limits_of(run: Run, p99_ms: float) -> tuple[str, ...]:
    ended = run.ended
    if ended is None:
        return ("the run broke off",)
    limits = list(ended.notes)
    if ended.generator_cores > BUSY_CORES:
        limits.append(f"the generator used {ended.generator_cores:.2f} of a core")
    if ended.late_ms > LATE_MS:
        limits.append(f"1 % of the requests left at least {ended.late_ms:.0f} ms late")
    if ended.lag_ms > max(CLOCK_MS, OWN_SHARE * p99_ms):
        limits.append(
            f"up to {ended.lag_ms:.1f} ms of these times are due to the generator, "
            "or to its wait for a core"
        )
    return tuple(limits)


def describe_knobs(knobs: Mapping[str, float]) -> str:
    """Those that are turned up at all, in words."""
    words = {
        "seconds": "{:g} s",
        "readers": "{:,.0f} readers",
        "streams": "{:,.0f} streams",
        "rate": "{:g} a second",
        "size": "{:,.0f} bytes",
    }
    turned = {name: value for name, value in knobs.items() if value and name in words}
    if turned.get("streams") == 1:
        del turned["streams"]
    return ", ".join(form.format(turned[name]) for name, form in words.items() if name in turned)
