"""An origin in a thread of this process, for tests that talk to it over sockets."""

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

import uvloop

from origin.app import Join, Origin
from origin.config import (
    ClusterConfig,
    ColdConfig,
    LimitsConfig,
    OriginConfig,
    ServerConfig,
    StorageConfig,
    TlsConfig,
)
from tests.helpers.nats import cluster_name, shared_nats
from tests.helpers.rawhttp import Client, Connection
from wire.sections import HttpConfig

MODES = ("memory", "file-fast", "file-durable", "acid", "cluster")
PERSISTENT_MODES = MODES[1:]
ONE_SHARD_MODES = MODES[:-1]  # for tests that look into the shard
MIB = 1024 * 1024
STOP_S = 30.0

T = TypeVar("T")


def make_config(data_dir: Path, mode: str = "memory", **sections: dict[str, Any]) -> OriginConfig:
    """Small files and short waits, so that tests reach every path quickly."""
    server: dict[str, Any] = {"port": 0, "long_poll_timeout_secs": 5.0, "drain_secs": 5.0}
    server |= {"allowed_hosts": ("*",)}  # tests call it by many names
    limits: dict[str, Any] = {"max_body_bytes": MIB}
    storage: dict[str, Any] = {
        "mode": mode,
        "data_dir": str(data_dir),
        "journal_bytes": 4 * MIB,
        "acid_shard_count": 2,
        "acid_map_bytes": 256 * MIB,
    }
    if mode == "cluster" and "cluster" not in sections:
        sections = sections | _one_node(data_dir, limits | sections.get("limits", {}), sections)
    return OriginConfig(
        server=ServerConfig(**(server | sections.get("server", {}))),
        http=HttpConfig(**sections.get("http", {})),
        tls=TlsConfig(**sections.get("tls", {})),
        limits=LimitsConfig(**(limits | sections.get("limits", {}))),
        storage=StorageConfig(**(storage | sections.get("storage", {}))),
        cluster=ClusterConfig(**sections.get("cluster", {})),
        cold=ColdConfig(**sections.get("cold", {})),
    )


def _one_node(
    data_dir: Path, limits: dict[str, Any], sections: dict[str, dict[str, Any]]
) -> dict[str, dict[str, Any]]:
    """A cluster of its own for each folder: one node, several shards, objects in the folder."""
    nats = shared_nats()
    storage = sections.get("storage", {})
    journal_bytes = max(storage.get("journal_bytes", 4 * MIB), 2 * limits["max_body_bytes"])
    return {
        "server": {"node_id": "n1"} | sections.get("server", {}),
        "cluster": {
            "name": cluster_name(data_dir),
            "nats_urls": tuple(nats.urls),
            "nats_monitor_urls": tuple(nats.monitor_urls),
            "replicas": 1,
            "shards": 3,
            "journal_bytes": journal_bytes,
            "flush_bytes": journal_bytes // 2,
            "flush_secs": storage.get("checkpoint_secs", 30.0),
        },
        "cold": {"backend": "fs", "fs_path": str(data_dir / "objects")},
    }


class LoggedErrors(logging.Handler):
    """Every record that means a mistake of ours: errors, and anything with a traceback."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.ERROR or record.exc_info:
            self.found.append(self.format(record))


class Clock:
    """Stands in for the `time` module of origin.app."""

    def __init__(self) -> None:
        self.now_s = 1_900_000_000.0

    def time_ns(self) -> int:
        return int(self.now_s * 1_000_000_000)

    def time(self) -> float:
        return self.now_s

    def __iadd__(self, seconds: float) -> "Clock":
        self.now_s += seconds
        return self


class LocalOrigin:
    """One origin with an event loop of its own; `restart` opens the same data again."""

    def __init__(self, config: OriginConfig, join: Join | None = None) -> None:
        self.config = config
        self._join = join
        self.errors = LoggedErrors()
        self._running = False

    @property
    def port(self) -> int:
        return self.origin.port

    def start(self) -> None:
        logging.getLogger().addHandler(self.errors)
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="origin", daemon=True)
        self._thread.start()
        self.origin = Origin(self.config, self._join)
        self._running = True
        try:
            self.run(self.origin.start())
        except BaseException:
            self._end_loop()
            raise

    def stop(self) -> None:
        if self._running:
            try:
                self.run(self.origin.stop())
            finally:
                self._end_loop()

    def restart(self) -> None:
        self.stop()
        self.start()

    def call(self, function: Callable[[], T]) -> T:
        """Run a function on the server's own loop."""
        result: Future[T] = Future()
        self._loop.call_soon_threadsafe(lambda: result.set_result(function()))
        return result.result(STOP_S)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for work on the server's own loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(STOP_S)

    def client(self) -> Client:
        return Client(self.port)

    def connect(self) -> Connection:
        return Connection(self.port)

    def _end_loop(self) -> None:
        self._running = False
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(STOP_S)
        self._loop.close()
        logging.getLogger().removeHandler(self.errors)
