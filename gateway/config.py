"""The gateway's settings: every key, its default and its limits.

`configs/default.toml` documents the same keys and defaults; a test keeps the two equal.
"""

import re
from dataclasses import dataclass, field
from functools import partial

from gateway.rules.nodes import MAX_NODES, is_node_url
from wire import settings
from wire.sections import HttpConfig, LogConfig
from wire.settings import (
    check,
    check_at_least,
    check_choice,
    check_positive,
    check_range,
    check_secret,
)

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

AUTH_MODES = ("jwt", "off")
ALGORITHMS = ("RS256", "ES256", "EdDSA")
TAIL_READS = ("origin", "hub")
TAG_HEADERS = ("", "Surrogate-Key", "Cache-Tag")

# Sections that configure the origin: both services read the same files and variables.
FOREIGN_SECTIONS = frozenset({"server", "tls", "limits", "storage", "cluster", "cold"})

_URL = re.compile(r"https?://[!-~]+")


@dataclass(frozen=True, slots=True)
class ServingConfig:
    """[gateway]: the port, the live readers, and the limits of clients."""

    host: str = "127.0.0.1"
    port: int = 8080
    admin_host: str = "127.0.0.1"
    admin_port: int = 9090
    origin_url: str = "http://127.0.0.1:4437"
    origin_urls: tuple[str, ...] = ()  # nodes of a cluster; empty = the one origin above
    workers: int = 1
    name: str = ""  # of this gateway, in logs; empty = the host's
    access_log: str = ""  # a folder; empty = no access log
    console: bool = True  # a page for people at /console/
    tls_cert_path: str = ""
    tls_key_path: str = ""
    leave_secs: float = 0.0  # after SIGTERM: not ready, but still accepting connections
    drain_secs: float = 10.0
    trusted_hops: int = 0  # proxies in front whose X-Forwarded-For entries count
    long_poll_timeout_secs: float = 25.0  # some clients and proxies give up after 30
    sse_rotation_secs: float = 60.0
    sse_heartbeat_secs: float = 15.0
    max_reader_backlog_bytes: int = 1 * MIB
    max_unsent_bytes: int = 256 * MIB  # of large events and chunks not sent yet, per worker
    max_unsent_bytes_per_subject: int = 32 * MIB
    max_windows_bytes: int = 128 * MIB  # of recent data of all followed streams, per worker
    max_body_bytes: int = 16 * MIB
    max_snapshot_bytes: int = 64 * MIB  # of a snapshot that is published
    max_bodies_bytes: int = 256 * MIB  # of all request bodies in transit, per worker
    max_bodies_bytes_per_subject: int = 64 * MIB
    max_header_bytes: int = 16 * KIB
    max_path_bytes: int = KIB
    max_spool_bytes: int = 4 * GIB  # of large responses that clients have not read yet
    max_spool_bytes_per_subject: int = 1 * GIB
    spool_dir: str = ""  # folder for them; empty = the system's temporary folder
    max_connections: int = 50_000
    max_live_readers: int = 20_000
    max_live_readers_per_subject: int = 10_000
    requests_per_second: float = 5000.0  # of one subject; 0 = no limit
    request_burst: int = 10_000
    header_timeout_secs: float = 10.0
    body_timeout_secs: float = 30.0
    idle_timeout_secs: float = 120.0

    def __post_init__(self) -> None:
        check(self.host != "", "host", "must not be empty")
        check(self.admin_host != "", "admin_host", "must not be empty")
        check_range(self, 0, 65535, "port", "admin_port")
        object.__setattr__(self, "origin_url", self.origin_url.rstrip("/"))
        ok = bool(_URL.fullmatch(self.origin_url))
        check(ok, "origin_url", f"{self.origin_url!r} is not an http or https URL")
        nodes = tuple(dict.fromkeys(url.rstrip("/") for url in self.origin_urls))
        object.__setattr__(self, "origin_urls", nodes)
        check(len(nodes) <= MAX_NODES, "origin_urls", f"has more than {MAX_NODES} URLs")
        for url in nodes:
            ok = is_node_url(url)
            check(
                ok, "origin_urls", f"{url!r} is not the http or https URL of a node, without a path"
            )
        check_range(self, 1, 256, "workers")
        ok = bool(re.fullmatch(r"[A-Za-z0-9._-]{0,64}", self.name))
        check(ok, "name", "may hold letters, digits, dots, hyphens and underscores")
        cert, key = self.tls_cert_path, self.tls_key_path
        check(not cert or bool(key), "tls_cert_path", "needs gateway.tls_key_path as well")
        check(not key or bool(cert), "tls_key_path", "needs gateway.tls_cert_path as well")
        check_at_least(self, 0, "leave_secs", "drain_secs", "trusted_hops", "requests_per_second")
        check_positive(self, "long_poll_timeout_secs", "sse_rotation_secs", "sse_heartbeat_secs")
        check_positive(self, *(key for key in self.__slots__ if key.startswith("max_")))
        check_positive(self, "request_burst")
        largest = max(self.max_body_bytes, self.max_snapshot_bytes)
        check_at_least(self, largest, "max_bodies_bytes", "max_bodies_bytes_per_subject")
        check_at_least(self, KIB, "max_header_bytes")
        check_positive(self, "header_timeout_secs", "body_timeout_secs", "idle_timeout_secs")


