"""What the workers count, added up for the console's charts (pure).

Counters only ever grow: the page takes differences, so it needs no memory here and any number of
pages may look. Live requests are left out of the latency: they take as long as nothing happens.
"""

import re
from collections import Counter
from collections.abc import Iterable

import msgspec

PREFIX = "weir_gateway_"
READS = ("catch-up", "now", "long-poll", "sse", "snapshot", "bootstrap")
WRITES = ("create", "append", "close", "delete", "publish")
LIVE = ("long-poll", "sse")

_SAMPLE = re.compile(rf"^{PREFIX}(\w+)(?:\{{(.*)\}})? (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')


class Figures(msgspec.Struct):
    """`latency_counts` has one more than `latency_bounds_s`: what took longer than the last."""

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


def add_up(texts: Iterable[str]) -> Figures:
    """`texts` is what each worker exposes to Prometheus."""
    sums: Counter[str] = Counter()
    reads: Counter[str] = Counter()
    writes: Counter[str] = Counter()
    upstream: Counter[str] = Counter()
    buckets: Counter[float] = Counter()
    workers = 0
    for text in texts:
        workers += 1
        for name, labels, number in _SAMPLE.findall(text):
            has, value = dict(_LABEL.findall(labels)), float(number)
            if name == "requests_total" and has["mode"] in READS:
                reads[has["verdict"]] += int(value)
            elif name == "requests_total" and has["mode"] in WRITES:
                writes[has["verdict"]] += int(value)
            elif name == "upstream_requests_total":
                upstream[has["kind"]] += int(value)
            elif name == "request_seconds_bucket" and _is_quick(has["mode"]):
                buckets[float(has["le"])] += int(value)
            elif not has:
                sums[name] += int(value)
    return Figures(
        workers=workers,
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
        upstream_up=sums["upstream_up"] == workers,
        latency_bounds_s=sorted(buckets)[:-1],
        latency_counts=_apart(buckets),
    )


def _is_quick(mode: str) -> bool:
    return mode not in LIVE and mode in (*READS, *WRITES, "head", "bucket", "list")


def _apart(buckets: Counter[float]) -> list[int]:
    """How many are in each bucket; Prometheus counts all up to its end."""
    counts = [buckets[bound] for bound in sorted(buckets)]
    return [count - before for before, count in zip([0, *counts], counts, strict=False)]
