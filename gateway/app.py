"""Wiring: one gateway worker from a configuration, from listening to a drained stop."""

import asyncio
import gc
import logging
import secrets
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack
from pathlib import Path

from aiohttp import web

from gateway.accesslog import AccessLog, open_access_log
from gateway.admin import WITH_METRICS, WITH_STREAMS, Status, ask_others
from gateway.answers import Answers
from gateway.cache import Cache
from gateway.cdn import PurgeHook, is_public
from gateway.config import GatewayConfig, ServingConfig
from gateway.console.minting import MintKey
from gateway.console.service import Console
from gateway.door import Door
from gateway.handlers import Handlers
from gateway.hubs import Hubs
from gateway.jwks import Keys, source_of
from gateway.metrics import Metrics
from gateway.notices import LocalNotices, Notice, Notices, RedisNotices, SilentNotices
from gateway.passes import Passes
from gateway.rediscache import RedisCache
from gateway.revoked import Revoked
from gateway.spool import Spools
from gateway.store import Store
from gateway.streams import Streams
from gateway.tokens import Tokens
from gateway.upstream import FAILURES, Upstream
from gateway.watch import Watch
from wire.front import FrontServer
from wire.http import Refusals, Stamp
from wire.settings import SettingsError
from wire.tls import server_context

log = logging.getLogger("weir.gateway")

BACKLOG = 4096
NO_REDIS_KEY = (
    "no cache.redis_key: whoever can write to Redis can make this gateway serve any bytes as any "
    "stream's; set the same secret at all gateways"
)
RECENT_STREAMS = 1000  # of each worker, for the console


