"""The ports Envoy listens on: TLS, plain, and metrics; how requests are read and logged."""

import math
from pathlib import PurePath

from gateway.config import KIB, MIB
from protocol.sse import ROTATION_JITTER
from weir.edge.clusters import ADMIN, BUFFER_BYTES
from weir.edge.refusals import local_replies
from weir.edge.routes import virtual_host
from weir.edge.settings import EnvoySettings
from weir.edge.tokens import token_filters
from weir.edge.values import (
    Json,
    address,
    duration,
    extension,
    http_manager,
    method_match,
    type_url,
)

SECRET = "certificate"
METRICS, METRICS_PATH = "metrics", "/metrics"
METRICS_CONNECTIONS = 100

STREAMS_OF_A_CONNECTION = 512
STREAM_WINDOW_BYTES, CONNECTION_WINDOW_BYTES = 256 * KIB, MIB
MARGIN_SECS = 15.0  # how much more patient Envoy is than the gateway

# Only the token and the path determine who asks for what.
FORGEABLE_PREFIXES = ("x-jwt-", "x-original-", "x-rewrite-", "x-http-method", "x-method-override")
FORGEABLE = (
    *("forwarded", "x-forwarded-host", "x-forwarded-port", "x-forwarded-prefix"),
    *("x-forwarded-server", "x-real-ip", "x-client-ip", "true-client-ip", "cf-connecting-ip"),
)

LOG_FIELDS = {
    "time": "%START_TIME(%Y-%m-%dT%H:%M:%S.%3fZ)%",
    "request_id": "%REQ(X-REQUEST-ID)%",
    "method": "%REQ(:METHOD)%",
    "authority": "%REQ(:AUTHORITY):256%",
    # Only these parts of the query: the rest may hold a token.
    "path": "%PATH(NQ:PATH):2048%",
    "offset": "%QUERY_PARAM(offset):64%",
    "live": "%QUERY_PARAM(live):64%",
    "protocol": "%PROTOCOL%",
    "status": "%RESPONSE_CODE%",
    "details": "%RESPONSE_CODE_DETAILS%",
    "flags": "%RESPONSE_FLAGS%",
    "bytes_in": "%BYTES_RECEIVED%",
    "bytes_out": "%BYTES_SENT%",
    "duration_ms": "%DURATION%",
    "first_byte_ms": "%RESPONSE_DURATION%",
    "client": "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%",
    "gateway": "%UPSTREAM_HOST%",
    "attempts": "%UPSTREAM_REQUEST_ATTEMPT_COUNT%",
    "route": "%ROUTE_NAME%",
    "tls": "%DOWNSTREAM_TLS_VERSION%",
    "user_agent": "%REQ(USER-AGENT):256%",
}


def plain_listener(settings: EnvoySettings, port: int) -> Json:
    return _listener(settings, "plain", port, {})


def tls_listener(settings: EnvoySettings) -> Json:
    return _listener(settings, "tls", settings.port, {"transport_socket": _tls(settings)})


def _listener(settings: EnvoySettings, name: str, port: int, transport: Json) -> Json:
    return {
        "name": name,
        "address": address(settings.host, port),
        "tcp_backlog_size": 4096,
        # A second Envoy on this port is a mistake. Workers share one socket, so long-lived
        # connections must be balanced, or they would gather at a few of them.
        "enable_reuse_port": False,
        "connection_balance_config": {"exact_balance": {}},
        "per_connection_buffer_limit_bytes": BUFFER_BYTES,
        "filter_chains": [{"filters": [_http(settings, name)], **transport}],
    }


# -- certificates --------------------------------------------------------------------------------


def _tls(settings: EnvoySettings) -> Json:
    common: Json = {
        "alpn_protocols": ["h2", "http/1.1"],
        "tls_params": {"tls_minimum_protocol_version": "TLSv1_2"},
    }
    if settings.secret_path:
        source = {
            "path_config_source": {"path": settings.secret_path},
            "resource_api_version": "V3",
        }
        common["tls_certificate_sds_secret_configs"] = [{"name": SECRET, "sds_config": source}]
    else:
        common["tls_certificates"] = [_certificate(settings)]
    kind = "transport_sockets.tls.v3.DownstreamTlsContext"
    return extension("transport_sockets.tls", kind, {"common_tls_context": common})


def render_secret(settings: EnvoySettings) -> Json:
    """The certificate in a file that Envoy watches: it picks up a new one without a restart."""
    watched = {"watched_directory": {"path": str(PurePath(settings.cert_path).parent)}}
    secret = {"name": SECRET, "tls_certificate": _certificate(settings) | watched}
    return {"resources": [{"@type": type_url("transport_sockets.tls.v3.Secret"), **secret}]}


