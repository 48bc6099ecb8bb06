"""Which headers cross the gateway, in both directions, by allow-list.

Everything else is dropped: cookies, tokens, forged identities, ranges, encodings, forwarding
hints, hop-by-hop headers. So no header outside the cache key can change the origin's response, and
no internal header of the origin reaches a client.

Headers are mappings of lower-case names.
"""

import re
from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

from protocol.errors import ProtocolError
from protocol.names import is_true
from protocol.offsets import START, is_offset

REPEATABLE_METHODS = frozenset({"GET", "HEAD"})

# Hyphens only: some servers treat x_jwt_sub and stream_closed like their hyphenated forms.
_PROTOCOL_NAME = re.compile(r"(?:stream|producer)-[a-z0-9-]+")
_VALUE = re.compile(r"[\t -~]*")

# An encoded body must keep its header: without it the origin would store the encoded bytes.
_WITH_BODY = frozenset({"content-type", "content-encoding", "if-match"})
_WRITES = {
    "PUT": _WITH_BODY | {"if-none-match"},
    "POST": _WITH_BODY,
    "DELETE": frozenset({"if-match"}),
}

_ANSWERED = frozenset(
    {
        "allow",
        "cache-control",
        "content-disposition",
        "content-encoding",  # to check that it is absent
        "content-type",
        "etag",
        "location",
        "retry-after",
    }
)
_LISTS = frozenset({"allow", "cache-control"})  # may be repeated (RFC 9110 5.3)
_PRODUCER = ("producer-id", "producer-epoch", "producer-seq")


class BadAnswer(Exception):
    """The origin's response is not usable; the text says why."""


def client_headers(method: str, headers: Mapping[str, str]) -> dict[str, str]:
    """The client's headers that may go upstream. Reads forward none, HEAD only its condition,
    because it bypasses the cache.

    Invalid header values raise ProtocolError 400.
    """
    if method == "HEAD":
        return condition(headers)
    names = _WRITES.get(method)
    if names is None:
        return {}
    hop_by_hop = _listed(headers.get("connection", ""))
    found = {
        name: _checked(name, value)
        for name, value in headers.items()
        if (name in names or _PROTOCOL_NAME.fullmatch(name)) and name not in hop_by_hop
    }
    if "stream-closed" in found:  # DS 4.1; some servers know only the lower case
        closed = is_true(found.pop("stream-closed"))
        found |= {"stream-closed": "true"} if closed else {}
    return found


def condition(headers: Mapping[str, str]) -> dict[str, str]:
    """The condition of a read that bypasses the cache: the origin evaluates it."""
    value = headers.get("if-none-match")
    return {} if value is None else {"if-none-match": _checked("if-none-match", value)}


def upstream_headers(
    headers: Mapping[str, str], *, subject: str = "", request_id: str = "", token: str | None = None
) -> dict[str, str]:
    """All headers of a request: `headers` are our own or `client_headers`.

    `subject` is a verified identity; `token` is given only if it is to be forwarded.
    """
    found = {**headers, "accept-encoding": "identity"}
    if token:
        found["authorization"] = _checked("authorization", f"Bearer {token}")
    if subject:
        found["x-jwt-sub"] = _checked("x-jwt-sub", subject)
    if request_id:
        found["x-request-id"] = _checked("x-request-id", request_id)
    return found


def _listed(connection: str) -> frozenset[str]:
    """Header names that `Connection` declares hop-by-hop."""
    return frozenset(name.strip().lower() for name in connection.split(","))


def _checked(name: str, value: str) -> str:
    if not _VALUE.fullmatch(value):
        raise ProtocolError(400, "invalid-header", f"{name} contains non-ASCII characters.")
    return value


def is_repeatable(method: str, headers: Mapping[str, str]) -> bool:
    """Whether a request that may have reached the origin can be repeated (DS 5.2.1)."""
    if method in REPEATABLE_METHODS:
        return True
    return method == "POST" and all(name in headers for name in _PRODUCER)


def response_headers(fields: Iterable[tuple[str, str]], origin_path: str = "") -> dict[str, str]:
    """The headers of a response to forward. `Location` becomes a path below the gateway's base.

    `origin_path` is the path of the origin's base URL, without a trailing slash.
    """
    found: dict[str, str] = {}
    for field, value in fields:
        name = field.lower()
        if name not in _ANSWERED and not _PROTOCOL_NAME.fullmatch(name):
            continue
        if not _VALUE.fullmatch(value):
            raise BadAnswer(f"{name} contains characters not allowed in a header")
        if name not in found:
            found[name] = value
        elif name in _LISTS:
            found[name] += f", {value}"
        else:
            raise BadAnswer(f"{name} is repeated")
    if not is_offset(found.get("stream-next-offset", START)):
        raise BadAnswer("its Stream-Next-Offset is not valid")
    if found.pop("content-encoding", "identity").lower() not in ("identity", ""):
        raise BadAnswer("the body has an unrequested Content-Encoding")
    if "location" in found:
        found |= _relative_location(found.pop("location"), origin_path)
    return found


def _relative_location(location: str, origin_path: str) -> dict[str, str]:
    """The path and query of any URL; the origin's own host name is dropped."""
    try:
        parts = urlsplit(location)
    except ValueError:
        return {}
    path = parts.path
    if origin_path and path.startswith(f"{origin_path}/"):
        path = path[len(origin_path) :]
    # Two slashes would name a host; in browsers, so would a backslash.
    if not path.startswith("/") or path.startswith("//") or "\\" in path:
        return {}
    return {"location": f"{path}?{parts.query}" if parts.query else path}


def public_location(location: str, public_url: str) -> str:
    """The absolute URL for a client; `public_url` is the base it used to reach the gateway."""
    return public_url.rstrip("/") + location
