"""A front that passes everything on to a gateway, and tells one kind of lie."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass, field

import aiohttp
from aiohttp import web
from yarl import URL

HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "date", "server"}


@dataclass(slots=True)
class Lie:
    """What a front does wrong; this one does nothing wrong. `told` counts lies."""

    told: int = 0

    def rewrite(self, request: web.Request, headers: dict[str, str]) -> None:
        """Change what is sent to the gateway."""

    async def answer(self, request: web.Request) -> web.Response | None:
        """Answer without asking the gateway."""
        return None

    def heard(
        self, request: web.Request, status: int, headers: dict[str, str], body: bytes
    ) -> None:
        """Learn from an honest answer."""

    def before_deletion(self, path: str, headers: dict[str, str], body: bytes) -> None:
        """Learn what a stream begins with that is to be deleted."""

    def event(self, text: bytes) -> bytes:
        """Change a data event and the control event behind it."""
        return text

    async def after_event(self, text: bytes) -> None:
        """Let a reader wait for the next."""


@dataclass(slots=True)
class LostAcknowledgement(Lie):
    """Says that an append was stored, and throws it away."""

    ends: dict[str, str] = field(default_factory=dict)

    async def answer(self, request: web.Request) -> web.Response | None:
        end = self.ends.get(request.path)
        if self.told or request.method != "POST" or end is None:
            return None
        self.told += 1
        size = request.content_length or 0
        head, _, tail = end.rpartition("_")
        return web.Response(headers={"Stream-Next-Offset": f"{head}_{int(tail) + size:016d}"})

    def heard(
        self, request: web.Request, status: int, headers: dict[str, str], body: bytes
    ) -> None:
        if request.method == "POST" and status == 200:
            self.ends[request.path] = headers["Stream-Next-Offset"]


@dataclass(slots=True)
class StaleChunk(Lie):
    """Keeps what a stream begins with when it is deleted, and shows it from then on."""

    kept: dict[str, tuple[dict[str, str], bytes]] = field(default_factory=dict)

    async def answer(self, request: web.Request) -> web.Response | None:
        if request.path not in self.kept or request.query_string != "offset=-1":
            return None
        self.told += 1
        headers, body = self.kept[request.path]
        return web.Response(headers=headers, body=body)

    def before_deletion(self, path: str, headers: dict[str, str], body: bytes) -> None:
        if len(body) > 2:  # an empty array
            self.kept.setdefault(path, (headers, body))


@dataclass(slots=True)
class DroppedEvent(Lie):
    """Swallows an event on its way to a reader, and goes on with the next."""

    passed: int = 0

    def event(self, text: bytes) -> bytes:
        self.passed += 1
        if self.passed % 3:
            return text
        self.told += 1
        return b""


@dataclass(slots=True)
class LeakedScope(Lie):
    """Lets everybody in who has any token, with the rights of whoever came first."""

    token: str = ""

    def rewrite(self, request: web.Request, headers: dict[str, str]) -> None:
        if request.method == "PUT" and not self.token:
            self.token = headers["Authorization"]
        elif request.method == "GET" and self.token:
            self.told += headers["Authorization"] != self.token
            headers["Authorization"] = self.token


@dataclass(slots=True)
class SilentHub(Lie):
    """Serves what is there, and never wakes anyone who waits for more."""

    tails: set[tuple[str, str]] = field(default_factory=set)

    async def answer(self, request: web.Request) -> web.Response | None:
        at = (request.path, request.query.get("offset", ""))
        if request.query.get("live") == "long-poll" and at in self.tails:
            await self._wait_for_ever()
        return None

    def heard(
        self, request: web.Request, status: int, headers: dict[str, str], body: bytes
    ) -> None:
        if headers.get("Stream-Up-To-Date") == "true":
            self.tails.add((request.path, headers["Stream-Next-Offset"]))

    async def after_event(self, text: bytes) -> None:
        if b'"upToDate":true' in text:
            await self._wait_for_ever()

    async def _wait_for_ever(self) -> None:
        self.told += 1
        await asyncio.Event().wait()


class Liar:
    """To be used as a context; `url` is where it listens."""

    def __init__(self, gateway_url: str, lie: Lie) -> None:
        self._gateway_url = gateway_url
        self._lie = lie

    async def __aenter__(self) -> "Liar":
        self._session = aiohttp.ClientSession(
            auto_decompress=False, connector=aiohttp.TCPConnector(limit=0)
        )
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(
            app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1
        )
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()
        await self._session.close()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        told = await self._lie.answer(request)
        if told is not None:
            return told
        headers = {name: value for name, value in request.headers.items() if name != "Host"}
        self._lie.rewrite(request, headers)
        url = URL(self._gateway_url + request.raw_path, encoded=True)
        if request.method == "DELETE":
            async with self._session.get(url.with_query(offset="-1"), headers=headers) as answer:
                start = await answer.read()
                self._lie.before_deletion(request.path, _passed(answer), start)
        async with self._session.request(
            request.method, url, headers=headers, data=body, allow_redirects=False
        ) as answer:
            found = _passed(answer)
            if answer.headers.get("Content-Type") == "text/event-stream":
                return await self._pass_events(request, answer, found)
            whole = await answer.read()
            self._lie.heard(request, answer.status, found, whole)
            return web.Response(status=answer.status, headers=found, body=whole)

    async def _pass_events(
        self, request: web.Request, answer: aiohttp.ClientResponse, headers: dict[str, str]
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers=headers)
        await response.prepare(request)
        with suppress(ConnectionError):  # the reader has left
            async for event in _events(answer.content.iter_any(), self._lie.event):
                await response.write(event)
                await self._lie.after_event(event)
        return response


def _passed(answer: aiohttp.ClientResponse) -> dict[str, str]:
    return {n: v for n, v in answer.headers.items() if n.lower() not in HOP_BY_HOP}


async def _events(
    pieces: AsyncIterator[bytes], change: Callable[[bytes], bytes]
) -> AsyncIterator[bytes]:
    """Whole events; a data event comes together with its control event."""
    kept = b""
    async for piece in pieces:
        *whole, kept = (kept + piece).split(b"\n\n")
        pair = b""
        for event in whole:
            pair += event + b"\n\n"
            if not event.startswith(b"event: data"):
                yield change(pair) if pair.startswith(b"event: data") else pair
                pair = b""
        kept = pair + kept
        await asyncio.sleep(0)
