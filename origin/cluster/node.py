"""One node: which shards it owns, opens, loses, takes over and hands over.

Every turn it renews its lease, reads who is alive and who owns what, and acts on the difference.
What it decides is in `assignment`; that two nodes never both write is ensured by the journals'
epochs, and that a node without a lease never speaks for a tail by `is_fresh`.
"""

import asyncio
import logging
import os
import secrets
from collections import Counter
from contextlib import suppress

from origin.cluster.assignment import (
    Assignment,
    give,
    orphans_for,
    surplus_of,
    take,
)
from origin.cluster.control import (
    MARGIN_SECS,
    Conflict,
    Control,
    NodeRecord,
    Replaced,
    clock,
    this_machine,
)
from origin.cluster.holdings import Holdings, OpenShard, last_batches
from origin.cluster.joining import join
from origin.cluster.nodemetrics import Parts, register_node
from origin.cluster.nodestatus import describe_nodes, describe_shards
from origin.config import OriginConfig
from origin.metrics import Metrics
from origin.registry import Totals
from origin.shard import Shard
from origin.storage.cluster.diskcache import DiskCache
from origin.storage.cluster.jetstream import Away, JetStream, Refused
from origin.storage.cluster.objects import Objects, ObjectsUnavailable
from protocol.clustermap import ClusterMap

log = logging.getLogger("weir.cluster")

REJOIN_SECS = 1.0
OPENING_SECS = 30.0  # a start does not wait longer for its shards
BALANCE_SECS = 2.0  # after a node has come or gone
CONFLICTS = 5
RESIGN_SECS = 2.0


