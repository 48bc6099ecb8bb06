"""JSON mode: request bodies to stored bytes, stored bytes to response arrays (DS 7.1).

Stored form: every message unchanged, with surrounding blanks trimmed, followed by one comma. So any
run of messages is a byte range, and a response body is that range in brackets.
"""

import re
from collections.abc import Callable
from itertools import accumulate
from typing import TypeVar

import msgspec

from protocol.errors import ProtocolError

MAX_DEPTH = 512
MAX_MESSAGES = 100_000  # in one body
DENSE = 10 * MAX_MESSAGES  # a body with fewer commas is split without counting first

_BLANKS = b" \t\r\n"
# Raw checks the whole syntax, including nested values, without building them. Two things are left
# to us: UTF-8 inside strings, and a depth limit independent of the call stack.
_array = msgspec.json.Decoder(list[msgspec.Raw])
_value = msgspec.json.Decoder(msgspec.Raw)

# For `translate`: deletes everything but brackets, and turns those into +1 and -1.
NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
DELTAS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")

T = TypeVar("T")
Show = Callable[[bytes], bytes]

# `\ud` starts a surrogate, or one of the 2048 characters before them: hiding those is harmless.
_TORN = re.compile(rb"\\u[dD](?![0-9a-fA-F]{3})")
_ESCAPED_BACKSLASH, _HIDDEN_BACKSLASH = b"\\\\", b"\xfe\xfe"
_SHOWN = bytes.maketrans(b"\xfe\xff", b"\\\\")


def stored_form(body: bytes) -> bytes:
    """Validate a body and flatten one array level; `[]` gives no bytes at all."""
    if not body.isascii():
        _check_utf8(body)
    try:
        return despite_halves(_join_messages, body.strip(_BLANKS))
    except msgspec.DecodeError as error:
        raise _invalid(str(error)) from None
    except RecursionError:
        raise _too_deep() from None


def _join_messages(text: bytes, show: Show) -> bytes:
    if text[:1] == b"[":
        if text.count(b",") > DENSE and _exceeds_limit(text):
            raise _too_many()
        messages = _array.decode(text)
    else:
        messages = [_value.decode(text)]
    if not messages:
        return b""
    if len(messages) > MAX_MESSAGES:
        raise _too_many()
    # Brackets come in pairs, so a short body cannot be deep: most skip the scan.
    if len(text) > 2 * MAX_DEPTH:
        for message in messages:
            if len(message) > 2 * MAX_DEPTH and _depth(bytes(message)) > MAX_DEPTH:
                raise _too_deep()
    messages.append(msgspec.Raw(b""))  # the join then ends with a comma
    return show(b",".join(messages))


def _exceeds_limit(array: bytes) -> bool:
    """Without an object per message: 16 MiB of `0,0,0,` would become 640 MiB of objects."""
    _value.decode(array)
    rest = memoryview(array)[1:]
    for _ in range(MAX_MESSAGES):
        rest = rest[_past_value(rest) :]
        if not rest:
            return False
    return True


def _past_value(text: memoryview) -> int:
    """Where the next value of a valid array begins: msgspec reports the comma before it."""
    try:
        _value.decode(text)
    except msgspec.DecodeError as error:
        return int(str(error).rpartition("(byte ")[2].rstrip(")"))
    return len(text)


def framed(stored: bytes) -> bytes:
    """A run of stored messages as one JSON array."""
    return b"".join((b"[", memoryview(stored)[:-1], b"]"))


def split_messages(stored: bytes) -> list[bytes]:
    return split_array(framed(stored))


def split_array(array: bytes) -> list[bytes]:
    """The elements of a JSON array in UTF-8; raises msgspec.DecodeError if it is not one."""
    return despite_halves(lambda text, show: list(map(show, _array.decode(text))), array)


def _check_utf8(body: bytes) -> None:
    if body.startswith(b"\xef\xbb\xbf"):
        raise _invalid("the body starts with a byte order mark (byte 0)")
    try:
        body.decode()
    except UnicodeDecodeError as error:
        raise _invalid(f"the body is not UTF-8 (byte {error.start})") from None


def _depth(message: bytes) -> int:
    """Deepest nesting of a valid message; linear, and only brackets are visited."""
    if message.count(b"[") + message.count(b"{") <= MAX_DEPTH:
        return 0
    # Without escaped backslashes and quotes, every second piece between quotes is a string.
    bare = message.replace(b"\\\\", b"").replace(b'\\"', b"")
    brackets = b"".join(bare.split(b'"')[::2]).translate(DELTAS, NOT_BRACKETS)
    return max(accumulate(memoryview(brackets).cast("b")), default=0)


def _invalid(detail: str) -> ProtocolError:
    return ProtocolError(400, "invalid-json", detail)


def _too_many() -> ProtocolError:
    return ProtocolError(
        413, "too-many-messages", f"A body may have at most {MAX_MESSAGES:,} messages."
    )


def _too_deep() -> ProtocolError:
    return _invalid(f"messages may nest at most {MAX_DEPTH} levels deep")


# -- halves of surrogate pairs ---------------------------------------------------------------------
# `"\ud83d"` fits the grammar (RFC 8259 8.2) but is not text. JavaScript writes such escapes when an
# emoji is cut in two, and msgspec refuses them. Here they are hidden from it: bytes that UTF-8
# never has take the place of their backslashes, and nothing moves.


def despite_halves(read: Callable[[bytes, Show], T], text: bytes) -> T:
    """The result of `read` on JSON in UTF-8, with or without lone surrogates. Bytes that it takes
    from the text must go through the function it is given. If the text has a lone surrogate,
    no string with a surrogate escape can be decoded, even if its pairs are complete."""
    try:
        return read(text, bytes)
    except msgspec.DecodeError:
        hidden = _hide(text)
        if hidden is None:
            raise
    return read(hidden, _show)


def _hide(text: bytes) -> bytes | None:
    """None if there is nothing to hide, or hiding could not be undone."""
    if b"\xfe" in text or b"\xff" in text:
        return None
    bare = text.replace(_ESCAPED_BACKSLASH, _HIDDEN_BACKSLASH)
    if _TORN.search(bare):
        return None
    # Complete pairs as well: telling them apart takes ten times as long.
    hidden = bare.replace(b"\\ud", b"\xffud").replace(b"\\uD", b"\xffuD")
    return None if hidden == bare else hidden


def _show(hidden: bytes) -> bytes:
    return bytes(hidden).translate(_SHOWN)
