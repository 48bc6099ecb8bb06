from prometheus_client.parser import text_string_to_metric_families

from gateway.metrics import BUCKETS, MAX_SERIES, Metrics
from protocol.accesslog import MODES, VERDICTS


def samples(metrics: Metrics) -> dict[str, float]:
    """Name with its labels in order of their names, to value."""
    return {
        " ".join(
            [sample.name, *(value for _, value in sorted(sample.labels.items()))]
        ): sample.value
        for family in text_string_to_metric_families(metrics.render().decode())
        for sample in family.samples
        if sample.name.startswith("weir_gateway_")
    }


def test_requests_are_counted_by_mode_verdict_and_status() -> None:
    metrics = Metrics()
    for _ in range(3):
        metrics.count_request("catch-up", "hit", 200)
    metrics.count_request("sse", "refused", 401)
    found = samples(metrics)
    assert found["weir_gateway_requests_total catch-up 200 hit"] == 3
    assert found["weir_gateway_requests_total sse 401 refused"] == 1


def test_durations_fall_into_the_bucket_that_holds_them() -> None:
    metrics = Metrics()
    for seconds in (0.0, 0.001, 0.0011, 1000.0):
        metrics.observe("catch-up", seconds)
    metrics.observe("sse", 60.0)
    found = samples(metrics)
    name = "weir_gateway_request_seconds"
    assert found[f"{name}_bucket 0.0005 catch-up"] == 1
    assert found[f"{name}_bucket 0.001 catch-up"] == 2
    assert found[f"{name}_bucket 0.0025 catch-up"] == found[f"{name}_bucket 60.0 catch-up"] == 3
    assert found[f"{name}_bucket +Inf catch-up"] == found[f"{name}_count catch-up"] == 4
    assert found[f"{name}_sum catch-up"] == 1000.0021
    assert (found[f"{name}_bucket 30.0 sse"], found[f"{name}_bucket 60.0 sse"]) == (0, 1)


def test_events_are_counted_by_their_labels() -> None:
    metrics = Metrics()
    metrics.count("token_failures", reason="expired")
    metrics.count("token_failures", 2, reason="missing")
    metrics.count("purges")
    found = samples(metrics)
    assert found["weir_gateway_token_failures_total expired"] == 1
    assert found["weir_gateway_token_failures_total missing"] == 2
    assert found["weir_gateway_purges_total"] == 1


def test_a_label_with_many_values_stops_growing_and_loses_no_count() -> None:
    metrics = Metrics()
    for number in range(10 * MAX_SERIES):
        metrics.count("events", reason=f"r{number}")
        metrics.count("events", reason="r0")
    found = samples(metrics)
    assert len(found) == MAX_SERIES + 1
    assert found["weir_gateway_events_total r0"] == 10 * MAX_SERIES + 1
    assert sum(found.values()) == 20 * MAX_SERIES


def test_readings_are_taken_when_asked() -> None:
    metrics = Metrics()
    state = {"hubs": 1, "live": 5, "read": 7}
    metrics.gauge("hubs", "Hubs.", lambda: state["hubs"])
    metrics.counter("lines", "Lines.", lambda: state["live"] + state["read"])
    metrics.labelled_counter("upstream", "Sent.", lambda: state["live"], kind="live")
    metrics.labelled_counter("upstream", "Sent.", lambda: state["read"], kind="read")
    state["hubs"] = 2
    assert samples(metrics) == {
        "weir_gateway_hubs": 2,
        "weir_gateway_lines_total": 12,
        "weir_gateway_upstream_total live": 5,
        "weir_gateway_upstream_total read": 7,
    }


def test_each_family_is_announced_once() -> None:
    metrics = Metrics()
    for kind in ("live", "read"):
        metrics.labelled_counter("upstream", "Sent.", lambda: 1, kind=kind)
        metrics.count("events", kind=kind)
    types = [line for line in metrics.render().decode().splitlines() if line.startswith("# TYPE")]
    assert len(types) == len(set(types))
    assert "# TYPE weir_gateway_upstream_total counter" in types


def test_the_page_is_bounded_when_everything_happened() -> None:
    metrics = Metrics()
    for mode in MODES:
        metrics.observe(mode, 1.0)
        for verdict in VERDICTS:
            metrics.count_request(mode, verdict, 200)
    assert len(samples(metrics)) == len(MODES) * (len(VERDICTS) + len(BUCKETS) + 3)


def test_the_process_tells_about_itself() -> None:
    metrics = Metrics()
    assert b"\nprocess_resident_memory_bytes " in metrics.render()
    assert metrics.content_type[1].startswith("text/plain")