@dataclass(frozen=True, slots=True)
class UpstreamConfig:
    """[upstream]: the connections to the origin."""

    connections: int = 100  # for everything but live tails
    live_connections: int = 2000  # one for each stream that is followed
    subject_share: float = 0.5  # of either that one subject may hold
    connect_timeout_secs: float = 2.0
    first_byte_timeout_secs: float = 15.0
    idle_timeout_secs: float = 15.0  # between two pieces of a body
    live_timeout_secs: float = 75.0  # first byte of a long-poll: above the origin's hold
    retries: int = 1
    breaker_failures: int = 10  # in a row
    breaker_secs: float = 2.0
    forward_token: bool = False
    access_key: str = ""  # secret, `server.access_key` of the origin

    def __post_init__(self) -> None:
        check_positive(self, "connections", "live_connections", "breaker_failures")
        timeouts = (key for key in self.__slots__ if key.endswith("_secs"))
        check_positive(self, *timeouts)
        check_range(self, 0, 5, "retries")
        check_secret(self, "access_key")
        check_range(self, 0.01, 1, "subject_share")


@dataclass(frozen=True, slots=True)
class AuthConfig:
    mode: str = "jwt"
    jwks: str = ""  # a file or an http(s) URL
    issuer: str = ""
    audience: str = ""
    leeway_secs: float = 10.0
    algorithms: tuple[str, ...] = ALGORITHMS
    token_type: str = ""  # the `typ` that a token must have, such as at+jwt; empty = any
    max_lifetime_secs: float = 30 * 86_400.0  # longest remaining validity of a token
    max_token_bytes: int = 8 * KIB
    remembered_tokens: int = 100_000
    cookie: str = ""  # name of a cookie that may bring the token
    query_parameter: str = ""  # name of a query parameter that may bring it
    scope_claim: str = "scope"  # the claim with the scopes; some issuers call it scp or roles
    allow_no_scope: bool = False  # whether a token without scopes may do everything
    write_may_snapshot: bool = False  # whether `write` includes `snapshot`, as it once did
    jwks_refresh_secs: float = 300.0
    jwks_cooldown_secs: float = 30.0  # between fetches for unknown key ids
    revocation: bool = False  # look up token ids in Redis

    def __post_init__(self) -> None:
        check_choice(self, "mode", AUTH_MODES)
        check_range(self, 0, 300, "leeway_secs")
        for name in self.algorithms:
            known = ", ".join(ALGORITHMS)
            check(name in ALGORITHMS, "algorithms", f"{name!r} is not one of {known}")
        check(bool(self.algorithms), "algorithms", "must not be empty")
        check_positive(self, "max_lifetime_secs", "max_token_bytes", "remembered_tokens")
        check_positive(self, "jwks_refresh_secs", "jwks_cooldown_secs")
        check(bool(self.scope_claim), "scope_claim", "must not be empty")
        for key in ("cookie", "query_parameter"):
            ok = re.fullmatch(r"[A-Za-z0-9_-]{0,64}", getattr(self, key))
            check(bool(ok), key, "may hold letters, digits, hyphens and underscores")
        reserved = ("offset", "live", "cursor", "max_bytes", "prefix", "after", "limit")
        check(self.query_parameter not in reserved, "query_parameter", "is taken by the protocol")


