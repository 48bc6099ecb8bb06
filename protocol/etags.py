"""Entity tags of catch-up reads and their comparison (RFC 9110 8.8.3, 13.1.2).

The incarnation is new for each creation, so a re-created stream never yields a false 304.
"""

import re

# One list member; leading commas and blanks are empty members, which a recipient ignores.
_MEMBER = re.compile(r'[ \t,]*(?:W/)?("[^"]*")[ \t]*(?=,|\Z)')


def format_etag(incarnation: str, start: int, end: int, closed: bool) -> str:
    return f'"{incarnation}:{start}:{end}:c"' if closed else f'"{incarnation}:{start}:{end}"'


def matches(if_none_match: str, etag: str) -> bool:
    """Weak comparison; whatever follows the first malformed member is ignored."""
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
