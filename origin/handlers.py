"""Requests parsed by aiohttp: dispatched to routes, with errors turned into replies.

Dispatch uses the raw target, never a decoded or normalised one, so that `%2e%2e` and the like are
handled only in `protocol.paths`.
"""

import logging

from aiohttp import web

from origin.admission import Admission
from origin.calls import Answer, Call, Operations, Refused
from origin.config import OriginConfig
from origin.live import Live
from origin.metrics import Metrics
from origin.staging import storage_problem
from origin.storage.base import DamagedData, Storage, StorageFailed, StorageFull, UnknownStream
from protocol import replies
from protocol.errors import ProtocolError
from protocol.names import BUCKET_PREFIX, METHODS, STREAM_PREFIX
from protocol.paths import Kind, parse_path
from protocol.replies import Headers, Reply, problem
from wire.http import Stamp, preflight, to_response
from wire.requests import unique_headers

log = logging.getLogger("weir.origin")

_TEXT: tuple[str, str] = ("Content-Type", "text/plain; charset=utf-8")


class Handlers:
    def __init__(
        self,
        config: OriginConfig,
        operations: Operations,
        storage: Storage,
        live: Live,
        metrics: Metrics,
        stamp: Stamp,
        admission: Admission,
    ) -> None:
        self._operations = operations
        self._storage = storage
        self._live = live
        self._metrics = metrics
        self._stamp = stamp
        self._admission = admission
        self._rename = config.http.rename
        self._max_path_bytes = config.limits.max_path_bytes

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        stamp = self._stamp.headers(request.headers.get("Origin"))
        try:
            answer = await self._answer(request, stamp)
        except ProtocolError as error:
            answer = replies.problem_of(error)
        except (StorageFailed, StorageFull) as error:
            answer = storage_problem(error)
        except DamagedData as error:
            log.error("refusing to serve damaged data: %s", error)
            answer = storage_problem(error)
        except UnknownStream:
            answer = replies.not_found()  # removed while it was read
        except Refused as refused:
            answer = refused.reply
        if isinstance(answer, Reply):
            self._metrics.count(request.method, answer.status)
            return to_response(answer, stamp)
        return answer

    async def _answer(self, request: web.BaseRequest, stamp: Headers) -> Answer:
        method = request.method
        path, _, query = request.raw_path.partition("?")
        path = self._rename(path)
        of_streams = path.startswith((STREAM_PREFIX, BUCKET_PREFIX))
        self._admission.check(method, request.headers, needs_key=of_streams)
        if not of_streams:
            return self._service_page(method, path)
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
        answer = await operations[method](Call(place, query, headers, request, stamp))
        if method == "HEAD" and isinstance(answer, Reply):
            return Reply(answer.status, answer.headers)
        return answer

    def _service_page(self, method: str, path: str) -> Reply:
        if path not in ("/healthz", "/readyz", "/metrics"):
            return problem(404, "not-found", f"Streams are below {STREAM_PREFIX}.")
        if method not in ("GET", "HEAD"):
            return problem(405, "method-not-allowed", "Use GET.", (("Allow", "GET, HEAD"),))
        if path == "/healthz":
            return Reply(200, (_TEXT, replies.NO_STORE), b"ok")
        if path == "/metrics":
            return Reply(
                200, (self._metrics.content_type, replies.NO_STORE), self._metrics.render()
            )
        if self._live.draining or self._storage.failure is not None:
            return problem(503, "not-ready", "The server does not accept writes.")
        return Reply(200, (_TEXT, replies.NO_STORE), b"ready")
