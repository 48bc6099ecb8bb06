"""A cluster in this process: real origins over shards in memory, without NATS and object storage.

Who owns what is up to the test. A ledger keeps what a shard has stored when it moves to another
node, and refuses writes of all but the last node that opened it.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from copy import deepcopy
from itertools import cycle
from pathlib import Path
from typing import Any

from origin.app import OpenShard
from origin.metrics import Metrics
from origin.registry import Totals
from origin.shard import Shard
from origin.storage.base import Done, StorageFailed
from origin.storage.memory import MemoryStorage
from origin.storage.recent import RecentAppends
from protocol.clustermap import ClusterMap, shard_of
from protocol.paths import stream_url
from protocol.stream import Created, Record, Removed, StreamState, apply, begin
from tests.helpers.origin import LocalOrigin, make_config
from tests.helpers.rawhttp import Client, Connection, Response, wait_until

SHARDS = 16


class Ledger:
    """What one shard has stored."""

    def __init__(self) -> None:
        self.streams: dict[int, RecentAppends] = {}
        self.blobs: dict[int, bytes] = {}
        self.states: dict[int, StreamState] = {}
        self.owner: LedgerStorage | None = None


class LedgerStorage(MemoryStorage):
    def __init__(self, ledger: Ledger) -> None:
        super().__init__()
        self._ledger = ledger
        self._streams, self._blobs = ledger.streams, ledger.blobs

    async def recover(self) -> list[StreamState]:
        await super().recover()
        self._ledger.owner = self
        return deepcopy(list(self._ledger.states.values()))

    def stage(self, state: StreamState, records: tuple[Record, ...], done: Done) -> None:
        if self._ledger.owner is not self:
            self._loop.call_soon(done, StorageFailed("another node owns the shard"))
            return
        for record in records:
            if isinstance(record, Created):
                self._ledger.states[record.id] = begin(record)
            elif isinstance(record, Removed):
                del self._ledger.states[record.id]
            else:
                apply(self._ledger.states[record.id], record)
        super().stage(state, records, done)


class FakeNode:
    """One node's view. Its lease holds until the test says otherwise."""

    def __init__(self, cluster: "LocalCluster", node_id: str) -> None:
        self._cluster = cluster
        self.node_id = node_id
        self.open: dict[int, Shard] = {}
        self.lease_holds = True
        self.old_map: ClusterMap | None = None  # what it knows instead of the truth
        self.reason: str | None = None

    async def join(self, open_shard: OpenShard, totals: Totals) -> "FakeNode":
        self._open_shard = open_shard
        for number, owner in enumerate(self._cluster.owners):
            if owner == self.node_id:
                await self.take(number)
        return self

    async def take(self, number: int) -> None:
        storage = LedgerStorage(self._cluster.ledgers[number])
        shard = self._open_shard(number, storage, lambda: self.lease_holds)
        await shard.start()
        self.open[number] = shard

    async def start(self, url: str) -> None:
        pass

    async def leave(self) -> None:
        for shard in self.open.values():
            await shard.storage.close()

    def register(self, metrics: Metrics) -> None:
        pass

    @property
    def map(self) -> ClusterMap:
        return self.old_map or self._cluster.map

    def status(self) -> dict[str, object]:
        return {"node": self.node_id, "shards": sorted(self.open)}

    def is_fresh(self) -> bool:
        return self.lease_holds

    def unready(self) -> str | None:
        return self.reason

    def owned(self, shard: int) -> Shard | None:
        found = self.open.get(shard)
        return None if found is None or found.is_lost else found