@dataclass(frozen=True, slots=True)
class CacheConfig:
    max_bytes: int = 256 * MIB
    max_object_bytes: int = 32 * MIB  # a chunk of the origin, its largest message included
    fresh_secs: float = 60.0  # of chunks that never change
    stale_secs: float = 300.0  # served while they are revalidated
    stale_error_secs: float = 86_400.0  # served while the origin is unavailable
    tail_reads: str = "origin"
    obey_no_store: bool = True  # of the origin, for chunks that never change
    compress: bool = True
    compress_min_bytes: int = KIB
    hub_window_bytes: int = 1 * MIB
    redis_url: str = ""
    redis_timeout_secs: float = 0.1
    redis_key: str = ""  # secret that seals what is stored in Redis; shared by the fleet
    require_redis_key: bool = False  # whether to refuse a Redis without it
    cursor_key: str = ""  # secret of the cursors' jitter; shared by the fleet

    def __post_init__(self) -> None:
        check_positive(self, "max_bytes", "max_object_bytes", "compress_min_bytes")
        check_positive(self, "hub_window_bytes", "redis_timeout_secs")
        check_at_least(self, 0, "fresh_secs", "stale_secs", "stale_error_secs")
        check_choice(self, "tail_reads", TAIL_READS)
        ok = self.redis_url == "" or re.fullmatch(r"(rediss?|unix)://[!-~]+", self.redis_url)
        check(bool(ok), "redis_url", f"{self.redis_url!r} is not a redis, rediss or unix URL")
        sealed = self.redis_url == "" or self.redis_key != "" or not self.require_redis_key
        check(sealed, "redis_key", "must be set with cache.redis_url (cache.require_redis_key)")


@dataclass(frozen=True, slots=True)
class CdnConfig:
    """[cdn]: headers and purges for CDNs in front of the gateway."""

    public: tuple[str, ...] = ()  # patterns of streams that anyone's cache may hold
    tag_header: str = ""  # Surrogate-Key or Cache-Tag
    cache_control: str = ""  # the value of CDN-Cache-Control on public chunks
    # Called on delete, re-creation and snapshot; {tag} and {path} are filled in.
    purge_url: str = ""
    purge_method: str = "POST"
    purge_header: tuple[str, ...] = ()  # "Name: value", such as the CDN's key
    purge_body: str = ""  # also a template, such as {"tags": ["{tag}"]}
    purge_retries: int = 5

    def __post_init__(self) -> None:
        check_choice(self, "tag_header", TAG_HEADERS)
        ok = bool(re.fullmatch(r"[\t -~]*", self.cache_control))
        check(ok, "cache_control", "is not a header value")
        ok = self.purge_url == "" or bool(_URL.fullmatch(self.purge_url))
        check(ok, "purge_url", f"{self.purge_url!r} is not an http or https URL")
        check_choice(self, "purge_method", ("POST", "PURGE", "DELETE", "GET"))
        for line in self.purge_header:
            ok = bool(re.fullmatch(r"[A-Za-z0-9-]+: [\t -~]+", line))
            check(ok, "purge_header", f"{line!r} is not `Name: value`")
        check_range(self, 0, 20, "purge_retries")


@dataclass(frozen=True, slots=True)
class GatewayConfig:
    gateway: ServingConfig = field(default_factory=ServingConfig)
    upstream: UpstreamConfig = field(default_factory=UpstreamConfig)
    auth: AuthConfig = field(default_factory=AuthConfig)
    cache: CacheConfig = field(default_factory=CacheConfig)
    cdn: CdnConfig = field(default_factory=CdnConfig)
    http: HttpConfig = field(default_factory=HttpConfig)
    log: LogConfig = field(default_factory=LogConfig)

    def __post_init__(self) -> None:
        jwks = self.auth.mode == "off" or self.auth.jwks != ""
        check(jwks, "auth.jwks", "must name a file or URL of keys, unless auth.mode is off")
        redis = self.cache.redis_url != ""
        check(redis or not self.auth.revocation, "auth.revocation", "needs cache.redis_url")
        ok = not self.upstream.forward_token or not self.cdn.public
        check(ok, "cdn.public", "must be empty with upstream.forward_token: the origin decides")

    def per_subject(self, limit: int, total: int) -> int:
        """A limit per subject. Without tokens there is only one subject, which may use it all."""
        return total if self.auth.mode == "off" else min(limit, total)

    @property
    def cors_origins(self) -> tuple[str, ...]:
        """By default all pages are allowed: the token decides what they may do."""
        return self.http.origins(("*",))


load_config = partial(settings.load_layers, GatewayConfig, FOREIGN_SECTIONS)
