"""What only a node of a cluster serves: its map and status, readiness, and questions of its peers.

Map, status and readiness say nothing about streams, so they need no key. Questions do; gateways do
not pass them on, because they serve only paths of streams and buckets.
"""

import asyncio
from collections.abc import Mapping

import msgspec
from aiohttp import web

from origin.calls import Answer
from origin.cluster.answering import Answering
from origin.cluster.forwarding import Forwarding
from origin.cluster.peers import ASK_PATH, Peers
from origin.cluster.questions import Question
from origin.cluster.view import ClusterView
from origin.config import OriginConfig
from origin.freshness import no_owner
from origin.live import Live
from origin.shards import Elsewhere
from protocol import replies
from protocol.errors import ProtocolError
from protocol.paths import Kind
from protocol.replies import NO_STORE, Headers, Reply, problem
from wire.requests import read_body

QUESTION_BYTES = 4 * 1024 * 1024  # more than a thousand names
INTERNAL_PREFIX = "/cluster/internal/"
_READY: Headers = (("Content-Type", "text/plain; charset=utf-8"), NO_STORE)


class ClusterRoutes:
    def __init__(
        self,
        config: OriginConfig,
        view: ClusterView,
        answering: Answering,
        forwarding: Forwarding,
        peers: Peers,
        live: Live,
    ) -> None:
        self._limits = config.limits
        self._answer_secs = config.cluster.answer_secs
        self._view = view
        self._answering = answering
        self._forwarding = forwarding
        self._peers = peers
        self._live = live
        self._pages = {
            "/cluster/map": self._map,
            "/cluster/status": lambda: replies.json_reply(200, view.status()),
            "/readyz": self._is_ready,
            "/readyz/local": self._is_ready,
            "/readyz/cluster": self._is_cluster_ready,
        }

    def needs_key(self, path: str) -> bool:
        return path.startswith(INTERNAL_PREFIX)

    def can_forward(self, headers: Mapping[str, str], to: Elsewhere) -> bool:
        return self._forwarding.can_forward(headers, to)

    async def have_moved(self) -> bool:
        return await self._peers.have_moved()

    async def forward(
        self,
        request: web.BaseRequest,
        kind: Kind,
        headers: Mapping[str, str],
        to: Elsewhere,
        waited_secs: float,
    ) -> Answer:
        return await self._forwarding.forward(request, kind, headers, to, waited_secs)

    async def answer(self, request: web.BaseRequest, path: str) -> Reply | None:
        """None if there is no such page."""
        if path == ASK_PATH:
            return await self._ask(request)
        page = self._pages.get(path)
        if page is None:
            return None
        if request.method not in ("GET", "HEAD"):
            return problem(405, "method-not-allowed", "Use GET.", (("Allow", "GET, HEAD"),))
        return page()

    async def _ask(self, request: web.BaseRequest) -> Reply:
        if request.method != "POST":
            return problem(405, "method-not-allowed", "Use POST.", (("Allow", "POST"),))
        body = await read_body(request, {}, self._limits, max_bytes=QUESTION_BYTES)
        try:
            question = msgspec.json.decode(body, type=Question)
        except msgspec.MsgspecError:
            raise ProtocolError(400, "malformed-body", "The body is malformed.") from None
        try:
            async with asyncio.timeout(self._answer_secs):
                return replies.json_reply(200, await self._answering.answer(question))
        except TimeoutError:
            raise no_owner() from None

    def _map(self) -> Reply:
        return replies.json_reply(200, self._view.map)

    def _is_ready(self) -> Reply:
        reason = "It is stopping." if self._live.draining else self._view.unready()
        if reason is not None:
            return problem(503, "not-ready", f"This node is not ready: {reason}")
        return Reply(200, _READY, b"ready")

    def _is_cluster_ready(self) -> Reply:
        found = self._view.map
        without = [n for n, owner in enumerate(found.owners) if owner not in found.nodes]
        if without:
            return problem(503, "not-ready", f"No live node owns the shards {without}.")
        return self._is_ready()
