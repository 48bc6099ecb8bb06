"""The cluster as one node sees it: who owns which shard, and which shards are open here."""

from collections.abc import Iterable, Mapping
from typing import Protocol

from origin.metrics import Metrics
from origin.shard import Shard
from origin.shards import Elsewhere
from protocol.clustermap import ClusterMap, shard_of

SEEN_SECS = 86_400.0
MAX_SEEN = 100


class ClusterView(Protocol):
    @property
    def node_id(self) -> str: ...

    @property
    def map(self) -> ClusterMap:
        """As this node knows it; it may be old."""

    def is_fresh(self) -> bool:
        """Whether this node has a lease."""

    def status(self) -> dict[str, object]:
        """The body of `/cluster/status`."""

    def unready(self) -> str | None:
        """Why this node is not ready, or None."""

    def owned(self, shard: int) -> Shard | None:
        """The shard if it is open here."""


class Node(ClusterView, Protocol):
    """This node's part in the cluster, while it runs."""

    async def start(self, url: str) -> None:
        """Others reach this node at this URL from now on."""

    async def leave(self) -> None:
        """Hand over the shards and close them; their accepted writes are settled."""

    def register(self, metrics: Metrics) -> None:
        """Add this node's own metrics."""


class SeenNodes:
    """Nodes that this process has seen in a map within a day, each where it was last. One that is
    not in the map now may come back, on the other side of a partition."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[str, float]] = {}  # in the order in which they were last seen

    def see(self, nodes: Mapping[str, str], now: float) -> None:
        for id_, url in nodes.items():
            self._seen.pop(id_, None)
            self._seen[id_] = url, now
        most = max(MAX_SEEN, len(nodes))
        for id_, (_, seen_at) in list(self._seen.items()):
            if seen_at >= now - SEEN_SECS and len(self._seen) <= most:
                break
            del self._seen[id_]

    @property
    def urls(self) -> dict[str, str]:
        return {id_: url for id_, (url, _) in self._seen.items()}


class ClusterShards:
    """The `Shards` of a node. A stream is in the home shard of its name, or where an alias says."""

    def __init__(self, view: ClusterView, count: int) -> None:
        self._view = view
        self.count = count

    @property
    def node_id(self) -> str:
        return self._view.node_id

    def number_of(self, name: str) -> int:
        return shard_of(name, self.count)

    def of(self, name: str) -> Shard:
        home = self.home(name)
        aliased = home.aliases.shards.get(name)
        if aliased is None:
            return home
        if not home.fresh():  # another owner may have changed the alias
            raise Elsewhere(home.number, None)
        shard = self._view.owned(aliased)
        if shard is None or shard.is_lost:
            raise Elsewhere(aliased, self._owner_url(aliased), by_alias=True)
        return shard

    def home(self, name: str) -> Shard:
        return self.at(shard_of(name, self.count))

    def at(self, number: int) -> Shard:
        if number >= self.count:
            raise Elsewhere(number, None)
        shard = self._view.owned(number)
        if shard is None or shard.is_lost:
            raise Elsewhere(number, self._owner_url(number))
        return shard

    def have_moved(self, version: int) -> bool:
        """Whether this node can have taken shards since that version of the map. One that has just
        started does not know what it did before."""
        here = self._view.map.version
        return not here or here > version or self._view.is_fresh()

    def all(self) -> Iterable[Shard]:
        found = (self._view.owned(number) for number in range(self.count))
        return [shard for shard in found if shard is not None]

    def _owner_url(self, number: int) -> str | None:
        """None as well if the map names this node, which does not have the shard open."""
        if owner_of(self._view.map, number) == self._view.node_id:
            return None
        return url_of(self._view.map, number)


def owner_of(cluster_map: ClusterMap, number: int) -> str | None:
    owners = cluster_map.owners
    return owners[number] if number < len(owners) else None


def url_of(cluster_map: ClusterMap, number: int) -> str | None:
    """Where the owner is, if it is alive."""
    owner = owner_of(cluster_map, number)
    return None if owner is None else cluster_map.nodes.get(owner)
