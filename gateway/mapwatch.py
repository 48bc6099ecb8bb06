"""Learns the map of a cluster of origins: every second, and at once when it may have changed.

Maps come from the configured nodes only: whoever names an address here gets our requests and our
key. Nodes that have failed are asked as well, so that no client has to find out that one is back.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from contextlib import suppress

import msgspec

from gateway.asking import UpstreamRequest, explain, gather_body
from gateway.links import MAP_KIND, Errand, Link
from gateway.rules.nodes import Verdict, judge_map
from gateway.tasks import Tasks
from protocol.clustermap import MAP_PATH, ClusterMap

log = logging.getLogger("weir.gateway.upstream")

POLL_SECS = 1.0
LEAST_SECS = 0.1  # between two polls, however many failures ask for one
ASKED_AT_ONCE = 2
ASK_SECS = 2.0  # for a connection and an answer
MAX_MAP_BYTES = 1024 * 1024

_REQUEST = UpstreamRequest("GET", MAP_PATH, {})


class MapWatch:
    """`take` is called with each new map; `find_lost` returns nodes that have failed, to be asked
    whether they are back."""

    def __init__(
        self,
        configured: Sequence[Link],
        take: Callable[[ClusterMap], None],
        find_lost: Callable[[], list[Link]],
    ) -> None:
        self._configured = configured
        self._take = take
        self._find_lost = find_lost
        self._known: ClusterMap | None = None
        self._asked: set[Link] = set()  # that have not answered yet
        self._hurried = asyncio.Event()
        self._useless: set[Link] = set()  # of which the log says so
        self._tasks = Tasks()

    def start(self) -> None:
        self._now = asyncio.get_running_loop().time
        self._confirmed_at = self._now()
        self._tasks.start(self._watch(), "cluster map")

    async def close(self) -> None:
        await self._tasks.cancel()

    @property
    def version(self) -> int:
        return 0 if self._known is None else self._known.version

    @property
    def is_known(self) -> bool:
        return self._known is not None

    @property
    def age_s(self) -> float:
        """Since a node has confirmed the map."""
        return self._now() - self._confirmed_at

    def hurry(self) -> None:
        """The map may have changed."""
        self._hurried.set()

    async def _watch(self) -> None:
        while True:
            self._hurried.clear()
            for link in self._find_asked():
                self._tasks.start(self._learn(link), "look at a node")
            await asyncio.sleep(random.uniform(1, 2) * LEAST_SECS)
            with suppress(TimeoutError):
                async with asyncio.timeout(random.uniform(0.8, 1.2) * (POLL_SECS - LEAST_SECS)):
                    await self._hurried.wait()

    def _find_asked(self) -> set[Link]:
        """Two nodes, because one may have stopped, or be cut off from the news."""
        some = [link for link in self._configured if link.is_up and link not in self._asked]
        return {*random.sample(some, min(ASKED_AT_ONCE, len(some))), *self._find_lost()}

    async def _learn(self, link: Link) -> None:
        self._asked.add(link)
        try:
            told = await self._ask(link)
        finally:
            self._asked.discard(link)
        if told is not None and link in self._configured:
            self._judge(link, told)

    async def _ask(self, link: Link) -> ClusterMap | None:
        errand = Errand(_REQUEST, deadline=self._now() + ASK_SECS, kind=MAP_KIND)
        try:
            begun = await link.begin(errand)
            try:
                body = await gather_body(begun.body, MAX_MAP_BYTES, ASK_SECS)
            finally:
                begun.pool.give_back(begun.connection)
            if begun.status == 200:
                return msgspec.json.decode(body, type=ClusterMap)
            self._complain(link, f"status {begun.status}")
        except msgspec.DecodeError as error:
            self._complain(link, str(error))
        except Exception as error:
            log.debug("no map from %s: %s", link.name, explain(error, sent=True))
        return None

    def _judge(self, link: Link, told: ClusterMap) -> None:
        verdict = judge_map(self._known, told, self.age_s)
        if verdict is Verdict.FOREIGN:
            self._complain(link, f"cluster {told.cluster!r} with {len(told.owners)} shards")
        if verdict in (Verdict.FOREIGN, Verdict.OLD):
            return
        self._useless.discard(link)
        self._confirmed_at = self._now()
        if verdict is Verdict.NEW:
            self._known = told
            self._take(told)

    def _complain(self, link: Link, why: str) -> None:
        """Once, until it is right."""
        if link not in self._useless:
            self._useless.add(link)
            log.warning("the cluster's map of %s is not usable: %s", link.name, why)
