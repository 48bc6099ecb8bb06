"""A gateway's parts without sockets, on the test's own loop: exchanges that keep what was written,
an origin that the test answers by hand, a log that keeps its records.

    parts = make_parts()
    asking = parts.ask("a?offset=-1")
    (await parts.upstream.next()).answer(200, chunk(0, 5), b"hello")
    assert (await asking.exchange.answered()).body == b"hello"
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from gateway.accesslog import AccessLog
from gateway.answers import Answers
from gateway.asking import UpstreamError, UpstreamRequest, UpstreamResponse
from gateway.cache import Cache
from gateway.calls import Call
from gateway.cdn import PurgeHook
from gateway.config import (
    AuthConfig,
    CacheConfig,
    CdnConfig,
    GatewayConfig,
    ServingConfig,
    UpstreamConfig,
)
from gateway.door import Door
from gateway.entrance import Entrance
from gateway.hubs import Hubs, make_tails
from gateway.metrics import Metrics
from gateway.notices import SilentNotices
from gateway.passes import Passes
from gateway.purges import Purges
from gateway.rediscache import RedisCache
from gateway.slots import Payers
from gateway.spool import Spools
from gateway.store import Holdings, Store
from gateway.streams import Streams
from gateway.upstream import Upstream
from gateway.watch import Watch
from protocol.accesslog import AccessRecord
from protocol.paths import PREFIX
from tests.helpers.offsets import nameless
from tests.helpers.rawhttp import Response
from wire.exchange import Exchange
from wire.heads import make_head

MakeParts = Callable[..., "Parts"]
WAIT_S = 60.0
INCARNATION = "00112233445566aa"
OTHER_INCARNATION = "ffeeddccbbaa9988"


async def soon(condition: Callable[[], bool]) -> None:
    """Let the loop run until something holds."""
    async with asyncio.timeout(WAIT_S):
        while not condition():  # noqa: ASYNC110 (many conditions have no event)
            await asyncio.sleep(0)


async def quiet(rounds: int = 20) -> None:
    """Let everything run that can run without news from outside."""
    for _ in range(rounds):
        await asyncio.sleep(0)


# -- the origin ----------------------------------------------------------------------------------


def chunk(
    start: int,
    end: int,
    *,
    tail: bool = False,
    closed: bool = False,
    incarnation: str = INCARNATION,
    kind: str = "text/plain",
    **more: str,
) -> dict[str, str]:
    """Headers of a catch-up answer as our own origin sends them."""
    never = closed or not tail
    control = "public, max-age=60, immutable" if never else "public, max-age=0, must-revalidate"
    headers = {
        "content-type": kind,
        "stream-next-offset": nameless(end),
        "etag": f'"{incarnation}:{start}:{end}{":c" if closed else ""}"',
        "cache-control": control,
    }
    headers |= {"stream-up-to-date": "true"} if tail or closed else {}
    headers |= {"stream-closed": "true"} if closed else {}
    return headers | {name.replace("_", "-"): value for name, value in more.items()}


@dataclass(eq=False)
class Asked:
    """One request at the origin, and the way to answer it."""

    request: UpstreamRequest
    live: bool
    future: asyncio.Future[UpstreamResponse]

    @property
    def target(self) -> str:
        return self.request.target

    def answer(self, status: int, headers: Mapping[str, str] = {}, body: bytes = b"") -> None:
        self.future.set_result(UpstreamResponse(status, dict(headers), body))

    def fail(self, error: Exception | None = None) -> None:
        self.future.set_exception(error or UpstreamError(502, "origin-unreachable", "away"))


class HandOrigin:
    """Stands for `Upstream`: requests wait in `open` until the test answers them."""

    is_known = True

    def __init__(self) -> None:
        self.until: float | None = None
        self.asked: list[Asked] = []
        self._unseen: list[Asked] = []  # those that `next` has not given out

    def deadline(self) -> float | None:
        return self.until

    def late(self) -> UpstreamError:
        return UpstreamError(503, "origin-timeout", "late")

    async def fetch(
        self,
        request: UpstreamRequest,
        *,
        live: bool = False,
        max_bytes: int | None = None,
        payers: Payers | None = None,
        on_departure: Callable[[], None] | None = None,
        on_begun: Callable[[], None] | None = None,
    ) -> UpstreamResponse:
        if on_departure is not None:
            on_departure()
        asked = Asked(request, live, asyncio.get_running_loop().create_future())
        self.asked.append(asked)
        self._unseen.append(asked)
        return await asked.future

    @property
    def open(self) -> list[Asked]:
        return [asked for asked in self.asked if not asked.future.done()]

    def unseen(self, method: str | None = None) -> list[Asked]:
        return [asked for asked in self._unseen if method in (None, asked.request.method)]

    async def next(self, method: str | None = None) -> Asked:
        """The next request that comes."""
        await soon(lambda: self.unseen(method) != [])
        asked = self.unseen(method)[0]
        self._unseen.remove(asked)
        return asked


# -- the client ----------------------------------------------------------------------------------


class KeptExchange(Exchange):
    """An exchange that keeps everything; `leave` is the client going away."""

    peer = "192.0.2.1"

    def __init__(self) -> None:
        self.data = b""
        self.finished = 0
        self.aborted = False
        self.gone = False
        self.unread = 0  # what the client has not taken
        self.is_full = False
        self.room = asyncio.Event()
        self.room.set()
        self.room_bytes: int | None = None  # that it takes before it is full, None for any number
        self._gone: Callable[[], None] | None = None
        self._writable: Callable[[], None] | None = None

    def send(self, parts: Sequence[bytes]) -> None:
        self.data += b"".join(parts)
        self._gone = None
        self.finished += 1

    def write(self, data: bytes | memoryview) -> None:
        self.data += data
        if self.room_bytes is not None:
            self.unread += len(data)
            self.is_full = self.unread > self.room_bytes
            if self.is_full:
                self.room.clear()

    def write_last(self, data: bytes) -> None:
        self.write(data)
        self.finish()

    def write_now(self, data: bytes | memoryview) -> int:
        return 0

    def finish(self, last: bytes = b"") -> None:
        self.send((last,))

    def abort(self) -> None:
        self.aborted = True
        self.leave()

    def backlog(self) -> int:
        return self.unread

    async def drain(self) -> None:
        await self.room.wait()
        if self.gone:
            raise ConnectionResetError

    def when_writable(self, callback: Callable[[], None]) -> None:
        self._writable = callback

    def take(self) -> None:
        """The client takes what there is."""
        self.unread = 0
        self.is_full = False
        self.room.set()
        writable, self._writable = self._writable, None
        if writable is not None:
            writable()

    def when_gone(self, callback: Callable[[], None]) -> None:
        self._gone = callback

    def leave(self) -> None:
        self.gone = True
        self.room.set()
        gone, self._gone = self._gone, None
        if gone is not None:
            gone()

    @property
    def watched(self) -> bool:
        """Whether anyone would be told that the client has gone."""
        return self._gone is not None

    @property
    def response(self) -> Response:
        """The first whole response with a length."""
        head, end, body = self.data.partition(b"\r\n\r\n")
        assert end, self.data
        first, *lines = head.decode("latin-1").split("\r\n")
        pairs = [line.partition(":") for line in lines]
        fields = tuple((name.lower(), value.strip()) for name, _, value in pairs)
        return Response(int(first.split(" ")[1]), fields, body)

    async def answered(self) -> Response:
        await soon(lambda: self.finished > 0)
        return self.response


class KeptLog(AccessLog):
    def __init__(self) -> None:
        self.records: list[AccessRecord] = []
        self.lines: list[bytes] = []

    def write(self, record: AccessRecord) -> None:
        self.records.append(record)

    def write_line(self, time_ms: int, line: bytes) -> None:
        self.lines.append(line)


class DictShared:
    """Stands for `RedisCache`: generations and chunks in two dicts."""

    def __init__(self) -> None:
        self.generations: dict[str, int] = {}
        self.values: dict[tuple[str, str, str], bytes] = {}
        self.may_purge = asyncio.Event()
        self.may_purge.set()

    def _generation(self, stream: str) -> str:
        return str(self.generations.setdefault(stream, 1))

    async def get(self, stream: str, offset: str) -> tuple[str | None, bytes | None]:
        generation = self._generation(stream)
        return generation, self.values.get((stream, generation, offset))

    def put_soon(
        self, stream: str, generation: str | None, offset: str, value: bytes, ttl_s: float
    ) -> bool:
        assert generation is not None and ttl_s > 0
        self.values[stream, generation, offset] = value
        return True

    async def purge(self, stream: str) -> bool:
        await self.may_purge.wait()
        self.generations[stream] = self.generations.get(stream, 1) + 1
        return True


# -- all of it -----------------------------------------------------------------------------------


@dataclass(eq=False)
class Parts:
    config: GatewayConfig
    upstream: HandOrigin
    holdings: Holdings
    purges: Purges
    cache: Cache
    hubs: Hubs
    passes: Passes
    entrance: Entrance
    log: KeptLog
    answers: Answers
    notices: SilentNotices

    @property
    def store(self) -> Store:
        return self.holdings.store

    @property
    def streams(self) -> Streams:
        return self.holdings.streams

    @property
    def door(self) -> Door:
        return self.entrance.door

    def ask(
        self,
        target: str,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        exchange: KeptExchange | None = None,
    ) -> "Asking":
        """A request at the door; `target` is a path, or the rest after the prefix."""
        path, _, query = (target if target.startswith("/") else PREFIX + target).partition("?")
        kept = exchange or KeptExchange()
        head = make_head(method, path, query, {"host": "weir.test", **(headers or {})}, len(body))
        call = self.door.call(head, body, kept)
        self.door.begin(call)
        return Asking(call, kept)

    async def fill(
        self, target: str, headers: Mapping[str, str], body: bytes, status: int = 200
    ) -> Response:
        """A read that the origin answers so."""
        asking = self.ask(target)
        (await self.upstream.next("GET")).answer(status, headers, body)
        return await asking.exchange.answered()

    async def close(self) -> None:
        self.hubs.drain()
        await self.answers.settle(0)
        await self.hubs.settle(0)
        await self.cache.close()
        await self.purges.close()
        await quiet()


@dataclass(eq=False)
class Asking:
    call: Call
    exchange: KeptExchange

    @property
    def response(self) -> Response:
        return self.exchange.response


def make_parts(
    *,
    shared: DictShared | None = None,
    clock: Callable[[], float] | None = None,
    **sections: Mapping[str, Any],
) -> Parts:
    """As `Gateway` puts them together, without tokens, Redis and sockets."""
    config = GatewayConfig(
        gateway=ServingConfig(**sections.get("gateway", {})),
        upstream=UpstreamConfig(**sections.get("upstream", {})),
        auth=AuthConfig(**{"mode": "off", **sections.get("auth", {})}),
        cache=CacheConfig(**sections.get("cache", {})),
        cdn=CdnConfig(**sections.get("cdn", {})),
    )
    origin, log, metrics = HandOrigin(), KeptLog(), Metrics()
    upstream, holdings, spools = cast(Upstream, origin), Holdings(config.cache), Spools(config)
    timed: dict[str, Any] = {} if clock is None else {"clock": clock}
    notices, redis = SilentNotices(), cast(RedisCache | None, shared)
    purges = Purges(holdings, redis, notices, PurgeHook(config.cdn))
    tails = make_tails(config)
    cache = Cache(
        config,
        upstream,
        holdings,
        purges,
        redis,
        tails.followed_to,
        **timed,
    )
    answers = Answers(config, log, metrics, spools, "test", 0, **timed)
    passes = Passes(config, upstream, holdings.streams, purges, answers, spools)
    hubs = Hubs(config, tails, upstream, holdings, purges, cache, passes, answers, Watch(None))
    entrance = Entrance(config, None, upstream, cache, hubs, passes, answers, id_prefix="t-")
    return Parts(
        config, origin, holdings, purges, cache, hubs, passes, entrance, log, answers, notices
    )
