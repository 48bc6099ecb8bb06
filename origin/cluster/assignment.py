"""Who owns which shard: the record that all nodes agree on, and how it changes. Pure.

The record is one message. A change names the version that it replaces, so that two nodes never
change it at the same time. Opening a shard always takes a new epoch from here, so an epoch belongs
to one process.
"""

from collections import Counter
from collections.abc import Collection, Sequence

from msgspec import Struct
from msgspec.structs import replace


class Place(Struct, frozen=True, array_like=True):
    owner: str  # a node id; empty until the first
    epoch: int  # of its last opening; 0 before the first


class Assignment(Struct, frozen=True):
    cluster: str
    cold: str  # which object storage, so that no node comes with another one
    places: tuple[Place, ...]

    def of(self, node: str) -> list[int]:
        return [shard for shard, place in enumerate(self.places) if place.owner == node]


def begin(cluster: str, cold: str, shards: int) -> Assignment:
    return Assignment(cluster, cold, (Place("", 0),) * shards)


def take(assignment: Assignment, shards: Collection[int], node: str) -> Assignment:
    """The node opens these shards: it owns them, each with a new epoch."""
    places = [
        Place(node, place.epoch + 1) if shard in shards else place
        for shard, place in enumerate(assignment.places)
    ]
    return replace(assignment, places=tuple(places))


def give(assignment: Assignment, shard: int, node: str) -> Assignment:
    """Another node is to open this shard; until then nobody has it."""
    places = list(assignment.places)
    places[shard] = replace(places[shard], owner=node)
    return replace(assignment, places=tuple(places))


def orphans_for(assignment: Assignment, alive: Collection[str], node: str) -> list[int]:
    """Shards without a live owner that this node should take. All nodes come to the same split, so
    they rarely collide; if they do, the record decides."""
    if node not in alive:
        return []
    counts = Counter({each: 0 for each in alive})
    counts.update(place.owner for place in assignment.places if place.owner in alive)
    mine: list[int] = []
    for shard, place in enumerate(assignment.places):
        if place.owner not in alive:
            taker = min(alive, key=lambda each: (counts[each], each))
            counts[taker] += 1
            if taker == node:
                mine.append(shard)
    return mine


def surplus_of(
    assignment: Assignment, alive: Collection[str], node: str, movable: Sequence[int]
) -> tuple[int, str] | None:
    """One shard that this node should hand over, and to whom; None if the load is even enough."""
    counts = Counter({each: 0 for each in alive})
    counts.update(place.owner for place in assignment.places if place.owner in alive)
    if node not in alive or not movable:
        return None
    poorest = min(alive, key=lambda each: (counts[each], each))
    if counts[node] - counts[poorest] < 2:
        return None
    return movable[-1], poorest
