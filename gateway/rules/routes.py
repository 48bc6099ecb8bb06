"""From a request's method, path and query to its meaning: the one interpretation shared by
authorisation, cache keys, upstream URLs and the log.

Offsets stay opaque: the origin creates them, and it may not be ours. Unknown parameters of reads
are dropped, so they can neither split the cache nor reach the origin.

A stream has parts: a chunk is named by its starting offset, everything else by its path below the
stream (`/snapshot/{offset}`, `/bootstrap`). Offsets contain no slash, so the two never collide, and
(stream, part) is the key of everything stored.
"""

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from urllib.parse import quote, unquote_plus

from protocol import requests
from protocol.cursors import checked_cursor
from protocol.errors import ProtocolError
from protocol.names import BUCKET_PREFIX, METHODS, STREAM_PREFIX
from protocol.offsets import NOW, START, are_ordered, is_event_id, is_offset
from protocol.paths import LISTING, RESERVED, Kind, Resource, parse_path, stream_url

ZERO = "0000000000000000_0000000000000000"
PREFIXES = (STREAM_PREFIX, BUCKET_PREFIX)
BOOTSTRAP = "/bootstrap"
SNAPSHOT = "/snapshot"

# Subscriptions: tokens issued by the origin itself, and its public keys (DS 6).
OWN_TOKEN = re.compile(rf"{STREAM_PREFIX}__ds/subscriptions/[^/]+/(?:callback|ack|release)")
PUBLIC_KEYS = f"{STREAM_PREFIX}__ds/jwks.json"

_SERVICE_PATH = re.compile(r"(?:/[!\"$-.0-~]+)+")
_QUERY = re.compile(r"[!\"$-~]*")
_CONTROLS = re.compile(r"[\x00-\x1f\x7f]")
_DOTS = re.compile(r"(?:/|%2[Ff]|%5[Cc]|\\)(?:\.|%2[Ee]){1,2}(?:/|%2[Ff]|%5[Cc]|\\|\Z)")
_MEMO_CHARACTERS = 512  # longer ones are not remembered, to bound memory
_ACTIONS = {"GET": "read", "HEAD": "read", "POST": "write", "PUT": "create", "DELETE": "delete"}

# Names of each kind's methods in the log. Publishing a snapshot replaces everything written before
# it, so `write` permission is not enough.
_READS = ("GET", "HEAD")
_MODES: dict[Kind, dict[str, str]] = {
    Kind.STREAM: {"HEAD": "head", "POST": "append", "PUT": "create", "DELETE": "delete"},
    Kind.LATEST_SNAPSHOT: dict.fromkeys(_READS, "snapshot"),
    Kind.SNAPSHOT: dict.fromkeys(_READS, "snapshot") | {"PUT": "publish", "DELETE": "withdraw"},
    Kind.BOOTSTRAP: dict.fromkeys(_READS, "bootstrap"),
    Kind.BUCKET: dict.fromkeys((*_READS, "PUT", "DELETE"), "bucket"),
    Kind.LISTING: dict.fromkeys(_READS, "list"),
}


@dataclass(frozen=True, slots=True)
class ReadQuery:
    """A GET of a stream. `offset` is `-1` for the beginning, `now` for the tail."""

    offset: str
    live: str | None
    cursor: str | None
    max_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Route:
    """`stream` is the canonical name of the stream or bucket; `mode` is the term used in the access
    log."""

    mode: str
    action: str
    stream: str
    path: str  # of the stream or bucket, canonical and encoded, as it goes upstream
    read: ReadQuery | None = None
    part: str = ""  # see the module docstring
    offset: str = ""  # as requested
    cacheable: bool = False
    lists: bool = False  # requires permission to list the bucket
    query: str = ""  # of a write: the origin may support additional parameters

    @property
    def target(self) -> str:
        """The request target at the origin."""
        limit = None if self.read is None else self.read.max_bytes
        target = part_target(self.path, self.part, limit) if self.part else self.path
        return f"{target}?{self.query}" if self.query else target


def is_chunk(part: str) -> bool:
    """Whether a part's name is an offset, not that of a snapshot or bootstrap."""
    return not part.startswith("/")


def is_open(method: str, path: str) -> bool:
    """Whether the origin protects the path itself, or it is public."""
    if method == "POST":
        return OWN_TOKEN.fullmatch(path) is not None
    return path == PUBLIC_KEYS and method in _READS


def parse_route(method: str, path: str, query: str, max_path_bytes: int) -> Route | None:
    """None if the path is not a stream's; raises ProtocolError if it cannot be served."""
    short = len(path) + len(query) <= _MEMO_CHARACTERS
    return (_recall_route if short else _read_route)(method, path, query, max_path_bytes)


def _read_route(method: str, path: str, query: str, max_path_bytes: int) -> Route | None:
    if not path.startswith(PREFIXES):
        return None
    action = _ACTIONS.get(method)
    if action is None:
        raise _not_allowed(METHODS)
    rest = path[len(STREAM_PREFIX) :]
    if path.startswith(STREAM_PREFIX) and rest.partition("/")[0] == RESERVED:
        return _service_route(action, path, query)
    resource = parse_path(path, max_path_bytes)
    assert resource is not None
    if resource.kind is Kind.STREAM and method == "GET":
        return _read_of_stream(resource, query)
    modes = _MODES[resource.kind]
    if method not in modes:
        raise _not_allowed(", ".join((*modes, "OPTIONS")))
    part = _part_of(resource, query)
    return Route(
        modes[method],
        "snapshot" if modes[method] == "publish" else action,
        resource.name,
        stream_url(resource.name),
        part=part,
        offset=resource.offset,
        cacheable=method == "GET" and resource.kind in (Kind.SNAPSHOT, Kind.BOOTSTRAP),
        lists=resource.kind is Kind.LISTING,
        query="" if method in _READS else _written_query(query),
    )