class Gateway:
    """`mint_key` has the key that `weir up` signs with: the console may, too."""

    def __init__(
        self,
        config: GatewayConfig,
        *,
        worker: int = 0,
        run_dir: Path | None = None,
        mint_key: MintKey | None = None,
    ) -> None:
        self._config = config
        self._worker = worker
        self._run_dir = run_dir
        self._mint_key = mint_key
        self.metrics = Metrics()
        self.port = config.gateway.port

    @property
    def ready(self) -> bool:
        return self._door.ready and (self._keys is None or self._keys.ready)

    async def start(self) -> None:
        """Open everything in order; what was opened is closed again if the rest cannot be."""
        async with AsyncExitStack() as opened:
            await self._open(opened)
            await self._listen(opened)
            self._opened = opened.pop_all()
        self._door.ready = True
        gc.collect()
        gc.freeze()

    async def _open(self, opened: AsyncExitStack) -> None:
        config, serving = self._config, self._config.gateway
        name = serving.name or _host_name()
        self._log = _open_log(serving, name, self._worker)
        opened.push_async_callback(self._log.close)
        self.upstream = Upstream(config)
        await self.upstream.start()
        opened.push_async_callback(self.upstream.close)
        self._spools = _open_spools(config)
        opened.callback(self._spools.close)
        self._shared = _open_shared(config)
        if self._shared is not None:
            opened.push_async_callback(self._shared.close)
        self._revoked = _open_revoked(config)
        if self._revoked is not None:
            opened.push_async_callback(self._revoked.close)
        self._keys = None if config.auth.mode == "off" else Keys(source_of(config.auth))
        if self._keys is not None:
            opened.push_async_callback(self._keys.stop)
            await self._keys.start()
        self._build(name)
        self.hubs.watch.start()
        opened.push_async_callback(self.hubs.watch.stop)
        await self._notices.start(self._on_notice, self._on_gap)
        opened.push_async_callback(self._notices.stop)
        await self._hook.start()
        opened.push_async_callback(self._hook.stop)

    def _build(self, name: str) -> None:
        config = self._config
        public = config.cdn.public
        streams = self._streams = Streams()
        self._tokens = self._make_tokens()
        self.store = Store(config.cache.max_bytes, config.cache.max_object_bytes)
        self.cache = Cache(
            config.cache,
            self.upstream,
            self.store,
            self._shared,
            streams,
            lambda stream: is_public(public, stream),
        )
        answers = Answers(config, self._log, self.metrics, name=name, worker=self._worker)
        self.hubs = Hubs(
            config,
            self.upstream,
            self.cache,
            streams,
            answers,
            lambda stream: is_public(public, stream),
            Watch(None if self._tokens is None else self._tokens.withdrawn),
        )
        self._notices = self._open_notices()
        self._hook = PurgeHook(config.cdn)
        self._passes = Passes(
            config,
            self.upstream,
            self.cache,
            streams,
            self._shared,
            self._notices,
            self._hook,
            answers,
            self._spools,
        )
        self.cache.replaced = self._forget
        self.cache.trimmed = self._trim
        self.cache.tell = self._passes.tell
        self.hubs.gone = self.cache.lost
        self.cache.followed_to = self.hubs.followed_to
        self._door = Door(
            config,
            self._tokens,
            self.cache,
            self.hubs,
            self._passes,
            answers,
            self.metrics,
            id_prefix=f"{secrets.token_hex(4)}-",
            console=self._make_console(),
        )
        stamp = Stamp(config.cors_origins)
        rename = config.http.rename
        self._handlers = Handlers(config.gateway, self._door, rename)
        self._server = FrontServer(
            self._handlers.handle,
            self._door,
            config.gateway,
            Refusals(stamp),
            rename,
            tls=_server_tls(config.gateway),
        )
        self._register()

    def _make_console(self) -> Console | None:
        if not self._config.gateway.console:
            return None
        return Console(self._config.auth, self._all_metrics, self._all_streams, self._mint_key)

    def recent_streams(self) -> list[str]:
        return self._streams.recent(RECENT_STREAMS)

    async def _all_metrics(self) -> list[str]:
        told = await self._ask_others(WITH_METRICS)
        own = self.metrics.render().decode()
        return [own, *(status.metrics.decode() for status in told)]

    async def _all_streams(self) -> list[str]:
        told = await self._ask_others(WITH_STREAMS)
        return [*self.recent_streams(), *(name for status in told for name in status.streams)]

    async def _ask_others(self, question: bytes) -> Iterable[Status]:
        """The other workers, as far as they answer in time."""
        if self._run_dir is None:
            return ()
        count = self._config.gateway.workers
        return (await ask_others(self._run_dir, count, self._worker, question)).values()

    def _make_tokens(self) -> Tokens | None:
        if self._keys is None:
            return None
        return Tokens(self._config.auth, self._keys, self._revoked)

    def _open_notices(self) -> Notices:
        cache = self._config.cache
        if cache.redis_url:
            return RedisNotices(cache.redis_url)
        if self._run_dir is not None and self._config.gateway.workers > 1:
            return LocalNotices(self._run_dir, self._worker)
        return SilentNotices()

    async def _listen(self, opened: AsyncExitStack) -> None:
        serving = self._config.gateway
        self._runner = web.ServerRunner(self._server, shutdown_timeout=serving.drain_secs / 2)
        await self._runner.setup()
        opened.push_async_callback(self._runner.cleanup)
        site = web.TCPSite(
            self._runner,
            serving.host,
            serving.port,
            backlog=BACKLOG,
            reuse_port=serving.workers > 1,
        )
        try:
            await site.start()
        except OSError as error:
            raise SettingsError("gateway.port", str(error)) from error
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Live readers end cleanly, what has begun is finished, then everything is let go."""
        self._door.ready = False
        self._server.fast = None  # who has a connection is answered once more, and told to close it
        # Until every balancer has seen that we are not ready, it sends us requests and readers.
        await asyncio.sleep(self._config.gateway.leave_secs)
        for site in list(self._runner.sites):
            await site.stop()
        self.hubs.drain()
        seconds = self._config.gateway.drain_secs
        await asyncio.gather(self._door.settle(seconds), self.hubs.settle(seconds))
        await self.cache.close()
        await self._opened.aclose()

    # -- purges --------------------------------------------------------------------------------

    def _forget(self, stream: str) -> None:
        """The stream is gone or another one: here, now."""
        self.cache.purge(stream)
        self.hubs.end_stream(stream)

    def _trim(self, stream: str, earliest: str) -> None:
        """A snapshot stands for what was before `earliest`."""
        self.cache.trim(stream, earliest)
        self.hubs.trim_stream(stream, earliest)

    def _on_gap(self) -> None:
        """Notices may have been missed: whatever is stored could be of a stream that is no more."""
        self.cache.purge_all()
        self.hubs.clear_windows()

    def _on_notice(self, notice: Notice) -> None:
        self._passes.act(notice)

    def _register(self) -> None:
        metrics, cache, hubs, upstream = self.metrics, self.cache, self.hubs, self.upstream
        flights = cache.flights
        loop = asyncio.get_running_loop()
        metrics.gauge("tasks", "Asyncio tasks.", lambda: len(asyncio.all_tasks(loop)))
        metrics.gauge("connections", "Open connections.", lambda: self._server.open_connections)
        metrics.gauge("cache_bytes", "Bytes in the first level.", lambda: self.store.bytes)
        metrics.gauge("cache_entries", "Cache in the first level.", lambda: len(self.store))
        metrics.counter("cache_evictions", "Cache that had to leave.", lambda: self.store.evicted)
        metrics.gauge("hubs", "Streams that are followed.", lambda: len(hubs))
        metrics.gauge("window_bytes", "Recent data at hubs.", lambda: hubs.windows.bytes)
        metrics.gauge("live_readers", "Readers at hubs.", lambda: hubs.reader_count)
        metrics.counter(
            "hub_deliveries", "Answers and events sent by hubs.", lambda: hubs.deliveries
        )
        metrics.gauge(
            "unsent_bytes", "Large events and chunks not taken yet.", lambda: hubs.unsent.total
        )
        metrics.gauge("body_bytes", "Bodies on their way.", lambda: self._door.body_bytes)
        metrics.gauge("flights", "Fetches under way.", lambda: len(flights))
        metrics.counter(
            "collapsed_readers", "Reads that shared a fetch.", lambda: flights.collapsed
        )
        metrics.gauge("spool_bytes", "Room for what is yet to be read.", lambda: self._spools.bytes)
        metrics.counter("access_log_dropped", "Log lines dropped.", lambda: self._log.dropped)
        metrics.counter("access_log_lines", "Log lines written.", lambda: self._log.written)
        metrics.counter("upstream_retries", "Requests sent again.", lambda: upstream.retries)
        for kind in ("live", "read", "head", "write"):
            metrics.labelled_counter(
                "upstream_requests",
                "Requests sent to the origin.",
                _reading(upstream.requests, kind),
                kind=kind,
            )
        self._register_others()

    def _register_others(self) -> None:
        """What the gateway leans on, and how that is."""
        metrics, upstream, hook = self.metrics, self.upstream, self._hook
        metrics.gauge("upstream_up", "0 while the origin is given up.", lambda: upstream.is_up)
        for code in FAILURES:
            metrics.labelled_counter(
                "upstream_failures",
                "Requests that got no answer that could be passed on.",
                _reading(upstream.failures, code),
                code=code,
            )
        metrics.counter("cdn_purges", "Purges that a CDN took.", lambda: hook.purged)
        metrics.counter(
            "cdn_purges_found_nothing", "Those that found nothing.", lambda: hook.found_nothing
        )
        metrics.counter("cdn_purges_failed", "Purges given up.", lambda: hook.failed + hook.dropped)
        notices, keys = self._notices, self._keys
        metrics.gauge("notices_up", "1 if purges of others reach us.", lambda: notices.connected)
        metrics.counter(
            "notices_unacknowledged",
            "Purges that not all others confirmed in time.",
            lambda: notices.counts.unacknowledged,
        )
        metrics.counter("notices_gaps", "Times all was dropped.", lambda: notices.counts.gaps)
        if keys is not None:
            metrics.counter("jwks_failures", "Failed fetches of keys.", lambda: keys.failures)
        if self._shared is not None:
            self._register_redis(self._shared)

    def _register_redis(self, shared: RedisCache) -> None:
        metrics, revoked = self.metrics, self._revoked
        metrics.gauge("redis_up", "1 if Redis is in use, 0 without it.", lambda: shared.available)
        sealed = float(self._config.cache.redis_key != "")
        metrics.gauge("redis_sealed", "1 if values in Redis are sealed with a key.", lambda: sealed)
        metrics.counter("redis_failures", "Calls of Redis that failed.", lambda: shared.failures)
        metrics.counter("shared_hits", "Cache found in Redis.", lambda: shared.hits)
        metrics.counter("shared_misses", "Cache not found there.", lambda: shared.misses)
        metrics.counter("shared_rejected", "Cache not sealed by us.", lambda: shared.rejected)
        if revoked is not None:
            metrics.counter(
                "revocations_unknown",
                "Tokens taken although Redis could not tell.",
                lambda: revoked.unknown,
            )


def _reading(counts: Counter[str], name: str) -> Callable[[], float]:
    return lambda: counts[name]


def _open_log(serving: ServingConfig, name: str, worker: int) -> AccessLog:
    try:
        return open_access_log(serving.access_log, name, worker)
    except (OSError, ValueError) as error:
        raise SettingsError("gateway.access_log", str(error)) from error


def _server_tls(serving: ServingConfig) -> ssl.SSLContext | None:
    return server_context("gateway.tls_cert_path", serving.tls_cert_path, serving.tls_key_path)


def _open_spools(config: GatewayConfig) -> Spools:
    spools = Spools(config)
    try:
        spools.try_folder()
    except OSError as error:
        raise SettingsError("gateway.spool_dir", str(error)) from error
    return spools


def _open_shared(config: GatewayConfig) -> RedisCache | None:
    cache = config.cache
    if not cache.redis_url:
        return None
    if not cache.redis_key:
        log.warning(NO_REDIS_KEY)
    return RedisCache(cache.redis_url, cache.redis_timeout_secs, cache.redis_key)


def _open_revoked(config: GatewayConfig) -> Revoked | None:
    cache = config.cache
    return Revoked(cache.redis_url, cache.redis_timeout_secs) if config.auth.revocation else None


def _host_name() -> str:
    allowed = (
        c if c.isascii() and (c.isalnum() or c in "._-") else "-" for c in socket.gethostname()
    )
    return "".join(allowed)[:64] or "gateway"
