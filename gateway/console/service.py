"""The responses of each path below /console/.

  /console/             the page, and its files by name
  /console/setup        what the page must know before it has a token
  /console/token        POST: a development token (see `minting`)
  /console/stats        the gateway's counters; needs the scope `read:/console/stats`
  /console/streams      recently served streams that the token may read

The door checks that scope like a stream's: `read:*` includes it, a token for some streams does not.
Servers cannot list flat streams or buckets, so recently served streams are the next best.
"""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from itertools import islice

from gateway.config import AuthConfig
from gateway.console.figures import Figures, add_up
from gateway.console.minting import MAX_BODY_BYTES, Mint, MintKey, is_local, is_own_page
from gateway.console.pages import load_pages, show_page
from gateway.rules.access import Scopes
from gateway.rules.challenges import missing_scope
from protocol.errors import ProtocolError
from protocol.replies import Headers, Reply, json_reply, problem
from wire.heads import Head

ROOT = "/console/"
STATS = ROOT + "stats"
STREAMS = ROOT + "streams"
GUARDED = (STATS, STREAMS)  # need a token, here and in Envoy
MOST_STREAMS = 500
FRESH_SECS = 1.0  # of what was served lately

FromAll = Callable[[], Awaitable[Iterable[str]]]  # the streams of every worker
AllFigures = Callable[[], Awaitable[list[Figures]]]  # of every worker

_GET: Headers = (("Allow", "GET, HEAD"),)
_POST: Headers = (("Allow", "POST"),)


class Console:
    """`mint_key` is the development key of `weir up`; None otherwise."""

    max_body_bytes = MAX_BODY_BYTES

    def __init__(
        self, auth: AuthConfig, figures: AllFigures, streams: FromAll, mint_key: MintKey | None
    ) -> None:
        self._auth = auth
        self._all_figures = figures
        self._lately = Lately(streams)
        self._mint = None if mint_key is None else Mint(mint_key, auth)
        self._pages = load_pages()

    def covers(self, path: str) -> bool:
        return path.startswith(ROOT) or path == ROOT[:-1]

    def needs_token(self, head: Head) -> bool:
        return head.path in GUARDED and head.method in ("GET", "HEAD")

    async def tell(self, path: str, scopes: Scopes) -> Reply:
        """Pages that need a token, given its scopes; raises ProtocolError."""
        if path == STREAMS:
            names = await self._lately.names() if scopes.allows_some("read") else ()
            allowed = (name for name in names if scopes.allows("read", name))
            return json_reply(200, {"streams": list(islice(allowed, MOST_STREAMS))})
        if not scopes.allows("read", STATS):
            raise missing_scope("read", STATS)
        return json_reply(200, add_up(await self._all_figures()))

    async def answer(self, head: Head, body: bytes, peer: str) -> Reply:
        """Pages that need no token; raises ProtocolError."""
        if head.path == ROOT[:-1]:
            return Reply(308, (("Location", ROOT),))
        if head.path == ROOT + "token":
            return await self._token(head, body, peer)
        if head.method not in ("GET", "HEAD"):
            return problem(405, "method-not-allowed", "Use GET.", _GET)
        if head.path == ROOT + "setup":
            return self._setup(head.headers, peer)
        page = self._pages.get(head.path.removeprefix(ROOT))
        if page is None:
            return problem(404, "not-found", "The console has no file of this name.")
        return show_page(page, head.headers.get("if-none-match"))

    def _setup(self, headers: Mapping[str, str], peer: str) -> Reply:
        mint = self._mint if is_local(headers, peer) else None
        setup = {
            "auth": self._auth.mode,
            "scope_claim": self._auth.scope_claim,
            "mint_max_secs": 0 if mint is None else int(mint.max_secs),
            "token_command": "" if mint is None else mint.command,
        }
        return json_reply(200, setup)

    async def _token(self, head: Head, body: bytes, peer: str) -> Reply:
        if self._mint is None:
            return problem(404, "not-found", "This gateway has no development key.")
        if head.method != "POST":
            return problem(405, "method-not-allowed", "Use POST.", _POST)
        here = is_local(head.headers, peer) and is_own_page(head.headers)
        if not here or not self._mint.knows_secret(head.headers):
            text = "Tokens are only for the console, opened at the address `weir up` printed."
            raise ProtocolError(403, "not-the-console", text)
        return await self._mint.make(body, time.time())


class Lately:
    """Streams recently served by all workers, queried at most once a second.

    A query makes each worker go through all streams that it knows, and anyone with a token may ask,
    often and many at once. So concurrent requests share one query.
    """

    def __init__(self, all_streams: FromAll, clock: Callable[[], float] = time.monotonic) -> None:
        self._all_streams = all_streams
        self._clock = clock
        self._asking = asyncio.Lock()
        self._names: tuple[str, ...] = ()
        self._stale_at = -math.inf

    async def names(self) -> tuple[str, ...]:
        """Each once, in order."""
        async with self._asking:
            if self._clock() >= self._stale_at:
                self._names = tuple(dict.fromkeys(await self._all_streams()))
                self._stale_at = self._clock() + FRESH_SECS
            return self._names
