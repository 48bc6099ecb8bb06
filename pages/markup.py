"""HTML and SVG from values: whatever is not markup already is escaped, without exception."""

import html
import unicodedata
from collections.abc import Iterable

VOID = frozenset({"meta", "link", "br", "input"})
# Controls, formats, halves of pairs, line ends: they have no look of their own, or change that of
# their neighbours, or cannot be in a document at all.
UNSEEN = ("C", "Zl", "Zp")
NAME_CHARACTERS = 256


class Markup(str):
    """Text that may stand in a document as it is."""

    __slots__ = ()


Child = str | int | None | Iterable["Child"]


def escape(text: str) -> Markup:
    """Also for attributes."""
    if isinstance(text, Markup):
        return text
    return Markup(html.escape(text if text.isprintable() else _spell(text, but="\n\t")))


def tag(element: str, /, *children: Child, **attributes: str | int | float | bool | None) -> Markup:
    """`class_` is written without its underscore, `data_tip` with a hyphen; None and False: not."""
    words = [element]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        name = key.rstrip("_").replace("_", "-")
        words.append(name if value is True else f'{name}="{escape(_text(value))}"')
    head = f"<{' '.join(words)}>"
    return Markup(head if element in VOID else f"{head}{join(children)}</{element}>")


def join(children: Child) -> Markup:
    if children is None:
        return Markup()
    if isinstance(children, str | int):
        return escape(str(children)) if not isinstance(children, Markup) else children
    return Markup("".join(map(join, children)))


def visible(text: str) -> str:
    """All on one line, and what cannot be seen spelled out: no name looks like another."""
    return text if text.isprintable() else _spell(text)


def name_of(text: str, otherwise: str = "(none)") -> Markup:
    """A name that somebody else chose: isolated, visible, of bounded length."""
    if not text:
        return tag("i", otherwise, class_="none")
    seen = visible(text)
    short = seen if len(seen) <= NAME_CHARACTERS else seen[: NAME_CHARACTERS - 1] + "…"
    return tag("bdi", short, class_="name", title=short)


def _text(value: str | int | float) -> str:
    """Coordinates need no more than two digits."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def _spell(text: str, but: str = "") -> str:
    return "".join(
        f"\\u{{{ord(c):x}}}" if c not in but and unicodedata.category(c).startswith(UNSEEN) else c
        for c in text
    )
