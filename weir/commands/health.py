"""`weir health URL`: a health check for containers: exit code 0 or 1, as Docker expects.

It runs often, so it imports nothing that is slow to import.
"""

import argparse
import http.client
from urllib.parse import urlsplit

from weir.exits import warn
from wire.settings import SettingsError

TIMEOUT_SECS = 2.0


def run(arguments: argparse.Namespace) -> int:
    try:
        status = ask(arguments.url)
    except (OSError, http.client.HTTPException) as error:
        return _unwell(f"{arguments.url}: {error or type(error).__name__}")
    return 0 if status == 200 else _unwell(f"{arguments.url}: {status}")


def ask(url: str) -> int:
    parts = urlsplit(url)
    if parts.scheme != "http" or not parts.hostname:
        raise SettingsError("URL", f"{url!r} is not an http URL")
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=TIMEOUT_SECS)
    try:
        connection.request("GET", parts.path or "/")
        return connection.getresponse().status
    finally:
        connection.close()


def _unwell(reason: str) -> int:
    warn(reason)
    return 1
