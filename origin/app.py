"""Wiring: one origin from a configuration, from start to drained stop."""

import asyncio
import gc
import logging
import os
import secrets
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from importlib import import_module

from origin.admission import Admission
from origin.bucketroutes import BucketRoutes
from origin.chunks import EncodedChunks, make_cache
from origin.cluster.serving import ClusterServing
from origin.cluster.view import Node
from origin.config import OriginConfig
from origin.handlers import Handlers
from origin.live import Live
from origin.metrics import CountOver, Metrics
from origin.outcomes import Outcomes
from origin.plainrequests import PlainRequests
from origin.registry import Totals
from origin.shard import Shard, always
from origin.shards import OneShard, Shards
from origin.snapshotroutes import SnapshotRoutes
from origin.storage.base import Storage
from origin.storage.modes import open_storage
from origin.streamroutes import StreamRoutes
from wire.addresses import base_url, is_loopback
from wire.front import FrontServer
from wire.http import Refusals, Stamp
from wire.listening import Listener
from wire.settings import SettingsError
from wire.tls import server_context

log = logging.getLogger("weir.origin")

SWEEP_SECS = 0.5
SWEEP_LIMIT_SECS = 5.0  # of one shard; the rest is for the next time
OPEN_WARNING = (
    "the origin listens on %s without authentication: anyone who can reach it can read, write "
    "and delete every stream; set server.access_key to admit only gateways that have it"
)


OpenShard = Callable[[int, Storage, Callable[[], bool]], Shard]  # number, storage, is it fresh?
Join = Callable[[OpenShard, Totals], Awaitable[Node]]


class Origin:
    """A running origin; `start` returns when it listens, `stop` when everything is settled.

    With `join` it is a node of a cluster, which opens the shards that it owns by itself."""

    def __init__(self, config: OriginConfig, join: Join | None = None) -> None:
        self._config = config
        self._join = join
        if join is None and config.storage.mode == "cluster":
            self._join = partial(_node_opener(), config, os.environ)
        self._node: Node | None = None
        self._cluster: ClusterServing | None = None
        self.port = config.server.port

    async def start(self) -> None:
        config = self._config
        self._cache, self._totals = make_cache(config.storage.cache_bytes), Totals()
        self.live = Live(config.server, config.limits)
        self.shards = await self._open_shards()
        metrics = Metrics()
        server = self._make_server(metrics)
        _register(metrics, self.shards, self.live, server, self._cache, self._totals)
        self._sweeper = asyncio.create_task(self._sweep(), name="expiry sweep")
        self.listener = Listener(server, config.server.drain_secs)
        host = config.server.host
        self.port = await self.listener.start("server.port", host, config.server.port)
        if self._node is not None:  # now it has an address
            tls = config.tls.cert_path != ""
            url = config.server.advertise or base_url(host, self.port, tls=tls)
            try:
                await self._node.start(url)
            except BaseException:
                await self.stop()
                raise
        if not is_loopback(host) and not config.server.access_key:
            log.warning(OPEN_WARNING, host)
        # Recovered objects live as long as the process: exclude them from garbage collection.
        gc.collect()
        gc.freeze()

    async def _open_shards(self) -> Shards:
        if self._join is None:
            self.shard = self._open_shard(0, open_storage(self._config), always)
            await self.shard.start()
            return OneShard(self.shard)
        self._node = await self._join(self._open_shard, self._totals)
        self._cluster = ClusterServing(self._config, self._node, self.live)
        self._cluster.start()
        return self._cluster.shards

    def _open_shard(self, number: int, storage: Storage, is_fresh: Callable[[], bool]) -> Shard:
        return Shard(
            storage,
            self._config,
            clock_ms=lambda: time.time_ns() // 1_000_000,
            new_id=lambda: secrets.randbits(64),
            is_fresh=is_fresh,
            cache=self._cache,
            totals=self._totals,
            number=number,
        )

    def _make_server(self, metrics: Metrics) -> FrontServer:
        config, cluster = self._config, self._cluster
        stamp = Stamp(config.cors_origins, is_shown=config.cors_origins != ())
        admission = Admission(config.server, config.cors_origins)
        operations = {
            **StreamRoutes(config, self.live, metrics).operations,
            **BucketRoutes(config).operations,
            **SnapshotRoutes(config, metrics).operations,
        }
        if cluster is not None:
            operations = cluster.replace(operations)
            cluster.register(metrics)
        if self._node is not None:
            self._node.register(metrics)
        handlers = Handlers(
            config,
            operations,
            self.shards,
            self.live,
            metrics,
            stamp,
            admission,
            None if cluster is None else cluster.routes,
        )
        plain = PlainRequests(
            self.shards,
            metrics,
            stamp,
            admission,
            None if config.answer_secs is None else Outcomes(config.answer_secs),
            max_path_bytes=config.limits.max_path_bytes,
        )
        return FrontServer(
            handlers.handle,
            plain,
            config.limits,
            Refusals(stamp),
            config.http.rename,
            tls=server_context("tls.cert_path", config.tls.cert_path, config.tls.key_path),
        )

    async def stop(self) -> None:
        """End readers cleanly, settle accepted writes, then close the files."""
        self.live.drain()
        if self._cluster is not None:
            self._cluster.drain()
        await self.listener.refuse()
        self.listener.server.drain()
        self._sweeper.cancel()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._config.answer_secs):
                for shard in self.shards.all():
                    await shard.staging.decided()
        await self.listener.stop()
        if self._cluster is not None:
            await self._cluster.close()
        if self._node is not None:
            await self._node.leave()
        else:
            await self.shard.storage.close()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_SECS)
            for shard in list(self.shards.all()):
                with suppress(TimeoutError):  # a journal that is silent must not stop the others
                    async with asyncio.timeout(SWEEP_LIMIT_SECS):
                        await self._sweep_shard(shard)

    async def _sweep_shard(self, shard: Shard) -> None:
        while not shard.is_lost and shard.lifetimes.sweep():  # each step is its own batch
            await shard.staging.decided()
            await asyncio.sleep(0)


