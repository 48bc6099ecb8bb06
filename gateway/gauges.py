"""The gauges and counters of a worker, each read from its owner on request."""

import asyncio
from collections import Counter
from collections.abc import Callable

from gateway.asking import FAILURES
from gateway.backends import Backends
from gateway.entrance import Entrance
from gateway.hubs import Hubs
from gateway.metrics import Metrics
from gateway.origins import Origins
from gateway.rediscache import RedisCache
from gateway.store import Holdings
from wire.front import FrontServer


def register_gauges(
    metrics: Metrics,
    backends: Backends,
    holdings: Holdings,
    hubs: Hubs,
    entrance: Entrance,
    server: FrontServer,
) -> None:
    loop = asyncio.get_running_loop()
    log, spools = backends.log, backends.spools
    gauge, counter = metrics.gauge, metrics.counter
    gauge("tasks", "Asyncio tasks.", lambda: len(asyncio.all_tasks(loop)))
    gauge("connections", "Open connections.", lambda: server.open_connections)
    _register_holdings(metrics, holdings)
    gauge("hubs", "Streams being followed.", lambda: len(hubs.tails))
    gauge("window_bytes", "Recent data held by hubs.", lambda: hubs.tails.windows.bytes)
    gauge("live_readers", "Connected live readers.", lambda: hubs.reader_count)
    counter("hub_deliveries", "Responses and events sent by hubs.", lambda: hubs.deliveries)
    gauge("unsent_bytes", "Large events and chunks not yet sent.", lambda: hubs.unsent.total)
    gauge("body_bytes", "Request bodies in transit.", lambda: entrance.admissions.body_bytes)
    gauge("spool_bytes", "Reserved for large responses not yet read.", lambda: spools.bytes)
    counter("access_log_dropped", "Access log lines dropped.", lambda: log.dropped)
    counter("access_log_lines", "Access log lines written.", lambda: log.written)
    _register_upstream(metrics, backends)
    _register_purges(metrics, backends)
    if (keys := backends.keys) is not None:
        counter("jwks_failures", "Failed JWKS fetches.", lambda: keys.failures)
    if (cache := backends.redis_cache) is not None:
        _register_redis(metrics, backends, cache)


def _register_holdings(metrics: Metrics, holdings: Holdings) -> None:
    store, flights = holdings.store, holdings.flights
    metrics.gauge("cache_bytes", "Bytes in the local cache.", lambda: store.bytes)
    metrics.gauge("cache_entries", "Chunks in the local cache.", lambda: len(store))
    metrics.counter("cache_evictions", "Chunks evicted locally.", lambda: store.evicted)
    metrics.gauge("flights", "Fetches in progress.", lambda: len(flights))
    metrics.counter("collapsed_readers", "Reads that shared a fetch.", lambda: flights.collapsed)


def _register_upstream(metrics: Metrics, backends: Backends) -> None:
    upstream = backends.upstream
    metrics.counter("upstream_retries", "Retries to the origin.", lambda: upstream.retries)
    for kind in ("live", "read", "head", "write"):
        metrics.labelled_counter(
            "upstream_requests",
            "Requests sent to the origin.",
            _reading(upstream.requests, kind),
            kind=kind,
        )
    metrics.gauge("upstream_up", "0 while the circuit breaker is open.", lambda: upstream.is_up)
    for code in FAILURES:
        metrics.labelled_counter(
            "upstream_failures",
            "Requests without a usable response from the origin.",
            _reading(upstream.failures, code),
            code=code,
        )
    if upstream.cluster is not None:
        _register_cluster(metrics, upstream.cluster)


def _register_cluster(metrics: Metrics, cluster: Origins) -> None:
    gauge, nodes, watch = metrics.labelled_gauge, "Nodes of the cluster, by state.", cluster.watch
    gauge("upstream_nodes", nodes, lambda: cluster.up_count, state="up")
    gauge("upstream_nodes", nodes, lambda: cluster.lost_count, state="lost")
    metrics.gauge("upstream_map_version", "Version of the cluster's map.", lambda: watch.version)
    metrics.gauge("upstream_map_age_seconds", "Age of the cluster's map.", lambda: watch.age_s)


def _register_purges(metrics: Metrics, backends: Backends) -> None:
    hook, notices = backends.hook, backends.notices
    counter = metrics.counter
    counter("cdn_purges", "Purges accepted by the CDN.", lambda: hook.purged)
    counter("cdn_purges_found_nothing", "CDN purges without a match.", lambda: hook.found_nothing)
    counter("cdn_purges_failed", "Abandoned CDN purges.", lambda: hook.failed + hook.dropped)
    metrics.gauge("notices_up", "1 if notices arrive.", lambda: notices.connected)
    counter(
        "notices_unacknowledged",
        "Purges that some gateways did not confirm in time.",
        lambda: notices.counts.unacknowledged,
    )
    counter("notices_gaps", "Full cache drops after missed notices.", lambda: notices.counts.gaps)


def _register_redis(metrics: Metrics, backends: Backends, cache: RedisCache) -> None:
    gauge, counter, revoked = metrics.gauge, metrics.counter, backends.revoked
    gauge("redis_up", "1 while Redis is reachable.", lambda: cache.link.available)
    gauge("redis_sealed", "1 if values in Redis are sealed with a key.", lambda: cache.is_sealed)
    counter("redis_failures", "Failed Redis calls.", lambda: cache.link.failures)
    counter("shared_hits", "Chunks found in Redis.", lambda: cache.hits)
    counter("shared_misses", "Chunks not found in Redis.", lambda: cache.misses)
    counter("shared_rejected", "Redis chunks with a bad seal.", lambda: cache.rejected)
    if revoked is not None:
        counter(
            "revocations_unknown",
            "Tokens accepted without a revocation check.",
            lambda: revoked.unknown,
        )


def _reading(counts: Counter[str], name: str) -> Callable[[], float]:
    return lambda: counts[name]
