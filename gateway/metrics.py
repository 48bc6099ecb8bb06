"""Prometheus metrics of the gateway: requests by outcome, their duration, and events that modules
count by name. `count_request` and `observe` run for every request, hits only add to `hits`."""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric

from gateway.outcomes import HIT
from wire.metrics import ServiceMetrics

BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 30.0, 60.0)
MAX_SERIES = 100  # per name; the label values of all others become OTHER
OTHER = "other"

# Descriptions of events whose names do not explain them.
_TEXTS = {"token_failures": "Requests refused because of their token, by reason."}

Labels = tuple[tuple[str, str], ...]


class Metrics(ServiceMetrics):
    def __init__(self) -> None:
        super().__init__("weir_gateway_")
        self._requests: defaultdict[tuple[str, str, int], int] = defaultdict(int)
        self._events: defaultdict[str, Counter[Labels]] = defaultdict(Counter)
        self._durations: defaultdict[str, _Durations] = defaultdict(_Durations)
        self.hits = 0  # not collected yet

    def count_request(self, mode: str, verdict: str, status: int) -> None:
        self._requests[mode, verdict, status] += 1

    def observe(self, mode: str, seconds: float) -> None:
        durations = self._durations[mode]
        durations.counts[bisect_left(BUCKETS, seconds)] += 1
        durations.total_s += seconds

    def count(self, name: str, amount: int = 1, **labels: str) -> None:
        """Count an event; `name` without `_total`, always with the same labels."""
        series = self._events[name]
        key = tuple(labels.items())
        if key not in series and len(series) >= MAX_SERIES:
            key = tuple((label, OTHER) for label in labels)
        series[key] += amount

    def collect(self) -> Iterable[Metric]:
        if self.hits:
            self.count_hits()
        yield self._collect_requests()
        yield self._collect_durations()
        for name, series in self._events.items():
            yield self._collect_events(name, series)
        yield from super().collect()

    def count_hits(self) -> None:
        """Reads of stored chunks, whose duration is negligible; counted in bulk."""
        hits, self.hits = self.hits, 0
        self._requests["catch-up", HIT.verdict, 200] += hits
        self._durations["catch-up"].counts[0] += hits

    def _collect_requests(self) -> Metric:
        text = "Requests by mode, verdict and status."
        labels = ["mode", "verdict", "status"]
        family = CounterMetricFamily(self.prefix + "requests", text, labels=labels)
        for (mode, verdict, status), value in self._requests.items():
            family.add_metric([mode, verdict, str(status)], value)
        return family

    def _collect_durations(self) -> Metric:
        text = "Request duration, by mode."
        family = HistogramMetricFamily(self.prefix + "request_seconds", text, labels=["mode"])
        for mode, durations in self._durations.items():
            family.add_metric([mode], durations.buckets(), durations.total_s)
        return family

    def _collect_events(self, name: str, series: Counter[Labels]) -> Metric:
        family = CounterMetricFamily(
            self.prefix + name, _TEXTS.get(name, name.replace("_", " ").capitalize() + ".")
        )
        for labels, value in series.items():
            family.add_sample(f"{self.prefix}{name}_total", dict(labels), value)
        return family


class _Durations:
    __slots__ = ("counts", "total_s")

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS) + 1)
        self.total_s = 0.0

    def buckets(self) -> list[tuple[str, float]]:
        """The upper bound of each bucket with its cumulative count."""
        return list(zip((*map(str, BUCKETS), "+Inf"), accumulate(self.counts), strict=True))
