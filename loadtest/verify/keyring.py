"""The issuer of a run: who may do what, tokens for them, and a key set that changes.

A rotation is done as an operator does it: the new key is published, then used, then the old one is
withdrawn. Whoever still has one of its tokens must be shut out soon.
"""

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass

from aiohttp import web
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key

from loadtest.peers.tokens import build_jwks, sign_token

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

    @property
    def header(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.text}"}


@dataclass(frozen=True, slots=True)
class Key:
    name: str
    private: RSAPrivateKey


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
            text = sign_token(key.private, subject, time.time(), SCOPES[subject], key.name)
            self._tokens[subject, key.name] = Token(text, key.name)
        return self._tokens[subject, key.name]

    def jwks(self) -> str:
        return json.dumps(
            {
                "keys": [
                    member
                    for key in self._published
                    for member in build_jwks(key.private, key.name)["keys"]
                ]
            }
        )

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

    def _make(self) -> Key:
        self._count += 1
        return Key(f"key-{self._count}", generate_private_key(65537, 2048))


class KeyServer:
    """The key set over HTTP, as issuers publish it."""

    def __init__(self, keyring: Keyring) -> None:
        self._keyring = keyring
        app = web.Application()
        app.router.add_get("/jwks.json", self._answer)
        self._runner = web.AppRunner(app, access_log=None)

    async def start(self) -> str:
        """Its address."""
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        return f"http://127.0.0.1:{self._runner.addresses[0][1]}/jwks.json"

    async def stop(self) -> None:
        await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.Response:
        return web.Response(text=self._keyring.jwks(), content_type="application/json")
