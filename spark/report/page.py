"""The whole page: one file that asks nobody for anything.

A policy in its head allows no request and no script or style but these two, by their hashes; so
even a name that came through unescaped could not act.
"""

from base64 import b64encode
from hashlib import sha256
from importlib.resources import files

from spark.report.blocks import Section
from spark.report.data import ReportData
from spark.report.figures import moment
from spark.report.markup import Markup, tag
from spark.report.overview import overview_section
from spark.report.quality import quality_section
from spark.report.state import joined_section, state_section
from spark.report.traffic import latency_section, savings_section, traffic_section
from spark.report.usage import errors_section, sessions_section, streams_section, subjects_section

MAKERS = (
    *(overview_section, traffic_section, savings_section, latency_section),
    *(streams_section, subjects_section, sessions_section, errors_section),
    *(state_section, joined_section, quality_section),
)
GLOSSARY = (
    (
        "Read",
        "a request that stored bytes could have answered: "
        "verdict hit, stale, hub, revalidated or miss",
    ),
    ("Hit ratio", "reads with verdict hit, stale or hub, among all reads"),
    ("Collapsed", "a read that waited for the fetch of another one"),
    (
        "Hub",
        "a live reader who was served from the one long-poll that the gateway keeps open for a "
        "stream; that long-poll is nobody's request and not in the log",
    ),
    ("Collapse factor", "reads, divided by the origin requests made for them"),
    ("Saved", "reads that caused no origin request of their own, and the bytes sent for them"),
    ("Error", "status 500 or above, or verdict error"),
    ("p50, p95, p99", "half, 95 % and 99 % of the requests took no longer than this"),
)
ICON = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E"
    "%3Cpath d='M1 4h14M3 8h10M6 12h4' stroke='%230b7d74' stroke-width='2.4'/%3E%3C/svg%3E"
)


def render(data: ReportData) -> str:
    """HTML in UTF-8, complete."""
    sections = [make(data) for make in MAKERS]
    style, script = _part("report.css"), _part("report.js")
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_policy(style, script)),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", f"Weir report, {moment(data.made_ms)} UTC"),
        tag("link", rel="icon", href=ICON),
        tag("style", Markup(style)),
    )
    body = tag(
        "body",
        tag("a", "Skip to the figures", href="#overview", class_="skip"),
        Markup(_part("patterns.svg")),
        _top(sections),
        tag("main", [one.body for one in sections]),
        _foot(data),
        tag("div", id="tip", role="status", hidden=True),
        tag("script", Markup(script)),
    )
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


def _top(sections: list[Section]) -> Markup:
    links = [tag("a", one.title, href=f"#{one.anchor}") for one in sections]
    mark = tag(
        "svg", tag("path", d="M1 4h14M3 8h10M6 12h4"), width=16, height=16, aria_hidden="true"
    )
    brand = tag("span", mark, "Weir", class_="brand")
    return tag("header", brand, tag("nav", links, aria_label="Sections"), class_="top")


def _foot(data: ReportData) -> Markup:
    words = [(tag("dt", word), tag("dd", meaning)) for word, meaning in GLOSSARY]
    origin = f" and streams of {data.origin}" if data.origin else ""
    return tag(
        "footer",
        tag("h2", "Words"),
        tag("dl", words),
        tag("p", f"Made {moment(data.made_ms)} UTC from {data.logs}{origin}. All times are UTC."),
    )


def _policy(style: str, script: str) -> str:
    return (
        f"default-src 'none'; img-src data:; style-src {_hash(style)}; script-src {_hash(script)};"
        " base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def _part(name: str) -> str:
    return files("spark.report").joinpath(name).read_text("utf-8")
