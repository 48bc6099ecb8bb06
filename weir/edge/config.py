"""Envoy's configuration, made of the gateway's own: what the two must agree on is written once.

    client ── TLS, h2 ──▶ Envoy: path, headers, token ── hash of the stream ──▶ one of the gateways

Envoy is a first gate and a switch, not the judge. What it refuses, the gateway would refuse as
well, in the same words; what it lets pass, the gateway checks again: Envoy takes tokens with a
`crit` that it does not know, or with a claim that comes twice.

All requests of a stream, its snapshots and bootstraps included, meet the same gateway as long as
that one is well, so that a fleet collapses reads as one gateway does. A gateway leaves when its
`/readyz` says so or when it cannot be reached. Its answers never count against it: a 502 is the
origin's fault, and would eject the whole fleet.
"""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import PurePath
from typing import Any
from urllib.parse import urlsplit

from gateway.config import KIB, MIB, AuthConfig, GatewayConfig
from gateway.console.service import GUARDED, ROOT
from gateway.jwks import MAX_BYTES as MAX_KEYS_BYTES
from gateway.rules.challenges import invalid_token, missing_token
from gateway.rules.routes import OWN_TOKEN, PUBLIC_KEYS
from protocol.names import BUCKET_PREFIX, PRODUCER_EPOCH, PRODUCER_ID, PRODUCER_SEQ, STREAM_PREFIX
from protocol.replies import RETRY_AFTER, Headers, Reply, problem, problem_of
from wire.http import Stamp
from wire.settings import SettingsError

Json = dict[str, Any]

GATEWAYS, KEYS, ADMIN = "gateways", "keys", "admin"  # clusters
PROVIDER, SECRET = "weir", "certificate"
CONSOLE = ROOT.rstrip("/")
CA_FILE = "/etc/ssl/certs/ca-certificates.crt"

BUFFER_BYTES = 256 * KIB  # of one connection, each way; also what of a body is kept for a retry
STREAMS_OF_A_CONNECTION = 512
STREAM_WINDOW_BYTES, CONNECTION_WINDOW_BYTES = 256 * KIB, MIB
HEAP_BYTES = 1024 * MIB

MARGIN_SECS = 15.0  # by which Envoy is more patient than the gateway
ROTATION_JITTER = 1.1
RING_SIZE = 4096

METRICS, METRICS_PATH = "metrics", "/metrics"
METRICS_CONNECTIONS = 100

# The stream that a path is about: without query, and without what belongs to a stream (see
# protocol.paths). A stream spelled in two ways may meet two gateways, which costs a fetch.
_OWNER = rf"(?:{STREAM_PREFIX}|{BUCKET_PREFIX}[^/?]+/)[^?]+?|[^?]+?"
STREAM_OF_PATH = rf"^({_OWNER})(?:/bootstrap|/snapshot(?:/[^/?]+)?)?(?:\?.*)?$"
PLAIN_HOST = r"[\w.-]+(?::\d+)?|\[[\da-fA-F:.]+\](?::\d+)?"

# Who asks, and for what, is said by the token and by the path alone.
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
    # Of the query only what is named here: a token may be in the rest.
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


@dataclass(frozen=True, slots=True)
class EnvoySettings:
    """`gateways` are URLs or `host:port`; `config` is what these gateways run with."""

    gateways: tuple[str, ...]
    config: GatewayConfig
    cert_path: str = ""  # without one there is no TLS listener
    key_path: str = ""
    secret_path: str = ""  # where Envoy finds `render_secret`; without it, it reads the files once
    jwks: str = ""  # file or URL as Envoy sees it; empty = that of the gateway
    host: str = "127.0.0.1"
    port: int = 8443  # 0 lets Envoy choose, here and below
    plain_port: int | None = 10000  # None = no plain listener
    admin_port: int = 9901
    metrics_port: int | None = None  # None = no port that shows metrics, and only them
    trusted_hops: int = 0  # proxies in front of Envoy whose X-Forwarded-For counts
    max_connections: int = 50_000
    health_secs: float = 1.0  # between two looks at a gateway
    access_log: str = "/dev/stdout"  # empty = none

    @property
    def key_set(self) -> str:
        return self.jwks or self.config.auth.jwks


