"""`weir keys DIR`: what a fleet of gateways behind Envoy shares, made when it is not there yet.

In the folder: secrets of all gateways (a file for `weir gateway --config`), a certificate for
development, and the public half of a development key whose private half lies apart, where neither
gateways nor Envoy can read it. Who has an issuer names its key set, and gets no development key.
"""

import argparse
import secrets
from datetime import UTC, datetime
from pathlib import Path

from gateway.devkeys import JWKS_FILE, KEY_FILE, ensure_dev_key, replace_file
from weir.certificates import ensure_dev_certificate

SECRETS_FILE = "secrets.toml"
SECRET_BYTES = 32


def run_keys(arguments: argparse.Namespace) -> int:
    shared, private = Path(arguments.folder), Path(arguments.private or arguments.folder)
    shared.mkdir(parents=True, exist_ok=True)
    ensure_secrets(shared)
    ensure_dev_certificate(shared, datetime.now(UTC))
    jwks = shared / JWKS_FILE
    if arguments.jwks and arguments.jwks != str(jwks):
        print(f"weir: tokens are checked by the keys of {arguments.jwks}", flush=True)
        return 0
    _, made = ensure_dev_key(private)
    if made != jwks:
        replace_file(jwks, made.read_bytes(), mode=0o644)
    print(
        f"weir: DEVELOPMENT KEY in use: who can read {private / KEY_FILE} can sign tokens for "
        "everything.\nweir: in production set DS_AUTH__JWKS, DS_AUTH__ISSUER and DS_AUTH__AUDIENCE",
        flush=True,
    )
    return 0


def ensure_secrets(folder: Path) -> Path:
    """What must be the same on all gateways, and known to nobody else."""
    path = folder / SECRETS_FILE
    if not path.exists():
        lines = ["[cache]", *(f'{name} = "{_secret()}"' for name in ("redis_key", "cursor_key"))]
        replace_file(path, "".join(f"{line}\n" for line in lines).encode(), mode=0o600)
    return path


def _secret() -> str:
    return secrets.token_urlsafe(SECRET_BYTES)
