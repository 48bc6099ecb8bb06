"""Names, folders, ports and settings of a cluster on one machine. Pure.

In the data directory: `nats/NAME` and `s3` with their stores, `nodes/ID` with the cache of a node,
`logs`, `keys`, `access`, and `cluster.json`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from gateway.config import CacheConfig, GatewayConfig
from origin.config import OriginConfig, TlsConfig
from weir.client.access import KEYS, ORIGIN_KEY_FILE
from weir.cluster import objectserver
from weir.cluster.clusterfile import ClusterFile, GatewayServer, NatsServer, Node, ObjectServer
from weir.cluster.credentials import FILE as CREDENTIALS_FILE
from weir.cluster.credentials import Credentials
from weir.cluster.natsserver import NatsSettings
from weir.cluster.objectserver import BUCKET, REGION, ObjectSettings
from wire.addresses import base_url

HOST = "127.0.0.1"  # of everything but the gateways
GATEWAYS = ("gateway-1", "gateway-2")
S3 = "s3"
ENOUGH_FOR_COPIES = 3


def nats_names(size: int) -> list[str]:
    return [f"nats-{number}" for number in range(1, size + 1)]


def node_ids(size: int) -> list[str]:
    return [f"n{number}" for number in range(1, size + 1)]


def port_names(size: int) -> Iterator[str]:
    for name in nats_names(size):
        yield from (name, f"{name}.route", f"{name}.monitor")
    for part in objectserver.port_names():
        yield f"{S3}.{part}"
    yield from node_ids(size)
    for name in GATEWAYS:
        yield from (name, f"{name}.admin")


@dataclass(frozen=True, slots=True)
class Layout:
    """`data` is absolute; `ports` has one for each of `port_names`."""

    data: Path
    size: int
    ports: Mapping[str, int]
    credentials: Credentials

    @property
    def node_urls(self) -> tuple[str, ...]:
        return tuple(base_url(HOST, self.ports[each]) for each in node_ids(self.size))

    def nats(self, cluster: str) -> list[NatsSettings]:
        names, ports = nats_names(self.size), self.ports
        routes = tuple(ports[f"{name}.route"] for name in names)
        return [
            NatsSettings(
                name=name,
                cluster=cluster,
                host=HOST,
                port=ports[name],
                route_port=ports[f"{name}.route"],
                monitor_port=ports[f"{name}.monitor"],
                route_ports=routes,
                user=self.credentials.nats_user,
                password=self.credentials.nats_password,
                folder=self.data / "nats" / name,
                log=self._log(name),
            )
            for name in names
        ]

    def objects(self) -> ObjectSettings:
        return ObjectSettings(
            host=HOST,
            ports={part: self.ports[f"{S3}.{part}"] for part in objectserver.port_names()},
            access_key_id=self.credentials.s3_access_key_id,
            secret_access_key=self.credentials.s3_secret_access_key,
            folder=self.data / S3,
            log=self._log(S3),
        )

    def node(self, config: OriginConfig, node_id: str) -> OriginConfig:
        """The configuration of one node; what `config` says besides holds for all of them."""
        port, secrets, servers = (
            self.ports[node_id],
            self.credentials,
            self.nats(config.cluster.name),
        )
        cluster = replace(
            config.cluster,
            nats_urls=tuple(server.url for server in servers),
            nats_monitor_urls=tuple(server.monitor for server in servers),
            nats_user=secrets.nats_user,
            nats_password=secrets.nats_password,
            nats_credentials="",
            nats_ca_path="",
            replicas=3 if self.size >= ENOUGH_FOR_COPIES else 1,
        )
        cold = replace(
            config.cold,
            backend="s3",
            s3_bucket=BUCKET,
            s3_region=REGION,
            s3_endpoint=self.objects().endpoint,
            s3_access_key_id=secrets.s3_access_key_id,
            s3_secret_access_key=secrets.s3_secret_access_key,
            s3_session_token="",
        )
        url = base_url(HOST, port)
        server = replace(config.server, host=HOST, port=port, node_id=node_id, advertise=url)
        folder = self.data / "nodes" / node_id
        storage = replace(config.storage, mode="cluster", data_dir=str(folder))
        return replace(
            config, server=server, tls=TlsConfig(), storage=storage, cluster=cluster, cold=cold
        )

    def gateway(self, config: GatewayConfig, name: str, access_key: str) -> GatewayConfig:
        port, admin_port = self.ports[name], self.ports[f"{name}.admin"]
        serving = replace(config.gateway, name=name, port=port, admin_port=admin_port)
        upstream = replace(config.upstream, access_key=access_key)
        cache = beside_others(config.cache)
        aimed = replace(config, gateway=serving, upstream=upstream, cache=cache)
        return point_at_nodes(aimed, self.node_urls)

    def file(self, origin: OriginConfig, gateway: GatewayConfig) -> ClusterFile:
        """`cluster.json`, with no processes yet."""
        nodes = zip(node_ids(self.size), self.node_urls, strict=True)
        return ClusterFile(
            cluster=origin.cluster.name,
            nodes=tuple(Node(node_id, url) for node_id, url in nodes),
            nats=tuple(
                NatsServer(server.name, server.url, server.monitor)
                for server in self.nats(origin.cluster.name)
            ),
            s3=ObjectServer(self.objects().endpoint, BUCKET),
            gateways=tuple(self._gateway_server(gateway, name) for name in GATEWAYS),
            access_key_file=str(self.data / KEYS / ORIGIN_KEY_FILE),
            secrets_file=str(self.data / KEYS / CREDENTIALS_FILE),
            ports=dict(self.ports),
        )

    def _gateway_server(self, config: GatewayConfig, name: str) -> GatewayServer:
        serving = config.gateway
        url = base_url(serving.host, self.ports[name], tls=serving.tls_cert_path != "")
        return GatewayServer(name, url, base_url(serving.admin_host, self.ports[f"{name}.admin"]))

    def _log(self, name: str) -> Path:
        return self.data / "logs" / f"{name}.log"


def point_at_nodes(config: GatewayConfig, urls: tuple[str, ...]) -> GatewayConfig:
    """A gateway that sends each request to the owner of its stream."""
    return replace(config, gateway=replace(config.gateway, origin_urls=urls))


def beside_others(cache: CacheConfig) -> CacheConfig:
    """Without Redis, the cache of a gateway may hold what another one has purged."""
    if cache.redis_url:
        return cache
    return replace(cache, fresh_secs=0.0, stale_secs=0.0, stale_error_secs=0.0)
