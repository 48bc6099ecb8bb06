"""The origin's settings: every key, its default and its limits.

`configs/default.toml` documents the same keys and defaults; a test keeps the two equal.
"""

import re
from dataclasses import dataclass, field
from functools import partial

from wire import settings
from wire.addresses import host_name, is_every_address
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
TIB = 1024 * GIB

STORAGE_MODES = ("memory", "file-fast", "file-durable", "acid", "cluster")
COLD_BACKENDS = ("", "s3", "gcs", "azure", "fs")
JOURNAL_SYNCS = ("always", "may-lose-on-power-cut")
STORAGE_ALIASES = {"redb": "acid"}

# Sections that configure the gateway: both services read the same files and variables.
FOREIGN_SECTIONS = frozenset({"gateway", "upstream", "auth", "cache", "cdn"})


@dataclass(frozen=True, slots=True)
class ServerConfig:
    host: str = "127.0.0.1"
    port: int = 4437
    long_poll_timeout_secs: float = 30.0
    sse_reconnect_interval_secs: float = 60.0
    sse_heartbeat_secs: float = 15.0
    drain_secs: float = 10.0
    access_key: str = ""  # secret that gateways must send; empty = not required
    allowed_hosts: tuple[str, ...] = ()  # names in Host; empty = those of loopback if bound there
    node_id: str = ""  # name of this node in its cluster
    advertise: str = ""  # URL where gateways and other nodes reach it; empty = from host and port

    def __post_init__(self) -> None:
        check(self.host != "", "host", "must not be empty")
        check_range(self, 0, 65535, "port")
        check_positive(self, "long_poll_timeout_secs", "sse_heartbeat_secs")
        check_at_least(self, 0, "sse_reconnect_interval_secs", "drain_secs")
        check_secret(self, "access_key")
        named = re.fullmatch(r"[a-z0-9-]{0,32}", self.node_id)
        check(bool(named), "node_id", f"{self.node_id!r} is not lower-case letters, digits and -")
        is_url = re.fullmatch(r"(https?://[^/?#\s]+)?", self.advertise)
        check(
            bool(is_url), "advertise", f"{self.advertise!r} is not a URL like http://10.0.0.1:4437"
        )
        for name in self.allowed_hosts:
            ok = name == "*" or re.fullmatch(r"[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]", name)
            check(bool(ok), "allowed_hosts", f"{name!r} is not * or a name without a port")


@dataclass(frozen=True, slots=True)
class TlsConfig:
    cert_path: str = ""
    key_path: str = ""

    def __post_init__(self) -> None:
        check(not self.cert_path or bool(self.key_path), "cert_path", "needs tls.key_path as well")
        check(not self.key_path or bool(self.cert_path), "key_path", "needs tls.cert_path as well")


@dataclass(frozen=True, slots=True)
class LimitsConfig:
    max_body_bytes: int = 16 * MIB
    max_stream_bytes: int = 64 * GIB
    max_total_bytes: int = TIB
    max_memory_bytes: int = GIB
    max_snapshot_bytes: int = 64 * MIB
    max_bootstrap_bytes: int = GIB
    max_header_bytes: int = 16 * KIB
    max_path_bytes: int = KIB
    max_streams: int = 5_000_000
    max_producers_per_stream: int = 10_000
    producer_idle_secs: float = 604_800.0
    max_connections: int = 50_000
    max_live_readers: int = 20_000
    max_live_readers_per_stream: int = 10_000
    header_timeout_secs: float = 10.0
    body_timeout_secs: float = 30.0
    idle_timeout_secs: float = 120.0

    def __post_init__(self) -> None:
        counts = (key for key in self.__slots__ if key.startswith("max_"))
        check_positive(self, *counts)
        check_at_least(self, KIB, "max_header_bytes")
        secs = (key for key in self.__slots__ if key.endswith("_secs"))
        check_positive(self, *secs)