class ClusterNode:
    def __init__(
        self,
        config: OriginConfig,
        jetstream: JetStream,
        objects: Objects,
        open_shard: OpenShard,
        totals: Totals,
    ) -> None:
        self._config = config
        self._cluster = config.cluster
        self._jetstream = jetstream
        self._objects = objects
        self._totals = totals
        self.node_id = config.server.node_id
        cluster = config.cluster
        self._control = Control(jetstream, cluster.name, self.node_id, cluster.lease_secs)
        cache = os.path.join(config.storage.data_dir, "cache")
        self.cache = DiskCache(cache, config.cold.cache_bytes)
        self._url = ""
        self._start = secrets.token_hex(8)
        self._version = 0
        self._assignment: Assignment | None = None
        self._nodes: dict[str, NodeRecord] = {}
        self._seen: dict[str, tuple[int, float]] = {}  # revision of each lease, and since when
        self._map = self._make_map()
        self._moving: asyncio.Task[None] | None = None
        self._changed_at = clock()
        self._poked = asyncio.Event()
        self._settled = asyncio.Event()  # it has opened its first shards, or cannot
        self._turns: asyncio.Task[None] | None = None
        self._trouble = ""
        self._is_leaving = False
        self.replaced: str | None = None
        self.holdings = Holdings(
            config,
            jetstream,
            objects,
            self.cache,
            open_shard,
            is_fresh=self.is_fresh,
            is_ours=self._is_ours,
            noted_tail=self._control.noted_tail,
            on_change=self._poked.set,
        )

    # -- start and stop ------------------------------------------------------------------------

    async def start(self, url: str) -> None:
        """Join the cluster; returns when the first shards are open."""
        self._url = url
        while True:
            try:
                await join(self._control, self._config, self._jetstream, self._objects)
                break
            except (Away, Refused, ObjectsUnavailable) as error:  # they may be starting, too
                log.warning("waiting for NATS and object storage: %s", error)
                await asyncio.sleep(REJOIN_SECS)
        await self._control.watch(self._poked.set)
        self._poked.set()
        self._turns = asyncio.create_task(self._run(), name="cluster node")
        with suppress(TimeoutError):
            async with asyncio.timeout(OPENING_SECS):
                await self._settled.wait()

    async def leave(self) -> None:
        """Hand the shards over and leave."""
        self._is_leaving = True
        ending = [task for task in (self._turns, self._moving) if task is not None]
        for task in ending:
            task.cancel()  # may get lost: Python 3.11's wait_for swallows some
        self._poked.set()
        if ending:
            await asyncio.wait(ending, timeout=RESIGN_SECS)
        batches = await self.holdings.close_all()
        with suppress(Away, Refused, TimeoutError):
            async with asyncio.timeout(RESIGN_SECS):
                await self._control.resign(self._record())
                await self._control.note_tails(batches)
        await self.cache.close()
        await self._jetstream.close()

    # -- turns ---------------------------------------------------------------------------------

    async def _run(self) -> None:
        while self.replaced is None and not self._is_leaving:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._cluster.renew_secs):
                    await self._poked.wait()
            self._poked.clear()
            await self._turn_quietly()
            if self.replaced is not None or self._is_settled():
                self._settled.set()

    async def _turn_quietly(self) -> None:
        try:
            await self._turn()
            self._note_trouble("")
        except (Away, Refused, Conflict) as error:
            self._note_trouble(f"{error or 'they keep changing'}")
        except Replaced as error:
            log.critical("%s; this process gives up its shards", error)
            self.replaced = str(error)
            self._control.lease.end()
            for owned in self.holdings:
                self.holdings.lose(owned, error)
        except Exception:
            log.exception("a turn of the cluster node failed")

    def _note_trouble(self, trouble: str) -> None:
        """Told when it begins and when it ends."""
        if bool(trouble) != bool(self._trouble):
            told = trouble or "they can be again"
            log.warning("the cluster's records cannot be read or written: %s", told)
        self._trouble = trouble

    async def _turn(self) -> None:
        sent_at = await self._renew()
        for _ in range(CONFLICTS):
            found = await self._control.assignment()
            assert found is not None
            # After the version, each time: whoever has come back since then has replaced it.
            nodes = await self._read_nodes()
            with suppress(Conflict):
                await self._act(found[0], found[1], nodes, sent_at)
                await self._control.note_tails(last_batches(self.holdings))
                return
        raise Conflict

    async def _renew(self) -> float:
        for _ in range(CONFLICTS):
            with suppress(Conflict):
                return await self._control.renew(self._record())
        raise Conflict

    def _record(self) -> NodeRecord:
        totals = self._totals
        return NodeRecord(
            self.node_id,
            self._url,
            os.getpid(),
            this_machine(),
            self._start,
            totals.streams,
            totals.stored_bytes,
        )

    async def _read_nodes(self) -> dict[str, NodeRecord]:
        found = await self._control.nodes()
        now = clock()
        for id_, (revision, _) in found.items():
            if self._seen.get(id_, (0, 0.0))[0] != revision:
                self._seen[id_] = revision, now
        return {id_: record for id_, (_, record) in found.items()}

    async def _act(
        self, version: int, assignment: Assignment, nodes: dict[str, NodeRecord], sent_at: float
    ) -> None:
        """Raises Conflict if somebody else acted first: then look again."""
        self._assignment = assignment
        self.holdings.lose_others()
        lapsed = not self._control.lease.is_valid
        if lapsed and self.holdings.are_any:
            # Somebody may be about to take over because our lease had run out. Writing the record
            # makes that fail; only then do we speak for these tails again.
            version = await self._control.assign(version, assignment)
        self._control.lease.renew(sent_at, self._cluster.lease_secs - MARGIN_SECS)
        orphans = orphans_for(assignment, nodes, self.node_id)
        wanted = list(filter(self.holdings.can_open, [*assignment.of(self.node_id), *orphans]))
        if wanted:
            owners = Counter(assignment.places[shard].owner for shard in {*wanted} & {*orphans})
            assignment = take(assignment, wanted, self.node_id)
            version = await self._control.assign(version, assignment)
            self.holdings.moves.taken_over += owners.total() - owners[""]
        if set(nodes) != set(self._nodes):
            self._changed_at = clock()
        self._version, self._assignment, self._nodes = version, assignment, nodes
        self._map = self._make_map()
        self._count_others()
        for shard in wanted:
            self.holdings.begin(shard, assignment.places[shard].epoch)
        self._balance(assignment)

    def _is_ours(self, shard: int, epoch: int) -> bool:
        assert self._assignment is not None
        place = self._assignment.places[shard]
        return (place.owner, place.epoch) == (self.node_id, epoch)

    def _count_others(self) -> None:
        """What limits count of other nodes, as of their last renewals."""
        others = [record for id_, record in self._nodes.items() if id_ != self.node_id]
        self._totals.others_streams = sum(each.streams for each in others)
        self._totals.others_bytes = sum(each.stored_bytes for each in others)

    # -- balance -------------------------------------------------------------------------------

    def _balance(self, assignment: Assignment) -> None:
        """Hand over one shard at a time, when no node has come or gone for a while."""
        settled = not self.holdings.opening and clock() - self._changed_at >= BALANCE_SECS
        if not settled or self._moving is not None:
            return
        surplus = surplus_of(assignment, self._nodes, self.node_id, self.holdings.movable())
        if surplus is not None:
            work = self._hand_over(*surplus)
            self._moving = asyncio.create_task(work, name=f"hand over shard {surplus[0]}")

    async def _hand_over(self, number: int, to: str) -> None:
        log.info("shard %d moves to %s", number, to)
        try:
            await self.holdings.close(self.holdings.open[number])
            for _ in range(CONFLICTS):
                found = await self._control.assignment()
                if found is None or found[1].places[number].owner != self.node_id:
                    return
                given = give(found[1], number, to)
                with suppress(Conflict):
                    self._version = await self._control.assign(found[0], given)
                    self.holdings.moves.handed_over += 1
                    self._assignment = given
                    self._map = self._make_map()
                    return
        except (Away, Refused) as error:
            log.warning("shard %d could not be handed over: %s", number, error)
        finally:
            self.holdings.closed(number)
            self._moving = None
            self._poked.set()

    # -- what requests need --------------------------------------------------------------------

    def is_fresh(self) -> bool:
        """Whether this node may say what a tail is."""
        return self._control.lease.is_valid

    def owned(self, shard: int) -> Shard | None:
        found = self.holdings.open.get(shard)
        return None if found is None else found.shard

    @property
    def map(self) -> ClusterMap:
        return self._map

    def _make_map(self) -> ClusterMap:
        places = () if self._assignment is None else self._assignment.places
        owners = tuple(place.owner if place.owner in self._nodes else None for place in places)
        urls = {id_: record.url for id_, record in self._nodes.items()}
        return ClusterMap(self._cluster.name, self._version, owners, urls)

    def unready(self) -> str | None:
        if self.replaced is not None:
            return self.replaced
        if not self.is_fresh():
            return "this node has no lease"
        waiting = self._unopened()
        return f"shards {sorted(waiting)} are not open yet" if waiting else None

    def _unopened(self) -> set[int]:
        """Shards that this node will open. Those that are offline no other node could open either:
        the node is as good as any."""
        held = self.holdings
        assigned = () if self._assignment is None else self._assignment.of(self.node_id)
        return set(assigned) - {*held.open, *held.offline}

    def _is_settled(self) -> bool:
        return self.is_fresh() and not self._unopened()

    def status(self) -> dict[str, object]:
        assignment = self._assignment
        if assignment is None:
            return {"cluster": self._cluster.name, "node": self.node_id, "nodes": [], "shards": []}
        return {
            "cluster": self._cluster.name,
            "node": self.node_id,
            "version": self._version,
            "fresh": self.is_fresh(),
            "lease_age_secs": round(self._control.lease.age_secs, 3),
            "nats_connected": self._jetstream.is_connected,
            "nodes": describe_nodes(assignment, self._nodes, self._seen),
            "shards": describe_shards(assignment, self._nodes, self.node_id, self.holdings),
        }

    def register(self, metrics: Metrics) -> None:
        def states() -> list[str]:
            assigned = [] if self._assignment is None else self._assignment.of(self.node_id)
            return list(map(self.holdings.state, assigned))

        parts = Parts(
            self._control.lease,
            self.holdings,
            self._objects,
            self.cache,
            self._jetstream,
            states,
            lambda: self._map,
        )
        register_node(metrics, parts, self._cluster.journal_bytes)
