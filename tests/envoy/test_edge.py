"""What Envoy does by itself: whom it asks, what it tells them, what it keeps away from them.

The gateways are scripted here, so that all that reaches them is seen.
"""

import errno
import re
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse_metrics

from gateway.config import GatewayConfig
from loadtest.peers.process import free_port
from tests.helpers.envoy import Envoy, running_envoy
from tests.helpers.gateway import KEY, bearer, make_gateway_config
from tests.helpers.http2 import Http2
from tests.helpers.keys import make_key, make_token, write_jwks
from tests.helpers.rawhttp import PREFIX, Connection, encode_request, wait_until
from tests.helpers.scripted_origin import Answer, Recorded, ScriptedOrigin, dropped
from tests.hostile.gateway.arena import check_refusal
from weir.edge.certificates import LIFETIME, ensure_dev_certificate
from weir.edge.listeners import METRICS_PATH

PATH = PREFIX + "a"
PRODUCER = {"Producer-Id": "p", "Producer-Epoch": "0", "Producer-Seq": "0"}


class Edge:
    """Envoy before two scripted gateways, which are ready and answer 200."""

    def __init__(self, envoy: Envoy, gateways: list[ScriptedOrigin]) -> None:
        self.envoy = envoy
        self.gateways = gateways
        self.headers = bearer(make_token(KEY))

    def connect(self) -> Connection:
        return Connection(self.envoy.plain_port)

    def requests(self, path: str) -> list[Recorded]:
        """What came for it, at whatever gateway."""
        return [found for gateway in self.gateways for found in gateway.find(path=path)]

    def home(self, path: str) -> ScriptedOrigin:
        """The gateway that is asked for it now."""
        before = [gateway.count(path=path) for gateway in self.gateways]
        with self.connect() as connection:
            connection.request("GET", path, self.headers)
        counts = zip(self.gateways, before, strict=True)
        (found,) = [gateway for gateway, count in counts if gateway.count(path=path) > count]
        return found


@contextmanager
def running_edge(folder: Path, config: GatewayConfig | None = None, **more: Any) -> Iterator[Edge]:
    with ExitStack() as stack:
        gateways = [stack.enter_context(ScriptedOrigin()) for _ in range(2)]
        for gateway in gateways:
            gateway.on("*", "*", Answer(200, {}, b"ok"))
        config = config or make_gateway_config("http://127.0.0.1:1")
        urls = [gateway.url for gateway in gateways]
        envoy = stack.enter_context(running_envoy(folder, urls, config, **more))
        yield Edge(envoy, gateways)


@pytest.fixture(scope="module")
def edge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Edge]:
    serving = {"header_timeout_secs": 0.3, "max_header_bytes": 16 * 1024}
    config = make_gateway_config("http://127.0.0.1:1", gateway=serving)
    with running_edge(tmp_path_factory.mktemp("edge"), config) as edge:
        yield edge


# -- what goes on --------------------------------------------------------------------------------


def test_nobody_says_who_he_is_but_by_his_token(edge: Edge) -> None:
    forged = {
        "X-JWT-Sub": "root",
        "x-jwt-claim-scope": "read:*",
        "X-Forwarded-For": "10.1.1.1",
        "X-Forwarded-Proto": "gopher",
        "X-Forwarded-Host": "evil",
        "X-Real-IP": "10.1.1.1",
        "Forwarded": "for=10.1.1.1",
        "X-Original-URL": "/metrics",
        "X-HTTP-Method-Override": "DELETE",
        "X-Request-Id": "chosen",
        "X-Envoy-Upstream-Rq-Timeout-Ms": "1",
        "X-Envoy-Retry-On": "5xx",
        "X-Envoy-Max-Retries": "9",
        "X-Envoy-Internal": "true",
    }
    with edge.connect() as connection:
        assert connection.request("GET", PATH, edge.headers | forged).status == 200
    (seen,) = edge.requests(PATH)
    told = {name: value for name, value in seen.headers.items() if name not in edge.headers}
    assert told["authorization"] == edge.headers["Authorization"]  # it is checked once more
    assert told["x-forwarded-proto"] == "http"
    assert told["x-forwarded-for"].startswith("10.1.1.1,")  # what counts is what Envoy added
    assert told["x-request-id"] != "chosen"
    left = {"host", "authorization", "x-forwarded-for", "x-forwarded-proto", "x-request-id"}
    assert {*told} - left <= {"x-envoy-external-address"}


