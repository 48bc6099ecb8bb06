"""The metrics of a node: its lease, its shards, their journals and flushes, and object storage.

Of all shards together, never of one: each label has a few values. `/cluster/status` has the rest.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from origin.cluster.control import Lease
from origin.cluster.holdings import Holdings, Moves
from origin.metrics import CountOver, Metrics
from origin.storage.cluster.clusterstore import BACKPRESSURES, ClusterStorage
from origin.storage.cluster.diskcache import DiskCache
from origin.storage.cluster.jetstream import JetStream
from origin.storage.cluster.objects import OPERATIONS, Objects
from protocol.clustermap import ClusterMap

STATES = ("open", "opening", "offline", "closed")


@dataclass(frozen=True, slots=True)
class Parts:
    """What the metrics are read from; `states` are those of the shards assigned to this node."""

    lease: Lease
    holdings: Holdings
    objects: Objects
    cache: DiskCache
    jetstream: JetStream
    states: Callable[[], Iterable[str]]
    map: Callable[[], ClusterMap]


def register_node(metrics: Metrics, parts: Parts, journal_bytes: int) -> None:
    _register_lease(metrics, parts.lease)
    _register_map(metrics, parts.map, parts.jetstream)
    _register_shards(metrics, parts.holdings.moves, parts.states)
    _register_storages(metrics, parts.holdings, journal_bytes)
    _register_objects(metrics, parts.objects)
    _register_cache(metrics, parts.cache)


def _register_lease(metrics: Metrics, lease: Lease) -> None:
    gauge = metrics.gauge
    gauge("lease_held", "1 while this node may say what a tail is.", lambda: lease.is_valid)
    gauge("lease_age_seconds", "Seconds since the lease was renewed.", lambda: lease.age_secs)


def _register_map(metrics: Metrics, now: Callable[[], ClusterMap], jetstream: JetStream) -> None:
    def ownerless() -> int:
        return sum(owner is None for owner in now().owners)

    gauge = metrics.gauge
    gauge("nats_connected", "1 while connected to a NATS server.", lambda: jetstream.is_connected)
    gauge("map_version", "Version of the map that this node knows.", lambda: now().version)
    gauge("cluster_nodes", "Nodes that hold a lease.", lambda: len(now().nodes))
    gauge("cluster_shards", "Shards of the cluster.", lambda: len(now().owners))
    gauge("shards_ownerless", "Shards of the cluster without a live owner.", ownerless)


def _register_shards(metrics: Metrics, moves: Moves, states: Callable[[], Iterable[str]]) -> None:
    for state in STATES:
        read = partial(_count, states, state)
        metrics.labelled_gauge("shards", "Shards of this node, by state.", read, state=state)
    counter, gauge = metrics.counter, metrics.gauge
    counter("shards_opened", "Opened shards.", lambda: moves.opened)
    counter("shards_taken_over", "Shards taken from nodes that died.", lambda: moves.taken_over)
    counter("shards_handed_over", "Shards given to other nodes.", lambda: moves.handed_over)
    counter("shards_lost", "Shards lost while they were open.", lambda: moves.lost)
    gauge("opening_seconds", "Duration of the last opening.", lambda: moves.opening_secs)
    gauge("replayed_bytes", "Bytes replayed by the last opening.", lambda: moves.replayed_bytes)


def _register_storages(metrics: Metrics, holdings: Holdings, journal_bytes: int) -> None:
    def storages() -> list[ClusterStorage]:
        return [owned.storage for owned in holdings]

    def gauge(name: str, text: str, read: Callable[[ClusterStorage], float]) -> None:
        """The worst of all."""
        metrics.gauge(name, text, lambda: max(map(read, storages()), default=0.0))

    def counter(name: str, text: str, count: Callable[[ClusterStorage], int]) -> None:
        metrics.counter(name, text, CountOver(storages, count))

    metrics.gauge("journal_limit_bytes", "Room in a shard's journal.", lambda: journal_bytes)
    gauge("journal_bytes", "Bytes in the fullest journal.", lambda each: each.flushes.used_bytes)
    gauge("journal_silent_seconds", "Longest wait for a journal.", lambda each: each.silent_secs)
    gauge("flush_backlog_seconds", "Oldest unflushed data.", lambda each: each.flushes.backlog_secs)
    counter("flushes", "Completed flushes.", lambda each: each.flushes.completed)
    counter("flushed_bytes", "Bytes written to packs.", lambda each: each.flushes.flushed_bytes)
    counter("flush_errors", "Failed attempts of flushes.", lambda each: each.flushes.failures)
    metrics.gauge(
        "flushes_failing",
        "Shards whose flush is failing.",
        lambda: sum(each.flushes.error is not None for each in storages()),
    )
    for reason in BACKPRESSURES:
        metrics.labelled_gauge(
            "backpressure",
            "Shards whose appends wait or are refused, by reason.",
            partial(_count, lambda: [each.backpressure for each in storages()], reason),
            reason=reason,
        )


def _register_objects(metrics: Metrics, objects: Objects) -> None:
    counter = metrics.labelled_counter
    for name in OPERATIONS:
        done = partial(objects.operations.__getitem__, name)
        failed = partial(objects.errors.__getitem__, name)
        counter("object_operations", "Calls of object storage.", done, operation=name)
        counter("object_errors", "Failed calls of object storage.", failed, operation=name)


def _register_cache(metrics: Metrics, cache: DiskCache) -> None:
    counter = metrics.counter
    metrics.gauge("disk_cache_bytes", "Bytes in the disk cache.", lambda: cache.used_bytes)
    counter("disk_cache_hits", "Disk cache hits.", lambda: cache.hits)
    counter("disk_cache_misses", "Disk cache misses.", lambda: cache.misses)
    counter("disk_cache_evictions", "Blocks evicted from the disk cache.", lambda: cache.evictions)
    counter("disk_cache_failures", "Failed writes to the disk cache.", lambda: cache.failures)


def _count(found: Callable[[], Iterable[str | None]], name: str) -> int:
    return sum(each == name for each in found())