def render(settings: EnvoySettings) -> Json:
    """The whole bootstrap configuration."""
    listeners, clusters = [], [_gateways(settings)]
    if settings.cert_path:
        listeners.append(_listener(settings, "tls", settings.port, _tls(settings)))
    if settings.plain_port is not None:
        listeners.append(_listener(settings, "plain", settings.plain_port, None))
    if settings.config.auth.mode != "off":
        clusters.append(_keys_cluster(settings.key_set))
        if not _is_url(settings.key_set):
            listeners.append(_keys_listener(settings.key_set))
    if settings.metrics_port is not None:
        listeners.append(_metrics_listener(settings, settings.metrics_port))
        clusters.append(_admin_cluster(settings.admin_port))
    return {
        "node": {"id": "weir-edge", "cluster": "weir"},
        "admin": {"address": _address("127.0.0.1", settings.admin_port)},
        "layered_runtime": {"layers": [{"name": "limits", "static_layer": _runtime()}]},
        "overload_manager": _overload(settings),
        "bootstrap_extensions": [_internal_listeners()],
        "static_resources": {"listeners": listeners, "clusters": clusters},
    }


def render_secret(settings: EnvoySettings) -> Json:
    """The certificate as a file that Envoy watches: a new one is taken without a restart."""
    return {"resources": [{"@type": _type("transport_sockets.tls.v3.Secret"), **_secret(settings)}]}


# -- listeners ---------------------------------------------------------------------------------


def _listener(settings: EnvoySettings, name: str, port: int, tls: Json | None) -> Json:
    chain: Json = {"filters": [_http(settings, name)]}
    if tls is not None:
        chain["transport_socket"] = tls
    return {
        "name": name,
        "address": _address(settings.host, port),
        "tcp_backlog_size": 4096,
        # A second Envoy at this port is a mistake. Without a socket for each worker, connections
        # that last would gather at a few of them.
        "enable_reuse_port": False,
        "connection_balance_config": {"exact_balance": {}},
        "per_connection_buffer_limit_bytes": BUFFER_BYTES,
        "filter_chains": [chain],
    }


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
    return _named(
        "transport_sockets.tls",
        "transport_sockets.tls.v3.DownstreamTlsContext",
        {"common_tls_context": common},
    )


def _secret(settings: EnvoySettings) -> Json:
    watched = {"watched_directory": {"path": str(PurePath(settings.cert_path).parent)}}
    return {"name": SECRET, "tls_certificate": _certificate(settings) | watched}


def _certificate(settings: EnvoySettings) -> Json:
    return {
        "certificate_chain": {"filename": settings.cert_path},
        "private_key": {"filename": settings.key_path},
    }


def _http(settings: EnvoySettings, name: str) -> Json:
    serving = settings.config.gateway
    idle = max(serving.sse_rotation_secs * ROTATION_JITTER, serving.long_poll_timeout_secs)
    manager: Json = {
        "stat_prefix": name,
        "codec_type": "AUTO",
        "server_name": "weir",
        # Where a client is and how it came: as seen here, whatever it says.
        "use_remote_address": True,
        "xff_num_trusted_hops": settings.trusted_hops,
        "internal_address_config": {"cidr_ranges": [_range("255.255.255.255", 32)]},  # nobody is
        "always_set_request_id_in_response": True,
        "early_header_mutation_extensions": [_without_forged_headers()],
        # One spelling of a path, for the rules below and for the gateway.
        "normalize_path": True,
        "merge_slashes": True,
        "path_with_escaped_slashes_action": "REJECT_REQUEST",
        # Live reads are silent for long, and a body may take its time: the gateway watches those.
        "proxy_100_continue": True,  # who may send a body is known only behind the token
        "request_headers_timeout": _seconds(serving.header_timeout_secs),
        "stream_idle_timeout": _seconds(idle + MARGIN_SECS),
        "max_request_headers_kb": math.ceil(serving.max_header_bytes / KIB),
        "common_http_protocol_options": {
            "idle_timeout": _seconds(serving.idle_timeout_secs),
            "headers_with_underscores_action": "REJECT_REQUEST",
        },
        "http_protocol_options": {"allow_absolute_url": False},
        "http2_protocol_options": {
            "max_concurrent_streams": STREAMS_OF_A_CONNECTION,
            "initial_stream_window_size": STREAM_WINDOW_BYTES,
            "initial_connection_window_size": CONNECTION_WINDOW_BYTES,
        },
        "local_reply_config": _local_replies(settings),
        "route_config": {"name": name, "virtual_hosts": [_virtual_host(settings)]},
        "http_filters": [*_token_filter(settings), _router()],
    }
    if settings.access_log:
        manager["access_log"] = [_access_log(settings.access_log)]
    return _manager(manager)


