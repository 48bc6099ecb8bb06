"""Requests parsed by aiohttp: dispatched to routes, with errors turned into replies.

Dispatch uses the raw target, never a decoded or normalised one, so that `%2e%2e` and the like are
handled only in `protocol.paths`.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Protocol

from aiohttp import web

from origin.admission import Admission
from origin.calls import Answer, Call, Operation, Operations, Refused
from origin.config import OriginConfig
from origin.freshness import checked, no_owner
from origin.live import Live
from origin.metrics import Metrics
from origin.outcomes import Deadline, slow_storage, unknown_outcome
from origin.shard import Shard
from origin.shards import Elsewhere, Shards
from origin.staging import storage_problem
from origin.storage.base import DamagedData, StorageFailed, StorageFull, UnknownStream
from protocol import replies
from protocol.errors import ProtocolError
from protocol.names import BUCKET_PREFIX, METHODS, STREAM_PREFIX
from protocol.paths import Kind, Resource, parse_path
from protocol.replies import Headers, Reply, problem
from wire.http import Stamp, preflight, to_response
from wire.requests import unique_headers

log = logging.getLogger("weir.origin")

READS = ("GET", "HEAD")
MOVING_SECS = 1.5
LOOK_AGAIN_SECS = 0.05
_TEXT: tuple[str, str] = ("Content-Type", "text/plain; charset=utf-8")


class ClusterSide(Protocol):
    """What only a node of a cluster does."""

    def needs_key(self, path: str) -> bool: ...

    async def answer(self, request: web.BaseRequest, path: str) -> Reply | None:
        """A page that is about no stream; None if there is none."""

    def can_forward(self, headers: Mapping[str, str], to: Elsewhere) -> bool:
        """Whether there is an owner, and the request has not passed too many nodes."""

    async def have_moved(self) -> bool:
        """Whether shards of this node, which has no lease, may be another's."""

    async def forward(
        self,
        request: web.BaseRequest,
        kind: Kind,
        headers: Mapping[str, str],
        to: Elsewhere,
        waited_secs: float,
    ) -> Answer:
        """Let the owner of another shard answer."""


