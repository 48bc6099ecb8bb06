"""Key pairs, key sets and signed tokens for tests.

`make_token` makes what a good issuer would; `sign_raw` signs whatever bytes a bad one might.
"""

import asyncio
import base64
import json
import time
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.ec import generate_private_key as generate_ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key as generate_rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm, get_default_algorithms

ISSUER = "weir-dev"
AUDIENCE = "weir"
ALL_SCOPES = "read:* write:* create:* delete:* snapshot:*"

PrivateKey = RSAPrivateKey | EllipticCurvePrivateKey | Ed25519PrivateKey
_ALGORITHMS = get_default_algorithms()


@dataclass(frozen=True, slots=True)
class Key:
    """A key pair with the id and algorithm it has in a JWKS."""

    kind: str
    kid: str
    private: PrivateKey

    def jwk(self) -> dict[str, Any]:
        """The public half as a JWK."""
        public = {"kid": self.kid, "alg": self.kind, "use": "sig"}
        return _public_members(self.private) | public

    def private_jwk(self) -> dict[str, Any]:
        """What must never be in a JWKS."""
        algorithm: Any = _ALGORITHMS[self.kind]
        private = algorithm.to_jwk(self.private, as_dict=True)
        return {**private, "key_ops": ["verify"], "kid": self.kid}

    def public_pem(self) -> bytes:
        public = self.private.public_key()
        return public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)

    def private_pem(self) -> bytes:
        return self.private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def make_key(kind: str = "EdDSA", kid: str = "k1", rsa_bits: int = 2048) -> Key:
    """A new key pair: EdDSA, ES256 or RS256 (slow, and therefore made once per id and size)."""
    if kind == "RS256":
        return Key(kind, kid, _rsa(kid, rsa_bits))
    return Key(
        kind, kid, Ed25519PrivateKey.generate() if kind == "EdDSA" else generate_ec(SECP256R1())
    )


class ScriptedSource:
    """A source of keys for `gateway.jwks.Keys` that answers, fails and waits as it is told."""

    name = "scripted"
    refresh_s = 3600.0
    cooldown_s = 30.0

    def __init__(self, *keys: Key) -> None:
        self.reads = 0
        self.error: Exception | None = None
        self.open = asyncio.Event()
        self.open.set()
        self.publish(*keys)

    def publish(self, *keys: Key) -> None:
        self.document = json.dumps(jwks(*keys)).encode()

    async def read(self) -> bytes:
        self.reads += 1
        await self.open.wait()
        if self.error is not None:
            raise self.error
        return self.document


def jwks(*keys: Key) -> dict[str, Any]:
    return {"keys": [key.jwk() for key in keys]}


def write_jwks(path: Path, *keys: Key) -> Path:
    """Replace the file as a careful operator would: readers see the old or the new set."""
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(jwks(*keys)))
    fresh.rename(path)
    return path


def make_token(
    key: Key,
    *,
    sub: str = "alice",
    scope: str = ALL_SCOPES,
    ttl: float = 7200,
    iss: str = ISSUER,
    aud: str = AUDIENCE,
    headers: dict[str, Any] | None = None,
    now: float | None = None,
    **claims: Any,
) -> str:
    """A signed token; a claim or header given as None is left out."""
    issued = int(time.time() if now is None else now)
    payload = {
        "sub": sub,
        "scope": scope,
        "iss": iss,
        "aud": aud,
        "iat": issued,
        "exp": issued + int(ttl),
    }
    head = {"typ": "JWT", "alg": key.kind, "kid": key.kid} | (headers or {})
    return sign_raw(key, _encode(head), _encode(payload | claims))


def sign_raw(key: Key, header: bytes, payload: bytes) -> str:
    """Sign these very bytes, whatever they are, by the key's own algorithm."""
    signed = b".".join((_base64url(header), _base64url(payload)))
    algorithm = _ALGORITHMS[key.kind]
    return b".".join((signed, _base64url(algorithm.sign(signed, key.private)))).decode()


def _encode(members: dict[str, Any]) -> bytes:
    present = {name: value for name, value in members.items() if value is not None}
    return json.dumps(present, separators=(",", ":")).encode()


def _base64url(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def _public_members(private: PrivateKey) -> dict[str, Any]:
    if isinstance(private, RSAPrivateKey):
        return RSAAlgorithm.to_jwk(private.public_key(), as_dict=True)
    if isinstance(private, EllipticCurvePrivateKey):
        return ECAlgorithm.to_jwk(private.public_key(), as_dict=True)
    return OKPAlgorithm.to_jwk(private.public_key(), as_dict=True)


@lru_cache
def _rsa(kid: str, bits: int) -> RSAPrivateKey:
    return generate_rsa(65537, bits)
