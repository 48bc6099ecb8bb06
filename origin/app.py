"""Wiring: one origin from a configuration, from start to drained stop."""

import asyncio
import gc
import logging
import secrets
import time

from origin.admission import Admission
from origin.bucketroutes import BucketRoutes
from origin.config import OriginConfig
from origin.handlers import Handlers
from origin.live import Live
from origin.metrics import Metrics
from origin.plainrequests import PlainRequests
from origin.shard import Shard
from origin.snapshotroutes import SnapshotRoutes
from origin.storage.modes import open_storage
from origin.streamroutes import StreamRoutes
from wire.addresses import is_loopback
from wire.front import FrontServer
from wire.http import Refusals, Stamp
from wire.listening import Listener
from wire.tls import server_context

log = logging.getLogger("weir.origin")

SWEEP_SECS = 0.5
OPEN_WARNING = (
    "the origin listens on %s without authentication: anyone who can reach it can read, write "
    "and delete every stream; set server.access_key to admit only gateways that have it"
)


class Origin:
    """A running origin; `start` returns when it listens, `stop` when everything is settled."""

    def __init__(self, config: OriginConfig) -> None:
        self._config = config
        self.port = config.server.port

    async def start(self) -> None:
        config = self._config
        self.shard = Shard(
            open_storage(config),
            config,
            clock_ms=lambda: time.time_ns() // 1_000_000,
            new_id=lambda: secrets.randbits(64),
        )
        shard = self.shard
        await shard.start()
        self.live = Live(shard.lifetimes, shard.chunks, config.server, config.limits)
        metrics = Metrics()
        stamp = Stamp(config.cors_origins, is_shown=config.cors_origins != ())
        admission = Admission(config.server, config.cors_origins)
        operations = {
            **StreamRoutes(config, shard, self.live, metrics).operations,
            **BucketRoutes(config, shard).operations,
            **SnapshotRoutes(config, shard, metrics).operations,
        }
        handlers = Handlers(config, operations, shard.storage, self.live, metrics, stamp, admission)
        plain = PlainRequests(
            shard, metrics, stamp, admission, max_path_bytes=config.limits.max_path_bytes
        )
        server = FrontServer(
            handlers.handle,
            plain,
            config.limits,
            Refusals(stamp),
            config.http.rename,
            tls=server_context("tls.cert_path", config.tls.cert_path, config.tls.key_path),
        )
        _register(metrics, shard, self.live, server)
        self._sweeper = asyncio.create_task(self._sweep(), name="expiry sweep")
        self.listener = Listener(server, config.server.drain_secs)
        host = config.server.host
        self.port = await self.listener.start("server.port", host, config.server.port)
        if not is_loopback(host) and not config.server.access_key:
            log.warning(OPEN_WARNING, host)
        # Recovered objects live as long as the process: exclude them from garbage collection.
        gc.collect()
        gc.freeze()

    async def stop(self) -> None:
        """End readers cleanly, settle accepted writes, then close the files."""
        self.live.drain()
        await self.listener.refuse()
        self.listener.server.drain()
        self._sweeper.cancel()
        await self.shard.staging.decided()
        await self.listener.stop()
        await self.shard.storage.close()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_SECS)
            while self.shard.lifetimes.sweep():  # each step is a separate batch
                await self.shard.staging.decided()
                await asyncio.sleep(0)


def _register(metrics: Metrics, shard: Shard, live: Live, server: FrontServer) -> None:
    registry, lifetimes, appends = shard.registry, shard.lifetimes, shard.appends
    storage, chunks = shard.storage, shard.chunks
    loop = asyncio.get_running_loop()
    metrics.gauge("tasks", "Asyncio tasks.", lambda: len(asyncio.all_tasks(loop)))
    metrics.gauge("streams", "Stored streams.", lambda: len(registry.by_id))
    metrics.gauge("stored_bytes", "Stored bytes of all streams.", lambda: registry.stored_bytes)
    metrics.gauge("live_readers", "Connected live readers.", lambda: live.reader_count)
    metrics.gauge("connections", "Open connections.", lambda: server.open_connections)
    metrics.gauge("chunk_cache_bytes", "Bytes in the chunk cache.", lambda: chunks.cached_bytes)
    metrics.gauge("writable", "1 while writes are accepted.", lambda: storage.failure is None)
    metrics.counter("appends", "Committed appends.", lambda: appends.committed)
    metrics.counter("append_bytes", "Committed bytes.", lambda: appends.committed_bytes)
    metrics.counter("duplicates", "Duplicate appends.", lambda: appends.duplicates)
    metrics.counter("appends_refused", "Refused appends.", lambda: appends.refused)
    metrics.counter("streams_expired", "Expired streams.", lambda: lifetimes.expired)
    metrics.counter("chunk_hits", "Chunk cache hits.", lambda: chunks.hits)
    metrics.counter("chunk_misses", "Chunk cache misses.", lambda: chunks.misses)
