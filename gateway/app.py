"""One gateway worker: wired from a configuration, started, and drained."""

import asyncio
import gc
from contextlib import AsyncExitStack
from pathlib import Path

from gateway.admin import Overview
from gateway.answers import Answers
from gateway.backends import Backends, open_backends
from gateway.cache import Cache
from gateway.config import GatewayConfig
from gateway.console.minting import MintKey
from gateway.entrance import Entrance
from gateway.gauges import register_gauges
from gateway.hubs import Hubs, make_tails
from gateway.metrics import Metrics
from gateway.passes import Passes
from gateway.purges import Purges
from gateway.store import Holdings


class Gateway:
    """`mint_key` is the signing key of `weir up`, which the console may use too."""

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
        return self.entrance.pages.ready

    async def start(self) -> None:
        """Open everything in order; if something fails, close what was opened."""
        async with AsyncExitStack() as opened:
            backends = await open_backends(self._config, self._worker, self._run_dir, opened)
            self.backends = backends
            self._build(backends)
            opened.push_async_callback(self._purges.close)
            opened.push_async_callback(self.cache.close)
            opened.push_async_callback(backends.notices.stop)
            await backends.notices.start(self._purges.act, self._purges.clear)
            opened.push_async_callback(self._listener.stop)
            serving, start = self._config.gateway, self._listener.start
            shared = serving.workers > 1
            self.port = await start("gateway.port", serving.host, serving.port, shared=shared)
            self._opened = opened.pop_all()
        self.entrance.pages.open()
        gc.collect()
        gc.freeze()

    def _build(self, backends: Backends) -> None:
        config, upstream, second = self._config, backends.upstream, backends.redis_cache
        self.holdings = holdings = Holdings(config.cache)
        self.overview = Overview(
            self.metrics, holdings.streams, self._worker, config.gateway.workers, self._run_dir
        )
        self._purges = purges = Purges(holdings, second, backends.notices, backends.hook)
        self._answers = answers = Answers(
            config, backends.log, self.metrics, backends.spools, backends.name, self._worker
        )
        tails = make_tails(config)
        self.cache = cache = Cache(config, upstream, holdings, purges, second, tails.followed_to)
        passes = Passes(config, upstream, holdings.streams, purges, answers, backends.spools)
        self.hubs = hubs = Hubs(
            config, tails, upstream, holdings, purges, cache, passes, answers, backends.watch
        )
        tokens, overview, mint_key = backends.tokens, self.overview, self._mint_key
        self.entrance = Entrance(
            config, tokens, upstream, cache, hubs, passes, answers, overview, mint_key
        )
        self._listener = self.entrance.make_listener()
        register_gauges(
            self.metrics, backends, holdings, hubs, self.entrance, self._listener.server
        )

    async def stop(self) -> None:
        """End live readers cleanly, finish running requests, then close everything."""
        self.entrance.pages.close()
        self._listener.server.drain()
        # Balancers keep sending requests until they notice that we are not ready.
        await asyncio.sleep(self._config.gateway.leave_secs)
        await self._listener.refuse()
        self.hubs.drain()
        seconds = self._config.gateway.drain_secs
        await asyncio.gather(self._answers.settle(seconds), self.hubs.settle(seconds))
        await self._opened.aclose()