def _certificate(settings: EnvoySettings) -> Json:
    return {
        "certificate_chain": {"filename": settings.cert_path},
        "private_key": {"filename": settings.key_path},
    }


# -- HTTP ----------------------------------------------------------------------------------------


def _http(settings: EnvoySettings, name: str) -> Json:
    serving, http = settings.config.gateway, settings.config.http
    rotation_secs = serving.sse_rotation_secs * (1 + ROTATION_JITTER)
    idle_secs = max(rotation_secs, serving.long_poll_timeout_secs) + MARGIN_SECS
    nobody = {"address_prefix": "255.255.255.255", "prefix_len": 32}
    manager: Json = {
        "stat_prefix": name,
        "codec_type": "AUTO",
        "server_name": "weir",
        # The client's address and scheme are as Envoy sees them, whatever the client claims.
        "use_remote_address": True,
        "xff_num_trusted_hops": settings.trusted_hops,
        "internal_address_config": {"cidr_ranges": [nobody]},
        "always_set_request_id_in_response": True,
        "early_header_mutation_extensions": [_without_forged_headers()],
        # One spelling of a path, for the routes and for the gateway.
        "normalize_path": True,
        "merge_slashes": True,
        "path_with_escaped_slashes_action": "REJECT_REQUEST",
        "proxy_100_continue": True,  # only the gateway knows who may send a body
        # Live reads are silent for long and bodies may be slow; the gateway limits those.
        "request_headers_timeout": duration(serving.header_timeout_secs),
        "stream_idle_timeout": duration(idle_secs),
        "max_request_headers_kb": math.ceil(serving.max_header_bytes / KIB),
        "common_http_protocol_options": {
            "idle_timeout": duration(serving.idle_timeout_secs),
            "headers_with_underscores_action": "REJECT_REQUEST",
        },
        "http_protocol_options": {"allow_absolute_url": False},
        "http2_protocol_options": {
            "max_concurrent_streams": STREAMS_OF_A_CONNECTION,
            "initial_stream_window_size": STREAM_WINDOW_BYTES,
            "initial_connection_window_size": CONNECTION_WINDOW_BYTES,
        },
        "local_reply_config": local_replies(settings.config.cors_origins),
        "route_config": {"name": name, "virtual_hosts": [virtual_host(http.stream_prefixes)]},
        "http_filters": token_filters(settings.config.auth, settings.key_set),
    }
    if settings.access_log:
        manager["access_log"] = [_access_log(settings.access_log)]
    return http_manager(manager)


def _without_forged_headers() -> Json:
    matchers = [{"prefix": prefix} for prefix in FORGEABLE_PREFIXES]
    matchers += [{"exact": name} for name in FORGEABLE]
    kind = "http.early_header_mutation.header_mutation"
    mutations = [{"remove_on_match": {"key_matcher": matcher}} for matcher in matchers]
    return extension(kind, f"{kind}.v3.HeaderMutation", {"mutations": mutations})


def _access_log(path: str) -> Json:
    config = {"path": path, "log_format": {"json_format": LOG_FIELDS}}
    return extension("access_loggers.file", "access_loggers.file.v3.FileAccessLog", config)


# -- metrics -------------------------------------------------------------------------------------


def metrics_listener(host: str, port: int) -> Json:
    """Envoy's metrics for Prometheus without the other admin pages, some of which could stop it.
    They are served under overload, too."""
    whole_path = {"name": ":path", "string_match": {"exact": METRICS_PATH}}  # no query
    route = {
        "match": {"path": METRICS_PATH, "headers": [method_match("GET"), whole_path]},
        "route": {"cluster": ADMIN, "timeout": "10s", "prefix_rewrite": "/stats/prometheus"},
    }
    manager = {
        "stat_prefix": METRICS,
        "server_name": "weir",
        "use_remote_address": True,
        "request_headers_timeout": "10s",
        "stream_idle_timeout": "30s",
        "common_http_protocol_options": {"idle_timeout": "120s"},
        "route_config": {
            "name": METRICS,
            "virtual_hosts": [{"name": METRICS, "domains": ["*"], "routes": [route]}],
        },
    }
    limit = extension(
        "filters.network.connection_limit",
        "filters.network.connection_limit.v3.ConnectionLimit",
        {"stat_prefix": METRICS, "max_connections": METRICS_CONNECTIONS},
    )
    return {
        "name": METRICS,
        "address": address(host, port),
        "enable_reuse_port": False,
        "bypass_overload_manager": True,
        "filter_chains": [{"filters": [limit, http_manager(manager)]}],
    }
