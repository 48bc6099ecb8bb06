"""From URL paths to resources: one canonical decoded name per stream, or a refusal.

Authorisation, cache keys and storage all use this name. Paths that servers interpret differently
(encoded slashes, dot segments, double encoding) are therefore refused.

  /v1/stream/{name}                     a stream; its name may have slashes in it
  /ds/{bucket}                          a bucket, named `/ds/{bucket}`
  /ds/{bucket}/streams                  its listing
  /ds/{bucket}/{stream}                 a stream of it, named `/ds/{bucket}/{stream}`
  {stream}/snapshot[/{offset}]          the latest snapshot, or the one at an offset
  {stream}/bootstrap                    snapshot and updates in one response

Flat names never start with a slash, so the two kinds cannot collide. Stream names cannot end in
`/snapshot`, `/snapshot/…` or `/bootstrap`: a path means the same whatever streams exist.
"""

import re
from collections.abc import Callable, Sequence
from enum import Enum, auto
from urllib.parse import quote, unquote_to_bytes

from msgspec import Struct

from protocol.errors import ProtocolError
from protocol.names import BUCKET_PREFIX, STREAM_PREFIX

PREFIX = STREAM_PREFIX
RESERVED = "__ds"
LISTING = "streams"
MAX_NAME_BYTES = 1024
MAX_KEY_BYTES = 122  # of `{bucket}/{stream}`, and so of the stream

_BUCKET = re.compile(r"[a-z0-9_-]{4,64}")
_PARTS = re.compile(r"(?s:(.+?))/(?:bootstrap|snapshot(?:/([^/]+))?)")

_SAFE = "!$&'()*+,;=:@~"  # with letters, digits, "-._": allowed unescaped in a path segment
# Already canonical; segments that start with a dot take the slow path.
_PLAIN = re.compile(
    r"(?!__ds(?:/|\Z))[\w!$&'()*+,;=:@~-][\w!$&'()*+,;=:@~.-]*+"
    r"(?:/[\w!$&'()*+,;=:@~-][\w!$&'()*+,;=:@~.-]*+)*+",
    re.ASCII,
)
_RULES_RAW = (
    (re.compile(r"[^!-~]|[?#]"), "characters outside printable ASCII must be percent-encoded"),
    (re.compile(r"%(?![0-9A-Fa-f]{2})"), "incomplete percent escape"),
    (re.compile(r"%2[Ff]"), "encoded slash"),
)
_RULES_DECODED = (
    (re.compile(r"[\x00-\x1f\x7f-\x9f]"), "control character"),
    (re.compile(r"\\"), "backslash"),
    (re.compile(r"%[0-9A-Fa-f]{2}"), "double encoding"),
    (re.compile(r"(?:^|/)(?=/|\Z)"), "empty segment"),
    (re.compile(r"(?:^|/)\.\.?(?=[/;]|\Z)"), "dot segment"),  # some servers cut a segment at `;`
)


class Kind(Enum):
    STREAM = auto()
    LATEST_SNAPSHOT = auto()
    SNAPSHOT = auto()
    BOOTSTRAP = auto()
    BUCKET = auto()
    LISTING = auto()


class Resource(Struct, frozen=True, gc=False):
    """The resource at a path: `name` of the stream or bucket, `offset` of a snapshot."""

    kind: Kind
    name: str
    offset: str = ""


def parse_path(path: str, max_bytes: int = MAX_NAME_BYTES) -> Resource | None:
    """None if the path is below neither prefix; raises ProtocolError for invalid names."""
    if path.startswith(STREAM_PREFIX):
        return _part_of(stream_name(path[len(STREAM_PREFIX) :], max_bytes))
    if path.startswith(BUCKET_PREFIX):
        return _bucketed(_decoded(path[len(BUCKET_PREFIX) :], max_bytes))
    return None


def parse_source(path: str) -> str | None:
    """The name of the stream at a path from a header; None for everything else."""
    resource = parse_path(path)
    return resource.name if resource is not None and resource.kind is Kind.STREAM else None


def bucket_of(name: str) -> str:
    """The name of a stream's bucket; empty for flat streams and for buckets."""
    bucket = name.rpartition("/")[0] if name.startswith("/") else ""
    return bucket if len(bucket) > len(BUCKET_PREFIX) else ""


def _part_of(name: str) -> Resource:
    """A stream or one of its sub-resources."""
    if not name.endswith("/bootstrap") and "/snapshot" not in name:
        return Resource(Kind.STREAM, name)
    match = _PARTS.fullmatch(name)
    if match is None:
        return Resource(Kind.STREAM, name)
    if match[2] is not None:
        return Resource(Kind.SNAPSHOT, match[1], match[2])
    kind = Kind.BOOTSTRAP if name.endswith("/bootstrap") else Kind.LATEST_SNAPSHOT
    return Resource(kind, match[1])


