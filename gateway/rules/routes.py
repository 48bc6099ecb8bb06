"""From a request's method, path and query to what it is about: the one reading that authorisation,
cache keys, upstream URLs and the log share.

Offsets stay opaque: the origin mints them, and it need not be ours. Parameters that the protocol
does not know are dropped, so they can neither split the cache nor reach the origin.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import quote, unquote_plus

from protocol.errors import ProtocolError
from protocol.names import STREAM_PREFIX
from protocol.offsets import NOW, START
from protocol.paths import RESERVED, stream_name, stream_url
from protocol.requests import LONG_POLL, SSE

METHODS = "GET, HEAD, POST, PUT, DELETE, OPTIONS"
ZERO = "0000000000000000_0000000000000000"

# DS 8: under 256 characters and none of `, & = ? /`; visible, because it goes into a URL and a log.
_OFFSET = re.compile(r"[!-%'-+\-.0-<>@-~]{1,255}")
_CURSOR = re.compile(r"[0-9]{1,15}")
_SERVICE_PATH = re.compile(r"(?:/[!\"$-.0-~]+)+")
_SERVICE_QUERY = re.compile(r"[!\"$-~]*")
_DOTS = re.compile(r"(?:/|%2[Ff]|%5[Cc]|\\)(?:\.|%2[Ee]){1,2}(?:/|%2[Ff]|%5[Cc]|\\|\Z)")
_KNOWN = ("offset", "live", "cursor")
_MEMO_CHARACTERS = 512  # who makes long ones up shall not fill our memory with them
_ACTIONS = {"GET": "read", "HEAD": "read", "POST": "write", "PUT": "create", "DELETE": "delete"}


@dataclass(frozen=True, slots=True)
class Read:
    """A GET of a stream. `offset` is `-1` for the beginning and `now` for the tail."""

    offset: str
    live: str | None
    cursor: str | None


@dataclass(frozen=True, slots=True)
class Route:
    """`stream` is the canonical name; `mode` is the word of the access log."""

    mode: str
    action: str
    stream: str
    path: str  # canonical and encoded, as it goes upstream
    read: Read | None = None

    @property
    def cacheable(self) -> bool:
        return self.mode == "catch-up"


def parse_route(method: str, path: str, query: str, max_path_bytes: int) -> Route | None:
    """None when the path is no stream's; raises ProtocolError for what cannot be served."""
    short = len(path) + len(query) <= _MEMO_CHARACTERS
    return (_recall_route if short else _read_route)(method, path, query, max_path_bytes)


def _read_route(method: str, path: str, query: str, max_path_bytes: int) -> Route | None:
    if not path.startswith(STREAM_PREFIX):
        return None
    action = _ACTIONS.get(method)
    if action is None:
        raise ProtocolError(405, "method-not-allowed", f"Use {METHODS}.", (("Allow", METHODS),))
    rest = path[len(STREAM_PREFIX) :]
    if rest == RESERVED or rest.startswith(RESERVED + "/"):
        return _service_route(action, path, query)
    name = stream_name(rest, max_path_bytes)
    if method != "GET":
        modes = {"HEAD": "head", "POST": "append", "PUT": "create", "DELETE": "delete"}
        return Route(modes[method], action, name, stream_url(name))
    read = parse_read(query)
    return Route(_mode_of(read), action, name, stream_url(name), read)


_recall_route = lru_cache(maxsize=16384)(_read_route)


def _service_route(action: str, path: str, query: str) -> Route:
    """Subscriptions: passed on as they are (an encoded slash must survive), never with dots."""
    if not _SERVICE_PATH.fullmatch(path) or _DOTS.search(path):
        raise ProtocolError(400, "invalid-path", "The path is not canonical.")
    if not _SERVICE_QUERY.fullmatch(query):
        raise ProtocolError(400, "invalid-query", "The query holds what a URL may not.")
    target = path + (f"?{query}" if query else "")
    return Route("other", action, path[len(STREAM_PREFIX) :], target)


def parse_read(query: str) -> Read:
    values = _known_values(query)
    offset, live = values.get("offset"), values.get("live")
    if live is not None and live not in (LONG_POLL, SSE):
        raise ProtocolError(400, "invalid-live", "`live` is `long-poll` or `sse`.")
    if live is not None and offset is None:
        raise ProtocolError(400, "offset-required", "A live read needs an `offset`.")
    if offset is None or (offset == ZERO and live is None):
        offset = START
    if not _OFFSET.fullmatch(offset):
        raise ProtocolError(400, "invalid-offset", "The offset is malformed.")
    cursor = values.get("cursor")
    if cursor is not None and not _CURSOR.fullmatch(cursor):
        cursor = None  # as good as absent (DS 10.1), and no key of its own
    return Read(offset, live, cursor)


def _known_values(query: str) -> dict[str, str]:
    values: dict[str, str] = {}
    for pair in query.split("&"):
        key, _, value = pair.partition("=")
        key = unquote_plus(key)
        if key in _KNOWN:
            if key in values:
                raise ProtocolError(400, "repeated-parameter", f"`{key}` is given twice.")
            values[key] = unquote_plus(value)
    return values


def _mode_of(read: Read) -> str:
    if read.live is not None:
        return read.live
    return "now" if read.offset == NOW else "catch-up"


def catch_up_target(path: str, offset: str) -> str:
    return f"{path}?offset={quote(offset, safe='-_')}"


def long_poll_target(path: str, offset: str) -> str:
    """Without a cursor: the gateway makes its own, and the origin must not wait for a change."""
    return f"{path}?offset={quote(offset, safe='-_')}&live={LONG_POLL}"
