"""The request side of a node, wired."""

import asyncio

from origin.calls import Operations
from origin.cluster.answering import Answering, Closings
from origin.cluster.clusterbuckets import ClusterBuckets
from origin.cluster.clusterroutes import ClusterRoutes
from origin.cluster.following import Following
from origin.cluster.forwarding import Forwarding
from origin.cluster.peers import Peers
from origin.cluster.placing import Placing
from origin.cluster.view import ClusterShards, ClusterView
from origin.config import OriginConfig
from origin.live import Live
from origin.metrics import Metrics
from protocol.paths import Kind

ALIAS_SWEEP_SECS = 60.0
WATCH_SECS = 1.0


class ClusterServing:
    """`operations` take the place of those of one machine."""

    def __init__(self, config: OriginConfig, view: ClusterView, live: Live) -> None:
        self.shards = ClusterShards(view, config.cluster.shards)
        closings = Closings()
        answering = Answering(self.shards, closings)
        self._peers = Peers(config, view, answering)
        self._following = Following(view, config.limits.max_live_readers)
        self.forwarding = Forwarding(config, view, self._peers, self._following)
        buckets = ClusterBuckets(config, self.shards, self._peers, closings)
        self.placing = Placing(config, self.shards, self._peers, self.forwarding, buckets)
        self.routes = ClusterRoutes(config, view, answering, self.forwarding, self._peers, live)
        self._overlays = (self.placing.operations, buckets.operations)

    def start(self) -> None:
        self._sweeper = asyncio.create_task(self._sweep(), name="alias sweep")
        self._watcher = asyncio.create_task(self._watch(), name="map watch")

    def drain(self) -> None:
        self._following.end_all()

    async def close(self) -> None:
        self._sweeper.cancel()
        self._watcher.cancel()
        await self._peers.close()

    def replace(self, operations: Operations) -> Operations:
        """The operations of one machine, with those that concern several shards."""
        found: Operations = {kind: dict(operations[kind]) for kind in Kind}
        for overlay in self._overlays:
            for kind, by_method in overlay.items():
                found[kind].update(by_method)
        return found

    def register(self, metrics: Metrics) -> None:
        forwarding, placing = self.forwarding, self.placing
        metrics.counter(
            "forwarded", "Requests passed on to an owner.", lambda: forwarding.forwarded
        )
        metrics.counter("forwards_failed", "Owners not reached.", lambda: forwarding.failed)
        metrics.counter("aliases_removed", "Removed aliases of forks.", lambda: placing.removed)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(ALIAS_SWEEP_SECS)
            await self.placing.sweep()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(WATCH_SECS)
            self._following.look()
            self._peers.remember()
