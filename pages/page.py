"""The whole page: one file that loads nothing else.

Its content security policy allows no requests, and only its own script and style, by hash. So even
an unescaped name could do nothing.
"""

from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256
from importlib.resources import files

from pages.blocks import Section
from pages.markup import Child, Markup, tag

ICON = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E"
    "%3Cpath d='M1 4h14M3 8h10M6 12h4' stroke='%230b7d74' stroke-width='2.4'/%3E%3C/svg%3E"
)


def render_page(title: str, sections: Sequence[Section], foot: Child, *, bare: bool = False) -> str:
    """A complete HTML document; `bare` omits the top bar, for images."""
    style, script = _part("page.css"), _part("page.js")
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_policy(style, script)),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", title),
        tag("link", rel="icon", href=ICON),
        tag("style", Markup(style)),
    )
    body = tag(
        "body",
        tag("a", "Skip to the figures", href=f"#{sections[0].anchor}", class_="skip"),
        Markup(_part("patterns.svg")),
        None if bare else _top(sections),
        tag("main", [one.body for one in sections]),
        tag("footer", foot),
        tag("div", id="tip", role="status", hidden=True),
        tag("script", Markup(script)),
    )
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


def _top(sections: Sequence[Section]) -> Markup:
    links = [tag("a", one.title, href=f"#{one.anchor}") for one in sections]
    mark = tag(
        "svg", tag("path", d="M1 4h14M3 8h10M6 12h4"), width=16, height=16, aria_hidden="true"
    )
    brand = tag("span", mark, "Weir", class_="brand")
    return tag("header", brand, tag("nav", links, aria_label="Sections"), class_="top")


def _policy(style: str, script: str) -> str:
    return (
        f"default-src 'none'; img-src data:; style-src {_hash(style)}; script-src {_hash(script)};"
        " base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def _part(name: str) -> str:
    return files("pages").joinpath(name).read_text("utf-8")
