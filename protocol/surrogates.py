r"""Halves of surrogate pairs in JSON: `"\ud83d"` fits the grammar (RFC 8259 8.2), yet is no text.

JavaScript writes such escapes when an emoji is cut in two, and msgspec refuses them. Here they are
hidden from it: bytes that UTF-8 never has take the place of their backslashes, and nothing moves.
"""

import re
from collections.abc import Callable
from typing import TypeVar

import msgspec

T = TypeVar("T")
Show = Callable[[bytes], bytes]

# Of a surrogate, or of one of the 2048 characters before them: hiding these too does no harm.
_TORN = re.compile(rb"\\u[dD](?![0-9a-fA-F]{3})")
_ESCAPED_BACKSLASH, _HIDDEN_BACKSLASH = b"\\\\", b"\xfe\xfe"
_SHOWN = bytes.maketrans(b"\xfe\xff", b"\\\\")


def despite_halves(read: Callable[[bytes, Show], T], text: bytes) -> T:
    """What `read` makes of JSON in UTF-8 with msgspec, halves or not. Bytes that it takes out of
    its text must go through the function that it is given; a string with a half cannot be
    decoded, nor one with a whole pair beside it."""
    try:
        return read(text, bytes)
    except msgspec.DecodeError:
        hidden = _hide(text)
        if hidden is None:
            raise
    return read(hidden, _show)


def _hide(text: bytes) -> bytes | None:
    """None where there is nothing to hide, or where it could not be shown again."""
    if b"\xfe" in text or b"\xff" in text:
        return None
    bare = text.replace(_ESCAPED_BACKSLASH, _HIDDEN_BACKSLASH)
    if _TORN.search(bare):
        return None
    # Whole pairs as well: to tell halves from them takes ten times as long.
    hidden = bare.replace(b"\\ud", b"\xffud").replace(b"\\uD", b"\xffuD")
    return None if hidden == bare else hidden


def _show(hidden: bytes) -> bytes:
    return bytes(hidden).translate(_SHOWN)
