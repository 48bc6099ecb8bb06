"""Which maps of a cluster of origins to believe, and which of their nodes to use.

A map comes from a configured node. It may name nodes that are not configured: that is how a cluster
grows. An old map costs a detour and never a wrong answer, because any node takes any request.
"""

import re
from enum import Enum, auto

from protocol.clustermap import ClusterMap

MAX_NODES = 1024
UNSEEN_SECS = 10.0  # after which a map that nobody confirms gives way to an older version

_NODE_URL = re.compile(r"https?://(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]{1,255})(?::([0-9]{1,5}))?")
_VERSION = re.compile(r"[0-9]{1,18}")


class Verdict(Enum):
    NEW = auto()
    SAME = auto()
    OLD = auto()  # of a node that lags behind
    FOREIGN = auto()  # of another cluster, or not of any


def is_node_url(url: str) -> bool:
    """Whether it is `http(s)://host[:port]` and nothing else."""
    match = _NODE_URL.fullmatch(url)
    return match is not None and 0 < int(match[1] or 80) < 65536


def parse_version(text: str) -> int:
    """Of a map, from a header; 0 if it is none."""
    return int(text) if _VERSION.fullmatch(text) else 0


def usable_nodes(cluster_map: ClusterMap) -> dict[str, str]:
    """URLs by node id. Others own shards too, but are reached through these."""
    urls = {node: url.removesuffix("/") for node, url in cluster_map.nodes.items()}
    usable = [(node, url) for node, url in urls.items() if is_node_url(url)]
    return dict(usable[:MAX_NODES])


def judge_map(known: ClusterMap | None, told: ClusterMap, unseen_s: float) -> Verdict:
    """`unseen_s` is how long nobody has confirmed the map we know. Versions only grow, unless the
    cluster was created anew."""
    if not told.owners:
        return Verdict.FOREIGN
    if known is None:
        return Verdict.NEW
    if (told.cluster, len(told.owners)) != (known.cluster, len(known.owners)):
        return Verdict.FOREIGN
    if told.version == known.version:
        return Verdict.SAME
    is_new = told.version > known.version or unseen_s > UNSEEN_SECS
    return Verdict.NEW if is_new else Verdict.OLD
