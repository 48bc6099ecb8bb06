"""Every service's very command, wired as compose wires it: what comes up, and what it does then."""

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.compose.composefile import Json, select
from tests.compose.native import ENDED_BY_TERM, Stack, running
from tests.helpers.gateway import TokenClient
from tests.helpers.rawhttp import Connection, wait_until

PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def stack(
    compose: Json, programs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Stack]:
    services = select(compose, ["dev", "tools"])
    with running(services, tmp_path_factory.mktemp("compose"), programs) as stack:
        token = services.pop("token")
        stack.up()
        services["token"] = token
        yield stack


@pytest.fixture(scope="module")
def token(stack: Stack) -> str:
    return stack.run("token").strip()


@pytest.fixture
def client(stack: Stack, token: str) -> Iterator[TokenClient]:
    """At the only port that compose opens to the world, here without TLS."""
    with TokenClient(stack.ports["envoy", 10000], token) as client:
        yield client


def fetch(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=10) as answer:
        body = answer.read()
    return json.loads(body) if "json" in answer.headers["Content-Type"] else body.decode()


def test_every_service_becomes_healthy(stack: Stack) -> None:
    """`up` has waited for each; what ends by itself has ended well."""
    assert set(stack.running) == {
        *("redis", "origin", "gateway-1", "gateway-2", "envoy"),
        *("heartbeat", "inspector", "prometheus"),
    }
    assert all(process.poll() is None for process in stack.running.values())


def test_a_health_check_can_fail(stack: Stack) -> None:
    for name in ("origin", "gateway-1", "envoy", "redis", "inspector", "prometheus"):
        service, port = stack.services[name], stack.ports
        try:
            stack.ports = {key: 1 for key in port}
            assert not stack.check_health(name), service["healthcheck"]
        finally:
            stack.ports = port


def test_a_stream_is_created_appended_to_and_read_through_envoy(client: TokenClient) -> None:
    client.create("through/envoy")
    client.append("through/envoy", b"hello ")
    client.append("through/envoy", b"world")
    assert client.read("through/envoy").body == b"hello world"


def test_without_a_token_nothing_is_read(stack: Stack) -> None:
    with TokenClient(stack.ports["envoy", 10000], None) as client:
        assert client.read("through/envoy").status == 401


def test_the_metrics_are_not_to_be_had_at_the_front(stack: Stack) -> None:
    with Connection(stack.ports["envoy", 10000]) as connection:
        assert connection.request("GET", "/metrics").status in (401, 404)


def test_the_heartbeat_arrives(client: TokenClient) -> None:
    wait_until(lambda: len(client.read("heartbeat").body) > 2, PATIENCE_S)
    assert client.read("heartbeat").json()[0]["producer"] == "heartbeat"


def test_both_gateways_know_redis_and_write_the_access_log(stack: Stack) -> None:
    for name in ("gateway-1", "gateway-2"):
        assert "weir_gateway_redis_up{" in (metrics := fetch(stack.url(name, 9090) + "/metrics"))
        up = [line for line in metrics.splitlines() if line.startswith("weir_gateway_redis_up{")]
        assert up and all(line.endswith(" 1.0") for line in up), up
    folder = stack.folder / "volume-access-log"
    wait_until(lambda: any(folder.iterdir()), PATIENCE_S)


def test_prometheus_finds_everyone(stack: Stack) -> None:
    def healthy() -> set[str]:
        found = fetch(stack.url("prometheus", 9090) + "/api/v1/targets")["data"]["activeTargets"]
        return {target["labels"]["job"] for target in found if target["health"] == "up"}

    everyone = {"weir-envoy", "weir-gateway", "weir-origin", "prometheus"}
    wait_until(lambda: healthy() == everyone, PATIENCE_S)


def test_prometheus_judges_by_the_alerts_and_complains_of_nothing(stack: Stack) -> None:
    url = stack.url("prometheus", 9090) + "/api/v1/rules"

    def rules() -> list[Json]:
        return [rule for group in fetch(url)["data"]["groups"] for rule in group["rules"]]

    wait_until(lambda: all(rule["health"] == "ok" for rule in rules()), PATIENCE_S)
    assert len(rules()) > 20
    assert [rule["name"] for rule in rules() if rule["state"] != "inactive"] == []


def test_the_inspector_shows_what_goes_to_the_origin(stack: Stack) -> None:
    key = (stack.folder / "volume-shared/origin-key").read_text().strip()
    headers = {"Host": "localhost", "Weir-Access-Key": key}
    with Connection(stack.ports["inspector", 4438]) as connection:
        assert connection.request("GET", "/v1/stream/heartbeat?offset=-1", headers).status == 200
    flows = fetch(stack.url("inspector", 8081) + "/flows")
    [flow] = [flow for flow in flows if flow["request"]["path"].startswith("/v1/stream/heartbeat")]
    assert flow["comment"].startswith("origin | catch-up | -1 → ")


def test_only_volumes_are_written_to(stack: Stack) -> None:
    for place in stack.folder.glob("place-*"):
        assert [path.name for path in place.iterdir()] == ["configs"], place


def test_the_private_key_is_where_only_its_users_look(stack: Stack) -> None:
    [key] = stack.folder.rglob("dev-key.pem")
    assert key.parent.name == "volume-dev-key"


def test_everything_stops_when_it_is_asked_to(stack: Stack) -> None:
    """The last test: front to back, as compose does it."""
    for names in (["heartbeat"], ["envoy"], ["gateway-1", "gateway-2"], ["origin"]):
        assert set(stack.stop(*names)) == {0}, "".join(map(stack.words, names))
    assert set(stack.stop(*stack.running)) <= set(ENDED_BY_TERM)
