"""What each server of a cluster on one machine is told."""

from pathlib import Path

import pytest

from gateway.config import AuthConfig, CacheConfig, GatewayConfig
from origin.config import OriginConfig, ServerConfig, TlsConfig
from weir.cluster.credentials import Credentials
from weir.cluster.layout import GATEWAYS, Layout, node_ids, point_at_nodes, port_names

CREDENTIALS = Credentials("weir", "nats-pw", "s3-id", "s3-secret")
ORIGIN = OriginConfig(server=ServerConfig(access_key="k" * 20), tls=TlsConfig("c", "k"))
GATEWAY = GatewayConfig(auth=AuthConfig(mode="off"))


def layout(size: int = 3) -> Layout:
    ports = {name: 20_000 + number for number, name in enumerate(port_names(size))}
    return Layout(Path("/d"), size, ports, CREDENTIALS)


def test_a_node_is_told_where_everything_is() -> None:
    made = layout()
    config = made.node(ORIGIN, "n2")
    url = made.node_urls[1]
    assert (config.storage.mode, config.storage.data_dir) == ("cluster", "/d/nodes/n2")
    assert (config.server.node_id, config.server.advertise) == ("n2", url)
    assert url == f"http://127.0.0.1:{config.server.port}"
    assert config.server.access_key == ORIGIN.server.access_key
    servers = made.nats("weir")
    assert config.cluster.nats_urls == tuple(server.url for server in servers)
    assert config.cluster.nats_monitor_urls == tuple(server.monitor for server in servers)
    assert (config.cluster.nats_user, config.cluster.nats_password) == ("weir", "nats-pw")
    cold = config.cold
    assert (cold.backend, cold.s3_bucket, cold.s3_endpoint) == (
        *("s3", "weir"),
        made.objects().endpoint,
    )
    assert (cold.s3_access_key_id, cold.s3_secret_access_key) == ("s3-id", "s3-secret")
    assert config.tls.cert_path == ""  # of loopback, as its URL says


@pytest.mark.parametrize(("size", "replicas"), [(1, 1), (2, 1), (3, 3), (5, 3)])
def test_journals_have_three_copies_where_there_are_three_servers(size: int, replicas: int) -> None:
    made = layout(size)
    assert {made.node(ORIGIN, node).cluster.replicas for node in node_ids(size)} == {replicas}
    assert len(made.nats("weir")) == len(made.node_urls) == size


def test_no_two_servers_share_a_port_or_a_folder() -> None:
    names = list(port_names(5))
    assert len(set(names)) == len(names)
    made = layout(5)
    folders = [server.folder for server in made.nats("weir")] + [made.objects().folder]
    folders += [Path(made.node(ORIGIN, node).storage.data_dir) for node in node_ids(5)]
    assert len(set(folders)) == len(folders)
    logs = [server.log for server in made.nats("weir")] + [made.objects().log]
    assert len(set(logs)) == len(logs)


def test_gateways_check_each_read_unless_they_can_tell_each_other() -> None:
    made = layout().gateway(GATEWAY, GATEWAYS[1], "key" * 6)
    assert (made.gateway.name, made.gateway.port) == ("gateway-2", layout().ports["gateway-2"])
    assert made.gateway.admin_port == layout().ports["gateway-2.admin"]
    assert made.upstream.access_key == "key" * 6
    assert made.cache.fresh_secs == 0
    redis = CacheConfig(redis_url="redis://127.0.0.1")
    shared = GatewayConfig(auth=AuthConfig(mode="off"), cache=redis)
    assert layout().gateway(shared, GATEWAYS[0], "").cache == redis


def test_gateways_are_pointed_at_nodes() -> None:
    aimed = point_at_nodes(GATEWAY, ("http://a:1", "http://b:2"))
    assert aimed.gateway.origin_urls == ("http://a:1", "http://b:2")


def test_the_file_names_everything_and_no_secret() -> None:
    made = layout()
    file = made.file(ORIGIN, GATEWAY)
    assert [node.url for node in file.nodes] == list(made.node_urls)
    assert [server.name for server in file.nats] == ["nats-1", "nats-2", "nats-3"]
    assert file.s3.endpoint == made.objects().endpoint
    assert file.gateways[0].url == f"http://127.0.0.1:{made.ports['gateway-1']}"
    assert file.access_key_file == "/d/keys/origin-key"
    assert file.secrets_file == "/d/keys/cluster-secrets.json"
    assert not any(secret in str(file) for secret in ("nats-pw", "s3-secret", "k" * 20))
