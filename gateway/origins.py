"""The nodes of a cluster: each request goes straight to the owner of its stream.

Any node takes any request and forwards it, so a node that is not the owner is a detour and never a
wrong answer. A request goes to another node if nothing was sent (no connection, or the node has
failed before). If it was sent and cut off, it is repeated there only if it may be.

A long-poll waits for news, and a node that has stopped never says that it is not the owner any
more. So when the map names another owner, the long-polls of its streams are cut, and go there; the
same when connections to their node fail. Such a cut uses up no retries, and that node may be asked
again: one that is killed and started again loses a shard and gets it back within one long-poll.

No request waits long for a node: all attempts together have ANSWER_SECS until a response begins.
The requests for one owner's streams may hold half of the connections, so a node that does not
answer leaves the others theirs; and those of one subject its share of that half. It is not given up
for that: its storage may be slow, and if it has stopped, its lease ends, and the map says so. Only
failed connections count, and the map's requests.
"""

import asyncio
import math
import random
import ssl
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from gateway.asking import TIMEOUT, UNAVAILABLE, UNREACHABLE, BegunAnswer, UpstreamError, come_again
from gateway.breaker import State
from gateway.config import UpstreamConfig
from gateway.connections import Room
from gateway.links import RESPONSE_SECS, Counts, Errand, Link, Rooms, away
from gateway.mapwatch import MapWatch
from gateway.rules.forwarding import is_repeatable
from gateway.rules.nodes import parse_version, usable_nodes
from gateway.slots import Slots
from protocol.clustermap import ClusterMap, shard_of
from protocol.names import WEIR_MAP

ANSWER_SECS = 4.8  # above `cluster.answer_secs` of the nodes, and nothing hangs for more than five
MOVE_SECS = RESPONSE_SECS + 0.5  # before its deadline a request does not go elsewhere any more
MOVED_SECS = 0.25  # in which the long-polls of a lost owner come to the next one
MAX_NODES_TRIED = 4  # by one request
MAX_MOVES = 8  # of the owner's, that one long-poll follows
OWNER_SHARE = 0.5  # of the connections, for the streams of one owner

_NOT_SENT = (UNREACHABLE, TIMEOUT, UNAVAILABLE)  # why an attempt came to nothing before it was sent


def shorten(config: UpstreamConfig) -> UpstreamConfig:
    """The settings of a link to a node. Its requests are repeated at other nodes, not there."""
    return replace(
        config,
        first_byte_timeout_secs=min(config.first_byte_timeout_secs, ANSWER_SECS),
        idle_timeout_secs=min(config.idle_timeout_secs, ANSWER_SECS),
        retries=0,
    )


