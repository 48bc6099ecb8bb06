"""The report as a page: its sections, and the words that they use."""

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
        "a request that stored bytes could have answered: "
        "verdict hit, stale, hub, revalidated or miss",
    ),
    (
        "Hit ratio",
        "reads with verdict hit or stale that waited for nobody, among all reads; those of hubs "
        "and collapsed ones are told beside it",
    ),
    ("Collapsed", "a read that waited for the fetch of another one"),
    (
        "Hub",
        "a live reader who was served from the one long-poll that the gateway keeps open for a "
        "stream; what the gateway asks for it counts as asked by the reader who was there first",
    ),
    ("Collapse factor", "reads, divided by the origin requests made for them, by hubs too"),
    ("Saved", "reads for which the origin was not asked, and the bytes sent for them"),
    ("Error", "status 500 or above, or verdict error"),
    (
        "p50, p95, p99",
        "half, 95 % and 99 % of the requests took no longer than this; cut to two digits, "
        "so the true time may be up to a tenth longer",
    ),
)


def render(data: ReportData) -> str:
    title = f"Weir report, {moment(data.made_ms)} UTC"
    return render_page(title, [make(data) for make in MAKERS], _foot(data))


def _foot(data: ReportData) -> list[Markup]:
    words = [(tag("dt", word), tag("dd", meaning)) for word, meaning in GLOSSARY]
    origin = f" and streams of {data.origin}" if data.origin else ""
    return [
        tag("h2", "Words"),
        tag("dl", words),
        tag("p", f"Made {moment(data.made_ms)} UTC from {data.logs}{origin}. All times are UTC."),
    ]
