"""Prometheus metrics of a service, read from its counters on request.

Labels have few values, all defined by us: a label per stream or subject would cost more memory than
the stream itself.
"""

from collections.abc import Callable, Iterable

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

Reading = Callable[[], float]
Family = CounterMetricFamily | GaugeMetricFamily


class ServiceMetrics(Collector):
    """Shared by both services; `prefix` starts every name."""

    content_type: tuple[str, str] = ("Content-Type", CONTENT_TYPE_LATEST)

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self._readings: dict[str, tuple[type[Family], str, list[tuple[dict[str, str], Reading]]]]
        self._readings = {}
        self._registry = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def counter(self, name: str, text: str, reading: Reading) -> None:
        self._add(CounterMetricFamily, name, text, reading, {})

    def labelled_counter(self, name: str, text: str, reading: Reading, **labels: str) -> None:
        """One of several counters of that name, distinguished by labels."""
        self._add(CounterMetricFamily, name, text, reading, labels)

    def gauge(self, name: str, text: str, reading: Reading) -> None:
        self._add(GaugeMetricFamily, name, text, reading, {})

    def labelled_gauge(self, name: str, text: str, reading: Reading, **labels: str) -> None:
        """One of several gauges of that name, distinguished by labels."""
        self._add(GaugeMetricFamily, name, text, reading, labels)

    def render(self) -> bytes:
        return generate_latest(self._registry)

    def collect(self) -> Iterable[Metric]:
        for name, (kind, text, readings) in self._readings.items():
            family = kind(self.prefix + name, text, labels=tuple(readings[0][0]))
            for labels, reading in readings:
                family.add_metric(tuple(labels.values()), reading())
            yield family

    def _add(
        self, kind: type[Family], name: str, text: str, reading: Reading, labels: dict[str, str]
    ) -> None:
        _, _, readings = self._readings.setdefault(name, (kind, text, []))
        readings.append((labels, reading))
