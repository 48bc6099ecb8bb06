"""What `/cluster/status` says about nodes and shards."""

from collections.abc import Mapping

from origin.cluster.assignment import Assignment
from origin.cluster.control import NodeRecord, clock, this_machine
from origin.shard import Shard
from origin.storage.cluster.clusterstore import ClusterStorage


def describe_nodes(
    assignment: Assignment,
    nodes: Mapping[str, NodeRecord],
    seen: Mapping[str, tuple[int, float]],
) -> list[dict[str, object]]:
    """`seen` has the revision of each lease, and since when it is known."""
    now, here = clock(), this_machine()
    return [
        {
            "id": record.id,
            "url": record.url,
            "pid": record.pid if record.machine == here else None,
            "shards": assignment.of(record.id),
            "lease_age_secs": round(now - seen[record.id][1], 3),
            "streams": record.streams,
            "stored_bytes": record.stored_bytes,
        }
        for record in nodes.values()
    ]


def describe_open(shard: Shard, storage: ClusterStorage) -> dict[str, object]:
    flushes = storage.flushes
    return {
        "state": "open",
        "streams": len(shard.registry.by_id),
        "stored_bytes": shard.registry.stored_bytes,
        "journal_bytes": flushes.used_bytes,
        "last_batch": storage.last_batch,
        "flush_backlog_secs": round(flushes.backlog_secs, 3),
        "backpressure": storage.backpressure,
        "silent_secs": round(storage.silent_secs, 3),
    }
