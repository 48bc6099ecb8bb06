"""What happens after an owner was killed: how long its streams are away, and why."""

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, cycle
from statistics import median

from loadtest.errors import RunFailedError
from loadtest.load.connection import Broken
from loadtest.load.contest import Contest, Launch, Plan, Sample, Sides
from loadtest.load.goals import Measure
from loadtest.load.origin import numbered
from loadtest.load.owners import Owners
from loadtest.load.wrk import run_wrk
from loadtest.peers.clusters import (
    LEASE_SECS,
    NODES,
    POLL_SECS,
    WAIT_SECS,
    Cluster,
    Node,
    find_cluster,
    run_cluster,
)
from loadtest.peers.memory import MB
from loadtest.peers.names import DURABLE, OURS
from loadtest.peers.process import Server
from protocol.clustermap import shard_of

CONNECTIONS = 64
SMALL_BYTES, LARGE_BYTES = 100, 16 * 1024
FILL_SECS = 2.0
SAMPLE_STREAMS = 100  # looked at one by one, besides what the owners say
NEVER_SECS = 86_400
PHASE_SECS, RENEW_SECS = 0.7, 2.0  # kills at different moments between two renewals of a lease


@dataclass(frozen=True, slots=True)
class Takeover:
    """Seconds from the kill, by shard: when a survivor had claimed it, and when it took a write."""

    lease_left_s: float
    claimed_s: Mapping[int, float]
    served_s: Mapping[int, float]

    @property
    def opening_s(self) -> float:
        """The median: from the claim to the first write."""
        return median(self.served_s[shard] - at for shard, at in self.claimed_s.items())

    def sample(self) -> Sample:
        figures = {
            "pause": median(self.served_s.values()),
            "of it lease": self.lease_left_s,
            "of it detection": median(self.claimed_s.values()) - self.lease_left_s,
            "of it opening": self.opening_s,
        }
        return Sample(figures)


async def kill_owner(server: Server, victim: Node, lease_secs: float = LEASE_SECS) -> Takeover:
    cluster = cluster_of(server)
    shards = cluster.map.owners
    lost = [shard for shard, owner in enumerate(shards) if owner == victim.id]
    paths = [path_in(shard, len(shards)) for shard in lost]
    survivors = [node for node in cluster.nodes if node.id != victim.id]
    async with Owners(server) as owners:
        await owners.create_all(paths)
        lease_left_s = lease_secs - cluster.status_of(victim).lease_age_secs
        killed_at = time.perf_counter()
        cluster.kill(victim)
        try:
            async with asyncio.timeout(WAIT_SECS):
                probes = (_probe(owners, survivors, path, killed_at) for path in paths)
                claimed, served = await asyncio.gather(
                    _watch_claims(cluster, survivors, lost, killed_at), asyncio.gather(*probes)
                )
        except TimeoutError:
            raise RunFailedError(f"no writes {WAIT_SECS:.0f} s after the kill") from None
    return Takeover(lease_left_s, claimed, dict(zip(lost, served, strict=True)))


def cluster_of(server: Server) -> Cluster:
    cluster = find_cluster(server)
    assert cluster is not None
    return cluster


def path_in(shard: int, shards: int) -> str:
    """A stream that is at home in this shard."""
    return next(path for n in count() if shard_of(path := f"takeover-{n}", shards) == shard)


async def _probe(owners: Owners, survivors: Sequence[Node], path: str, since: float) -> float:
    """Seconds until any survivor has acknowledged an append."""
    for node in cycle(survivors):
        client = owners.client_at(node.port)
        try:
            reply = await client.fetch(client.request("POST", path, body=b"again"))
        except Broken:
            continue
        if reply.status in (200, 204):
            return time.perf_counter() - since
        await asyncio.sleep(POLL_SECS)
    raise RunFailedError("nobody is left")


async def _watch_claims(
    cluster: Cluster, survivors: Sequence[Node], lost: Iterable[int], since: float
) -> dict[int, float]:
    """Seconds until a survivor's map says that a survivor owns each of these shards."""
    alive = {node.id for node in survivors}
    left, claimed = set(lost), {}
    while left:
        for node in survivors:
            try:
                shards = (await asyncio.to_thread(cluster.map_of, node)).owners
            except OSError:
                continue
            for shard in [shard for shard in left if shards[shard] in alive]:
                claimed[shard] = time.perf_counter() - since
                left.discard(shard)
        await asyncio.sleep(POLL_SECS)
    return claimed


# -- trials ----------------------------------------------------------------------------------------


