"""Whether anything grew in a soak, and whether its crowd was there. Pure."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median_low

from loadtest.load.records import Run
from loadtest.soak.trend import Tolerance, Trend, find_trend

TOLERANCES = {
    "memory_mb": Tolerance(share=0.05, least=5.0),
    "descriptors": Tolerance(share=0.02, least=20.0),
    "tasks": Tolerance(share=0.05, least=20.0),
}
MOST_FAILURES = 0.001  # of all that was asked
LEAST_READERS = 0.95  # of the crowd, at the median: some are always on their way


@dataclass(frozen=True, slots=True)
class Verdict:
    trends: Mapping[str, Trend]
    done: Counter[str]
    failed: Counter[str]
    complaints: list[str]


def judge(run: Run, warm_up_s: float, readers: int) -> Verdict:
    """What was before the end of the warm-up is not judged."""
    gauges = [gauges for gauges in run.gauges if gauges.second >= warm_up_s]
    names = dict.fromkeys(name for one in gauges for name in one.values)
    trends: dict[str, Trend] = {}
    for name in names:
        measure = name.rpartition(" ")[2]
        if measure in TOLERANCES and " " in name:
            points = [(one.second, one.values[name]) for one in gauges if name in one.values]
            trends[name] = find_trend(points, TOLERANCES[measure])
    done, failed = Counter[str](), Counter[str]()
    for second in run.seconds:
        if second.second >= warm_up_s:
            done[second.what] += second.done
            for reason, count in second.failed.items():
                failed[f"{second.what}: {reason}"] += count
    present = median_low([one.values.get("waiting", 0.0) for one in gauges] or [0.0])
    complaints = [
        f"{name} grew by {trend.growth:.1f}, {trend.allowed:.1f} is allowed"
        for name, trend in trends.items()
        if not trend.is_flat
    ]
    if failed.total() > (done.total() + failed.total()) * MOST_FAILURES:
        asked = done.total() + failed.total()
        complaints.append(f"{failed.total()} of {asked} requests failed: {dict(failed)}")
    if present < readers * LEAST_READERS:
        complaints.append(f"{present:.0f} readers were there at the median, not {readers}")
    if not trends:
        complaints.append("nothing was sampled after the warm-up")
    return Verdict(trends, done, failed, complaints)


def describe(verdict: Verdict) -> str:
    lines = [f"{'measure':24} {'level':>9} {'growth':>9} {'allowed':>9}"]
    for name, trend in verdict.trends.items():
        mark = "" if trend.is_flat else "  GREW"
        lines.append(
            f"{name:24} {trend.level:9.1f} {trend.growth:+9.1f} {trend.allowed:9.1f}{mark}"
        )
    counts = ", ".join(f"{what} {count:,}" for what, count in sorted(verdict.done.items()))
    lines += ["", f"done: {counts}", f"failed: {dict(verdict.failed) or 'nothing'}"]
    lines += ["", *verdict.complaints] if verdict.complaints else ["", "flat: nothing grew"]
    return "\n".join(lines)
