"""Prometheus metrics of the origin: requests by method and status, and its own counters."""

from collections import Counter
from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, Metric

from wire.metrics import ServiceMetrics


class Metrics(ServiceMetrics):
    def __init__(self) -> None:
        super().__init__("weir_origin_")
        self._requests: Counter[tuple[str, int]] = Counter()

    def count(self, method: str, status: int) -> None:
        self._requests[method, status] += 1

    def collect(self) -> Iterable[Metric]:
        requests = CounterMetricFamily(
            self.prefix + "requests", "Requests by method and status.", labels=["method", "status"]
        )
        for (method, status), value in self._requests.items():
            requests.add_metric([method, str(status)], value)
        yield requests
        yield from super().collect()
