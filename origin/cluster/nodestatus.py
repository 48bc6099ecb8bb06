"""What `/cluster/status` says about nodes and shards."""

from collections.abc import Collection, Mapping

from origin.cluster.assignment import Assignment
from origin.cluster.control import NodeRecord, clock, this_machine
from origin.cluster.holdings import Holdings, Owned


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


def describe_shards(
    assignment: Assignment, nodes: Collection[str], node_id: str, holdings: Holdings
) -> list[dict[str, object]]:
    """As this node sees them."""
    found: list[dict[str, object]] = []
    for number, place in enumerate(assignment.places):
        told = {"shard": number, "owner": place.owner, "epoch": place.epoch}
        if place.owner != node_id:
            found.append(told | {"state": "elsewhere" if place.owner in nodes else "no owner"})
        else:
            found.append(told | _describe_own(number, holdings))
    return found


def _describe_own(number: int, holdings: Holdings) -> dict[str, object]:
    state = holdings.state(number)
    if state == "open":
        return _describe_open(holdings.open[number])
    if state == "offline":
        return {"state": state, "reason": holdings.offline[number]}
    return {"state": state}


def _describe_open(owned: Owned) -> dict[str, object]:
    shard, storage = owned.shard, owned.storage
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
