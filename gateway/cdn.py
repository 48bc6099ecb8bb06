"""CDNs in front of the gateway: tags and lifetimes in responses, purges afterwards.

The purge hook makes one HTTP call per stream, from a configured template. It runs in the
background, retries when the CDN fails, and never delays a writer.
"""

import asyncio
import logging
import re
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any
from urllib.parse import quote

import aiohttp
from yarl import URL

from gateway.config import CdnConfig
from gateway.tasks import cancel
from protocol.paths import PREFIX, stream_url
from protocol.replies import Headers

MAX_TAG_BYTES = 512  # CDNs allow up to 1024
MAX_PENDING = 10_000
CALLS = 4  # at the same time
CALL_TIMEOUT_SECS = 5.0
FIRST_PAUSE_SECS = 0.5
LONGEST_PAUSE_SECS = 30.0
FLUSH_SECS = 3.0

_UNSAFE = re.compile(rb"[^A-Za-z0-9._-]")  # also the tilde: the rest needs no URL encoding
_TRY_AGAIN = frozenset({408, 425, 429})
_NOT_THERE = frozenset({404, 410})

_log = logging.getLogger("weir.gateway")


# -- with an answer ------------------------------------------------------------------------------


def stream_tag(stream: str) -> str:
    """One tag per stream, readable unless it is long. It has the same form in headers, URL paths
    and queries, so caches can compare it directly."""
    name = stream.encode(errors="surrogatepass")
    escaped = _UNSAFE.sub(lambda found: b"~%02X" % found[0][0], name).decode()
    if len(escaped) + len("weir-") <= MAX_TAG_BYTES:
        return f"weir-{escaped}"
    return f"weir~{blake2b(name, digest_size=20).hexdigest()}"  # equal to no readable one


def is_public(patterns: Sequence[str], stream: str) -> bool:
    """Patterns are names or paths of streams, exact or ending in `*`."""
    return any(_matches(pattern.removeprefix(PREFIX), stream) for pattern in patterns)


def _matches(pattern: str, stream: str) -> bool:
    if pattern.endswith("*"):
        return stream.startswith(pattern[:-1])
    return stream == pattern


def cdn_headers(config: CdnConfig, stream: str, control: str) -> Headers:
    """`control` applies to cacheable responses. Every response has a tag, so that a purge finds
    everything the CDN derived from it."""
    headers: Headers = ()
    if config.tag_header:
        headers += ((config.tag_header, stream_tag(stream)),)
    if control:
        headers += (("CDN-Cache-Control", control),)
    return headers


# -- afterwards ----------------------------------------------------------------------------------


def fill_url(template: str, stream: str) -> str:
    """Fill in {tag} and {path}. A path in the query is a value, so it is encoded again."""
    address, mark, query = template.partition("?")
    path = stream_url(stream)
    filled = address.replace("{path}", path) + mark + query.replace("{path}", quote(path, safe=""))
    return filled.replace("{tag}", stream_tag(stream))


def fill_text(template: str, stream: str) -> str:
    """Tags and paths have no quotes, backslashes or line ends: safe in JSON and headers."""
    return template.replace("{path}", stream_url(stream)).replace("{tag}", stream_tag(stream))


class PurgeHook:
    def __init__(self, config: CdnConfig, *, first_pause_s: float = FIRST_PAUSE_SECS) -> None:
        self._config = config
        self._first_pause_s = first_pause_s
        self._queue: asyncio.Queue[str] = asyncio.Queue(MAX_PENDING)
        self._queued: set[str] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self._session: aiohttp.ClientSession | None = None
        self.purged = 0
        self.found_nothing = 0  # of those: the CDN had nothing cached
        self.retried = 0
        self.failed = 0  # abandoned, or left over at the end
        self.dropped = 0  # never tried: too many were waiting

    @property
    def pending(self) -> int:
        return self._queue.qsize()

    async def start(self) -> None:
        if not self._config.purge_url:
            return
        self._session = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=CALL_TIMEOUT_SECS),
            cookie_jar=aiohttp.DummyCookieJar(),
            connector=aiohttp.TCPConnector(limit=CALLS),
        )
        self._tasks = [
            asyncio.create_task(self._work(self._session), name=f"cdn purge {number}")
            for number in range(CALLS)
        ]

    def purge(self, stream: str) -> bool:
        """Schedule a purge; False if there will be none."""
        if not self._tasks:
            return False
        if stream in self._queued:  # not started yet, so it covers this one as well
            return True
        try:
            self._queue.put_nowait(stream)
        except asyncio.QueueFull:
            self.dropped += 1
            return False
        self._queued.add(stream)
        return True

    async def stop(self) -> None:
        """Allow a few seconds for queued purges."""
        try:
            async with asyncio.timeout(FLUSH_SECS):
                await self._queue.join()
        except TimeoutError:
            _log.warning("stopped before all CDN purges were sent")
            self.failed += self._queue.qsize()  # started ones count themselves
        await cancel(*self._tasks)
        self._tasks = []
        if self._session is not None:
            await self._session.close()

    async def _work(self, session: aiohttp.ClientSession) -> None:
        while True:
            stream = await self._queue.get()
            self._queued.discard(stream)
            done = False
            try:
                done = await self._purge(session, stream)
            finally:
                self.purged += done
                self.failed += not done
                self._queue.task_done()

    async def _purge(self, session: aiohttp.ClientSession, stream: str) -> bool:
        pause_s = self._first_pause_s
        for left in range(self._config.purge_retries, -1, -1):
            outcome = await self._call(session, stream)
            if outcome is True:
                return True
            if outcome is False or not left:
                break
            self.retried += 1
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_SECS)
        _log.warning("CDN purge of %s failed", stream_tag(stream))
        return False

    async def _call(self, session: aiohttp.ClientSession, stream: str) -> bool | None:
        """Whether it is done; None when it is worth another try."""
        method = self._config.purge_method
        try:
            request = session.request(method, **self._arguments(stream), allow_redirects=False)
            async with request as response:
                done = judge_status(method, response.status)
                self.found_nothing += done is True and response.status in _NOT_THERE
                return done
        except ValueError:  # the template makes no URL
            return False
        except (aiohttp.ClientError, TimeoutError, OSError):
            return None

    def _arguments(self, stream: str) -> dict[str, Any]:
        config = self._config
        lines = (line.split(": ", 1) for line in config.purge_header)
        return {
            "url": URL(fill_url(config.purge_url, stream), encoded=True),
            "headers": {name: fill_text(value, stream) for name, value in lines},
            "data": fill_text(config.purge_body, stream).encode() or None,
        }


def judge_status(method: str, status: int) -> bool | None:
    """Whether the purge is done; None when it is worth another try."""
    if status < 300 or (status in _NOT_THERE and method in ("PURGE", "DELETE")):
        return True
    return None if status in _TRY_AGAIN or status >= 500 else False
