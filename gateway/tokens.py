"""Tokens to principals: verified once, remembered by the hash of the whole token.

A remembered token is dropped when it expires, when its key is removed, or when it is revoked, which
is looked up every few seconds. `rules/claims.py` has the rules for the contents of a token.
"""

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from operator import or_
from typing import Protocol

from cachetools import LRUCache

from gateway.config import AuthConfig
from gateway.jwks import BoundKey, Keys, KeysUnavailable
from gateway.rules.access import Identity, Principal
from gateway.rules.challenges import invalid_token, keys_unavailable
from gateway.rules.claims import Unverified, read_claims, take_apart

log = logging.getLogger("weir.gateway")


class Revoked(Protocol):
    """If the lookup fails, the last result holds; before the first one a token is valid: it is
    signed, its issuer chose its lifetime, and an outage of the optional Redis must not lock out
    every reader."""

    async def __call__(self, token_id: str, subject: str) -> bool:
        """Whether either is revoked."""

    async def many(self, named: Sequence[tuple[str, str]]) -> list[bool]: ...


RECHECK_SECS = 5.0


@dataclass(slots=True)
class Remembered:
    principal: Principal
    key: bytes  # identity of the key; empty if the token named none
    generation: int  # of the key set that `key` was last seen in
    good_until: float  # after that it needs verify() again
    asked_at: float = -math.inf  # when its revocation was last looked up
    revoked: bool = False


class Tokens:
    def __init__(self, auth: AuthConfig, keys: Keys, revoked: Revoked | None = None) -> None:
        self._auth = auth
        self._keys = keys
        self._revoked = revoked
        self._remembered: LRUCache[bytes, Remembered] = LRUCache(auth.remembered_tokens)
        self.verified = 0  # valid signatures
        self.unknown_revocations = 0  # failed lookups
        for name in ("issuer", "audience"):
            if not getattr(auth, name):
                log.warning("auth.%s is not set: tokens issued for others are accepted", name)

    @property
    def ready(self) -> bool:
        """Whether any token can be verified."""
        return self._keys.ready

    @property
    def remembered(self) -> int:
        return len(self._remembered)

    def known(self, token: str, now: float) -> Principal | None:
        """The principal of a token that needs no further check; None means: call verify()."""
        entry = self.recall(token)
        return entry.principal if entry is not None and self.stands(entry, now) else None

    def recall(self, token: str) -> Remembered | None:
        """The remembered token, valid or not: for callers that keep it and check `stands`."""
        if len(token) > self._auth.max_token_bytes or not token.isascii():
            return None
        return self._remembered.get(sha256(token.encode()).digest())

    def stands(self, entry: Remembered, now: float) -> bool:
        """Whether a remembered token is valid without further checks."""
        if now >= entry.good_until:
            return False
        return entry.generation == self._keys.generation or self._key_stands(entry)

    async def verify(self, token: str, now: float) -> Principal:
        """The principal of any token; raises AuthError."""
        if len(token) > self._auth.max_token_bytes:
            raise invalid_token("too-large")
        if not token.isascii():
            raise invalid_token("malformed")
        digest = sha256(token.encode()).digest()
        entry = self._recall(digest, now)
        if entry is None:
            entry = self._remembered[digest] = await self._check(token, now)
        if self._revoked is not None:
            await self._look_up(entry, self._revoked, now)
        if entry.revoked:
            raise invalid_token("revoked")
        return entry.principal

    async def withdrawn(self, identities: Sequence[Identity]) -> list[bool]:
        """Which of these tokens have since lost their key or been revoked."""
        kept = self._keys.current.identities
        gone = [key not in kept for _, _, key in identities]
        if self._revoked is None:
            return gone
        revoked = await self._revoked.many([identity[:2] for identity in identities])
        return list(map(or_, gone, revoked))

    def _recall(self, digest: bytes, now: float) -> Remembered | None:
        """A token whose signature and claims are still valid."""
        entry = self._remembered.get(digest)
        if entry is not None and now < entry.principal.expires_at and self._key_stands(entry):
            return entry
        self._remembered.pop(digest, None)
        return None

    def _key_stands(self, entry: Remembered) -> bool:
        """Whether the key is still in the set; a token without a key id is verified again."""
        if entry.generation == self._keys.generation:
            return True
        if entry.key not in self._keys.current.identities:
            return False
        entry.generation = self._keys.generation
        return True

    async def _check(self, token: str, now: float) -> Remembered:
        parts = take_apart(token, self._auth)
        key = await self._find_key(parts)
        if not key.verify(parts.signed, parts.signature):
            raise invalid_token("bad-signature")
        self.verified += 1
        principal = read_claims(parts.payload, key.identity, self._auth, now)
        good_until = principal.expires_at if self._revoked is None else -math.inf
        identity = b"" if parts.key_id is None else key.identity
        return Remembered(principal, identity, self._keys.generation, good_until)

    async def _find_key(self, parts: Unverified) -> BoundKey:
        try:
            key = await self._keys.find(parts.key_id, parts.algorithm)
        except KeysUnavailable:
            raise keys_unavailable() from None
        if key is None:
            raise invalid_token("unknown-key")
        if key.algorithm != parts.algorithm:
            raise invalid_token("algorithm")
        return key

    async def _look_up(self, entry: Remembered, revoked: Revoked, now: float) -> None:
        """Look up the revocation if the last result is old."""
        if now < entry.asked_at + RECHECK_SECS:
            return
        principal = entry.principal
        try:
            entry.revoked = await revoked(principal.token_id, principal.subject)
        except Exception:
            self.unknown_revocations += 1
        entry.asked_at = now
        due_at = min(now + RECHECK_SECS, principal.expires_at)
        entry.good_until = -math.inf if entry.revoked else due_at
