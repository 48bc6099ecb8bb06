"""One blocking request: enough for tests that ask one thing after the other."""

import http.client
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

TIMEOUT_SECS = 60.0


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes


def call(
    method: str, url: str, headers: Mapping[str, str] | None = None, body: bytes | None = None
) -> Answer:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=TIMEOUT_SECS)
    try:
        target = parts.path + (f"?{parts.query}" if parts.query else "")
        connection.request(method, target, body, dict(headers or {}))
        reply = connection.getresponse()
        return Answer(reply.status, dict(reply.getheaders()), reply.read())
    finally:
        connection.close()
