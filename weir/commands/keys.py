"""`weir keys DIR`: what a fleet of gateways behind Envoy shares; whatever is missing is created.

The folder holds the secrets of all gateways and their origin (a file for `--config` of both), the
origin's access key by itself for other commands, a development certificate, and the public half of
a development key. The private half is kept elsewhere, where neither gateways nor Envoy can read it.
If `--jwks` names another key set, no development key is made.
"""

import argparse
import re
import secrets
import tomllib
from datetime import UTC, datetime
from pathlib import Path

from gateway.devkeys import JWKS_FILE, KEY_FILE, ensure_dev_key, replace_file, write_private
from weir.client.access import ORIGIN_KEY_FILE
from weir.edge.certificates import ensure_dev_certificate
from wire.settings import SettingsError

SECRETS_FILE = "secrets.toml"
ACCESS_KEY = "access_key"


def run(arguments: argparse.Namespace) -> int:
    shared, private = Path(arguments.folder), Path(arguments.private or arguments.folder)
    shared.mkdir(parents=True, exist_ok=True)
    ensure_secrets(shared)
    ensure_dev_certificate(shared, datetime.now(UTC))
    jwks = shared / JWKS_FILE
    if arguments.jwks and arguments.jwks != str(jwks):
        print(f"weir: tokens are verified with the keys in {arguments.jwks}", flush=True)
        return 0
    _, made = ensure_dev_key(private)
    if made != jwks:
        replace_file(jwks, made.read_bytes(), mode=0o644)
    print(
        f"weir: DEVELOPMENT KEY in use: anyone who can read {private / KEY_FILE} can sign any "
        "token.\nweir: in production set DS_AUTH__JWKS, DS_AUTH__ISSUER and DS_AUTH__AUDIENCE",
        flush=True,
    )
    return 0


def ensure_secrets(folder: Path) -> Path:
    """The secrets that must be the same everywhere. Keys missing from an older file are added."""
    path = folder / SECRETS_FILE
    text = path.read_text() if path.exists() else _section("cache", "redis_key", "cursor_key")
    keys = _access_keys(path, text)
    key = next(filter(None, keys.values()), "") or secrets.token_urlsafe()
    lacking = [name for name, held in keys.items() if held is None]
    for name in lacking:
        text = _with_setting(text, name, f'{ACCESS_KEY} = "{key}"')
    if lacking:
        replace_file(path, text.encode(), mode=0o600)
    if lacking or not (folder / ORIGIN_KEY_FILE).exists():
        write_private(folder / ORIGIN_KEY_FILE, key)
    return path


def _access_keys(path: Path, text: str) -> dict[str, str | None]:
    """By section; None if it has none."""
    try:
        held = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(str(path), f"is not valid TOML ({error})") from error
    return {name: held.get(name, {}).get(ACCESS_KEY) for name in ("server", "upstream")}


def _with_setting(text: str, section: str, line: str) -> str:
    """Add the line to the section, which may exist with other settings."""
    header = re.search(rf"^[ \t]*\[[ \t]*{section}[ \t]*\][^\n]*(?:\n|\Z)", text, re.MULTILINE)
    if header is None:
        return f"{_ended(text)}[{section}]\n{line}\n"
    return f"{_ended(text[: header.end()])}{line}\n{text[header.end() :]}"


def _ended(text: str) -> str:
    return text if text.endswith("\n") or not text else f"{text}\n"


def _section(name: str, *keys: str) -> str:
    return f"[{name}]\n" + "".join(f'{key} = "{secrets.token_urlsafe()}"\n' for key in keys)
