"""The whole configuration, put together, and the limits that hold for the whole process."""

import json

from gateway.config import MIB
from weir.edge.clusters import admin_cluster, gateways_cluster
from weir.edge.listeners import metrics_listener, plain_listener, tls_listener
from weir.edge.settings import EnvoySettings
from weir.edge.tokens import keys_cluster, keys_listener
from weir.edge.values import Json, address, extension, is_url

HEAP_BYTES = 1024 * MIB


def render(settings: EnvoySettings) -> Json:
    listeners, clusters = [], [gateways_cluster(settings)]
    if settings.cert_path:
        listeners.append(tls_listener(settings))
    if settings.plain_port is not None:
        listeners.append(plain_listener(settings, settings.plain_port))
    if settings.config.auth.mode != "off":
        clusters.append(keys_cluster(settings.key_set))
        if not is_url(settings.key_set):
            listeners.append(keys_listener(settings.key_set))
    if settings.metrics_port is not None:
        listeners.append(metrics_listener(settings.host, settings.metrics_port))
        clusters.append(admin_cluster(settings.admin_port))
    internal = "bootstrap.internal_listener"
    return {
        "node": {"id": "weir-edge", "cluster": "weir"},
        "admin": {"address": address("127.0.0.1", settings.admin_port)},
        "layered_runtime": {"layers": [{"name": "limits", "static_layer": _runtime()}]},
        "overload_manager": _overload(settings.max_connections),
        "bootstrap_extensions": [extension(internal, f"{internal}.v3.InternalListener", {})],
        "static_resources": {"listeners": listeners, "clusters": clusters},
    }


def to_text(config: Json) -> str:
    return json.dumps(config, indent=2) + "\n"


def _runtime() -> Json:
    """Against clients that open streams only to reset them, and against sloppy chunk endings."""
    return {
        "envoy.reloadable_features.strict_chunk_parsing": True,
        "overload.premature_reset_total_stream_count": 500,
        "overload.premature_reset_min_stream_lifetime_seconds": 1,
        "http.max_requests_per_io_cycle": 10,
    }


def _overload(max_connections: int) -> Json:
    """Above these limits of connections and memory, newcomers are refused and the rest served."""
    heap = "resource_monitors.fixed_heap"
    connections = "resource_monitors.downstream_connections.v3.DownstreamConnectionsConfig"
    return {
        "refresh_interval": "0.25s",
        "resource_monitors": [
            extension(heap, f"{heap}.v3.FixedHeapConfig", {"max_heap_size_bytes": HEAP_BYTES}),
            extension(
                "resource_monitors.global_downstream_max_connections",
                connections,
                {"max_active_downstream_connections": max_connections},
            ),
        ],
        "actions": [
            {
                "name": f"envoy.overload_actions.{action}",
                "triggers": [{"name": f"envoy.{heap}", "threshold": {"value": threshold}}],
            }
            for action, threshold in (("shrink_heap", 0.9), ("stop_accepting_requests", 0.95))
        ],
    }