def test_the_gateway_is_told_that_a_client_came_by_tls(edge: Edge) -> None:
    with Http2(edge.envoy.port, edge.envoy.tls("h2")) as client:
        assert client.request("GET", f"{PATH}/tls", edge.headers).status == 200
    (seen,) = edge.requests(f"{PATH}/tls")
    assert seen.headers["x-forwarded-proto"] == "https"


@pytest.mark.parametrize("offered", [["http/1.1"], []], ids=["http/1.1", "nothing"])
def test_a_client_without_http_2_comes_by_tls_as_well(edge: Edge, offered: list[str]) -> None:
    path, tls = f"{PATH}/tls-{len(offered)}", edge.envoy.tls()
    tls.set_alpn_protocols(offered)
    with Connection(edge.envoy.port, tls) as connection:
        assert isinstance(connection.socket, ssl.SSLSocket)
        chosen = connection.socket.selected_alpn_protocol()
        assert chosen == (offered[0] if offered else None)
        reply = connection.request("POST", path, edge.headers, b"one")
        assert (reply.status, reply.body) == (200, b"ok")
        assert connection.request("POST", path, edge.headers, b"two").status == 200
        check_refusal(connection.request("GET", path), 401)
    seen = edge.requests(path)
    assert [request.body for request in seen] == [b"one", b"two"]
    assert {request.headers["x-forwarded-proto"] for request in seen} == {"https"}
    wait_until(lambda: reply["X-Request-Id"] in edge.envoy.access_log.read_text())
    (line,) = [x for x in edge.envoy.log() if x["request_id"] == reply["X-Request-Id"]]
    assert line["protocol"] == "HTTP/1.1" and line["tls"].startswith("TLSv1.")


def test_the_log_is_json_and_has_no_token_in_it(edge: Edge) -> None:
    token = make_token(KEY, sub="logged")
    with edge.connect() as connection:
        target = f"{PATH}?offset=-1&live=sse&access_token={token}"
        reply = connection.request("GET", target, bearer(token) | {"User-Agent": 'a"b\\c'})
    wait_until(lambda: reply["X-Request-Id"] in edge.envoy.access_log.read_text())
    (line,) = [x for x in edge.envoy.log() if x["request_id"] == reply["X-Request-Id"]]
    assert (line["method"], line["path"], line["status"]) == ("GET", PATH, 200)
    assert (line["offset"], line["live"], line["route"]) == ("-1", "sse", "read")
    assert line["user_agent"] == 'a"b\\c' and line["bytes_out"] == 2
    assert not [part for part in token.split(".") if part in edge.envoy.access_log.read_text()]


# -- gateways that fail --------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_read_that_was_cut_off_is_tried_at_another_gateway(edge: Edge, method: str) -> None:
    path = f"{PATH}/cut-{method}"
    edge.home(path).on("*", path, dropped(reset=True))
    with edge.connect() as connection:
        assert connection.request(method, path, edge.headers).status == 200


def test_an_append_is_repeated_only_where_that_is_harmless(edge: Edge) -> None:
    path = f"{PATH}/appended"
    edge.home(path).on("POST", path, dropped(reset=True))
    before = len(edge.requests(path))
    with edge.connect() as connection:
        plain = connection.request("POST", path, edge.headers, b"x")
        check_refusal(plain, 503)
        assert plain.json()["code"] == "unavailable" and plain["Retry-After"] == "1"
        assert len(edge.requests(path)) == before + 1
        assert connection.request("POST", path, edge.headers | PRODUCER, b"x").status == 200
    assert len(edge.requests(path)) == before + 3


@pytest.mark.parametrize("status", [500, 502, 503, 504, 404, 429])
def test_an_answer_never_counts_against_its_gateway_nor_is_it_asked_for_twice(
    edge: Edge, status: int
) -> None:
    """When the origin is away, every gateway says so: none would be left."""
    path = f"{PATH}/{status}"
    for gateway in edge.gateways:
        gateway.on("GET", path, Answer(status, {"Content-Type": "text/plain"}, b"as it is"))
    with edge.connect() as connection:
        for _ in range(20):
            reply = connection.request("GET", path, edge.headers)
            assert (reply.status, reply.body) == (status, b"as it is")
    assert len(edge.requests(path)) == 20
    assert edge.envoy.healthy_gateways() == 2
    assert edge.envoy.stat("cluster.gateways.outlier_detection.ejections_active") == 0


