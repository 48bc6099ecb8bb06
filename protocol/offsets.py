"""Offset tokens: 16 characters that name the stream, underscore, 16 digits, the byte position.

The name is the stream's identity in 15 consonants and an underscore. It is the same for all offsets
of a stream, and the rest has a fixed width, so string order is position order. It is not a number,
and gives a token three parts between underscores: servers that increment offsets of two parts,
such as the official Yjs server, leave ours alone. Older offsets have 16 zeros and name no stream;
they stay valid.

`NOW` depends on the stream's tail, so callers resolve it before they parse.
"""

import re
from functools import lru_cache
from typing import NamedTuple

from protocol.errors import ProtocolError

START = "-1"
NOW = "now"

# Offsets that any server may create (DS 8): visible, without `, & = ? /`.
_ANY = re.compile(r"[!-%'-+\-.0-<>@-~]{1,255}")
_LETTERS = "bcdfghjklmnpqrstvwxz"  # no vowels, so no words
_NAMED = re.compile(rf"([{_LETTERS}]{{15}}_)_([0-9]{{16}})")
_NAMELESS = re.compile(r"[0-9]{16}_[0-9]{16}")
_ZEROS = "0" * 16
_IDS = range(1 << 64)


class Offset(NamedTuple):
    """A position and its stream; None if the token does not name it."""

    position: int
    stream_id: int | None = None


def format_offset(stream_id: int, position: int) -> str:
    return _name_of(stream_id) + str(position).zfill(16)


@lru_cache(maxsize=16384)
def _name_of(stream_id: int) -> str:
    """With the underscore that follows it."""
    letters = ""
    for _ in range(15):
        stream_id, digit = divmod(stream_id, len(_LETTERS))
        letters = _LETTERS[digit] + letters
    return letters + "__"


@lru_cache(maxsize=16384)
def _id_of(name: str) -> int | None:
    stream_id = 0
    for letter in name[:15]:
        stream_id = stream_id * len(_LETTERS) + _LETTERS.index(letter)
    return stream_id if stream_id in _IDS else None


def parse_offset(token: str) -> Offset:
    named = _NAMED.fullmatch(token)
    if named and (stream_id := _id_of(named[1])) is not None:
        return Offset(int(named[2]), stream_id)
    if _NAMELESS.fullmatch(token):
        return Offset(int(token))  # underscore ignored: a number in front is beyond any tail
    if token == START:
        return Offset(0)
    raise ProtocolError(400, "invalid-offset", "The offset is not valid.")


def is_offset(token: str) -> bool:
    """Whether it is a valid offset of any server, not only ours."""
    return _ANY.fullmatch(token) is not None


def is_event_id(token: str) -> bool:
    """Whether a server can have sent it as an event id; `-1` and `now` are not."""
    return is_offset(token) and token not in (START, NOW)


# -- facts about tokens that may not be ours -------------------------------------------------------


def incarnation_of_offset(token: str) -> str:
    """The stream's incarnation, as in entity tags; empty if the token does not name it."""
    named = _NAMED.fullmatch(token)
    stream_id = _id_of(named[1]) if named else None
    return "" if stream_id is None else f"{stream_id:016x}"


def position_of(token: str) -> int | None:
    """The byte position that one of our tokens names."""
    if token == START:
        return 0
    return int(token[17:]) if _NAMED.fullmatch(token) or _is_nameless(token) else None


def moved_to(token: str, position: int) -> str:
    """Another offset of the same stream, for one of our tokens."""
    return f"{token[:17]}{position:016}"


def are_ordered(token: str, other: str) -> bool:
    """Whether the string order of two tokens is their order in one stream: not if only one of them
    names it, nor with an ancestor's offset in a fork."""
    if token[:17] == other[:17] or START in (token, other):
        return True
    return incarnation_of_offset(token) == incarnation_of_offset(other)


def _is_nameless(token: str) -> bool:
    return token[:17] == f"{_ZEROS}_" and _NAMELESS.fullmatch(token) is not None
