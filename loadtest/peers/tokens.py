"""Tokens as a real issuer signs them, each of another subject, and the key set that checks them.

RS256, because most identity providers sign with it: the tokens are long, for every server alike.
"""

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from jwt.algorithms import RSAAlgorithm

ISSUER, AUDIENCE, KEY_ID = "https://issuer.example", "weir", "bench-1"
SCOPE = "read:bench/*"
LIFETIME_S = 12 * 3600


@dataclass(frozen=True, slots=True)
class TokenFiles:
    """A key set, and signed tokens one a line."""

    jwks: Path
    tokens: Path


def build_jwks(key: RSAPrivateKey, key_id: str = KEY_ID) -> dict[str, Any]:
    public = json.loads(RSAAlgorithm.to_jwk(key.public_key()))
    return {"keys": [public | {"kid": key_id, "alg": "RS256", "use": "sig"}]}


def sign_token(
    key: RSAPrivateKey, subject: str, now: float, scope: str = SCOPE, key_id: str = KEY_ID
) -> str:
    claims = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": subject,
        "scope": scope,
        "iat": int(now),
        "exp": int(now) + LIFETIME_S,
    }
    return jwt.encode(claims, key, algorithm="RS256", headers={"kid": key_id})


def write_tokens(folder: Path, count: int, scope: str = SCOPE) -> TokenFiles:
    key = generate_private_key(public_exponent=65537, key_size=2048)
    now = time.time()
    files = TokenFiles(folder / "jwks.json", folder / "tokens.txt")
    files.jwks.write_text(json.dumps(build_jwks(key)))
    tokens = [sign_token(key, f"reader-{number}", now, scope) for number in range(count)]
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
