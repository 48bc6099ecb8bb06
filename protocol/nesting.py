"""Where the messages of stored JSON end, computed in slices to bound the time of each step.

Stored JSON is valid, so only strings and brackets matter. Outside of strings valid JSON has no
backslashes; inside, each escapes the following byte.
"""

import re
from collections.abc import Iterator
from itertools import accumulate
from typing import NamedTuple

from protocol.jsonmode import DELTAS, NOT_BRACKETS, split_messages

SLICE_BYTES = 32 * 1024

_TOKEN = re.compile(rb'\\.|["\[\]{},]', re.DOTALL)


class Nesting(NamedTuple):
    """The context of a byte, derived from the bytes before it."""

    in_string: bool = False
    escaped: bool = False  # by a preceding backslash
    depth: int = 0


BETWEEN = Nesting()  # two messages


def after(nesting: Nesting, text: bytes) -> Nesting:
    """The nesting of the byte after `text`."""
    pieces, escaped = _between_quotes(nesting, text)
    outside = b"".join(pieces[nesting.in_string :: 2])
    opened = outside.count(b"[") + outside.count(b"{")
    closed = outside.count(b"]") + outside.count(b"}")
    in_string = nesting.in_string ^ (len(pieces) % 2 == 0)
    return Nesting(in_string, escaped, nesting.depth + opened - closed)


def _between_quotes(nesting: Nesting, text: bytes) -> tuple[list[bytes], bool]:
    """Every second piece is a string; and whether the byte after `text` is escaped."""
    bare = text[nesting.escaped :].replace(b"\\\\", b"")
    return bare.replace(b'\\"', b"").split(b'"'), bare.endswith(b"\\")


def nestings(stored: bytes) -> Iterator[Nesting]:
    """After each slice. Text after a comma, up to the end of its append, ends `BETWEEN` if and only
    if it started between messages: otherwise it has an unbalanced quote or bracket."""
    nesting = BETWEEN
    for at in range(0, len(stored), SLICE_BYTES):
        nesting = after(nesting, stored[at : at + SLICE_BYTES])
        yield nesting


def ends(nesting: Nesting, text: bytes) -> Iterator[int]:
    """Where the commas between messages end."""
    in_string, depth = nesting.in_string, nesting.depth
    for match in _TOKEN.finditer(text, nesting.escaped):
        token = match[0]
        if token == b'"':
            in_string = not in_string
        elif in_string:
            continue
        elif token == b",":
            if depth == 0:
                yield match.end()
        else:
            depth += 1 if token in b"[{" else -1


def _first_end(nesting: Nesting, text: bytes) -> int | None:
    """Most slices of a large message are skipped without scanning each token."""
    if nesting.depth:
        pieces, _ = _between_quotes(nesting, text)
        outside = b"".join(pieces[nesting.in_string :: 2]).translate(DELTAS, NOT_BRACKETS)
        if nesting.depth + min(accumulate(memoryview(outside).cast("b")), default=0) > 0:
            return None
    return next(ends(nesting, text), None)


def batches(stored: bytes) -> Iterator[list[bytes]]:
    """All messages, about a slice at a time; an empty list after a slice within a large
    message."""
    start = 0
    while len(stored) - start > SLICE_BYTES:
        at = start + SLICE_BYTES - 1  # the next byte may be the comma
        nesting = after(BETWEEN, stored[start:at])
        while (end := _first_end(nesting, stored[at : at + SLICE_BYTES])) is None:
            nesting = after(nesting, stored[at : at + SLICE_BYTES])
            at += SLICE_BYTES
            assert at < len(stored), "the last message has no comma"
            yield []
        yield _split(stored[start : at + end])
        start = at + end
    yield split_messages(stored[start:])


def _split(piece: bytes) -> list[bytes]:
    """Only the last message can be large, and it need not be parsed."""
    if len(piece) <= 2 * SLICE_BYTES:
        return split_messages(piece)
    *_, start = 0, *ends(BETWEEN, piece[:SLICE_BYTES])
    return [*split_messages(piece[:start]), piece[start:-1]]
