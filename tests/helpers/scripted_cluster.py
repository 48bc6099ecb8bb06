"""A cluster of scripted origins that tell the same map, and do nothing else by themselves.

    with ScriptedCluster() as cluster:
        name = cluster.name_at("n2")  # of a stream whose owner is that node
        cluster.move(name, "n3")  # from now on the map says so

A node that is told to `hold` is like a stopped process: it takes connections, and never answers.
"""

from contextlib import ExitStack
from itertools import count
from types import TracebackType
from typing import Self

import msgspec

from protocol.clustermap import MAP_PATH, ClusterMap, shard_of
from protocol.names import STREAM_PREFIX
from tests.helpers.scripted_origin import Answer, Recorded, ScriptedOrigin

SHARDS = 6
JSON = {"Content-Type": "application/json"}


class ScriptedCluster:
    """`owners` and `urls` are what the map says; after a change of either, `publish`."""

    def __init__(self, count: int = 3) -> None:
        self.nodes = {f"n{number}": ScriptedOrigin() for number in range(1, count + 1)}
        ids = list(self.nodes)
        self.owners: list[str | None] = [ids[shard % len(ids)] for shard in range(SHARDS)]
        self._open = ExitStack()

    def __enter__(self) -> Self:
        for node in self.nodes.values():
            self._open.enter_context(node)
            node.on("GET", MAP_PATH, self._tell)
        self.urls = {node: origin.url for node, origin in self.nodes.items()}
        self.version = 0
        self.publish()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for node in self.nodes.values():
            node.release()
        self._open.__exit__(kind, error, trace)

    def publish(self) -> None:
        self.version += 1
        self._map = ClusterMap("weir", self.version, tuple(self.owners), dict(self.urls))

    def _tell(self, request: Recorded) -> Answer:
        return Answer(200, JSON, msgspec.json.encode(self._map))

    @property
    def all_urls(self) -> list[str]:
        return [node.url for node in self.nodes.values()]

    def name_at(self, node: str) -> str:
        """A new name of a stream that this node owns."""
        names = (f"stream-{number}" for number in self._numbers)
        return next(name for name in names if self.owners[shard_of(name, SHARDS)] == node)

    _numbers = count()

    def move(self, name: str, node: str | None) -> None:
        self.owners[shard_of(name, SHARDS)] = node
        self.publish()

    def lose(self, node: str) -> None:
        """Its lease has ended: it owns nothing, and is not in the map."""
        self.owners = [None if owner == node else owner for owner in self.owners]
        del self.urls[node]
        self.publish()

    def asked(self, name: str) -> list[str]:
        """The nodes that got requests for a stream, in the order of their requests."""
        path = STREAM_PREFIX + name
        seen = [
            (request.time, node)
            for node, origin in self.nodes.items()
            for request in origin.find(path=path)
        ]
        return [node for _, node in sorted(seen)]

    def count_maps(self) -> int:
        return sum(origin.count(path=MAP_PATH) for origin in self.nodes.values())