class Origins:
    def __init__(
        self,
        urls: Sequence[str],
        config: UpstreamConfig,
        counts: Counts,
        clock: Callable[[], float],
        tls: ssl.SSLContext | None,
        subject_share: float,
    ) -> None:
        self._config = shorten(config)
        self._subject_share = subject_share
        self._retries = config.retries
        self._counts = counts
        self._link_counts = replace(counts, failures=Counter())  # of attempts, which others follow
        self._clock = clock
        self._tls = tls
        self._rooms = Rooms(Room(config.connections), Room(config.live_connections))
        self._links = {url: self._make_link(url) for url in urls}
        self._configured = list(self._links.values())
        self._serving = self._configured  # the nodes of the map
        self._owners: tuple[Link | None, ...] = (None,)  # by shard
        self._shares: dict[Link, Slots] = {}  # of owners, if there are several
        self._waiting: dict[Errand, _Wait] = {}  # long-polls
        self.watch = MapWatch(self._configured, self._take_map, self._find_lost)
        self.closed = False

    def start(self) -> None:
        for link in self._configured:
            link.start()
        self.watch.start()

    async def close(self) -> None:
        self.closed = True
        await self.watch.close()
        for link in self._links.values():
            await link.close()

    # -- state -------------------------------------------------------------------------------------

    @property
    def state(self) -> State:
        """Of the best node."""
        states = {link.state for link in self._links.values()}
        return next(state for state in State if state in states)

    @property
    def is_up(self) -> bool:
        """Whether every stream can be reached: any node forwards to the others."""
        return self.watch.is_known and self.up_count > 0

    @property
    def is_known(self) -> bool:
        return self.watch.is_known

    @property
    def up_count(self) -> int:
        return sum(link.is_up for link in self._serving)

    @property
    def lost_count(self) -> int:
        return len(self._serving) - self.up_count

    @property
    def wait_s(self) -> float:
        """0.0 if a request may be sent now, else the time to wait."""
        shortest = math.inf
        for link in self._links.values():
            if not (wait_s := link.wait_s):
                return 0.0
            shortest = min(shortest, wait_s)
        return shortest

    def share_of(self, name: str) -> Slots | None:
        """Limits the requests for the streams of one owner; None if it may use all."""
        if not self._shares:
            return None
        owner = self._owner_of(name)
        return None if owner is None else self._shares.get(owner)

    # -- requests ----------------------------------------------------------------------------------

    async def begin(self, errand: Errand) -> BegunAnswer:
        """Send it to nodes until one answers."""
        tried: list[Link] = []
        link = self._choose(errand, tried)
        if link is None:
            raise self._counts.failed(away(self.wait_s))
        while True:
            departures, cuts = errand.departures, errand.cuts
            try:
                begun = await self._ask(link, errand)
            except UpstreamError as error:
                self.watch.hurry()
                if errand.cuts == cuts:  # otherwise nothing speaks against the node
                    tried.append(link)
                is_sent = errand.departures > departures
                next_link = self._next(errand, tried, link, error, is_sent=is_sent)
                if next_link is None:
                    raise self._counts.failed(_last(error)) from error.__cause__
                link = next_link
                self._counts.retries += 1
            else:
                self._heed(begun)
                return begun

    def _next(
        self, errand: Errand, tried: list[Link], last: Link, error: UpstreamError, *, is_sent: bool
    ) -> Link | None:
        """Where to try again; None if that would be unsafe or in vain."""
        is_over = len(tried) >= MAX_NODES_TRIED or errand.cuts > MAX_MOVES or self.closed
        if is_over or errand.within(MOVE_SECS) < MOVE_SECS:
            return None
        if not is_sent:
            return self._choose(errand, tried) if error.code in _NOT_SENT else None
        request = errand.request
        is_safe = error.code == UNREACHABLE and is_repeatable(request.method, request.headers)
        if not is_safe or errand.departures - errand.cuts > self._retries:
            return None
        return self._choose(errand, tried) or last

    def _choose(self, errand: Errand, tried: list[Link]) -> Link | None:
        """The owner; while it is unknown or has failed, any other node."""
        owner = self._owner_of(errand.request.name)
        if owner is not None and owner.is_up and owner not in tried:
            return owner
        for links in (self._serving, self._configured):
            if found := [link for link in links if link.is_up and link not in tried]:
                return random.choice(found)
        found = [link for link in self._links.values() if not link.wait_s and link not in tried]
        return random.choice(found) if found else None

    def _owner_of(self, name: str) -> Link | None:
        return self._owners[shard_of(name, len(self._owners))] if name else None

    async def _ask(self, link: Link, errand: Errand) -> BegunAnswer:
        if not errand.live:
            return await link.begin(errand)
        self._waiting[errand] = _Wait(self._owner_of(errand.request.name), link)
        try:
            return await link.begin(errand)
        finally:
            del self._waiting[errand]

    def _heed(self, begun: BegunAnswer) -> None:
        """A node that forwards tells the version of its map; a 503 may mean that there is no owner,
        or another."""
        version = begun.told.get(WEIR_MAP)
        is_newer = version is not None and parse_version(version) > self.watch.version
        if is_newer or begun.status == 503:
            self.watch.hurry()

    # -- the map -----------------------------------------------------------------------------------

    def _take_map(self, cluster_map: ClusterMap) -> None:
        urls = usable_nodes(cluster_map)
        self._serving = [self._link_to(url) for url in dict.fromkeys(urls.values())]
        self._owners = tuple(
            self._links[urls[owner]] if owner in urls else None for owner in cluster_map.owners
        )
        self._share_out({owner for owner in self._owners if owner is not None})
        self._drop_others({*self._configured, *self._serving})
        for errand, wait in self._waiting.items():
            now = self._owner_of(errand.request.name)
            if wait.owner is not None and now not in (None, wait.owner, wait.link):
                self._cut_soon(errand, wait)

    def _cut_soon(self, errand: Errand, wait: "_Wait") -> None:
        def cut() -> None:
            if self._waiting.get(errand) is wait:  # still, and in the same place
                errand.cut()

        delay_s = random.uniform(0, MOVED_SECS)  # many may move at once
        asyncio.get_running_loop().call_later(delay_s, cut)

    def _share_out(self, owners: Iterable[Link]) -> None:
        most, share = max(1, int(self._config.connections * OWNER_SHARE)), self._subject_share
        kept = {owner: self._shares.get(owner) or Slots.shared(most, share) for owner in owners}
        self._shares = kept if len(kept) > 1 else {}

    def _drop_others(self, kept: set[Link]) -> None:
        for url, link in list(self._links.items()):
            if link not in kept:
                del self._links[url]
                link.retire()

    def _link_to(self, url: str) -> Link:
        link = self._links.get(url)
        if link is None:
            link = self._links[url] = self._make_link(url)
            link.start()
        return link

    def _make_link(self, url: str) -> Link:
        if url.startswith("https:") and self._tls is None:
            self._tls = ssl.create_default_context()  # one for all: it takes long to make
        name, counts = f"node {url}", self._link_counts
        return Link(url, self._config, counts, self._clock, self._tls, name=name, rooms=self._rooms)

    def _find_lost(self) -> list[Link]:
        """Those that are to be asked now. The long-polls that wait there go elsewhere."""
        lost = {link for link in self._links.values() if not link.is_up}
        if lost and self.up_count:
            for errand, wait in self._waiting.items():
                if wait.link in lost:
                    self._cut_soon(errand, wait)
        return [link for link in lost if not link.wait_s]


def _last(error: UpstreamError) -> UpstreamError:
    """The failure that the client hears of."""
    return come_again(error) if error.code in (UNREACHABLE, TIMEOUT) else error


class _Wait(NamedTuple):
    """Where a long-poll waits, and who was the owner then."""

    owner: Link | None
    link: Link
