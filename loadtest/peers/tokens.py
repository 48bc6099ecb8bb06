"""Tokens as a real issuer signs them, each of another subject, and the key set that checks them.

RS256, because most identity providers sign with it: the tokens are long, for every server alike.
"""

import json
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from jwt.algorithms import RSAAlgorithm

ISSUER, AUDIENCE = "https://issuer.example", "weir"
SCOPE = "read:bench/*"
LIFETIME_SECS = 12 * 3600


@dataclass(frozen=True, slots=True)
class SigningKey:
    name: str
    private: RSAPrivateKey

    @classmethod
    def make(cls, name: str) -> "SigningKey":
        return cls(name, generate_private_key(public_exponent=65537, key_size=2048))

    def sign(self, subject: str, scope: str) -> str:
        now = int(time.time())
        claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": subject, "scope": scope}
        times = {"iat": now, "exp": now + LIFETIME_SECS}
        return jwt.encode(claims | times, self.private, "RS256", headers={"kid": self.name})

    def public(self) -> dict[str, Any]:
        public = json.loads(RSAAlgorithm.to_jwk(self.private.public_key()))
        return {**public, "kid": self.name, "alg": "RS256", "use": "sig"}


def build_jwks(keys: Iterable[SigningKey]) -> str:
    return json.dumps({"keys": [key.public() for key in keys]})


@dataclass(frozen=True, slots=True)
class TokenFiles:
    """A key set, and signed tokens one a line."""

    jwks: Path
    tokens: Path


def write_tokens(folder: Path, count: int, scope: str = SCOPE) -> TokenFiles:
    key = SigningKey.make("bench-1")
    files = TokenFiles(folder / "jwks.json", folder / "tokens.txt")
    files.jwks.write_text(build_jwks([key]))
    tokens = (key.sign(f"reader-{number}", scope) for number in range(count))
    files.tokens.write_text("".join(f"{token}\n" for token in tokens))
    return files


def auth_settings(files: TokenFiles) -> dict[str, str]:
    """For gateways that take these tokens."""
    return {
        "DS_AUTH__MODE": "jwt",
        "DS_AUTH__JWKS": str(files.jwks.absolute()),
        "DS_AUTH__ISSUER": ISSUER,
        "DS_AUTH__AUDIENCE": AUDIENCE,
    }


def read_tokens(path: Path) -> list[str]:
    return path.read_text().split()
