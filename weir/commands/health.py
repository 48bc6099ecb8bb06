"""`weir health URL`: whether a server says that it is well, for health checks of containers.

Exit code 0 or 1, as Docker wants it; nothing is imported that takes time, for it runs often.
"""

import argparse
import http.client
import sys
from urllib.parse import urlsplit

from wire.settings import SettingsError

TIMEOUT_S = 2.0


def run_health(arguments: argparse.Namespace) -> int:
    try:
        status = ask(arguments.url)
    except (OSError, http.client.HTTPException) as error:
        return _unwell(f"{arguments.url}: {error or type(error).__name__}")
    return 0 if status == 200 else _unwell(f"{arguments.url}: {status}")


def ask(url: str) -> int:
    parts = urlsplit(url)
    if parts.scheme != "http" or not parts.hostname:
        raise SettingsError("URL", f"{url!r} is not an http URL")
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=TIMEOUT_S)
    try:
        connection.request("GET", parts.path or "/")
        return connection.getresponse().status
    finally:
        connection.close()


def _unwell(reason: str) -> int:
    print(f"weir: {reason}", file=sys.stderr)
    return 1
