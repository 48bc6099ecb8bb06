"""The admin port: metrics, health and readiness, apart from the port that clients reach.

Every worker listens on it, so the port survives the death of any worker. The worker that accepts
a request queries the others over sockets in a private shared folder. Workers that do not respond
in time are left out, which shows in `weir_gateway_workers_up`.
"""

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec
from aiohttp import web

from gateway.config import ServingConfig
from gateway.console.figures import Figures, count_up
from gateway.exposition import gauge_text, merge_metrics
from gateway.metrics import Metrics
from gateway.streams import Streams
from protocol.replies import NO_STORE, Reply, problem
from wire.exchange import Exchange
from wire.front import FrontServer
from wire.heads import Head
from wire.http import Refusals, Stamp, to_response
from wire.listening import Listener
from wire.metrics import ServiceMetrics

log = logging.getLogger("weir.gateway")

ASK_SECS = 1.0
RECENT_STREAMS = 1000  # of each worker
MAX_STATUS_BYTES = 8 * 1024 * 1024
STOP_SECS = 2.0
WITH_METRICS = b"metrics\n"
WITHOUT_METRICS = b"ready\n"
WITH_STREAMS = b"streams\n"
WITH_FIGURES = b"figures\n"

_TEXT: tuple[str, str] = ("Content-Type", "text/plain; charset=utf-8")
_PAGE: tuple[tuple[str, str], ...] = (
    ("Content-Type", "text/html; charset=utf-8"),
    ("Content-Security-Policy", "default-src 'none'"),
)
_PATHS = ("/metrics", "/healthz", "/readyz")
_LINKS = "".join(f'<li><a href="{path}">{path}</a></li>' for path in _PATHS)
_INDEX = f"<!doctype html><title>Weir gateway</title><h1>Weir gateway</h1><ul>{_LINKS}</ul>"


class Served(Protocol):
    """What the gateway reports about itself."""

    @property
    def ready(self) -> bool: ...
    @property
    def metrics(self) -> ServiceMetrics: ...
    @property
    def overview(self) -> "Overview": ...


class Status(msgspec.Struct, array_like=True):
    """One worker's report."""

    ready: bool
    metrics: bytes = b""
    streams: list[str] = []
    figures: Figures | None = None


@dataclass(frozen=True, slots=True)
class _Limits:
    """Enough for a few scrapers, and no more."""

    max_header_bytes: int = 8192
    max_body_bytes: int = 8192
    max_connections: int = 100
    header_timeout_secs: float = 5.0
    body_timeout_secs: float = 5.0
    idle_timeout_secs: float = 60.0


class _NoFastPath:
    def hit(self, head: Head, peer: str) -> bytes | None:
        return None

    def wants(self, head: Head, here: int) -> bool:
        return False

    def answer(self, head: Head, body: bytes, exchange: Exchange) -> bool:
        return False


