"""Untrusted text, made safe to print on a terminal.

Characters that are not printable (controls, escape sequences, changes of text direction) become
JSON escapes. In JSON they occur only inside strings, so the meaning stays the same.
"""

import json

_BLANKS = {ord(blank): " " for blank in "\t\r\n"}
_DOUBTFUL = set(' "\\')


def shown(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else _escape(c) for c in text)


def shown_json(raw: bytes) -> str:
    """JSON on one line: line ends and tabs can only be between its tokens."""
    return shown(raw.decode().translate(_BLANKS))


def shown_word(text: str) -> str:
    """In quotes only if it would be ambiguous otherwise."""
    if text and text.isprintable() and not set(text) & _DOUBTFUL:
        return text
    return shown_string(text)


def shown_string(text: str) -> str:
    """As a JSON string."""
    return shown(json.dumps(text, ensure_ascii=False))


def _escape(character: str) -> str:
    """As one or two UTF-16 units."""
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
