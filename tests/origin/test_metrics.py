"""Service pages: /healthz, /readyz, /metrics."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

from origin.metrics import FAILURES
from tests.conftest import StartOrigin
from tests.helpers.origin import MODES, LocalOrigin
from tests.helpers.rawhttp import Client, EventStream


def metrics(origin: LocalOrigin) -> dict[str, float]:
    """Sample name with its labels to value."""
    with origin.connect() as connection:
        reply = connection.request("GET", "/metrics")
    assert reply.status == 200
    assert reply["Content-Type"].startswith("text/plain")
    return {
        sample.name + "".join(f" {value}" for value in sample.labels.values()): sample.value
        for family in text_string_to_metric_families(reply.body.decode())
        for sample in family.samples
    }


def test_failures_are_counted_from_zero(start_origin: StartOrigin) -> None:
    """A counter that first appears as 1 has not risen for Prometheus: an alert would not see it."""
    found = metrics(start_origin("memory"))
    failures = [f"{m} {s}" for m in ("GET", "HEAD", "POST", "PUT", "DELETE") for s in FAILURES]
    assert [found[f"weir_origin_requests_total {failure}"] for failure in failures] == [0] * 15


@pytest.mark.parametrize("mode", MODES)
def test_metrics_tell_what_happened(start_origin: StartOrigin, mode: str) -> None:
    origin = start_origin(mode)
    with origin.client() as client:
        client.create("s", body=b"12345")
        producer = {"Producer-Id": "p", "Producer-Epoch": "0", "Producer-Seq": "0"}
        kind = {"Content-Type": "text/plain"}
        for _ in range(2):
            client("POST", "s", kind | producer, b"678")
        client.append("s", b"9")
        client("POST", "s", {"Content-Type": "image/png"}, b"x")
        client.read("s")
        client.read("missing")
        with EventStream(origin.port, "s") as events:
            events.next_write()
            found = metrics(origin)
    assert found["weir_origin_streams"] == 1
    assert found["weir_origin_stored_bytes"] == 9
    assert found["weir_origin_appends_total"] == 2
    assert found["weir_origin_append_bytes_total"] == 4
    assert found["weir_origin_duplicates_total"] == 1
    assert found["weir_origin_appends_refused_total"] == 1
    assert found["weir_origin_live_readers"] == 1
    assert found["weir_origin_connections"] == 3
    assert found["weir_origin_writable"] == 1
    assert found["weir_origin_requests_total POST 200"] == 1
    assert found["weir_origin_requests_total POST 204"] == 2
    assert found["weir_origin_requests_total GET 404"] == 1
    assert found["weir_origin_requests_total PUT 201"] == 1
    assert found["process_resident_memory_bytes"] > 0


def test_metrics_do_not_grow_with_what_clients_send(origin: LocalOrigin, client: Client) -> None:
    client("PUT", "a")
    before = set(metrics(origin))
    for number in range(20):
        client("PUT", f"stream-{number}")
        client.read(f"missing-{number}")
    assert len(set(metrics(origin)) - before) < 5


def test_health_and_readiness(origin: LocalOrigin) -> None:
    with origin.connect() as connection:
        for path, body in (("/healthz", b"ok"), ("/readyz", b"ready")):
            reply = connection.request("GET", path)
            assert (reply.status, reply.body) == (200, body)
            assert reply["Cache-Control"] == "no-store"
            assert connection.request("HEAD", path).status == 200


def test_readiness_ends_when_draining_begins(origin: LocalOrigin) -> None:
    origin.call(lambda: origin.origin.live.drain())
    with origin.connect() as connection:
        assert connection.request("GET", "/readyz").status == 503
        assert connection.request("GET", "/healthz").status == 200


@pytest.mark.parametrize("path", ["/", "/healthz/", "/healthz/../metrics", "/v1/stream", "/v1"])
def test_other_paths_are_404(origin: LocalOrigin, path: str) -> None:
    with origin.connect() as connection:
        assert connection.request("GET", path).status == 404
