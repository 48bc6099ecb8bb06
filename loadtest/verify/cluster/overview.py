"""What the nodes and the NATS servers say about the cluster: who owns and who leads what."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
import msgspec

ASK_SECS = 2.0


@dataclass(frozen=True, slots=True)
class ShardView:
    """One shard as its owner sees it; the owner is empty while there is none."""

    owner: str = ""
    state: str = ""
    reason: str = ""
    journal_bytes: int = 0
    last_batch: int = 0


@dataclass(frozen=True, slots=True)
class JournalView:
    """One JetStream stream as its leader sees it."""

    leader: str
    is_whole: bool  # all replicas are current
    group: str  # the name of its consensus group


class Overview:
    """`nodes` and `monitors` are URLs by name; answers of those that are silent are left out."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        nodes: Mapping[str, str],
        monitors: Mapping[str, str],
    ) -> None:
        self._session = session
        self._nodes = nodes
        self._monitors = monitors

    # -- nodes -----------------------------------------------------------------------------------

    async def shards(self, without: Collection[str] = ()) -> dict[int, ShardView]:
        """Of those that a live node owns."""
        found: dict[int, ShardView] = {}
        for name, url in self._nodes.items():
            if name in without:
                continue
            status = await self._ask(f"{url}/cluster/status")
            for each in status.get("shards", ()):
                if each["owner"] == name:
                    found[each["shard"]] = ShardView(
                        name,
                        each["state"],
                        each.get("reason") or "",
                        each.get("journal_bytes", 0),
                        each.get("last_batch", 0),
                    )
        return found

    async def richest(self) -> tuple[str, list[int]]:
        """The node that has most open shards, and which."""
        shards = await self.shards()
        counts = Counter(view.owner for view in shards.values() if view.state == "open")
        if not counts:
            return next(iter(self._nodes)), []
        owner = counts.most_common(1)[0][0]
        return owner, await self.of(owner)

    async def of(self, node: str) -> list[int]:
        """Shards that this node has open."""
        shards = await self.shards()
        return [n for n, view in shards.items() if (view.owner, view.state) == (node, "open")]

    # -- NATS ------------------------------------------------------------------------------------

    async def nats_leader(self) -> str:
        """Of the cluster itself; empty while there is none."""
        for url in self._monitors.values():
            found = await self._ask(f"{url}/jsz")
            if leader := found.get("meta_cluster", {}).get("leader"):
                return str(leader)
        return ""

    async def journals(self) -> dict[str, JournalView]:
        found = {}
        for name, url in self._monitors.items():
            for detail in _details(await self._ask(f"{url}/jsz?streams=true&config=false")):
                cluster = detail.get("cluster") or {}
                if cluster.get("leader") == name:
                    replicas = cluster.get("replicas") or []
                    whole = bool(replicas) and all(each.get("current") for each in replicas)
                    found[str(detail["name"])] = JournalView(
                        name, whole, cluster.get("raft_group", "")
                    )
        return found

    async def nats_is_whole(self, streams: int) -> bool:
        """Whether every stream has all its replicas, and the cluster a leader."""
        journals = await self.journals()
        whole = sum(view.is_whole for view in journals.values())
        return whole >= streams and bool(await self.nats_leader())

    async def _ask(self, url: str) -> dict[str, Any]:
        timeout = aiohttp.ClientTimeout(total=ASK_SECS)
        try:
            async with self._session.get(url, timeout=timeout) as answer:
                if answer.status != 200:
                    return {}
                return dict(msgspec.json.decode(await answer.read()))
        except (aiohttp.ClientError, TimeoutError, OSError, msgspec.DecodeError):
            return {}


def _details(jsz: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for account in jsz.get("account_details") or ():
        yield from account.get("stream_detail") or ()
