"""Who may do what to which stream: a token's scopes and its principal.

A scope is `action:pattern`. A pattern is a stream's canonical decoded name, or a prefix of one
followed by `*`; a pattern that starts with `/` is a whole path. `%XX` encodes a character that a
scope cannot contain (`%20`, and `%2A` for a literal `*`); canonical names contain no such escapes.
Entries that are not understood grant nothing.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Literal
from urllib.parse import quote, unquote

import msgspec

from protocol.paths import LISTING, MAX_NAME_BYTES, PREFIX

Action = Literal["read", "write", "create", "delete", "snapshot", "subscribe"]
ACTIONS: tuple[Action, ...] = ("read", "write", "create", "delete", "snapshot", "subscribe")

MAX_ENTRIES = 200
MAX_SCOPE_CHARACTERS = 16_384
MAX_PATTERN_CHARACTERS = 3 * (len(PREFIX) + MAX_NAME_BYTES)  # every byte escaped
MEMO_ENTRIES = 1024

# Characters allowed in a scope token (RFC 6749 3.3), without `*` and `%`, which are special.
_SAFE = "/!#$&'()+,-.:;<=>?@[]^_`{|}~"
_ENTRY = re.compile(rf"({'|'.join(ACTIONS)}):([^*]*)(\*?)", re.DOTALL)


class Grant(msgspec.Struct, frozen=True):
    """What one action is allowed on. Names of buckets and their streams start with `/`."""

    everything: bool = False
    flat: bool = False  # every stream below /v1/stream/
    exact: frozenset[str] = frozenset()
    prefixes: tuple[str, ...] = ()

    def covers(self, name: str) -> bool:
        if self.everything or name in self.exact or name.startswith(self.prefixes):
            return True
        return self.flat and not name.startswith("/")


_NO_GRANT = Grant()


class Scopes(msgspec.Struct, frozen=True):
    """Everything a token allows."""

    grants: Mapping[str, Grant] = MappingProxyType({})

    @staticmethod
    def parse(text: str, *, write_may_snapshot: bool = False) -> "Scopes":
        """Parse a `scope` claim; raises ValueError if it is too large."""
        if len(text) > MAX_SCOPE_CHARACTERS:
            raise ValueError("scope too long")
        return _parse(text, write_may_snapshot)

    def allows(self, action: Action, name: str) -> bool:
        """`name` is canonical: `a/b` for /v1/stream/a/b, `/ds/bucket/x` for a bucketed stream."""
        grant = self.grants.get(action)
        return grant is not None and grant.covers(name)

    def allows_some(self, action: Action) -> bool:
        """Whether the action is allowed on any name at all."""
        return self.grants.get(action, _NO_GRANT) != _NO_GRANT

    def allows_listing(self, bucket: str) -> bool:
        """A listing shows every name in the bucket, so a scope for names that start with `s` does
        not include it, although `streams` starts with `s`."""
        grant = self.grants.get("read")
        if grant is None:
            return False
        return listing_name(bucket) in grant.exact or grant.covers(f"{bucket}/")


Identity = tuple[str, str, bytes]  # of a token: its id, its subject, its key


class Principal(msgspec.Struct, frozen=True):
    """The sender of a request, and until when it is valid (Unix seconds, with leeway)."""

    subject: str
    scopes: Scopes
    expires_at: float
    key: bytes = b""  # identity of the key that signed the token
    token_id: str = ""

    @property
    def identity(self) -> Identity:
        """What a withdrawal names: readers with the same identity end together."""
        return self.token_id, self.subject, self.key


def listing_name(bucket: str) -> str:
    """The name of the listing of `/ds/bucket` in a scope."""
    return f"{bucket}/{LISTING}"


def scope_name(action: Action, name: str) -> str:
    """The scope that grants exactly this: visible ASCII without quotes, safe in a header."""
    return f"{action}:{quote(name, safe=_SAFE)}"


# An issuer's tokens have few different scopes, so remembered tokens share their parsed form.
@lru_cache(maxsize=MEMO_ENTRIES)
def _parse(text: str, write_may_snapshot: bool) -> Scopes:
    entries = [entry for entry in text.split(" ") if entry]
    if len(entries) > MAX_ENTRIES:
        raise ValueError("too many scopes")
    patterns: dict[str, list[tuple[str, bool]]] = {}
    for action, text, open_ended in filter(None, map(_read_entry, entries)):
        patterns.setdefault(action, []).append((text, open_ended))
    if write_may_snapshot and "write" in patterns:
        patterns["snapshot"] = patterns.get("snapshot", []) + patterns["write"]
    return Scopes(MappingProxyType({a: _make_grant(found) for a, found in patterns.items()}))


def _read_entry(entry: str) -> tuple[str, str, bool] | None:
    """(action, decoded text, whether a star follows)"""
    match = _ENTRY.fullmatch(entry) if len(entry) <= MAX_PATTERN_CHARACTERS else None
    if match is None:
        return None
    try:
        return match[1], unquote(match[2], errors="strict"), bool(match[3])
    except UnicodeError:
        return None


def _make_grant(patterns: list[tuple[str, bool]]) -> Grant:
    starts = [text for text, open_ended in patterns if open_ended]
    return Grant(
        everything="" in starts or "/" in starts,
        flat=any(PREFIX.startswith(text) for text in starts),
        exact=frozenset(_names(text for text, open_ended in patterns if not open_ended)),
        prefixes=tuple(sorted(set(_names(starts)))),
    )


def _names(patterns: Iterable[str]) -> Iterator[str]:
    """Patterns of paths as patterns of names."""
    for pattern in patterns:
        name = pattern.removeprefix(PREFIX)
        nested = name != pattern and name.startswith("/")  # /v1/stream//ds/x is not /ds/x
        if name and not nested:
            yield name


EVERYTHING = Scopes.parse(" ".join(f"{action}:*" for action in ACTIONS))
NOTHING = Scopes()
ANYONE = Principal(subject="", scopes=EVERYTHING, expires_at=math.inf)  # auth.mode = off
