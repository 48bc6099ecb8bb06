"""How the peers of the gateway are configured: each at its best, and one core's worth. Pure.

nginx: one worker, buffered access log, cached files kept open, lock long enough for a long-poll.
Event streams go past the caches of nginx and Varnish, which would make readers wait for their end.
Varnish and Envoy write no access log, which only helps them. Only Envoy checks the token; nginx
and Varnish are told to ignore it, or they would not share anything. Envoy's jwt_authn verifies
every token anew unless it is given a cache of tokens: it is measured both ways.
"""

import json
from pathlib import Path
from string import Template

from loadtest.peers.tokens import AUDIENCE, ISSUER

NCHAN_MODULE = "ngx_nchan_module.so"
LOCK_SECS = 70
"""Above the origin's long-poll hold: with nginx's default of 5 s every waiter would go upstream."""

NGINX_FRAME = """\
{load}
{user}
daemon off;
worker_processes 1;
worker_rlimit_nofile 16384;
pid {folder}/nginx.pid;
error_log stderr warn;
events {{ worker_connections 8192; accept_mutex off; }}
http {{
  access_log {folder}/access.log combined buffer=64k flush=1s;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  sendfile on;
  tcp_nodelay on;
  keepalive_requests 1000000000;
  keepalive_timeout 600s;
{http}
}}
"""

NGINX_CACHE = """\
  open_file_cache max=10000 inactive=600s;
  open_file_cache_valid 600s;
  proxy_cache_path {folder}/cache levels=1:2 keys_zone=streams:32m inactive=1h use_temp_path=off;
  upstream origin {{ server 127.0.0.1:{origin_port}; keepalive 64; keepalive_requests 1000000000; }}
  map $arg_live $is_endless {{ default 0; sse 1; }}
  server {{
    listen 127.0.0.1:{port} backlog=4096;
    location / {{
      proxy_pass http://origin;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_set_header Authorization "";
      proxy_read_timeout {lock}s;
      proxy_cache streams;
      proxy_cache_key $uri$is_args$args;
      proxy_cache_lock on;
      proxy_cache_lock_timeout {lock}s;
      proxy_cache_lock_age {lock}s;
      proxy_cache_revalidate on;
      proxy_cache_background_update on;
      proxy_cache_use_stale updating error timeout;
      proxy_cache_bypass $is_endless;
      proxy_no_cache $is_endless;
    }}
  }}
"""

# Messages are stored as by default, so that readers can resume, as ours can; it costs nothing here.
NCHAN = """\
  server {{
    listen 127.0.0.1:{port} backlog=4096;
    location ~ ^/v1/stream/(.+)$ {{
      nchan_pubsub;
      nchan_channel_id $1;
      nchan_subscriber_first_message newest;
    }}
  }}
"""

VARNISH = """\
vcl 4.1;
backend origin {{
  .host = "127.0.0.1";
  .port = "{origin_port}";
  .first_byte_timeout = {lock}s;
  .between_bytes_timeout = {lock}s;
}}
sub vcl_recv {{
  unset req.http.Authorization;
  if (req.url ~ "live=sse") {{
    return (pipe);
  }}
}}
"""


# Tokens are taken off before the cache, which would pass a request that has one.
ENVOY = Template("""\
{"static_resources": {
  "listeners": [{
    "name": "in",
    "address": {"socket_address": {"address": "127.0.0.1", "port_value": $port}},
    "tcp_backlog_size": 4096,
    "filter_chains": [{"filters": [{
      "name": "envoy.filters.network.http_connection_manager",
      "typed_config": {
        "@type": "$types.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "in",
        "generate_request_id": false,
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [
          {"match": {"prefix": "/"}, "route": {"cluster": "origin", "timeout": "0s"}}]}]},
        "http_filters": [
          {"name": "envoy.filters.http.jwt_authn", "typed_config": {
            "@type": "$types.filters.http.jwt_authn.v3.JwtAuthentication",
            "providers": {"bench": {
              "issuer": $issuer,
              "audiences": [$audience],
              "local_jwks": {"inline_string": $jwks},
              "forward": false$remembering}},
            "rules": [{"match": {"prefix": "/"}, "requires": {"provider_name": "bench"}}]}},
          {"name": "envoy.filters.http.cache_v2", "typed_config": {
            "@type": "$types.filters.http.cache_v2.v3.CacheV2Config",
            "typed_config": {
              "@type": "$types.http.cache_v2.simple_http_cache.v3.SimpleHttpCacheV2Config"}}},
          {"name": "envoy.filters.http.router", "typed_config": {
            "@type": "$types.filters.http.router.v3.Router"}}]}}]}]}],
  "clusters": [{
    "name": "origin",
    "type": "STATIC",
    "connect_timeout": "2s",
    "circuit_breakers": {"thresholds": [
      {"max_connections": 8192, "max_pending_requests": 8192, "max_requests": 8192}]},
    "load_assignment": {"cluster_name": "origin", "endpoints": [{"lb_endpoints": [{"endpoint": {
      "address": {"socket_address": {"address": "127.0.0.1", "port_value": $origin_port}}}}]}]}}]}}
""")


def build_nginx(folder: Path, port: int, origin_port: int, user: str) -> str:
    http = NGINX_CACHE.format(folder=folder, port=port, origin_port=origin_port, lock=LOCK_SECS)
    return NGINX_FRAME.format(load="", user=_user_line(user), folder=folder, http=http)


def build_nchan(folder: Path, port: int, modules: Path, user: str) -> str:
    load = f"load_module {modules / NCHAN_MODULE};"
    http = NCHAN.format(port=port)
    return NGINX_FRAME.format(load=load, user=_user_line(user), folder=folder, http=http)


def _user_line(user: str) -> str:
    """Without it, workers of a root master would change to a user who may not see the folder."""
    return f"user {user};" if user else ""


def build_vcl(origin_port: int) -> str:
    return VARNISH.format(origin_port=origin_port, lock=LOCK_SECS)


def build_envoy(port: int, origin_port: int, jwks: str, *, remember_tokens: bool) -> str:
    return ENVOY.substitute(
        port=port,
        origin_port=origin_port,
        jwks=json.dumps(jwks),
        issuer=json.dumps(ISSUER),
        audience=json.dumps(AUDIENCE),
        remembering=', "jwt_cache_config": {"jwt_cache_size": 10000}' if remember_tokens else "",
        types="type.googleapis.com/envoy.extensions",
    )