def _manager(config: Json) -> Json:
    return _named(
        "filters.network.http_connection_manager",
        "filters.network.http_connection_manager.v3.HttpConnectionManager",
        config,
    )


def _without_forged_headers() -> Json:
    matchers = [{"prefix": prefix} for prefix in FORGEABLE_PREFIXES]
    matchers += [{"exact": name} for name in FORGEABLE]
    return _named(
        "http.early_header_mutation.header_mutation",
        "http.early_header_mutation.header_mutation.v3.HeaderMutation",
        {"mutations": [{"remove_on_match": {"key_matcher": matcher}} for matcher in matchers]},
    )


def _router() -> Json:
    # Nothing about the inside: no upstream's time, no attempts.
    return _named(
        "filters.http.router", "filters.http.router.v3.Router", {"suppress_envoy_headers": True}
    )


def _access_log(path: str) -> Json:
    return _named(
        "access_loggers.file",
        "access_loggers.file.v3.FileAccessLog",
        {"path": path, "log_format": {"json_format": LOG_FIELDS}},
    )


# -- tokens ------------------------------------------------------------------------------------


def _token_filter(settings: EnvoySettings) -> list[Json]:
    auth = settings.config.auth
    if auth.mode == "off":
        return []
    config = {
        "providers": {PROVIDER: _provider(auth, settings.key_set)},
        "rules": list(_token_rules()),
        "bypass_cors_preflight": True,
    }
    return [_named("filters.http.jwt_authn", "filters.http.jwt_authn.v3.JwtAuthentication", config)]


def _provider(auth: AuthConfig, jwks: str) -> Json:
    """The token goes on: the gateway trusts nobody's word for it. None is remembered: Envoy would
    take it until it ends, although its key has left the set."""
    provider: Json = {
        "forward": True,
        "require_expiration": True,
        "clock_skew_seconds": max(1, math.ceil(auth.leeway_secs)),  # 0 would mean 60
        "from_headers": [
            {"name": "Authorization", "value_prefix": f"{scheme} "}
            for scheme in ("Bearer", "bearer", "BEARER")
        ],
    }
    if auth.issuer:
        provider["issuer"] = auth.issuer
    if auth.audience:
        provider["audiences"] = [auth.audience]
    if auth.query_parameter:
        provider["from_params"] = [auth.query_parameter]
    if auth.cookie:
        provider["from_cookies"] = [auth.cookie]
    provider["remote_jwks"] = (
        _fetched(jwks, auth.jwks_cooldown_secs) if _is_url(jwks) else _fetched_inside()
    )
    return provider


def _fetched(url: str, every_secs: float) -> Json:
    """In the background, so that nobody waits and the last good set is kept."""
    return {
        "http_uri": {"uri": url, "cluster": KEYS, "timeout": "5s"},
        "cache_duration": _seconds(every_secs),
        "async_fetch": {},
    }


def _fetched_inside() -> Json:
    """See `_keys_listener`. By the request that needs them: there is nobody else inside."""
    uri = {"uri": f"http://{KEYS}/", "cluster": KEYS, "timeout": "5s"}
    return {"http_uri": uri, "cache_duration": "1s"}


def _token_rules() -> Iterator[Json]:
    """The first that matches holds; what is not named here needs a token."""
    yield {"match": {"path": "/healthz"}}
    for path in GUARDED:
        yield {"match": {"path": path}, "requires": {"provider_name": PROVIDER}}
    yield {"match": {"path": CONSOLE}}
    yield {"match": {"prefix": f"{CONSOLE}/"}}
    # What the origin guards by itself, or shows to everybody.
    yield {"match": {"path": PUBLIC_KEYS, "headers": [_method("GET", "HEAD")]}}
    own = {"safe_regex": {"regex": OWN_TOKEN.pattern}, "headers": [_method("POST")]}
    yield {"match": own}
    yield {"match": {"prefix": "/"}, "requires": {"provider_name": PROVIDER}}


