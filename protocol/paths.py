"""Stream names in URLs: one canonical decoded name per stream, or a refusal.

Everyone who authorises, keys a cache or opens a stream uses this name. What different servers
read differently (encoded slashes, dot segments, double encoding) is therefore refused.
"""

import re
from urllib.parse import quote, unquote_to_bytes

from protocol.errors import ProtocolError

PREFIX = "/v1/stream/"
RESERVED = "__ds"
MAX_NAME_BYTES = 1024

_SAFE = "!$&'()*+,;=:@~"  # with letters, digits, "-._": what a path segment may hold as it is
# Canonical as it stands; segments that begin with a dot take the slow way.
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


def stream_name(raw: str, max_bytes: int = MAX_NAME_BYTES) -> str:
    """The canonical name for the percent-encoded rest of a path after the prefix."""
    if len(raw) <= max_bytes and _PLAIN.fullmatch(raw):
        return raw
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
    if name.partition("/")[0] == RESERVED:
        raise ProtocolError(404, "reserved-path", f"{RESERVED} is not a stream")
    return name


def stream_url(name: str) -> str:
    """The canonical URL path of a stream: the inverse of `stream_name`."""
    return PREFIX + (name if _PLAIN.fullmatch(name) else quote(name, safe="/" + _SAFE))


def _check(text: str, rules: tuple[tuple[re.Pattern[str], str], ...]) -> None:
    for pattern, reason in rules:
        if pattern.search(text):
            raise _invalid(reason)


def _invalid(reason: str) -> ProtocolError:
    return ProtocolError(400, "invalid-path", f"invalid stream path: {reason}")


def _too_long(max_bytes: int) -> ProtocolError:
    return _invalid(f"longer than {max_bytes} bytes")
