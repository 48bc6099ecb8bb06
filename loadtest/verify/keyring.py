"""The issuer of a run: who may do what, tokens for them, and a key set that changes.

A rotation is done as an operator does it: the new key is published, then used, then the old one is
withdrawn. Whoever still has one of its tokens must be shut out soon.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from aiohttp import web

from loadtest.peers.tokens import SigningKey, build_jwks

KEEPER, WRITER, INTRUDER = "keeper", "writer", "intruder"
READERS = {"a": "reader-a", "b": "reader-b", "*": "reader-all"}
AREAS = ("a", "b")
SCOPES = {
    KEEPER: "read:verify/* write:verify/* create:verify/* delete:verify/* snapshot:verify/*",
    WRITER: "write:verify/*",
    INTRUDER: "read:elsewhere/* write:elsewhere/* read:verify/c/*",
    READERS["a"]: "read:verify/a/*",
    READERS["b"]: "read:verify/b/*",
    READERS["*"]: "read:verify/*",
}
PUBLISHED_SECS = 3.0  # before the first token is signed with a new key
USED_SECS = 3.0  # before the old one is withdrawn


def may_read(subject: str, stream: str) -> bool:
    """As the scopes above have it; said twice, so that a check does not ask whom it checks."""
    area = stream.split("/")[1]
    return subject in (KEEPER, READERS["*"]) or subject == READERS.get(area)


@dataclass(frozen=True, slots=True)
class Token:
    text: str
    key: str


class Keyring:
    def __init__(self) -> None:
        self._count = 0
        self._published = [self._make()]
        self._signing = self._published[0]
        self._tokens: dict[tuple[str, str], Token] = {}

    def token(self, subject: str) -> Token:
        """By the newest key; the same one as long as that key is in use."""
        key = self._signing
        if (subject, key.name) not in self._tokens:
            token = Token(key.sign(subject, SCOPES[subject]), key.name)
            self._tokens[subject, key.name] = token
        return self._tokens[subject, key.name]

    def jwks(self) -> str:
        return build_jwks(self._published)

    @property
    def signing(self) -> str:
        """The name of the key that tokens are signed with."""
        return self._signing.name

    async def rotate(self, published: Callable[[str], None]) -> str:
        """The name of the key that was withdrawn at the end; `published` is told the new one's."""
        old = self._signing
        new = await asyncio.to_thread(self._make)
        self._published.append(new)
        published(new.name)
        await asyncio.sleep(PUBLISHED_SECS)
        self._signing = new
        await asyncio.sleep(USED_SECS)
        self._published.remove(old)
        return old.name

    def _make(self) -> SigningKey:
        self._count += 1
        return SigningKey.make(f"key-{self._count}")


@asynccontextmanager
async def serving_keys(keyring: Keyring) -> AsyncIterator[str]:
    """The address of the key set, published over HTTP as issuers do."""

    async def answer(request: web.Request) -> web.Response:
        return web.Response(text=keyring.jwks(), content_type="application/json")

    app = web.Application()
    app.router.add_get("/jwks.json", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/jwks.json"
    finally:
        await runner.cleanup()