def _keys_cluster(jwks: str) -> Json:
    if _is_url(jwks):
        return _cluster(KEYS, (jwks,), "5s")
    inside = {"endpoint": {"address": {"envoy_internal_address": {"server_listener_name": KEYS}}}}
    endpoints = [{"lb_endpoints": [inside]}]
    return {
        "name": KEYS,
        "type": "STATIC",
        "connect_timeout": "5s",
        "load_assignment": {"cluster_name": KEYS, "endpoints": endpoints},
    }


def _keys_listener(jwks: str) -> Json:
    """Envoy reads a file of keys but once. What it answers from a file, it reads again when that is
    replaced: so it fetches the keys from itself, over a listener without a port."""
    body = {"filename": jwks, "watched_directory": {"path": str(PurePath(jwks).parent)}}
    route = {"match": {"prefix": "/"}, "direct_response": {"status": 200, "body": body}}
    manager = {
        "stat_prefix": KEYS,
        "route_config": {
            "name": KEYS,
            "max_direct_response_body_size_bytes": MAX_KEYS_BYTES,
            "virtual_hosts": [{"name": KEYS, "domains": ["*"], "routes": [route]}],
        },
        "http_filters": [_router()],
    }
    return {
        "name": KEYS,
        "internal_listener": {},
        "filter_chains": [{"filters": [_manager(manager)]}],
    }


def _internal_listeners() -> Json:
    kind = "bootstrap.internal_listener.v3.InternalListener"
    return _named("bootstrap.internal_listener", kind, {})


# -- metrics -----------------------------------------------------------------------------------


def _metrics_listener(settings: EnvoySettings, port: int) -> Json:
    """Envoy's numbers for Prometheus, and none of its other pages: some of those could stop it.
    They are shown when Envoy is full, too."""
    asked = {"name": ":path", "string_match": {"exact": METRICS_PATH}}  # with no query
    route = {
        "match": {"path": METRICS_PATH, "headers": [_method("GET"), asked]},
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
        "http_filters": [_router()],
    }
    own_limit = _named(
        "filters.network.connection_limit",
        "filters.network.connection_limit.v3.ConnectionLimit",
        {"stat_prefix": METRICS, "max_connections": METRICS_CONNECTIONS},
    )
    return {
        "name": METRICS,
        "address": _address(settings.host, port),
        "enable_reuse_port": False,
        "bypass_overload_manager": True,
        "filter_chains": [{"filters": [own_limit, _manager(manager)]}],
    }


def _admin_cluster(port: int) -> Json:
    if not port:
        raise SettingsError("--metrics-port", "wants an --admin-port that is known, not 0")
    return _cluster(ADMIN, (f"127.0.0.1:{port}",), "1s")


# -- routes ------------------------------------------------------------------------------------


def stream_path(prefixes: Sequence[str]) -> str:
    """A pattern of all paths of streams, by every prefix that they have."""
    known = (STREAM_PREFIX, BUCKET_PREFIX, *map(re.escape, prefixes))
    return f"(?:{'|'.join(known)}).+"


def _virtual_host(settings: EnvoySettings) -> Json:
    return {
        "name": "weir",
        "domains": ["*"],
        "retry_policy": _retries(),
        "routes": list(_routes(settings.config.http.stream_prefixes)),
    }


