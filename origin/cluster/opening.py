"""From settings to a node: NATS, object storage, and what is refused at the start."""

import ssl
from collections.abc import Mapping

from origin.cluster.holdings import OpenShard
from origin.cluster.node import ClusterNode
from origin.cluster.syncs import check_syncs
from origin.config import ClusterConfig, OriginConfig
from origin.registry import Totals
from origin.storage.base import UnusableData
from origin.storage.cluster.jetstream import Away, JetStream
from origin.storage.cluster.objects import ObjectsUnavailable, open_objects
from wire.settings import resolve_secret


async def open_node(
    config: OriginConfig, environ: Mapping[str, str], open_shard: OpenShard, totals: Totals
) -> ClusterNode:
    """Connected, but not yet a member: `ClusterNode.start` joins."""
    cluster = config.cluster
    objects = open_objects(config.cold, environ)
    options = _nats_options(cluster, environ)
    if cluster.journal_sync == "always":
        await check_syncs(cluster.nats_monitor_urls)
    try:
        await objects.check()
        jetstream = await JetStream.connect(cluster.nats_urls, **options)
    except (ObjectsUnavailable, Away) as error:
        raise UnusableData(str(error)) from error
    return ClusterNode(config, jetstream, objects, open_shard, totals)


def _nats_options(cluster: ClusterConfig, environ: Mapping[str, str]) -> dict[str, object]:
    options: dict[str, object] = {}
    if cluster.nats_user:
        secret = resolve_secret("cluster.nats_password", cluster.nats_password, environ)
        options |= {"user": cluster.nats_user, "password": secret}
    if cluster.nats_credentials:
        options["user_credentials"] = cluster.nats_credentials
    if cluster.nats_ca_path:
        options["tls"] = ssl.create_default_context(cafile=cluster.nats_ca_path)
    return options
