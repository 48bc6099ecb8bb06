"""`weir token`: print one signed development token."""

import argparse
import re
import time
from pathlib import Path

from gateway.devkeys import DEFAULT_KEY, DEV_AUDIENCE, DEV_ISSUER, sign_token
from wire.settings import SettingsError

ALL_SCOPES = "read:* write:* create:* delete:* snapshot:*"
LONG_AGO_SECS = 3600  # more than any `auth.leeway_secs`
UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}

_DURATION = re.compile(r"([0-9]{1,9})([smhd]?)")


def run(arguments: argparse.Namespace) -> int:
    key = DEFAULT_KEY if arguments.key is None else Path(arguments.key)
    if not key.is_file():
        raise SettingsError("--key", f"{key} not found; `weir up` makes one in its data directory")
    seconds = parse_duration("--ttl", arguments.ttl)
    token = sign_token(
        key,
        arguments.sub,
        ALL_SCOPES if arguments.scope is None else arguments.scope,
        seconds,
        DEV_AUDIENCE if arguments.aud is None else arguments.aud,
        DEV_ISSUER if arguments.iss is None else arguments.iss,
        time.time() - (seconds + LONG_AGO_SECS if arguments.expired else 0),
        arguments.scope_claim,
    )
    print(token)
    return 0


def parse_duration(flag: str, text: str) -> int:
    """In seconds."""
    found = _DURATION.fullmatch(text)
    seconds = int(found[1]) * UNITS[found[2]] if found else 0
    if not seconds:
        raise SettingsError(flag, f"{text!r} is not a duration such as 900, 15m, 2h or 7d")
    return seconds
