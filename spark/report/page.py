"""The report as a page: its sections, and a glossary."""

from pages.figures import moment
from pages.markup import Markup, tag
from pages.page import render_page
from spark.report.data import ReportData
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
        "a request that could have been served from stored bytes: "
        "verdict hit, stale, hub, revalidated or miss",
    ),
    (
        "Hit ratio",
        "share of reads with verdict hit or stale that waited for no other request; hub and "
        "collapsed reads are shown separately",
    ),
    ("Collapsed", "a read that waited for another read's fetch"),
    (
        "Hub",
        "a live reader served from the one long-poll that the gateway keeps open per stream; "
        "its origin requests are attributed to the longest-waiting reader",
    ),
    ("Collapse factor", "reads divided by the origin requests made for them, including hubs'"),
    ("Saved", "reads without an origin request, and the bytes sent for them"),
    ("Error", "status 500 or above, or verdict error"),
    (
        "p50, p95, p99",
        "50 %, 95 % and 99 % of requests took at most this long; truncated to two digits, "
        "so the actual time may be up to 10 % longer",
    ),
)


def render(data: ReportData) -> str:
    title = f"Weir report, {moment(data.made_ms)} UTC"
    return render_page(title, [make(data) for make in MAKERS], _foot(data))


def _foot(data: ReportData) -> list[Markup]:
    words = [(tag("dt", word), tag("dd", meaning)) for word, meaning in GLOSSARY]
    origin = f" and streams of {data.origin}" if data.origin else ""
    return [
        tag("h2", "Glossary"),
        tag("dl", words),
        tag("p", f"Made {moment(data.made_ms)} UTC from {data.logs}{origin}. All times are UTC."),
    ]