class Handlers:
    def __init__(
        self,
        config: OriginConfig,
        operations: Operations,
        shards: Shards,
        live: Live,
        metrics: Metrics,
        stamp: Stamp,
        admission: Admission,
        cluster: ClusterSide | None = None,
    ) -> None:
        self._cluster = cluster
        self._operations = operations
        self._shards = shards
        self._live = live
        self._metrics = metrics
        self._stamp = stamp
        self._admission = admission
        self._rename = config.http.rename
        self._max_path_bytes = config.limits.max_path_bytes
        self._answer_secs = config.answer_secs

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        stamp = self._stamp.headers(request.headers.get("Origin"))
        try:
            answer = await self._answer(request, stamp)
        except ProtocolError as error:
            answer = replies.problem_of(error)
        if isinstance(answer, Reply):
            self._metrics.count(request.method, answer.status)
            return to_response(answer, stamp)
        return answer

    async def _answer(self, request: web.BaseRequest, stamp: Headers) -> Answer:
        method = request.method
        path, _, query = request.raw_path.partition("?")
        path = self._rename(path)
        of_streams = path.startswith((STREAM_PREFIX, BUCKET_PREFIX))
        cluster = self._cluster
        needs_key = of_streams or (cluster is not None and cluster.needs_key(path))
        self._admission.check(method, request.headers, needs_key=needs_key)
        if not of_streams:
            page = None if cluster is None else await cluster.answer(request, path)
            return self._service_page(method, path) if page is None else page
        if method == "OPTIONS":
            return preflight()
        if method not in self._operations[Kind.STREAM]:
            return problem(405, "method-not-allowed", f"Use {METHODS}.", (("Allow", METHODS),))
        headers = unique_headers(request)
        place = parse_path(path, self._max_path_bytes)
        assert place is not None
        operations = self._operations[place.kind]
        if method not in operations:
            allowed = ", ".join((*operations, "OPTIONS"))
            return problem(405, "method-not-allowed", f"Use {allowed}.", (("Allow", allowed),))
        clock = asyncio.get_running_loop().time
        began = clock()
        shard = await self._find(method, place, headers)
        if isinstance(shard, Elsewhere):
            if cluster is None:
                raise no_owner()
            return await cluster.forward(request, place.kind, headers, shard, clock() - began)
        if method == "GET" and not shard.fresh():
            # Bytes below the tail never change, but whoever owns them now may have deleted them.
            if cluster is not None and await cluster.have_moved():
                raise no_owner()
        secs = self._answer_secs
        deadline = Deadline(None if secs is None else secs - (clock() - began))
        call = Call(place, query, headers, request, stamp, shard, deadline)
        answer = await self._serve(operations[method], call)
        if isinstance(answer, Reply):
            answer = checked(shard, method, answer)
            if method == "HEAD":
                return Reply(answer.status, answer.headers)
        return answer

    async def _find(
        self, method: str, place: Resource, headers: Mapping[str, str]
    ) -> Shard | Elsewhere:
        """A shard that is moving is here or elsewhere in a moment: a pause, not an error."""
        loop, cluster = asyncio.get_running_loop(), self._cluster
        until = loop.time() + MOVING_SECS
        while True:
            try:
                return self._locate(method, place, headers)
            except Elsewhere as elsewhere:
                if cluster is None or cluster.can_forward(headers, elsewhere):
                    return elsewhere
                if loop.time() >= until:
                    return elsewhere
            await asyncio.sleep(LOOK_AGAIN_SECS)

    def _locate(self, method: str, place: Resource, headers: Mapping[str, str]) -> Shard:
        """The home shard of a stream decides where it is created. A request that came by an alias
        is for the shard that its home named."""
        if headers.get("weir-hop") == "2":
            number = headers.get("weir-shard", "")
            if not number.isdecimal():
                raise ProtocolError(400, "invalid-header", "Weir-Shard must be a number.")
            return self._shards.at(int(number))
        if method == "PUT" and place.kind is Kind.STREAM:
            return self._shards.home(place.name)
        return self._shards.of(place.name)

    async def _serve(self, operation: Operation, call: Call) -> Answer:
        """The answer of a shard, with its errors as replies."""
        try:
            with call.shard.awaited(call.deadline):
                async with call.deadline:
                    return await operation(call)
        except ProtocolError as error:
            return replies.problem_of(error)
        except (StorageFailed, StorageFull) as error:
            return storage_problem(error)
        except DamagedData as error:
            log.error("refusing to serve damaged data: %s", error)
            return storage_problem(error)
        except UnknownStream:
            return replies.not_found()  # removed while it was read
        except Refused as refused:
            return refused.reply
        except TimeoutError:
            if not call.deadline.has_passed:
                raise
            if call.method not in READS:  # also if the shard is lost: what was staged may be stored
                raise unknown_outcome() from None
            raise (no_owner() if call.shard.is_lost else slow_storage()) from None

    def _service_page(self, method: str, path: str) -> Reply:
        if path not in ("/healthz", "/readyz", "/metrics"):
            return problem(404, "not-found", f"Streams are below {STREAM_PREFIX}.")
        if method not in READS:
            return problem(405, "method-not-allowed", "Use GET.", (("Allow", "GET, HEAD"),))
        if path == "/healthz":
            return Reply(200, (_TEXT, replies.NO_STORE), b"ok")
        if path == "/metrics":
            return Reply(
                200, (self._metrics.content_type, replies.NO_STORE), self._metrics.render()
            )
        failed = any(shard.storage.failure is not None for shard in self._shards.all())
        if self._live.draining or failed:
            return problem(503, "not-ready", "The server does not accept writes.")
        return Reply(200, (_TEXT, replies.NO_STORE), b"ready")
