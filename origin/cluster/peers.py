"""Connections to the other nodes: questions to the owner of a shard, and requests passed on to it.

Nothing is sent twice by itself: the first time may have been executed.
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar

import aiohttp
import msgspec
from yarl import URL

from origin.cluster.answering import Answering
from origin.cluster.questions import Found, MayHaveMoved, OfNode, Question, Shown
from origin.cluster.view import ClusterView, SeenNodes, url_of
from origin.config import OriginConfig
from origin.freshness import no_owner
from protocol.errors import ProtocolError
from protocol.names import ACCESS_KEY

CONNECT_SECS = 2.0
ROUND_SECS = 1.0
# A node that has stopped must not hold up requests and questions to the others.
REQUESTS_PER_NODE = 5000
QUESTIONS_PER_NODE = 100
ASK_PATH = "/cluster/internal/ask"

A = TypeVar("A", bound=Found)


class Peers:
    def __init__(self, config: OriginConfig, view: ClusterView, answering: Answering) -> None:
        self._view = view
        self._answering = answering
        self._answer_secs = config.cluster.answer_secs
        access_key = config.server.access_key
        self._round: asyncio.Task[bool] | None = None
        self._one_round = asyncio.Lock()
        self.seen = SeenNodes()
        self.headers = {ACCESS_KEY: access_key} if access_key else {}
        # Live reads hold their connections for long: nothing else waits for these.
        self.live = _session(0)
        self.requests = _session(REQUESTS_PER_NODE)
        self._questions = _session(QUESTIONS_PER_NODE)

    async def close(self) -> None:
        for session in (self.live, self.requests, self._questions):
            await session.close()

    async def ask(self, shard: int, question: Question, kind: type[A]) -> A:
        """Raises `no_owner` if the owner of the shard gives no answer."""
        if self._view.owned(shard) is not None:
            found = await self._answering.answer(question)
            assert isinstance(found, kind)
            return found
        return await self._ask_at(url_of(self._view.map, shard), question, kind)

    async def ask_all(self, make: Callable[[list[int]], OfNode], kind: type[A]) -> list[A]:
        """Ask every node about all its shards, one question for each node."""
        by_node: dict[str, list[int]] = {}
        for number, owner in enumerate(self._view.map.owners):
            if owner is None:
                raise no_owner()
            by_node.setdefault(owner, []).append(number)
        questions = [(shards[0], make(shards)) for shards in by_node.values()]
        return await asyncio.gather(*(self.ask(n, question, kind) for n, question in questions))

    def remember(self) -> None:
        """The nodes of the map; often enough that none comes and goes in between."""
        self.seen.see(self._view.map.nodes, asyncio.get_running_loop().time())

    async def have_moved(self) -> bool:
        """Whether another node may own our shards since this was asked, or did before. One that
        gives no answer may, be it that it left hours ago, and so may one that we never heard of if
        we know no other. Those who ask before a round begins share it."""
        if self._round is None:
            self._round = asyncio.create_task(self._ask_round(), name="who has moved")
        return await asyncio.shield(self._round)

    async def _ask_round(self) -> bool:
        async with self._one_round:
            self._round = None  # whoever comes from now on needs the next one
            self.remember()
            version, others = self._view.map.version, self.seen.urls
            others.pop(self._view.node_id, None)
            if not others:
                return True
            try:
                async with asyncio.timeout(ROUND_SECS):
                    answers = (
                        self._ask_at(url, MayHaveMoved(id_, version), Shown)
                        for id_, url in others.items()
                    )
                    return any(each.value for each in await asyncio.gather(*answers))
            except (TimeoutError, ProtocolError):
                return True

    async def _ask_at(self, url: str | None, question: Question, kind: type[A]) -> A:
        if url is None:
            raise no_owner()
        try:
            async with (
                asyncio.timeout(self._answer_secs),
                self._questions.post(
                    URL(url + ASK_PATH),
                    data=msgspec.json.encode(question),
                    headers=self.headers,
                    timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECS),
                    allow_redirects=False,
                ) as answer,
            ):
                if answer.status != 200:
                    raise no_owner()
                return msgspec.json.decode(await answer.read(), type=kind)
        except (aiohttp.ClientError, TimeoutError, msgspec.MsgspecError):
            raise no_owner() from None


def _session(per_node: int) -> aiohttp.ClientSession:
    """With at most so many connections to each node; 0 is no limit."""
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, limit_per_host=per_node),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
    )
    session._retry_connection = False  # aiohttp would repeat a PUT or DELETE
    return session