_recall_route = lru_cache(maxsize=16384)(_read_route)


def _not_allowed(allowed: str) -> ProtocolError:
    return ProtocolError(405, "method-not-allowed", f"Use {allowed}.", (("Allow", allowed),))


def _read_of_stream(resource: Resource, query: str) -> Route:
    read = parse_read(query)
    mode = _mode_of(read)
    return Route(
        mode,
        "read",
        resource.name,
        stream_url(resource.name),
        read,
        part=read.offset,
        offset=read.offset,
        cacheable=mode == "catch-up" and read.max_bytes is None,
    )


def _part_of(resource: Resource, query: str) -> str:
    match resource.kind:
        case Kind.LATEST_SNAPSHOT:
            return SNAPSHOT
        case Kind.SNAPSHOT:
            return f"{SNAPSHOT}/{quote(_checked_offset(resource.offset), safe='-_')}"
        case Kind.BOOTSTRAP:
            requests.check_bootstrap_query(query)
            return BOOTSTRAP
        case Kind.LISTING:
            return _listing(query)
        case Kind.STREAM | Kind.BUCKET:
            return ""


def _written_query(query: str) -> str:
    """Unchanged, if it is unambiguous. Writes are not stored, so it is in no cache key."""
    if not _QUERY.fullmatch(query) or _CONTROLS.search(unquote_plus(query)):
        raise _no_query()
    requests.known_values(query, requests.READ_PARAMETERS)
    return query


def _no_query() -> ProtocolError:
    return ProtocolError(400, "invalid-query", "The query is not valid in a URL.")


def _listing(query: str) -> str:
    asked = requests.parse_listing(query)
    limit = "" if asked.limit == requests.MAX_LISTED else str(asked.limit)
    values = {"prefix": asked.prefix, "after": asked.after, "limit": limit}
    try:
        pairs = [f"{name}={quote(value, safe='')}" for name, value in values.items() if value]
    except UnicodeEncodeError:  # the request line is not valid text
        raise ProtocolError(400, "invalid-query", "The query is not UTF-8.") from None
    return f"/{LISTING}" + ("?" + "&".join(pairs) if pairs else "")


def _service_route(action: str, path: str, query: str) -> Route:
    """Subscriptions: forwarded unchanged (encoded slashes must survive), without dot segments."""
    if not _SERVICE_PATH.fullmatch(path) or _DOTS.search(path):
        raise ProtocolError(400, "invalid-path", "The path is not canonical.")
    if not _QUERY.fullmatch(query):
        raise _no_query()
    target = path + (f"?{query}" if query else "")
    return Route("other", action, path[len(STREAM_PREFIX) :], target)


def resume(route: Route, last_event_id: str) -> Route:
    """The route of a reconnecting event stream: a browser repeats the original URL, and sends its
    last position in a header."""
    if route.read is None or route.mode != requests.SSE or not is_event_id(last_event_id):
        return route
    read = replace(route.read, offset=last_event_id)
    return replace(route, read=read, part=last_event_id, offset=last_event_id)


def parse_read(query: str) -> ReadQuery:
    values = requests.read_values(query)
    offset, live = values.get("offset"), values.get("live")
    if offset is None or (offset == ZERO and live is None):
        offset = START
    cursor = None if live is None else checked_cursor(values.get("cursor"))
    offset, most = _checked_offset(offset), requests.parse_max_bytes(values.get("max_bytes"))
    return ReadQuery(offset, live, cursor, most)


def _checked_offset(offset: str) -> str:
    if not is_offset(offset):
        raise ProtocolError(400, "invalid-offset", "The offset is malformed.")
    return offset


def _mode_of(read: ReadQuery) -> str:
    if read.live is not None:
        return read.live
    return "now" if read.offset == NOW else "catch-up"


def part_target(path: str, part: str, max_bytes: int | None = None) -> str:
    """The URL of a part of a stream."""
    if not is_chunk(part):
        return path + part
    return f"{path}?offset={quote(part, safe='-_')}{_limit(max_bytes)}"


def long_poll_target(path: str, offset: str, max_bytes: int | None = None) -> str:
    """Without a cursor: the gateway makes its own."""
    return f"{path}?offset={quote(offset, safe='-_')}&live={requests.LONG_POLL}{_limit(max_bytes)}"


def _limit(max_bytes: int | None) -> str:
    return "" if max_bytes is None else f"&max_bytes={max_bytes}"


def is_replaced(part: str, earliest: str) -> bool:
    """Whether a snapshot at `earliest` replaces this part: chunks that start before it, other
    snapshots, and bootstraps. Offsets are ordered as strings (DS 8) if both name the stream; of
    others we cannot tell, so they count as replaced, and so does all if `earliest` is unknown."""
    if not earliest or not is_chunk(part) or part == START:
        return True
    return part < earliest or not are_ordered(part, earliest)


def is_ahead(offset: str, other: str) -> bool:
    """Whether an offset is known to be after another one in the same stream."""
    return offset > other and are_ordered(offset, other)


def own_offset(asked: str, told: str) -> str:
    """The origin's own offset for a place without data yet: `told` replaces `-1` and offsets that
    do not name the stream or name the one it was forked from."""
    return told if asked == START or not are_ordered(asked, told) else asked