class LocalCluster:
    """Nodes `a`, `b`, …, each with every n-th shard."""

    def __init__(self, folder: Path, count: int = 3, **sections: dict[str, Any]) -> None:
        ids = "abcdefgh"[:count]
        self.ledgers = [Ledger() for _ in range(SHARDS)]
        self.owners: list[str | None] = [ids[number % count] for number in range(SHARDS)]
        self.version = 1
        self.urls: dict[str, str] = {}
        self.nodes = {node_id: FakeNode(self, node_id) for node_id in ids}
        sections["cold"] = {"backend": "fs", "fs_path": str(folder)}
        sections["cluster"] = {"shards": SHARDS} | sections.get("cluster", {})
        server = sections.get("server", {})
        self.origins = {
            node_id: LocalOrigin(
                make_config(
                    folder,
                    "cluster",
                    **(sections | {"server": server | {"node_id": node_id}}),
                ),
                node.join,
            )
            for node_id, node in self.nodes.items()
        }

    def start(self) -> None:
        for node_id, origin in self.origins.items():
            origin.start()
            self.urls[node_id] = f"http://127.0.0.1:{origin.port}"

    def stop(self) -> None:
        for origin in self.origins.values():
            origin.stop()

    @property
    def map(self) -> ClusterMap:
        return ClusterMap("test", self.version, tuple(self.owners), dict(self.urls))

    @property
    def errors(self) -> list[str]:
        return [error for origin in self.origins.values() for error in origin.errors.found]

    # -- who owns what -----------------------------------------------------------------------------

    def owner_of(self, name: str) -> str:
        owner = self.owners[shard_of(name, SHARDS)]
        assert owner is not None
        return owner

    def shard(self, number: int) -> Shard:
        """As its owner has it."""
        owner = self.owners[number]
        assert owner is not None
        return self.nodes[owner].open[number]

    def move(self, number: int, to: str, *, tell: bool = True) -> None:
        """Another node takes a shard; the old owner may not know."""
        old = self.owners[number]
        self.origins[to].run(self.nodes[to].take(number))
        self.owners[number] = to
        self.version += 1
        if old is not None and tell:
            self.lose(old, number)

    def lose(self, node_id: str, number: int) -> None:
        shard = self.nodes[node_id].open.pop(number)
        self.origins[node_id].call(shard.lose)

    def call(self, number: int, function: Callable[[Shard], Any]) -> Any:
        """Run a function on a shard, on its owner's loop."""
        owner = self.owners[number]
        assert owner is not None
        return self.origins[owner].call(lambda: function(self.shard(number)))

    # -- names -------------------------------------------------------------------------------------

    def name_in(self, number: int, start: str = "s") -> str:
        """A name that is at home in a shard."""
        names = (f"{start}-{n}" for n in range(10_000))
        return next(name for name in names if shard_of(name, SHARDS) == number)

    def name_of(self, node_id: str, start: str = "s", besides: tuple[int, ...] = ()) -> str:
        """A name that is at home at a node."""
        mine = (n for n, owner in enumerate(self.owners) if owner == node_id and n not in besides)
        return self.name_in(next(mine), start)

    def where_is(self, name: str) -> list[int]:
        """The shards that have a stream of this name; at most one."""
        return [
            number
            for number in range(SHARDS)
            if self.call(number, lambda shard: name in shard.registry.by_name)
        ]

    def aliases(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for number in range(SHARDS):
            found |= self.call(number, lambda shard: dict(shard.aliases.shards))
        return found

    # -- requests ----------------------------------------------------------------------------------

    def connect(self) -> "AnyNode":
        return AnyNode(self)

    def sweep_aliases(self, at: Iterable[str] = ()) -> None:
        for origin in [self.origins[node_id] for node_id in at] or self.origins.values():
            cluster = origin.origin._cluster
            assert cluster is not None
            origin.run(cluster.placing.sweep())

    def wipe(self) -> None:
        """Delete everything: streams, aliases, buckets."""

        def paths(is_wanted: Callable[[str], bool]) -> list[str]:
            found = [
                self.call(number, lambda shard: list(shard.registry.by_name))
                for number in range(SHARDS)
            ]
            return [stream_url(name) for names in found for name in names if is_wanted(name)]

        with self.connect() as connection:
            for path in paths(lambda name: not _is_bucket(name)):
                connection.request("DELETE", path)
            wait_until(lambda: not paths(lambda name: not _is_bucket(name)))
            self.sweep_aliases()
            assert self.aliases() == {}
            for path in paths(_is_bucket):
                assert connection.request("DELETE", path).status == 204


class AnyNode(Connection):
    """Each request goes to the next node."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._stack = ExitStack()
        self._all = [
            self._stack.enter_context(origin.connect()) for origin in cluster.origins.values()
        ]
        self._next = cycle(self._all)
        self._used = self._all[0]

    def close(self) -> None:
        self._stack.close()

    def request(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> Response:
        return next(self._next).request(method, target, headers, body)

    def send(self, data: bytes) -> None:
        self._used = next(self._next)
        self._used.send(data)

    def read_response(self, method: str = "GET") -> Response:
        return self._used.read_response(method)


class AnyNodeClient(Client):
    def __init__(self, cluster: LocalCluster) -> None:
        self._connection = cluster.connect()


def _is_bucket(name: str) -> bool:
    return name.startswith("/ds/") and name.count("/") == 2