def _routes(prefixes: Sequence[str]) -> Iterator[Json]:
    """What is not named here is nobody's business: 404."""
    reads = _method("GET", "HEAD")
    # Two Host lines are one with a comma to Envoy, and it takes any.
    strange = {"name": ":authority", "string_match": {"safe_regex": {"regex": PLAIN_HOST}}}
    match = {"prefix": "/", "headers": [{**strange, "invert_match": True}]}
    yield {"name": "strange-host", "match": match, "direct_response": {"status": 400}}
    yield _route("health", {"path": "/healthz"})
    yield _route("console", {"path": CONSOLE, "headers": [reads]})
    yield _route("console", {"prefix": f"{CONSOLE}/", "headers": [reads]})
    stream: Json = {"safe_regex": {"regex": stream_path(prefixes)}}
    # What may be repeated may be sent again after it was cut off, as the gateway does it.
    yield _stream_route("read", stream | {"headers": [reads]}, "reset")
    produced = [
        {"name": name, "present_match": True}
        for name in (PRODUCER_ID, PRODUCER_EPOCH, PRODUCER_SEQ)
    ]
    yield _stream_route("produce", stream | {"headers": [_method("POST"), *produced]}, "reset")
    yield _stream_route("write", stream)


def _route(name: str, match: Json, **more: Any) -> Json:
    """No answer is too late: live reads end by the gateway's word."""
    return {"name": name, "match": match, "route": {"cluster": GATEWAYS, "timeout": "0s", **more}}


def _stream_route(name: str, match: Json, *retried: str) -> Json:
    rewrite = {"pattern": {"regex": STREAM_OF_PATH}, "substitution": r"\1"}
    policy = {"header": {"header_name": ":path", "regex_rewrite": rewrite}}
    more = {"retry_policy": _retries(*retried)} if retried else {}
    return _route(name, match, hash_policy=[policy], **more)


def _retries(*more: str) -> Json:
    """Of what surely reached no gateway, and at another one; `more` where repeating is harmless."""
    previous = _named(
        "retry_host_predicates.previous_hosts",
        "retry.host.previous_hosts.v3.PreviousHostsPredicate",
        {},
    )
    reasons = ("connect-failure", "refused-stream", "reset-before-request", *more)
    return {
        "retry_on": ",".join(reasons),
        "num_retries": 2,
        "retry_back_off": {"base_interval": "0.025s", "max_interval": "0.25s"},
        "retry_host_predicate": [previous],
        # Each attempt is a step on the ring, where a host has thousands of places.
        "host_selection_retry_max_attempts": 32,
    }


# -- gateways ----------------------------------------------------------------------------------


def _gateways(settings: EnvoySettings) -> Json:
    serving = settings.config.gateway
    most = settings.max_connections
    options = {
        # Envoy lets go first, so that no request is sent into a connection that is being closed.
        "common_http_protocol_options": {"idle_timeout": _seconds(serving.idle_timeout_secs / 2)},
        "explicit_http_config": {"http_protocol_options": {}},
        "outlier_detection": {"error_matcher": {"not_match": {"any_match": True}}},  # see _ejection
    }
    cluster = _cluster(GATEWAYS, settings.gateways, "1s")
    return cluster | {
        "lb_policy": "RING_HASH",
        "ring_hash_lb_config": {"minimum_ring_size": RING_SIZE},
        # When no gateway is well, each is as good as any other.
        "common_lb_config": {
            "healthy_panic_threshold": {"value": 1.0},
            "ignore_new_hosts_until_first_hc": True,
            "update_merge_window": "0s",  # who leaves gets nothing more, from now on
        },
        "health_checks": [_health_check(settings.health_secs)],
        "outlier_detection": _ejection(settings.health_secs),
        # A live reader is a connection: what is open here must not be fewer than clients may open.
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
            "tcp_keepalive": {
                "keepalive_probes": 3,
                "keepalive_time": 30,
                "keepalive_interval": 10,
            }
        },
        "per_connection_buffer_limit_bytes": BUFFER_BYTES,
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": _type("upstreams.http.v3.HttpProtocolOptions"),
                **options,
            }
        },
    }


def _health_check(seconds: float) -> Json:
    """A 503 of /readyz counts at once, silence only the third time."""
    return {
        "timeout": _seconds(max(seconds, 1.0)),
        "interval": _seconds(seconds),
        "no_traffic_interval": _seconds(seconds),
        "unhealthy_threshold": 3,
        "healthy_threshold": 1,
        "http_health_check": {"path": "/readyz", "host": "weir"},
    }