def _register(
    metrics: Metrics,
    shards: Shards,
    live: Live,
    server: FrontServer,
    cache: EncodedChunks,
    totals: Totals,
) -> None:
    def is_writable() -> bool:
        return all(shard.storage.failure is None for shard in shards.all())

    def counter(name: str, text: str, count: Callable[[Shard], int]) -> None:
        metrics.counter(name, text, CountOver(shards.all, count))

    loop = asyncio.get_running_loop()
    metrics.gauge("tasks", "Asyncio tasks.", lambda: len(asyncio.all_tasks(loop)))
    metrics.gauge("streams", "Stored streams.", lambda: totals.streams)
    metrics.gauge("stored_bytes", "Stored bytes of all streams.", lambda: totals.stored_bytes)
    metrics.gauge("live_readers", "Connected live readers.", lambda: live.reader_count)
    metrics.gauge("connections", "Open connections.", lambda: server.open_connections)
    metrics.gauge("chunk_cache_bytes", "Bytes in the chunk cache.", lambda: cache.currsize)
    metrics.gauge("writable", "1 while writes are accepted.", is_writable)
    counter("appends", "Committed appends.", lambda shard: shard.appends.committed)
    counter("append_bytes", "Committed bytes.", lambda shard: shard.appends.committed_bytes)
    counter("duplicates", "Duplicate appends.", lambda shard: shard.appends.duplicates)
    counter("appends_refused", "Refused appends.", lambda shard: shard.appends.refused)
    counter("streams_expired", "Expired streams.", lambda shard: shard.lifetimes.expired)
    counter("chunk_hits", "Chunk cache hits.", lambda shard: shard.chunks.hits)
    counter("chunk_misses", "Chunk cache misses.", lambda shard: shard.chunks.misses)


def _node_opener() -> Callable[..., Awaitable[Node]]:
    """Imported only where it is needed: its libraries are an extra of the package."""
    try:
        found: Callable[..., Awaitable[Node]] = import_module("origin.cluster.opening").open_node
    except ModuleNotFoundError as error:
        text = f"cluster needs the package {error.name} (the extra `cluster` of weir-gateway)"
        raise SettingsError("storage.mode", text) from error
    return found
