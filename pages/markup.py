"""HTML and SVG from values: everything that is not Markup is escaped."""

import html
import unicodedata
from collections.abc import Iterable

VOID = frozenset({"meta", "link", "br", "input"})
# Controls, formats, lone surrogates, line ends: invisible, changing their neighbours, or not
# allowed in a document.
UNSEEN = ("C", "Zl", "Zp")
NAME_CHARACTERS = 256


class Markup(str):
    """Text that needs no escaping."""

    __slots__ = ()


Child = str | int | None | Iterable["Child"]


def escape(text: str) -> Markup:
    """Also for attributes."""
    if isinstance(text, Markup):
        return text
    return Markup(html.escape(text if text.isprintable() else _spell(text, but="\n\t")))


def tag(element: str, /, *children: Child, **attributes: str | int | float | bool | None) -> Markup:
    """`class_` loses its underscore, `data_tip` becomes `data-tip`; None and False are omitted."""
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
    """On one line, with invisible characters spelled out: no two names look the same."""
    return text if text.isprintable() else _spell(text)


def name_of(text: str, otherwise: str = "(none)") -> Markup:
    """An untrusted name: isolated, visible, of bounded length."""
    if not text:
        return tag("i", otherwise, class_="none")
    seen = visible(text)
    short = seen if len(seen) <= NAME_CHARACTERS else seen[: NAME_CHARACTERS - 1] + "…"
    return tag("bdi", short, class_="name", title=short)


def _text(value: str | int | float) -> str:
    """Coordinates need at most two decimals."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def _spell(text: str, but: str = "") -> str:
    return "".join(
        f"\\u{{{ord(c):x}}}" if c not in but and unicodedata.category(c).startswith(UNSEEN) else c
        for c in text
    )
