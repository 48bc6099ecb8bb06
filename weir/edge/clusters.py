"""The gateways behind Envoy: how one is chosen, when it is removed and when it returns.

A gateway is removed when its `/readyz` fails or when it cannot be reached. Its responses never
count against it: a 502 is the origin's fault, and would eject the whole fleet.
"""

from collections.abc import Sequence
from ipaddress import ip_address

from gateway.config import KIB
from weir.edge.settings import EnvoySettings
from weir.edge.values import Json, address, duration, extension, host_and_port, type_url
from wire.settings import SettingsError

GATEWAYS, ADMIN = "gateways", "admin"
CA_FILE = "/etc/ssl/certs/ca-certificates.crt"
BUFFER_BYTES = 256 * KIB  # per connection and direction; also how much of a body a retry can resend
RING_SIZE = 4096


def gateways_cluster(settings: EnvoySettings) -> Json:
    serving = settings.config.gateway
    most = settings.max_connections
    options = {
        # Envoy closes idle connections first, so that no request meets one that is being closed.
        "common_http_protocol_options": {"idle_timeout": duration(serving.idle_timeout_secs / 2)},
        "explicit_http_config": {"http_protocol_options": {}},
        "outlier_detection": {"error_matcher": {"not_match": {"any_match": True}}},  # see _ejection
    }
    return cluster(GATEWAYS, settings.gateways, "1s") | {
        "lb_policy": "RING_HASH",
        "ring_hash_lb_config": {"minimum_ring_size": RING_SIZE},
        # When no gateway is healthy, all are tried.
        "common_lb_config": {
            "healthy_panic_threshold": {"value": 1.0},
            "ignore_new_hosts_until_first_hc": True,
            "update_merge_window": "0s",  # a gateway that leaves gets no more requests at once
        },
        "health_checks": [_health_check(settings.health_secs)],
        "outlier_detection": _ejection(settings.health_secs),
        # A live reader is a connection, so as many may be open here as clients may open.
        "circuit_breakers": {
            "thresholds": [
                {
                    "max_connections": most,
                    "max_pending_requests": most,
                    "max_requests": most,
                    "retry_budget": {
                        "budget_percent": {"value": 20.0},
                        "min_retry_concurrency": 10,
                    },
                }
            ],
            "per_host_thresholds": [{"max_connections": serving.max_connections * serving.workers}],
        },
        "upstream_connection_options": {
            "tcp_keepalive": {"keepalive_probes": 3, "keepalive_time": 30, "keepalive_interval": 10}
        },
        "per_connection_buffer_limit_bytes": BUFFER_BYTES,
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": type_url("upstreams.http.v3.HttpProtocolOptions"),
                **options,
            }
        },
    }


def _health_check(every_secs: float) -> Json:
    """A 503 from /readyz counts immediately, a missing response only the third time."""
    return {
        "timeout": duration(max(every_secs, 1.0)),
        "interval": duration(every_secs),
        "no_traffic_interval": duration(every_secs),
        "unhealthy_threshold": 3,
        "healthy_threshold": 1,
        "http_health_check": {"path": "/readyz", "host": "weir"},
    }


def _ejection(every_secs: float) -> Json:
    """For failing to connect or to answer at all, until the next successful health check.

    To Envoy such a failure is a 5xx, while the error matcher exempts every real answer. Resets
    counted separately would never add up to three, because each accepted connection in between
    counts as a success."""
    return {
        "consecutive_5xx": 3,
        "enforcing_consecutive_5xx": 100,
        "enforcing_consecutive_gateway_failure": 0,
        "enforcing_success_rate": 0,
        "interval": duration(every_secs),
        "base_ejection_time": duration(5 * every_secs),
        "max_ejection_percent": 50,
        "always_eject_one_host": True,
    }


def admin_cluster(port: int) -> Json:
    if not port:
        raise SettingsError("--metrics-port", "needs a fixed --admin-port, not 0")
    return cluster(ADMIN, (f"127.0.0.1:{port}",), "1s")


def cluster(name: str, urls: Sequence[str], connect_timeout: str) -> Json:
    """Names are resolved periodically, and each address is a host."""
    hosts = [host_and_port(url) for url in urls]
    endpoints = [{"endpoint": {"address": address(*host)}} for host in hosts]
    dns = {"dns_refresh_rate": "5s", "dns_lookup_family": "V4_PREFERRED"}
    names = {"cluster_type": extension("cluster.dns", "clusters.dns.v3.DnsCluster", dns)}
    return {
        "name": name,
        **({"type": "STATIC"} if all(_is_ip(host) for host, _ in hosts) else names),
        "connect_timeout": connect_timeout,
        "load_assignment": {"cluster_name": name, "endpoints": [{"lb_endpoints": endpoints}]},
        **_upstream_tls(urls),
    }


def _upstream_tls(urls: Sequence[str]) -> Json:
    """A cluster uses one SNI name, and expects it in every certificate."""
    secure = [url.startswith("https://") for url in urls]
    if not any(secure):
        return {}
    host, *others = {host_and_port(url)[0] for url in urls}
    if others or not all(secure):
        raise SettingsError("--gateway", "with https, all must be https and of the same host")
    trusted = {
        "trusted_ca": {"filename": CA_FILE},
        "match_typed_subject_alt_names": [{"san_type": "DNS", "matcher": {"exact": host}}],
    }
    context = {"sni": host, "common_tls_context": {"validation_context": trusted}}
    kind = "transport_sockets.tls.v3.UpstreamTlsContext"
    return {"transport_socket": extension("transport_sockets.tls", kind, context)}


def _is_ip(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
