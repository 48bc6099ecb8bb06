"""Before a node joins: the cluster's records exist, and this node belongs to that cluster."""

import asyncio
import os
from contextlib import suppress

from origin.cluster.assignment import Assignment, begin
from origin.cluster.control import Conflict, Control, this_machine
from origin.config import ClusterConfig, ColdConfig, OriginConfig
from origin.storage.cluster.clusterstore import room_for
from origin.storage.cluster.jetstream import JetStream
from origin.storage.cluster.journal import Journal, stream_name
from origin.storage.cluster.objects import Objects
from wire.settings import SettingsError

FOUNDED_AT_ONCE = 8


async def join(
    control: Control, config: OriginConfig, jetstream: JetStream, objects: Objects
) -> None:
    """Raises SettingsError if this node has other settings than the cluster."""
    cluster, cold = config.cluster, cold_name(config.cold)
    await control.create(cluster.replicas)
    found = await control.assignment()
    if found is None:
        await _refuse_lost_journals(control, cluster.name, jetstream, objects)
        await _found_journals(cluster, jetstream)
    while found is None:
        with suppress(Conflict):  # another node is faster, and may not be done
            await control.assign(0, begin(cluster.name, cold, cluster.shards))
        found = await control.assignment()
    _check(found[1], cluster, cold)
    if config.cold.backend == "fs":
        await _refuse_other_machines(control)


def _check(assignment: Assignment, cluster: ClusterConfig, cold: str) -> None:
    if assignment.cold != cold:
        text = f"the cluster uses {assignment.cold}, this node {cold}"
        raise SettingsError("cold.backend", text)
    if len(assignment.places) != cluster.shards:
        text = f"the cluster was created with {len(assignment.places)}"
        raise SettingsError("cluster.shards", text)


async def _found_journals(cluster: ClusterConfig, jetstream: JetStream) -> None:
    slots = asyncio.Semaphore(FOUNDED_AT_ONCE)

    async def found(shard: int) -> None:
        async with slots:
            journal = Journal(jetstream, cluster.name, shard, epoch=0)
            await journal.found(replicas=cluster.replicas, max_bytes=room_for(cluster))

    await asyncio.gather(*map(found, range(cluster.shards)))


async def _refuse_lost_journals(
    control: Control, cluster: str, jetstream: JetStream, objects: Objects
) -> None:
    """A new cluster would take the place of the one whose objects these are."""
    has_journals = await jetstream.state(stream_name(cluster, 0)) is not None
    if has_journals or not await objects.has_any(f"{cluster}/"):
        return
    if await control.assignment() is None:  # or it was created meanwhile
        text = f"object storage has data of {cluster!r}, but NATS has no journals of it"
        raise SettingsError("cluster.name", text)


async def _refuse_other_machines(control: Control) -> None:
    here = this_machine()
    records = [record for _, record in (await control.nodes()).values()]
    others = sorted(record.id for record in records if record.machine != here)
    if others:
        text = f"fs is a folder of one machine, but {', '.join(others)} is on another"
        raise SettingsError("cold.backend", text)


def cold_name(cold: ColdConfig) -> str:
    """Which object storage this is, without its secrets."""
    place = {
        "s3": f"{cold.s3_endpoint or cold.s3_region}/{cold.s3_bucket}",
        "gcs": cold.gcs_bucket,
        "azure": f"{cold.azure_account}/{cold.azure_container}",
        "fs": os.path.abspath(cold.fs_path),
    }[cold.backend]
    return f"{cold.backend}:{place}/{cold.prefix}"
