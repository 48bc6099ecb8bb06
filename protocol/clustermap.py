"""Which node of a cluster serves which stream. Origins agree on it, gateways learn it. Pure.

Streams are spread over shards by a stable hash of their name; each shard has one owner at a time.
Any node accepts any request, so an old map costs a detour and never a wrong answer.
"""

from crc32c import crc32c
from msgspec import Struct

MAP_PATH = "/cluster/map"


def shard_of(name: str, shards: int) -> int:
    """The home shard of a stream or bucket. It never changes: `shards` is fixed at creation."""
    return crc32c(name.encode()) % shards


class ClusterMap(Struct, frozen=True):
    """`GET /cluster/map`. `owners` has a node id per shard, None while it has no owner; `nodes` has
    the URL of each live node."""

    cluster: str
    version: int
    owners: tuple[str | None, ...]
    nodes: dict[str, str]

    def url_for(self, name: str) -> str | None:
        """Where to send requests for a stream; None while its shard has no live owner."""
        owner = self.owners[shard_of(name, len(self.owners))]
        return None if owner is None else self.nodes.get(owner)