def test_who_breaks_its_connections_is_ejected_long_before_the_next_look(tmp_path: Path) -> None:
    """It is ready, says its health check, and the next one is far away."""
    ejected = "cluster.gateways.outlier_detection.ejections_active"
    with running_edge(tmp_path, health_secs=60.0) as edge, edge.connect() as connection:
        path = f"{PATH}/broken"
        home = edge.home(path)
        home.on("GET", path, dropped(reset=True))

        def is_ejected() -> bool:
            assert connection.request("GET", path, edge.headers).status == 200
            return edge.envoy.stat(ejected) == 1

        assert edge.envoy.stat(ejected) == 0
        wait_until(is_ejected, what="the ejection")
        before = home.count(path=path)
        for _ in range(10):
            assert connection.request("GET", path, edge.headers).status == 200
        assert home.count(path=path) == before
        assert edge.envoy.healthy_gateways() == 1


def test_who_is_not_ready_gets_nothing_more(edge: Edge) -> None:
    path = f"{PATH}/moving"
    home = edge.home(path)
    home.on("GET", "/readyz", Answer(503))
    try:
        wait_until(lambda: edge.home(path) is not home, what="leaving")
        before = home.count(path=path)
        with edge.connect() as connection:
            for _ in range(10):
                assert connection.request("GET", path, edge.headers).status == 200
        assert home.count(path=path) == before
    finally:
        home.on("GET", "/readyz", Answer(200))
    wait_until(lambda: edge.home(path) is home, what="coming back")
    wait_until(lambda: edge.envoy.healthy_gateways() == 2)


def test_with_no_gateway_left_the_answer_is_one_that_a_browser_may_read(tmp_path: Path) -> None:
    http = {"cors_origins": ("https://a.test", "https://b.test")}
    config = make_gateway_config("http://127.0.0.1:1", http=http)
    with running_envoy(tmp_path, ["127.0.0.1:1"], config) as envoy:
        asked = bearer(make_token(KEY)) | {"Origin": "https://b.test"}
        with Connection(envoy.plain_port) as connection:
            reply = connection.request("GET", PATH, asked)
            check_refusal(reply, 503)
            assert reply["Access-Control-Allow-Origin"] == "https://b.test"
            assert reply["Vary"] == "Origin" and reply["Server"] == "weir"
            refused = connection.request("GET", PATH, {"Origin": "https://evil.test"})
            check_refusal(refused, 401)
            assert "Access-Control-Allow-Origin" not in refused
            assert refused["WWW-Authenticate"] == 'Bearer realm="weir"'


# -- clients that are a nuisance -----------------------------------------------------------------


def test_a_token_of_8_kb_passes_and_a_head_of_17_kb_does_not(edge: Edge) -> None:
    token = make_token(KEY, more="x" * 5800)
    assert 7900 < len(token) <= 8192
    with edge.connect() as connection:
        assert connection.request("GET", PATH, bearer(token)).status == 200
    with edge.connect() as connection:
        large = connection.request("GET", PATH, edge.headers | {"X": "y" * 17_000})
        check_refusal(large, 431)


def test_who_does_not_finish_his_head_is_cut_off(edge: Edge) -> None:
    with edge.connect() as connection:
        connection.send(encode_request("GET", PATH, edge.headers)[:-2])
        check_refusal(connection.read_response(), 408)
        connection.wait_closed()


def test_who_opens_streams_only_to_reset_them_is_cut_off_alone(edge: Edge) -> None:
    with (
        Http2(edge.envoy.port, edge.envoy.tls("h2")) as honest,
        Http2(edge.envoy.port, edge.envoy.tls("h2")) as rapid,
    ):
        assert honest.request("GET", PATH, edge.headers).status == 200
        with pytest.raises((AssertionError, OSError), match=r"ended|EOF|reset|[Bb]roken"):
            for _ in range(1500):
                rapid.reset(rapid.send("GET", PATH, edge.headers))
            rapid.wait_for(lambda: rapid.goaway is not None)
            rapid.wait_for(lambda: False)
        assert honest.request("GET", PATH, edge.headers).status == 200


