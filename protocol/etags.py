"""Entity tags of streams and of reads, and their comparison (RFC 9110 13.1).

The incarnation is new for each creation, so a re-created stream never yields a false 304.
"""

import re

# One list member; leading commas and blanks are empty members, which are ignored.
_MEMBER = re.compile(r'[ \t,]*(?:W/)?("[^"]*")[ \t]*(?=,|\Z)')
# All the tags below. A gateway adds the content encoding to those of snapshots and bootstraps.
_OURS = re.compile(
    r'(?:W/)?"([0-9a-f]{16}):'
    r"(?:[0-9]+(?::[0-9]+)?(?::c)?|s[0-9a-f]{16}(?::t)?|b[0-9a-f]{16}:[0-9]+(?::c)?)"
    r'(?:-[a-z]+)?"'
)


def format_etag(incarnation: str, start: int, end: int, closed: bool) -> str:
    return f'"{incarnation}:{start}:{end}:c"' if closed else f'"{incarnation}:{start}:{end}"'


def stream_etag(incarnation: str, tail: int, closed: bool) -> str:
    """The tag of the stream itself; changes with each append and with the close."""
    return f'"{incarnation}:{tail}:c"' if closed else f'"{incarnation}:{tail}"'


def snapshot_etag(incarnation: str, blob: int, at_tail: bool) -> str:
    """Each publication has its own blob. Whether more data follows is part of the response."""
    return f'"{incarnation}:s{blob:016x}:t"' if at_tail else f'"{incarnation}:s{blob:016x}"'


def bootstrap_etag(incarnation: str, blob: int, tail: int, closed: bool) -> str:
    """Weak: the same messages are sent with a different boundary each time."""
    return f'W/"{incarnation}:b{blob:016x}:{tail}{":c" if closed else ""}"'


def incarnation_of_etag(etag: str) -> str:
    """The stream's incarnation; empty for tags of other servers."""
    ours = _OURS.fullmatch(etag)
    return ours[1] if ours else ""


def permits(if_match: str, etag: str | None) -> bool:
    """Whether If-Match allows a write; `etag` is None if there is nothing to match."""
    if etag is None:
        return False
    if if_match.strip(" \t") == "*":
        return True
    member = _MEMBER.match(if_match)
    while member:  # strong comparison: a weak tag matches nothing
        if member[1] == etag and "W/" not in member[0][: member.start(1) - member.start()]:
            return True
        member = _MEMBER.match(if_match, member.end())
    return False


def matches(if_none_match: str, etag: str) -> bool:
    """Weak comparison; everything after the first malformed member is ignored."""
    if if_none_match == etag:
        return True
    if if_none_match.strip(" \t") == "*":
        return True
    opaque = etag.removeprefix("W/")
    member = _MEMBER.match(if_none_match)
    while member:
        if member[1] == opaque:
            return True
        member = _MEMBER.match(if_none_match, member.end())
    return False