@dataclass(frozen=True, slots=True)
class StorageConfig:
    mode: str = "file-durable"
    data_dir: str = "./data"
    chunk_bytes: int = MIB
    cache_bytes: int = 16 * MIB
    journal_bytes: int = 32 * MIB
    journal_files: int = 4
    checkpoint_secs: float = 60.0
    acid_shard_count: int = 16
    acid_map_bytes: int = 64 * GIB

    def __post_init__(self) -> None:
        object.__setattr__(self, "mode", STORAGE_ALIASES.get(self.mode, self.mode))
        check_choice(self, "mode", STORAGE_MODES)
        check(self.data_dir != "", "data_dir", "must not be empty")
        check_positive(self, "chunk_bytes", "journal_bytes", "checkpoint_secs")
        check_at_least(self, 0, "cache_bytes")
        check_at_least(self, 2, "journal_files")
        check_at_least(self, MIB, "acid_map_bytes")
        check_range(self, 1, 256, "acid_shard_count")
        shards = self.acid_shard_count
        check(shards & (shards - 1) == 0, "acid_shard_count", f"{shards} is not a power of two")

    @property
    def has_journal(self) -> bool:
        return self.mode.startswith("file-")


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """Secrets may be `$NAME`: the value of that environment variable, which must be set."""

    name: str = "weir"
    nats_urls: tuple[str, ...] = ("nats://127.0.0.1:4222",)
    nats_monitor_urls: tuple[str, ...] = ("http://127.0.0.1:8222",)
    nats_user: str = ""
    nats_password: str = ""
    nats_credentials: str = ""
    nats_ca_path: str = ""
    journal_sync: str = "always"
    replicas: int = 3
    shards: int = 16
    lease_secs: float = 12.0
    renew_secs: float = 2.0
    journal_bytes: int = 64 * MIB
    flush_bytes: int = 8 * MIB
    flush_secs: float = 30.0
    answer_secs: float = 4.5

    def __post_init__(self) -> None:
        ok = re.fullmatch(r"[a-z0-9-]{1,32}", self.name)
        check(bool(ok), "name", f"{self.name!r} is not lower-case letters, digits and -")
        check(self.nats_urls != (), "nats_urls", "must not be empty")
        check_choice(self, "journal_sync", JOURNAL_SYNCS)
        check(self.replicas in (1, 3, 5), "replicas", f"{self.replicas} is not 1, 3 or 5")
        check_range(self, 1, 256, "shards")
        check_positive(self, "lease_secs", "renew_secs", "flush_secs", "flush_bytes")
        check_range(self, 0.1, 5.0, "answer_secs")
        enough = self.lease_secs >= 3 * self.renew_secs
        check(enough, "lease_secs", "must be at least three times renew_secs")
        enough = self.journal_bytes >= 2 * self.flush_bytes
        check(enough, "journal_bytes", "must be at least twice flush_bytes")


@dataclass(frozen=True, slots=True)
class ColdConfig:
    """Object storage. Secrets may be `$NAME`, as in `ClusterConfig`."""

    backend: str = ""
    prefix: str = ""
    s3_bucket: str = ""
    s3_region: str = "us-east-1"
    s3_endpoint: str = ""
    s3_access_key_id: str = ""
    s3_secret_access_key: str = ""
    s3_session_token: str = ""
    gcs_bucket: str = ""
    azure_container: str = ""
    azure_account: str = ""
    azure_access_key: str = ""
    fs_path: str = ""
    timeout_secs: float = 3.0
    cache_bytes: int = 256 * MIB

    def __post_init__(self) -> None:
        check_choice(self, "backend", COLD_BACKENDS)
        needed = {"s3": "s3_bucket", "gcs": "gcs_bucket", "azure": "azure_container"}
        key = {**needed, "fs": "fs_path"}.get(self.backend)
        ok = key is None or getattr(self, key) != ""
        check(ok, key or "", f"must be set for backend {self.backend}")
        check_positive(self, "timeout_secs")
        check_at_least(self, MIB, "cache_bytes")


@dataclass(frozen=True, slots=True)
class OriginConfig:
    server: ServerConfig = field(default_factory=ServerConfig)
    http: HttpConfig = field(default_factory=HttpConfig)
    tls: TlsConfig = field(default_factory=TlsConfig)
    limits: LimitsConfig = field(default_factory=LimitsConfig)
    storage: StorageConfig = field(default_factory=StorageConfig)
    cluster: ClusterConfig = field(default_factory=ClusterConfig)
    cold: ColdConfig = field(default_factory=ColdConfig)
    log: LogConfig = field(default_factory=LogConfig)

    def __post_init__(self) -> None:
        # One journal file must fit the largest append while another waits to be retired.
        journal, body = self.storage.journal_bytes, self.limits.max_body_bytes
        check(
            not self.storage.has_journal or journal >= max(2 * body, 64 * KIB),
            "storage.journal_bytes",
            f"{journal} is less than 64 KiB or twice limits.max_body_bytes ({body})",
        )
        if self.storage.mode == "cluster":
            check(self.server.node_id != "", "server.node_id", "must be set for storage cluster")
            self._check_reachable()
            check(self.cold.backend != "", "cold.backend", "must be set for storage cluster")
            fits = self.cluster.journal_bytes >= 2 * body
            check(
                fits, "cluster.journal_bytes", f"is less than twice limits.max_body_bytes ({body})"
            )

    def _check_reachable(self) -> None:
        """What others learn of this node must not lead them to themselves."""
        host, url = self.server.host, self.server.advertise
        ok = url != "" or not is_every_address(host)
        problem = f"must be set, because {host} (server.host) leads each machine to itself"
        check(ok, "server.advertise", problem)
        ok = not is_every_address(host_name(url.partition("://")[2]))
        check(ok, "server.advertise", f"{url!r} leads each machine to itself")

    @property
    def max_stored_bytes(self) -> int:
        """The limit of all streams together."""
        in_memory = self.storage.mode == "memory"
        return self.limits.max_memory_bytes if in_memory else self.limits.max_total_bytes

    @property
    def answer_secs(self) -> float | None:
        """How long a request may wait for its outcome; None if storage never waits for others."""
        return self.cluster.answer_secs if self.storage.mode == "cluster" else None

    @property
    def cors_origins(self) -> tuple[str, ...]:
        """By default no page is allowed, because no tokens are checked here."""
        return self.http.origins(())


load_config = partial(settings.load_layers, OriginConfig, FOREIGN_SECTIONS)