async def try_takeovers(launch: Launch, plan: Plan) -> Sides:
    """Owners with little in their journals; two in a row of each cluster, then nobody is left."""
    takeovers: list[Takeover] = []
    settings = {"DS_CLUSTER__LEASE_SECS": f"{plan.lease_secs:g}"}
    paths = numbered("kept", CONNECTIONS)
    while len(takeovers) < plan.kills:
        folder = plan.folder / OURS / f"takeover-{len(takeovers)}"
        with run_cluster(folder, settings) as server:
            cluster = cluster_of(server)
            for left in range(NODES, 1, -1):
                if len(takeovers) == plan.kills:
                    break
                await asyncio.to_thread(cluster.await_spread, left)
                async with Owners(server) as owners:
                    await owners.create_all(paths)
                    load = owners.load("POST", paths, CONNECTIONS, SMALL_BYTES)
                    run_wrk(server.port, load, plan.warm_up_s)
                await asyncio.sleep(len(takeovers) * PHASE_SECS % RENEW_SECS)
                takeovers.append(await kill_owner(server, cluster.nodes[0], plan.lease_secs))
    pauses = [pause for takeover in takeovers for pause in takeover.served_s.values()]
    whole = Sample({"shortest": min(pauses), "longest": max(pauses)})
    return {OURS: [*(takeover.sample() for takeover in takeovers), whole]}


async def try_replay(launch: Launch, plan: Plan) -> Sides:
    """One shard, of which nothing was flushed: all of it comes from the journal."""
    settings = {
        "DS_CLUSTER__SHARDS": "1",
        "DS_CLUSTER__FLUSH_SECS": str(NEVER_SECS),
        "DS_CLUSTER__FLUSH_BYTES": str(2 * plan.journal_bytes),
        "DS_CLUSTER__JOURNAL_BYTES": str(4 * plan.journal_bytes),
        "DS_CLUSTER__LEASE_SECS": f"{plan.lease_secs:g}",
    }
    with run_cluster(plan.folder / OURS / "replay", settings) as server:
        cluster = cluster_of(server)
        written = await fill_journal(server, plan.journal_bytes)
        [owner] = cluster.map.owners
        victim = next(node for node in cluster.nodes if node.id == owner)
        took_s = (await kill_owner(server, victim, plan.lease_secs)).opening_s
    figures = {"journal": written / MB, "took": took_s, "replayed": written / MB / took_s}
    return {OURS: [Sample(figures)]}


async def fill_journal(server: Server, size_bytes: int) -> int:
    """Append until the journal is so large; how large it is."""
    cluster, paths = cluster_of(server), numbered("long", CONNECTIONS)
    async with Owners(server) as owners:
        await owners.create_all(paths)
        load = owners.load("POST", paths, CONNECTIONS, LARGE_BYTES)
        while (written := journal_bytes(cluster)) < size_bytes:
            run_wrk(server.port, load, FILL_SECS)
    return written


def journal_bytes(cluster: Cluster) -> int:
    return sum(shard.journal_bytes for shard in cluster.open_shards())


# -- many streams ----------------------------------------------------------------------------------


def contest_recovery(name: str, label: str, *measures: Measure) -> Contest:
    async def prepare(server: Server, plan: Plan) -> None:
        async with Owners(server) as owners:
            await owners.create_all(recovered_paths(plan), b"x" * SMALL_BYTES)
        if plan.crowd_rounds > 1:  # then checkpoints have them in the first round, too
            await server.restart()

    async def measure(server: Server, plan: Plan) -> Sample:
        is_alone = find_cluster(server) is None
        return await (start_again if is_alone else lose_owner)(server, recovered_paths(plan))

    # The reference server answers 404 for some of so many streams.
    return Contest(
        name,
        label,
        measures,
        prepare,
        measure,
        lambda plan: plan.crowd_rounds,
        peers=(OURS, DURABLE),
    )


def recovered_paths(plan: Plan) -> list[str]:
    return [f"many/{number // 1000}/{number}" for number in range(plan.streams)]


async def start_again(server: Server, paths: Sequence[str]) -> Sample:
    """A server alone: killed, and started at once."""
    assert server.process is not None
    start = time.perf_counter()
    server.process.kill()
    await server.process.start_again()
    async with Owners(server) as owners:
        await owners.tails(paths[:: max(len(paths) // SAMPLE_STREAMS, 1)])
    return Sample({"served": time.perf_counter() - start})


async def lose_owner(server: Server, paths: Sequence[str]) -> Sample:
    """A node of a cluster: the others take over what it had."""
    cluster = cluster_of(server)
    if len(cluster.nodes) < NODES:  # since the round before
        await server.restart()
    victim = cluster.nodes[0]
    lease_left_s = LEASE_SECS - cluster.status_of(victim).lease_age_secs
    start = time.perf_counter()
    cluster.kill(victim)
    await asyncio.to_thread(
        cluster.await_that, lambda: has_streams(cluster, len(paths)), "all streams are served"
    )
    async with Owners(server) as owners:
        await owners.tails(paths[:: max(len(paths) // SAMPLE_STREAMS, 1)])
    served_s = time.perf_counter() - start
    figures = {"served": served_s, "after the lease": served_s - lease_left_s}
    return Sample({**figures, "streams": len(paths)})


def has_streams(cluster: Cluster, expected: int) -> bool:
    return sum(shard.streams for shard in cluster.open_shards()) >= expected
