"""Tokens: which requests need one, how it is checked, and where the keys come from.

Envoy lets some tokens pass that the gateway then refuses: those with a `crit` it does not know, or
with a claim that appears twice.
"""

import math
from collections.abc import Iterator
from pathlib import PurePath

from gateway.config import AuthConfig
from gateway.console.service import GUARDED
from gateway.jwks import MAX_BYTES as MAX_KEYS_BYTES
from gateway.rules.routes import OWN_TOKEN, PUBLIC_KEYS
from weir.edge.clusters import cluster
from weir.edge.routes import CONSOLE
from weir.edge.values import Json, duration, extension, http_manager, is_url, method_match

KEYS = "keys"  # the cluster and the listener
PROVIDER = "weir"
FETCH_TIMEOUT = "5s"


def token_filters(auth: AuthConfig, key_set: str) -> list[Json]:
    if auth.mode == "off":
        return []
    config = {
        "providers": {PROVIDER: _provider(auth, key_set)},
        "rules": list(_rules()),
        "bypass_cors_preflight": True,
    }
    kind = "filters.http.jwt_authn.v3.JwtAuthentication"
    return [extension("filters.http.jwt_authn", kind, config)]


def _rules() -> Iterator[Json]:
    """The first match decides; everything else needs a token."""
    yield {"match": {"path": "/healthz"}}
    for path in GUARDED:
        yield {"match": {"path": path}, "requires": {"provider_name": PROVIDER}}
    yield {"match": {"path": CONSOLE}}
    yield {"match": {"prefix": f"{CONSOLE}/"}}
    # Protected by the origin itself, or public.
    yield {"match": {"path": PUBLIC_KEYS, "headers": [method_match("GET", "HEAD")]}}
    own = {"safe_regex": {"regex": OWN_TOKEN.pattern}, "headers": [method_match("POST")]}
    yield {"match": own}
    yield {"match": {"prefix": "/"}, "requires": {"provider_name": PROVIDER}}


def _provider(auth: AuthConfig, key_set: str) -> Json:
    """The token is forwarded, because the gateway checks it again. Verified tokens are not cached:
    Envoy would accept them until they expire, even after their key has left the set."""
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
    provider["remote_jwks"] = _remote_keys(key_set, auth.jwks_cooldown_secs)
    return provider


def _remote_keys(key_set: str, every_secs: float) -> Json:
    """A URL is fetched in the background: no request waits, and the last good set is kept. A file
    is fetched by the request that needs it (see `keys_listener`)."""
    uri = {"uri": f"http://{KEYS}/", "cluster": KEYS, "timeout": FETCH_TIMEOUT}
    if is_url(key_set):
        fetch = {"cache_duration": duration(every_secs), "async_fetch": {}}
        return {"http_uri": uri | {"uri": key_set}, **fetch}
    return {"http_uri": uri, "cache_duration": "1s"}


def keys_cluster(key_set: str) -> Json:
    if is_url(key_set):
        return cluster(KEYS, (key_set,), FETCH_TIMEOUT)
    inside = {"endpoint": {"address": {"envoy_internal_address": {"server_listener_name": KEYS}}}}
    endpoints = [{"lb_endpoints": [inside]}]
    return {
        "name": KEYS,
        "type": "STATIC",
        "connect_timeout": FETCH_TIMEOUT,
        "load_assignment": {"cluster_name": KEYS, "endpoints": endpoints},
    }


def keys_listener(path: str) -> Json:
    """Envoy reads a key file only once, but re-reads the body of a direct response when the file is
    replaced. So it fetches the keys from itself, over a listener without a port."""
    body = {"filename": path, "watched_directory": {"path": str(PurePath(path).parent)}}
    route = {"match": {"prefix": "/"}, "direct_response": {"status": 200, "body": body}}
    manager = {
        "stat_prefix": KEYS,
        "route_config": {
            "name": KEYS,
            "max_direct_response_body_size_bytes": MAX_KEYS_BYTES,
            "virtual_hosts": [{"name": KEYS, "domains": ["*"], "routes": [route]}],
        },
    }
    return {
        "name": KEYS,
        "internal_listener": {},
        "filter_chains": [{"filters": [http_manager(manager)]}],
    }