def _ejection(seconds: float) -> Json:
    """For failing to connect or to answer at all, until the next health check that succeeds.

    To Envoy such a failure is a 5xx, and by the matcher above no answer is. Counted apart, a reset
    would never make three: each connection that is accepted before it counts as a success."""
    return {
        "consecutive_5xx": 3,
        "enforcing_consecutive_5xx": 100,
        "enforcing_consecutive_gateway_failure": 0,
        "enforcing_success_rate": 0,
        "interval": _seconds(seconds),
        "base_ejection_time": _seconds(5 * seconds),
        "max_ejection_percent": 50,
        "always_eject_one_host": True,
    }


def _cluster(name: str, urls: Sequence[str], connect_timeout: str) -> Json:
    addresses = [_host_and_port(url) for url in urls]
    endpoints = [{"endpoint": {"address": _address(*address)}} for address in addresses]
    fixed = all(_is_ip(host) for host, _ in addresses)
    cluster: Json = {
        "name": name,
        **({"type": "STATIC"} if fixed else {"cluster_type": _dns()}),
        "connect_timeout": connect_timeout,
        "load_assignment": {
            "cluster_name": name,
            "endpoints": [{"lb_endpoints": endpoints}],
        },
    }
    if any(url.startswith("https://") for url in urls):
        cluster["transport_socket"] = _upstream_tls(_host_of_all(urls))
    return cluster


def _host_of_all(urls: Sequence[str]) -> str:
    """A cluster asks for one name, and expects it in every certificate."""
    hosts = {_host_and_port(url)[0] for url in urls}
    if len(hosts) > 1 or not all(url.startswith("https://") for url in urls):
        raise SettingsError("--gateway", "with https, all must be https and of the same host")
    return hosts.pop()


def _dns() -> Json:
    """Every address behind a name is one gateway more."""
    options = {"dns_refresh_rate": "5s", "dns_lookup_family": "V4_PREFERRED"}
    return _named("cluster.dns", "clusters.dns.v3.DnsCluster", options)


def _upstream_tls(host: str) -> Json:
    trusted = {
        "trusted_ca": {"filename": CA_FILE},
        "match_typed_subject_alt_names": [{"san_type": "DNS", "matcher": {"exact": host}}],
    }
    return _named(
        "transport_sockets.tls",
        "transport_sockets.tls.v3.UpstreamTlsContext",
        {"sni": host, "common_tls_context": {"validation_context": trusted}},
    )


# -- Envoy's own answers -----------------------------------------------------------------------

_MALFORMED = problem(400, "malformed-request", "The request is not valid HTTP.")
_REFUSALS = (
    (400, _MALFORMED),
    (501, _MALFORMED),  # an unknown Transfer-Encoding
    (426, problem(400, "http-version", "Use HTTP/1.1 or HTTP/2.")),
    (401, problem_of(invalid_token("malformed"))),
    (403, problem_of(invalid_token("malformed"))),  # for somebody else
    (404, problem(404, "not-found", "There is nothing at this path.")),
    (408, problem(408, "timeout", "The request took too long to arrive.")),
    (413, problem(413, "body-too-large", "The body is too large.")),
    (431, problem(431, "header-too-large", "The request head is too large.")),
    (500, problem(500, "internal-error", "The proxy made a mistake.")),
    (502, problem(502, "bad-gateway", "A gateway's answer made no sense.")),
    (503, problem(503, "unavailable", "No gateway can take this now.", RETRY_AFTER)),
    (504, problem(504, "timeout", "A gateway did not answer in time.")),
)


def _local_replies(settings: EnvoySettings) -> Json:
    """In the gateway's words, so that a client has one kind of error to understand."""
    stamp = Stamp(settings.config.cors_origins)
    origins = () if stamp.any_origin else stamp.origins
    return {
        "mappers": [
            mapper
            for origin in (*origins, None)
            for mapper in _mappers(stamp.headers(origin), _from_origin(origin))
        ]
    }


def _mappers(stamp: Headers, filters: list[Json]) -> Iterator[Json]:
    """The first that fits is taken."""
    without = _header("authorization", {"present_match": False})
    yield _mapper([_status(401), without, *filters], 401, problem_of(missing_token()), stamp)
    upgrade = _header("upgrade", {"present_match": True})
    yield _mapper([_status(403), upgrade, *filters], 403, _MALFORMED, stamp)
    for status, reply in _REFUSALS:
        yield _mapper([_status(status), *filters], status, reply, stamp)


