"""A signing key for development, and tokens signed with any private key in a PEM file.

Production keys belong to an issuer; the gateway only reads public keys.
"""

import base64
import hashlib
import json
import os
import secrets
import shlex
from pathlib import Path
from typing import Any

import jwt
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from gateway.rules.claims import is_name
from wire.settings import SettingsError

DEV_ISSUER = "weir-dev"
DEV_AUDIENCE = "weir"
SCOPE_CLAIM = "scope"  # default of `auth.scope_claim`
KEY_FILE = "dev-key.pem"
JWKS_FILE = "dev-jwks.json"
DEFAULT_KEY = Path("data", "keys", KEY_FILE)  # of `weir up`

PrivateKey = RSAPrivateKey | EllipticCurvePrivateKey | Ed25519PrivateKey
Jwk = dict[str, Any]

_THUMBPRINT_MEMBERS = ("crv", "e", "kty", "n", "x", "y")  # RFC 7638 3.2, RFC 8037 2


def ensure_dev_key(folder: Path) -> tuple[Path, Path]:
    """(private key, JWKS) in the folder; created the first time, then reused."""
    key_path, jwks_path = folder / KEY_FILE, folder / JWKS_FILE
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        fresh = not key_path.exists() and _create(key_path, _new_key_pem())
        if fresh or not jwks_path.exists():
            jwks = json.dumps(make_jwks(load_private_key(key_path)), indent=2)
            replace_file(jwks_path, jwks.encode(), mode=0o644)
    except OSError as error:
        raise SettingsError(str(folder), f"cannot hold the key ({error.strerror})") from error
    return key_path, jwks_path


def sign_token(
    private_key_pem_path: Path,
    sub: str,
    scope: str,
    ttl_s: float,
    audience: str,
    issuer: str,
    now: float,
    scope_claim: str = SCOPE_CLAIM,
) -> str:
    """A token that a gateway with this key's JWKS accepts; raises SettingsError."""
    if not is_name(sub):
        raise SettingsError("sub", f"{sub!r} is not a valid subject")
    key = load_private_key(private_key_pem_path)
    algorithm, jwk = _describe(key)
    named = {"iss": issuer, "aud": audience, "sub": sub}
    claims = {name: value for name, value in named.items() if value} | {scope_claim: scope}
    times = {"iat": int(now), "exp": int(now + ttl_s), "jti": secrets.token_urlsafe(16)}
    return jwt.encode(claims | times, key, algorithm, {"kid": thumbprint(jwk)})


def token_command(
    key: Path, audience: str, issuer: str, scope_claim: str, program: str = "weir"
) -> str:
    """The `weir token` command whose tokens a gateway with these settings accepts."""
    flags = {
        "--key": (str(key), str(DEFAULT_KEY)),
        "--aud": (audience, DEV_AUDIENCE),
        "--iss": (issuer, DEV_ISSUER),
        "--scope-claim": (scope_claim, SCOPE_CLAIM),
    }
    words = (w for flag, (value, usual) in flags.items() if value != usual for w in (flag, value))
    return shlex.join([program, "token", *words])


def make_jwks(key: PrivateKey) -> dict[str, list[Jwk]]:
    """The key set that verifies this key's signatures."""
    algorithm, jwk = _describe(key)
    return {"keys": [jwk | {"kid": thumbprint(jwk), "alg": algorithm, "use": "sig"}]}


def thumbprint(jwk: Jwk) -> str:
    """A key's id by its contents (RFC 7638)."""
    members = {name: jwk[name] for name in _THUMBPRINT_MEMBERS if name in jwk}
    digest = hashlib.sha256(json.dumps(members, separators=(",", ":")).encode()).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def load_private_key(path: Path) -> PrivateKey:
    try:
        key = load_pem_private_key(path.read_bytes(), password=None)
    except OSError as error:
        raise SettingsError(str(path), f"cannot be read ({error.strerror})") from error
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise SettingsError(str(path), "is not a private key in PEM form") from None
    if isinstance(key, RSAPrivateKey | Ed25519PrivateKey):
        return key
    if isinstance(key, EllipticCurvePrivateKey) and isinstance(key.curve, SECP256R1):
        return key
    raise SettingsError(str(path), "is not an RSA, P-256 or Ed25519 key")


def _describe(key: PrivateKey) -> tuple[str, Jwk]:
    """(algorithm, public JWK)"""
    if isinstance(key, RSAPrivateKey):
        return "RS256", RSAAlgorithm.to_jwk(key.public_key(), as_dict=True)
    if isinstance(key, EllipticCurvePrivateKey):
        return "ES256", ECAlgorithm.to_jwk(key.public_key(), as_dict=True)
    return "EdDSA", OKPAlgorithm.to_jwk(key.public_key(), as_dict=True)


def _new_key_pem() -> bytes:
    key = Ed25519PrivateKey.generate()
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _create(path: Path, data: bytes) -> bool:
    """Create a private file atomically; False if another process was first."""
    draft = _write_draft(path, data, 0o600)
    try:
        os.link(draft, path)
    except FileExistsError:
        return False
    finally:
        draft.unlink()
    return True


def write_private(path: Path, text: str) -> None:
    """A line for this user alone; raises SettingsError."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(path, f"{text}\n".encode(), mode=0o600)
    except OSError as error:
        raise SettingsError(str(path), f"cannot be written ({error.strerror})") from error


def replace_file(path: Path, data: bytes, *, mode: int) -> None:
    """Atomic: readers see the old file or the new one."""
    os.replace(_write_draft(path, data, mode), path)


def _write_draft(path: Path, data: bytes, mode: int) -> Path:
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return draft
