"""What may be stored of an origin's response to a read, and how long it may be trusted.

    chunk below the tail, or up to the end of a closed stream   never changes: fresh for a while
    chunk that reached the tail of an open stream               kept, but revalidated each time
    chunk of a stream that can expire                           kept, but revalidated each time
    snapshot                                                    as a chunk that ends where it does
    bootstrap                                                   kept, but revalidated each time

The origin's Cache-Control can make this stricter, never looser. Without one, the first row applies
only to streams that are known not to expire.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto

_NEVER_STALE = frozenset({"must-revalidate", "proxy-revalidate"})
_DIRECTIVE = re.compile(r'([a-z-]+)(?:="?([0-9]+)"?)?')


class Expiry(Enum):
    UNKNOWN = auto()
    NEVER = auto()
    POSSIBLE = auto()


@dataclass(frozen=True, slots=True)
class Policy:
    """Seconds after the response; `fresh_s` 0 means that each use is revalidated."""

    store: bool
    immutable: bool
    fresh_s: float = 0.0
    stale_s: float = 0.0
    stale_error_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Times:
    fresh_s: float
    stale_s: float
    stale_error_s: float
    obey_no_store: bool


def judge(
    headers: Mapping[str, str], *, up_to_date: bool, closed: bool, expiry: Expiry, times: Times
) -> Policy:
    """The policy for a 200 with these headers (lower-case names)."""
    told = parse_cache_control(headers.get("cache-control", ""))
    forbidden = "no-store" in told or "private" in told
    if forbidden and times.obey_no_store:
        return Policy(store=False, immutable=False)
    if (up_to_date and not closed) or not _trusted(told, forbidden, expiry):
        return Policy(store=True, immutable=False)
    fresh = min(times.fresh_s, _lifetime(told, times.fresh_s))
    if not _NEVER_STALE.isdisjoint(told):
        return Policy(True, True, fresh)
    return Policy(True, True, fresh, times.stale_s, times.stale_error_s)


def _trusted(told: Mapping[str, int | None], forbidden: bool, expiry: Expiry) -> bool:
    if expiry is Expiry.POSSIBLE or "no-cache" in told or not _lifetime(told, 1):
        return False
    return expiry is Expiry.NEVER or (bool(told) and not forbidden)


def _lifetime(told: Mapping[str, int | None], otherwise: float) -> float:
    """Directives for shared caches take precedence; invalid numbers count as 0 (RFC 9111 4.2.1)."""
    name = "s-maxage" if "s-maxage" in told else "max-age"
    return (told[name] or 0) if name in told else otherwise


def parse_cache_control(value: str) -> dict[str, int | None]:
    found: dict[str, int | None] = {}
    for part in value.lower().split(","):
        match = _DIRECTIVE.match(part.strip())
        if match:
            found[match[1]] = int(match[2][:9]) if match[2] else None
    return found