def _mapper(filters: list[Json], status: int, reply: Reply, stamp: Headers) -> Json:
    headers = [h for h in (*reply.headers, *stamp) if h[0] not in ("Content-Type", "Server")]
    mapper: Json = {
        "filter": {"and_filter": {"filters": filters}} if len(filters) > 1 else filters[0],
        "body_format_override": {
            "text_format_source": {"inline_string": _as_format(reply.body.decode())},
            "content_type": dict(reply.headers)["Content-Type"],
        },
        "headers_to_add": [
            {
                "header": {"key": name, "value": _as_format(value)},
                "append_action": "OVERWRITE_IF_EXISTS_OR_ADD",
            }
            for name, value in headers
        ],
    }
    return mapper if status == reply.status else {**mapper, "status_code": reply.status}


def _as_format(text: str) -> str:
    return text.replace("%", "%%")


def _from_origin(origin: str | None) -> list[Json]:
    return [] if origin is None else [_header("origin", {"string_match": {"exact": origin}})]


def _header(name: str, matcher: Json) -> Json:
    return {"header_filter": {"header": {"name": name, **matcher}}}


def _status(status: int) -> Json:
    value = {"default_value": status, "runtime_key": f"weir.status_{status}"}
    return {"status_code_filter": {"comparison": {"op": "EQ", "value": value}}}


# -- limits of the whole -----------------------------------------------------------------------


def _runtime() -> Json:
    """Against clients who open streams only to reset them, and who end chunks as they like."""
    return {
        "envoy.reloadable_features.strict_chunk_parsing": True,
        "overload.premature_reset_total_stream_count": 500,
        "overload.premature_reset_min_stream_lifetime_seconds": 1,
        "http.max_requests_per_io_cycle": 10,
    }


def _overload(settings: EnvoySettings) -> Json:
    """Connections and memory: beyond these, newcomers are refused and the rest goes on."""
    heap = "envoy.resource_monitors.fixed_heap"
    connections = {"max_active_downstream_connections": settings.max_connections}
    return {
        "refresh_interval": "0.25s",
        "resource_monitors": [
            _named(
                "resource_monitors.fixed_heap",
                "resource_monitors.fixed_heap.v3.FixedHeapConfig",
                {"max_heap_size_bytes": HEAP_BYTES},
            ),
            _named(
                "resource_monitors.global_downstream_max_connections",
                "resource_monitors.downstream_connections.v3.DownstreamConnectionsConfig",
                connections,
            ),
        ],
        "actions": [
            _action("envoy.overload_actions.shrink_heap", heap, 0.9),
            _action("envoy.overload_actions.stop_accepting_requests", heap, 0.95),
        ],
    }


def _action(name: str, resource: str, threshold: float) -> Json:
    return {"name": name, "triggers": [{"name": resource, "threshold": {"value": threshold}}]}


# -- pieces ------------------------------------------------------------------------------------


def _named(name: str, kind: str, config: Json) -> Json:
    return {"name": f"envoy.{name}", "typed_config": {"@type": _type(kind), **config}}


def _type(name: str) -> str:
    return f"type.googleapis.com/envoy.extensions.{name}"


def _address(host: str, port: int) -> Json:
    return {"socket_address": {"address": host, "port_value": port}}


def _range(prefix: str, length: int) -> Json:
    return {"address_prefix": prefix, "prefix_len": length}


def _method(*names: str) -> Json:
    if len(names) == 1:
        return {"name": ":method", "string_match": {"exact": names[0]}}
    return {"name": ":method", "string_match": {"safe_regex": {"regex": "|".join(names)}}}


def _seconds(value: float) -> str:
    return f"{value:.3f}".rstrip("0").rstrip(".") + "s"


def _is_url(text: str) -> bool:
    return text.startswith(("http://", "https://"))


def _is_ip(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _host_and_port(url: str) -> tuple[str, int]:
    parts = urlsplit(url if "//" in url else f"//{url}")
    default = 443 if parts.scheme == "https" else 80
    return parts.hostname or "", parts.port or default
