"""What may be printed: text of strangers without a character that a terminal would obey.

Whatever is not printable (controls, escape sequences, characters that turn the direction of text)
becomes a JSON escape. In JSON such characters stand inside strings only, so it means the same.
"""

import json

_BLANKS = {ord(blank): " " for blank in "\t\r\n"}
_DOUBTFUL = set(' "\\')


def shown(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else _escape(c) for c in text)


def shown_json(raw: bytes) -> str:
    """JSON in one line: line ends and tabs can only stand between its tokens."""
    return shown(raw.decode().translate(_BLANKS))


def shown_word(text: str) -> str:
    """As it is where that leaves no doubt, else in quotes."""
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
