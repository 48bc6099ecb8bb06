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

_HEX = "[0-9a-fA-F]{2}"
_HIGH, _LOW = f"u[dD][89abAB]{_HEX}", f"u[dD][c-fC-F]{_HEX}"
# Literal characters come first: they are searched for quickly.
_HALF = re.compile(
    rf"\\u(?=[dD](?:[89abAB]{_HEX}(?!\\{_LOW})|[c-fC-F]{_HEX}(?<!\\{_HIGH}\\{_LOW})))".encode()
)
_ESCAPED_BACKSLASH, _HIDDEN_BACKSLASH = b"\\\\", b"\xfe\xfe"
_SHOWN = bytes.maketrans(b"\xfe\xff", b"\\\\")


def despite_halves(read: Callable[[bytes, Show], T], text: bytes) -> T:
    """What `read` makes of JSON in UTF-8 with msgspec, halves or not. Bytes that it takes out of
    its text must go through the function that it is given; a string with a half cannot be
    decoded."""
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
    hidden, count = _HALF.subn(b"\xffu", text.replace(_ESCAPED_BACKSLASH, _HIDDEN_BACKSLASH))
    return hidden if count else None


def _show(hidden: bytes) -> bytes:
    return bytes(hidden).translate(_SHOWN)
