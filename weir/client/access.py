"""A command's credentials: a bearer token, and the access key of an origin.

If an origin requires an access key from its gateways, it requires it from all clients.
`WEIR_ACCESS_KEY_FILE` names a file with the key; `weir up` stores the key of its run next to the
streams, for servers on this machine only.
"""

import argparse
import os
from pathlib import Path
from urllib.parse import urlsplit

from protocol.names import ACCESS_KEY
from wire.addresses import is_loopback
from wire.settings import SettingsError

TOKEN_VARIABLE = "WEIR_TOKEN"
FILE_VARIABLE = "WEIR_ACCESS_KEY_FILE"
DATA = "data"  # default data directory of `weir up`
KEYS = "keys"  # the folder in it
ORIGIN_KEY_FILE = "origin-key"


def token_of(arguments: argparse.Namespace) -> str | None:
    """From the flag or the environment; other users cannot see the latter."""
    return os.environ.get(TOKEN_VARIABLE) if arguments.token is None else str(arguments.token)


def access_headers() -> dict[str, str]:
    """Headers required by an origin; none unless the environment names a file."""
    key = named_key()
    return {ACCESS_KEY: key} if key else {}


def named_key() -> str:
    """The key in the file that the environment names; raises SettingsError."""
    name = os.environ.get(FILE_VARIABLE)
    return _read(Path(name)) if name else ""


def key_beside(logs: Path, url: str) -> str:
    """The key of the `weir up` that wrote these logs, for an origin on this machine."""
    if not is_loopback(urlsplit(url).hostname or ""):
        return ""
    beside = logs.resolve().parent
    paths = (data / KEYS / ORIGIN_KEY_FILE for data in (beside, beside / DATA, Path(DATA)))
    return next((_read(path) for path in paths if path.is_file()), "")


def _read(path: Path) -> str:
    try:
        key = path.read_text("ascii").strip()
    except (OSError, ValueError) as error:
        raise SettingsError(str(path), f"cannot be read ({error})") from error
    if not key.isprintable() or " " in key:
        raise SettingsError(str(path), "does not hold one key")
    return key