class Admin:
    """`run_dir` is the folder shared by several workers; None for a single worker."""

    def __init__(
        self, served: Served, config: ServingConfig, *, worker: int = 0, run_dir: Path | None = None
    ) -> None:
        self._served = served
        self._config = config
        self._worker = worker
        self._run_dir = run_dir
        self._stamp = Stamp(())
        self.port = config.admin_port

    async def start(self) -> None:
        config = self._config
        server = FrontServer(self._handle, _NoFastPath(), _Limits(), Refusals(self._stamp))
        self._own: asyncio.Server | None = None
        if self._run_dir is not None:
            path = socket_path(self._run_dir, self._worker)
            self._own = await asyncio.start_unix_server(self._tell, path)
        self._listener = Listener(server, STOP_SECS)
        address, shared = (config.admin_host, config.admin_port), self._run_dir is not None
        self.port = await self._listener.start("gateway.admin_port", *address, shared=shared)

    async def stop(self) -> None:
        if self._own is not None:
            self._own.close()
        await self._listener.stop()

    # -- pages ---------------------------------------------------------------------------------

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        reply = await self._answer(request.method, request.raw_path.partition("?")[0])
        return to_response(reply, self._stamp.headers(None))

    async def _answer(self, method: str, path: str) -> Reply:
        if path != "/" and path not in _PATHS:
            return problem(404, "not-found", "This port serves /metrics, /healthz and /readyz.")
        if method not in ("GET", "HEAD"):
            return problem(405, "method-not-allowed", "Use GET.", (("Allow", "GET, HEAD"),))
        if path == "/metrics":
            return await self._metrics()
        if path == "/readyz":
            return await self._readiness()
        if path == "/healthz":
            return Reply(200, (_TEXT, NO_STORE), b"ok")
        return Reply(200, (*_PAGE, NO_STORE), _INDEX.encode())

    async def _metrics(self) -> Reply:
        told = await self._ask_all(WITH_METRICS)
        texts = {worker: status.metrics.decode() for worker, status in told.items()}
        merged = texts[0] if self._run_dir is None else merge_metrics(texts)
        count = gauge_text("weir_gateway_workers", "Worker processes.", self._config.workers)
        up = gauge_text("weir_gateway_workers_up", "Workers that responded.", len(told))
        headers = (self._served.metrics.content_type, NO_STORE)
        return Reply(200, headers, (merged + count + up).encode())

    async def _readiness(self) -> Reply:
        """A missing worker does not count: it will be restarted, and the others serve."""
        told = await self._ask_all(WITHOUT_METRICS)
        if not all(status.ready for status in told.values()):
            return problem(503, "not-ready", "The gateway is starting or draining.")
        return Reply(200, (_TEXT, NO_STORE), b"ready")

    # -- workers -------------------------------------------------------------------------------

    def _status(self, question: bytes) -> Status:
        metrics = self._served.metrics.render() if question == WITH_METRICS else b""
        overview = self._served.overview
        streams = overview.recent_streams() if question == WITH_STREAMS else []
        figures = overview.figures() if question == WITH_FIGURES else None
        return Status(self._served.ready, metrics, streams, figures)

    async def _ask_all(self, question: bytes) -> dict[int, Status]:
        """The reports of all workers that respond in time, including this one."""
        run_dir = self._run_dir
        if run_dir is None:
            return {0: self._status(question)}
        told = await ask_others(run_dir, self._config.workers, self._worker, question)
        return dict(sorted((told | {self._worker: self._status(question)}).items()))

    async def _tell(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(ASK_SECS):
                question = await reader.readline()
                writer.write(msgspec.msgpack.encode(self._status(question)))
                await writer.drain()
        except (OSError, ValueError, TimeoutError):
            log.debug("failed to answer another worker's question", exc_info=True)
        finally:
            writer.close()


def socket_path(run_dir: Path, worker: int) -> Path:
    return run_dir / f"status-{worker}.sock"


async def ask_others(run_dir: Path, workers: int, asker: int, question: bytes) -> dict[int, Status]:
    """The reports of all workers but the asker that respond in time."""
    others = [number for number in range(workers) if number != asker]
    paths = [socket_path(run_dir, number) for number in others]
    answers = await asyncio.gather(*(ask(path, question) for path in paths))
    return {number: status for number, status in zip(others, answers, strict=True) if status}


async def ask(path: Path, question: bytes) -> Status | None:
    """Ask one worker; None without a complete response in time."""
    try:
        async with asyncio.timeout(ASK_SECS):
            reader, writer = await asyncio.open_unix_connection(path)
            try:
                writer.write(question)
                return msgspec.msgpack.decode(await _read_all(reader), type=Status)
            finally:
                writer.close()
    except (OSError, TimeoutError, msgspec.DecodeError):
        return None


async def _read_all(reader: asyncio.StreamReader) -> bytes:
    pieces: list[bytes] = []
    size = 0
    while piece := await reader.read(65536):
        pieces.append(piece)
        size += len(piece)
        if size > MAX_STATUS_BYTES:
            raise OSError("a worker's status is too large")
    return b"".join(pieces)


class Overview:
    """The figures and recent streams of all workers of this gateway, for the console."""

    def __init__(
        self, metrics: Metrics, streams: Streams, worker: int, workers: int, run_dir: Path | None
    ) -> None:
        self._metrics = metrics
        self._streams = streams
        self._worker = worker
        self._workers = workers
        self._run_dir = run_dir

    def figures(self) -> Figures:
        return count_up(self._metrics.collect())

    def recent_streams(self) -> list[str]:
        return self._streams.recent(RECENT_STREAMS)

    async def all_figures(self) -> list[Figures]:
        told = await self._ask_others(WITH_FIGURES)
        return [self.figures(), *(status.figures for status in told if status.figures)]

    async def all_streams(self) -> list[str]:
        told = await self._ask_others(WITH_STREAMS)
        return [*self.recent_streams(), *(name for status in told for name in status.streams)]

    async def _ask_others(self, question: bytes) -> Iterable[Status]:
        """The other workers that respond in time."""
        if self._run_dir is None:
            return ()
        return (await ask_others(self._run_dir, self._workers, self._worker, question)).values()