def test_nobody_else_can_listen_where_envoy_does(edge: Edge) -> None:
    """A second Envoy would get a share of the clients, and nobody would notice."""
    for port in (edge.envoy.port, edge.envoy.plain_port):
        with socket.socket() as second, pytest.raises(OSError) as refused:
            second.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            second.bind(("127.0.0.1", port))
        assert refused.value.errno == errno.EADDRINUSE


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1:DeprecationWarning")
def test_old_tls_is_refused(edge: Edge) -> None:
    old = edge.envoy.tls("h2")
    old.set_ciphers("ALL:@SECLEVEL=0")  # else it would be us who refuse
    old.minimum_version, old.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    with pytest.raises(ssl.SSLError, match="alert protocol version"):
        Http2(edge.envoy.port, old)


# -- what is replaced while it runs --------------------------------------------------------------


def test_new_keys_and_a_new_certificate_are_taken_without_a_restart(tmp_path: Path) -> None:
    fresh = make_key("EdDSA", "next")
    jwks = write_jwks(tmp_path / "jwks.json", KEY)
    config = make_gateway_config("http://127.0.0.1:1", jwks_path=jwks)
    with running_edge(tmp_path / "envoy", config) as edge, edge.connect() as connection:

        def status(token: str) -> int:
            return connection.request("GET", PATH, bearer(token)).status

        old, new = make_token(KEY), make_token(fresh)
        assert (status(old), status(new)) == (200, 401)
        write_jwks(jwks, KEY, fresh)
        wait_until(lambda: status(new) == 200, what="the new key")
        assert status(old) == 200
        write_jwks(jwks, fresh)
        wait_until(lambda: status(old) == 401, what="the old key's end")

        first = edge.envoy.certificate.read_text()
        later = datetime.now(UTC) + LIFETIME - timedelta(days=1)
        ensure_dev_certificate(edge.envoy.folder, later)
        assert edge.envoy.certificate.read_text() != first
        wait_until(lambda: shown_certificate(edge) not in first, what="the new certificate")
        assert shown_certificate(edge) in edge.envoy.certificate.read_text()


def shown_certificate(edge: Edge) -> str:
    return ssl.get_server_certificate(("127.0.0.1", edge.envoy.port))


# -- what it tells about itself --------------------------------------------------------------------


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Edge]:
    """With a port for metrics, and room for a single connection."""
    folder = tmp_path_factory.mktemp("watched")
    with running_edge(folder, admin_port=free_port(), metrics_port=0, max_connections=1) as edge:
        yield edge


def test_metrics_are_shown_although_envoy_is_full(watched: Edge) -> None:
    with watched.connect() as connection:
        assert connection.request("GET", PATH, watched.headers).status == 200
        with socket.create_connection(("127.0.0.1", watched.envoy.plain_port), 10) as refused:
            assert refused.recv(1) == b""
        with Connection(watched.envoy.metrics_port) as prometheus:
            answer = prometheus.request("GET", METRICS_PATH)
    assert answer.status == 200
    families = {family.name: family for family in parse_metrics(answer.body.decode())}
    (healthy,) = [
        sample.value
        for sample in families["envoy_cluster_membership_healthy"].samples
        if sample.labels["envoy_cluster_name"] == "gateways"
    ]
    assert healthy == 2
    samples = {line.partition("{")[0] for line in answer.body.decode().splitlines()}
    alerts = (Path(__file__).parents[2] / "configs" / "alerts.yml").read_text()
    assert (watched_for := set(re.findall(r"\benvoy_[a-z_]+(?=\{|\[| [<>=])", alerts)))
    assert watched_for <= samples


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", METRICS_PATH),
        ("POST", "/quitquitquit"),
        ("GET", "/"),
        ("GET", "/config_dump"),
        ("GET", "/metrics?filter=a"),
        ("GET", "/metrics/../config_dump"),
        ("GET", "/metrics%2f..%2fconfig_dump"),
        ("GET", "//metrics"),
        ("GET", PREFIX + "not-here"),
    ],
)
def test_the_port_of_metrics_shows_nothing_else(watched: Edge, method: str, path: str) -> None:
    with Connection(watched.envoy.metrics_port) as connection:
        answer = connection.request(method, path, watched.headers)
    assert (answer.status, answer.body) == (404, b"")
    assert watched.requests(path) == []
