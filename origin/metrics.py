"""Prometheus metrics of the origin: requests by method and status, and its own counters."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

from prometheus_client.core import CounterMetricFamily, Metric

from wire.metrics import ServiceMetrics

H = TypeVar("H", bound=Hashable)

FAILURES = (500, 503, 507)  # damage or a bug, overload or no writes, a full disk


class Metrics(ServiceMetrics):
    def __init__(self) -> None:
        super().__init__("weir_origin_")
        self._requests: Counter[tuple[str, int]] = Counter()
        for method in ("GET", "HEAD", "POST", "PUT", "DELETE"):  # alerts need a rise from 0
            self._requests.update({(method, status): 0 for status in FAILURES})

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


class CountOver(Generic[H]):
    """The sum of a counter of each one. It never falls: those that leave, as shards do, keep their
    part."""

    def __init__(self, all_: Callable[[], Iterable[H]], count: Callable[[H], int]) -> None:
        self._all = all_
        self._count = count
        self._last: dict[H, int] = {}
        self._left = 0

    def __call__(self) -> int:
        now = {each: self._count(each) for each in self._all()}
        self._left += sum(n for each, n in self._last.items() if each not in now)
        self._last = now
        return self._left + sum(now.values())