def _bucketed(rest: str) -> Resource:
    bucket, slash, local = rest.partition("/")
    if not _BUCKET.fullmatch(bucket):
        raise ProtocolError(
            400, "invalid-bucket", "Use 4 to 64 lower-case letters, digits, `_` or `-`."
        )
    if not slash:
        return Resource(Kind.BUCKET, BUCKET_PREFIX + bucket)
    if local == LISTING:
        return Resource(Kind.LISTING, BUCKET_PREFIX + bucket)
    resource = _part_of(local)
    stream = resource.name
    if "/" in stream or ".." in stream:
        raise _invalid("a stream of a bucket has neither `/` nor `..` in its name")
    if stream == LISTING:
        raise _invalid(f"`{LISTING}` is the listing of the bucket")
    if len(f"{bucket}/{stream}".encode()) > MAX_KEY_BYTES:
        raise _invalid(f"bucket and stream are longer than {MAX_KEY_BYTES} bytes")
    return Resource(resource.kind, f"{BUCKET_PREFIX}{bucket}/{stream}", resource.offset)


def stream_name(raw: str, max_bytes: int = MAX_NAME_BYTES) -> str:
    """The canonical name for the percent-encoded rest of a path after the flat prefix."""
    if len(raw) <= max_bytes and _PLAIN.fullmatch(raw):
        return raw
    name = _decoded(raw, max_bytes)
    if name.partition("/")[0] == RESERVED:
        raise ProtocolError(404, "reserved-path", f"{RESERVED} is not a stream")
    return name


def _decoded(raw: str, max_bytes: int) -> str:
    if len(raw) > 3 * max_bytes:
        raise _too_long(max_bytes)
    _check(raw, _RULES_RAW)
    encoded = unquote_to_bytes(raw)
    if len(encoded) > max_bytes:
        raise _too_long(max_bytes)
    try:
        name = encoded.decode()
    except UnicodeDecodeError:
        raise _invalid("not UTF-8") from None
    _check(name, _RULES_DECODED)
    return name


def stream_url(name: str) -> str:
    """The canonical URL path of a stream or a bucket: the inverse of `parse_path`."""
    prefix = "" if name.startswith("/") else STREAM_PREFIX
    return prefix + (name if _PLAIN.fullmatch(name) else quote(name, safe="/" + _SAFE))


def _check(text: str, rules: tuple[tuple[re.Pattern[str], str], ...]) -> None:
    for pattern, reason in rules:
        if pattern.search(text):
            raise _invalid(reason)


def _invalid(reason: str) -> ProtocolError:
    return ProtocolError(400, "invalid-path", f"invalid stream path: {reason}")


def _too_long(max_bytes: int) -> ProtocolError:
    return _invalid(f"longer than {max_bytes} bytes")


# -- other paths, where configured -----------------------------------------------------------------
# They are renamed to those at the top first of all, so no other code has to know them.
#
#   {prefix}{name}            /v1/stream/{name}; some clients have /v1/streams/ built in
#   /{bucket}, /{bucket}/…    /ds/{bucket}, /ds/{bucket}/…, except the paths of our own pages

Rename = Callable[[str], str]

PAGES = ("healthz", "readyz", "metrics", "console", "cluster")

_PREFIX = re.compile(r"/(?:[A-Za-z0-9_~-][A-Za-z0-9._~-]*/)+")
_AT_ROOT = re.compile(rf"/(?!(?:{'|'.join(PAGES)})(?:/|\Z))[a-z0-9_-]{{4,64}}(?:/|\Z)")
_TAKEN = (STREAM_PREFIX, BUCKET_PREFIX, *(f"/{page}/" for page in PAGES))


def is_prefix(text: str) -> bool:
    """Whether it can be an alias of the stream prefix, without a conflict."""
    if text.startswith(_TAKEN) or STREAM_PREFIX.startswith(text):
        return False
    return _PREFIX.fullmatch(text) is not None


def make_rename(prefixes: Sequence[str], *, root_buckets: bool) -> Rename:
    """From a requested path to the canonical one."""
    others = tuple(sorted(prefixes, key=len, reverse=True))  # the longest match wins
    if not others and not root_buckets:
        return str  # returns its argument unchanged

    def rename(path: str) -> str:
        if path.startswith(others):
            prefix = next(prefix for prefix in others if path.startswith(prefix))
            return STREAM_PREFIX + path[len(prefix) :]
        if root_buckets and _AT_ROOT.match(path):
            return BUCKET_PREFIX + path[1:]
        return path

    return rename
