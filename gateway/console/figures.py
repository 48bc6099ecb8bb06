"""The workers' counters, added up for the console's charts (pure).

Counters only grow. The page computes differences, so no state is kept here, for any number of
pages. Live requests are excluded from the latency, because they wait by design.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import reduce
from itertools import zip_longest
from typing import Any

import msgspec
from prometheus_client.core import Metric

PREFIX = "weir_gateway_"
READS = ("catch-up", "now", "long-poll", "sse", "snapshot", "bootstrap")
WRITES = ("create", "append", "close", "delete", "publish")
LIVE = ("long-poll", "sse")


class Figures(msgspec.Struct):
    """`latency_counts` has one more than `latency_bounds_s`: requests above the last bound."""

    workers: int
    reads: dict[str, int]  # by verdict
    writes: dict[str, int]
    upstream: dict[str, int]  # by kind
    collapsed: int
    deliveries: int
    readers: int
    hubs: int
    connections: int
    cache_bytes: int
    cache_entries: int
    upstream_up: bool
    latency_bounds_s: list[float]
    latency_counts: list[int]


def count_up(families: Iterable[Metric]) -> Figures:
    """The figures of one worker, from its Prometheus metrics."""
    sums: Counter[str] = Counter()
    reads: Counter[str] = Counter()
    writes: Counter[str] = Counter()
    upstream: Counter[str] = Counter()
    buckets: Counter[float] = Counter()
    for sample in (sample for family in families for sample in family.samples):
        name, has, value = sample.name.removeprefix(PREFIX), sample.labels, int(sample.value)
        if name == "requests_total" and has["mode"] in READS:
            reads[has["verdict"]] += value
        elif name == "requests_total" and has["mode"] in WRITES:
            writes[has["verdict"]] += value
        elif name == "upstream_requests_total":
            upstream[has["kind"]] += value
        elif name == "request_seconds_bucket" and _is_quick(has["mode"]):
            buckets[float(has["le"])] += value
        elif not has:
            sums[name] += value
    return Figures(
        workers=1,
        reads=dict(reads),
        writes=dict(writes),
        upstream=dict(upstream),
        collapsed=sums["collapsed_readers_total"],
        deliveries=sums["hub_deliveries_total"],
        readers=sums["live_readers"],
        hubs=sums["hubs"],
        connections=sums["connections"],
        cache_bytes=sums["cache_bytes"],
        cache_entries=sums["cache_entries"],
        upstream_up=sums["upstream_up"] == 1,
        latency_bounds_s=sorted(buckets)[:-1],
        latency_counts=_apart(buckets),
    )


def add_up(all_figures: Sequence[Figures]) -> Figures:
    """The figures of all workers. Every field is summed by its type, except the bounds."""
    first, *others = all_figures
    return reduce(_add, others, first)


def _add(one: Figures, other: Figures) -> Figures:
    bounds = max(one.latency_bounds_s, other.latency_bounds_s, key=len)  # none without requests
    sums = {
        name: _plus(getattr(one, name), getattr(other, name)) for name in Figures.__struct_fields__
    }
    return Figures(**sums | {"latency_bounds_s": bounds})


def _plus(one: Any, other: Any) -> Any:
    match one:
        case bool():
            return one and other
        case dict():
            return {key: one.get(key, 0) + other.get(key, 0) for key in one | other}
        case list():
            return [a + b for a, b in zip_longest(one, other, fillvalue=0)]
    return one + other


def _is_quick(mode: str) -> bool:
    return mode not in LIVE and mode in (*READS, *WRITES, "head", "bucket", "list")


def _apart(buckets: Counter[float]) -> list[int]:
    """The count of each bucket; Prometheus buckets are cumulative."""
    counts = [buckets[bound] for bound in sorted(buckets)]
    return [count - before for before, count in zip([0, *counts], counts, strict=False)]
