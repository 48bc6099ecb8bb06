"""The report: numbers as people read them, nothing unescaped, nothing fetched, all of it drawn."""

import ast
import re
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from functools import cache
from hashlib import sha256
from html.parser import HTMLParser
from math import inf, nan
from pathlib import Path

import pytest

from pages import figures
from pages.figures import NBSP
from pages.markup import VOID, Markup, escape, name_of, tag, visible
from pages.scales import DURATIONS_MS, linear_scale, log_scale, time_axis
from pages.times import DAY_MS, HOUR_MS, MINUTE_MS, STEPS_MS
from spark.report.data import MAX_SLOTS, ReportData, choose_days, choose_step
from spark.report.overview import findings
from spark.report.page import render
from spark.report.state import hot_pairs, unread_pairs
from tests.helpers.chromium import Chromium, Page
from tests.spark import report_data
from tests.spark.drawn import drawn_charts
from tests.spark.report_data import FIRST_MS, HOSTILE, busy_day, nothing

SAMPLES = ("busy_day", "nothing", "one_request", "hostile", "extremes")
SECTIONS = (
    *("overview", "traffic", "savings", "latency", "streams", "subjects"),
    *("sessions", "errors", "state", "joined", "quality"),
)


class Elements(HTMLParser):
    """What a browser would make of the page."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[tuple[str, dict[str, str]]] = []
        self.open: list[str] = []
        self.texts: list[str] = []
        self.raw: dict[str, str] = {}
        self.feed(page)
        self.close()

    def handle_starttag(self, name: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found.append((name, {key: value or "" for key, value in attributes}))
        if name not in VOID:
            self.open.append(name)

    def handle_endtag(self, name: str) -> None:
        assert self.open.pop() == name

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("script", "style"):
            self.raw[self.open[-1]] = data
        else:
            self.texts.append(data)


@cache
def rendered(sample: str) -> str:
    data: ReportData = getattr(report_data, sample)()
    return render(data)


@cache
def elements(sample: str) -> Elements:
    return Elements(rendered(sample))


def section_of(page: str, anchor: str) -> str:
    found = re.search(rf'<section id="{anchor}">.*?</section>', page, re.DOTALL)
    assert found is not None
    return found[0]


# -- numbers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (figures.count(0), "0"),
        (figures.count(999), "999"),
        (figures.count(999.6), "1 k"),
        (figures.count(1_234_567), "1.23 M"),
        (figures.count(5e12), "5 tn"),
        (figures.count(10**20), "1e20"),
        (figures.count(0.0004), "<0.001"),
        (figures.count(-1500), "−1.5 k"),
        (figures.count(nan), "–"),
        (figures.size(0), "0 B"),
        (figures.size(999_999), "1 MB"),
        (figures.size(12_300_000_000), "12.3 GB"),
        (figures.size(10**22), "1e22 B"),
        (figures.share(0), "0 %"),
        (figures.share(1), "100 %"),
        (figures.share(0.99996), ">99.99 %"),
        (figures.share(0.00001), "<0.01 %"),
        (figures.share(0.9954), "99.54 %"),
        (figures.share(nan), "–"),
        (figures.times(41.27), "41.3 ×"),
        (figures.times(inf), "–"),
        (figures.duration(0), "0 ms"),
        (figures.duration(0.421), "0.42 ms"),
        (figures.duration(999.7), "1 s"),
        (figures.duration(59_970), "1 min"),
        (figures.duration(65_000), "1 min 5 s"),
        (figures.duration(2 * HOUR_MS + 10 * MINUTE_MS), "2 h 10 min"),
        (figures.duration(30 * DAY_MS), "30 d"),
        (figures.duration(inf), "–"),
        (figures.moment(-5), "1 Jan 1970, 00:00"),
        (figures.moment(10**18), "31 Dec 9999, 00:00"),
        (figures.plural(1, "entity", "entities"), "1 entity"),
        (figures.plural(2_345, "entity", "entities"), "2,345 entities"),
        (figures.period(FIRST_MS, FIRST_MS + 90 * MINUTE_MS), "19 Nov 2026, 00:00 to 01:30 UTC"),
        (figures.slot_name(FIRST_MS, MINUTE_MS), "19 Nov 2026, 00:00–00:01"),
        (figures.slot_name(FIRST_MS, 7 * DAY_MS), "19 Nov 2026 – 25 Nov 2026"),
    ],
)
def test_numbers_read_as_people_say_them(shown: str, text: str) -> None:
    assert shown.replace(NBSP, " ") == text


@pytest.mark.parametrize("span_ms", [0, 1, MINUTE_MS * 119, HOUR_MS * 7, DAY_MS * 400, 10**16])
def test_the_step_is_the_finest_that_fits(span_ms: int) -> None:
    step = choose_step(FIRST_MS, FIRST_MS + span_ms)
    assert (FIRST_MS + span_ms) // step - FIRST_MS // step < MAX_SLOTS
    finer = [s for s in STEPS_MS if MINUTE_MS <= s < step]
    assert all((FIRST_MS + span_ms) // s - FIRST_MS // s >= MAX_SLOTS for s in finer)


def test_a_step_that_does_not_suit_the_times_is_refused() -> None:
    with pytest.raises(ValueError, match="choose_step"):
        render(replace(busy_day(), step_ms=1000))


@pytest.mark.parametrize("top", [1, 3, 7, 99, 12_345, 0.004, 8e19])
def test_linear_ticks_are_few_and_reach_beyond_the_values(top: float) -> None:
    scale = linear_scale([top / 3, nan, top], whole=top >= 1)
    assert scale.ticks[0] == 0 and scale.ticks[-1] == scale.high >= top
    assert 2 <= len(scale.ticks) <= 6
    assert top < 1 or all(tick == int(tick) for tick in scale.ticks)


def test_zeros_lie_at_the_bottom_of_a_logarithmic_scale() -> None:
    scale = log_scale([0.0, 4.2, 31.0], DURATIONS_MS)
    assert (scale.low, scale.high, scale.floored) == (0.01, 100.0, True)
    assert scale.at(0.0) == 0 and 0.6 < scale.at(4.2) < 0.7 and scale.at(1e9) == 1


def test_a_short_time_is_drawn_with_time_around_it() -> None:
    axis = time_axis([FIRST_MS], MINUTE_MS, 240)
    assert axis.slots == 15 and axis.slot(FIRST_MS) == 7
    assert time_axis([0], MINUTE_MS, 240).first_ms == 0


# -- escaping --------------------------------------------------------------------------------------


def test_whatever_is_not_markup_is_escaped() -> None:
    made = tag("b", "<i>", Markup("<i></i>"), ["&", None, 3], title='"x"', hidden=True, class_=None)
    assert made == '<b title="&quot;x&quot;" hidden>&lt;i&gt;<i></i>&amp;3</b>'
    assert escape("\ud800\x00\u202e") == "\\u{d800}\\u{0}\\u{202e}"


def test_names_that_only_seem_alike_look_different() -> None:
    assert visible("a\u200bb\n") == "a\\u{200b}b\\u{a}"
    assert "…" in name_of("x" * 5000) and len(name_of("x" * 5000)) < 1000
    assert "(nobody)" in name_of("", "(nobody)")


def test_hostile_names_stay_text() -> None:
    page = elements("hostile")
    assert [name for name, _ in page.found if name in ("script", "style", "title")] == [
        *("title", "style", "script")
    ]
    attributes = {key for _, found in page.found for key in found}
    assert not {key for key in attributes if key.startswith("on") or key in ("style", "src")}
    usual = {name for name, _ in elements("busy_day").found}
    assert {name for name, _ in page.found} <= usual
    texts = " ".join(page.texts)
    assert all(visible(text)[:200] in texts for text in HOSTILE)


@pytest.mark.parametrize("sample", SAMPLES)
def test_the_page_is_well_formed_utf8_with_known_ids(sample: str) -> None:
    rendered(sample).encode("utf-8")
    page = elements(sample)
    assert page.open == []
    ids = [found["id"] for _, found in page.found if "id" in found]
    assert len(ids) == len(set(ids))
    links = {found["href"] for name, found in page.found if name == "a"}
    assert {link.removeprefix("#") for link in links} <= set(ids)
    assert set(SECTIONS) <= set(ids)


def test_the_policy_allows_only_the_own_style_and_script() -> None:
    page = elements("busy_day")
    policy = next(f["content"] for _, f in page.found if f.get("http-equiv"))
    for part in ("script", "style"):
        own = b64encode(sha256(page.raw[part].encode()).digest()).decode()
        assert f"{part}-src 'sha256-{own}';" in policy
    assert policy.startswith("default-src 'none';") and "unsafe" not in policy


def test_the_report_needs_no_spark() -> None:
    import spark.report

    folder = Path(spark.report.__file__).parent
    for path in folder.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import | ast.ImportFrom):
                assert "pyspark" not in ast.unparse(node)


# -- content ---------------------------------------------------------------------------------------


def test_the_headline_tells_the_totals() -> None:
    overview = section_of(rendered("busy_day"), "overview").replace(NBSP, " ")
    for text in (
        "8.09 M",
        "50.6 %",
        "37.7 %",
        "7.28 M",
        "32.7 ×",
        "38 GB",
        "88.3 ms",
        "35.2 k",
        "edge1",
    ):
        assert text in overview


def test_empty_sections_say_why() -> None:
    page = rendered("nothing")
    for anchor in SECTIONS[1:]:
        assert 'class="empty card"' in section_of(page, anchor)
    assert "Use --origin" in section_of(page, "state")
    assert "<rect" not in "".join(section_of(page, anchor) for anchor in SECTIONS)


def test_totals_without_a_time_are_told_without_charts() -> None:
    page = render(replace(busy_day(), moments=()))
    assert "8.09" in section_of(page, "overview")
    assert 'class="plot timed"' not in section_of(page, "savings")


def test_streams_without_state_messages_say_so() -> None:
    day = busy_day()
    assert day.state is not None
    page = render(replace(day, state=replace(day.state, types=(), moments=()), pairs=()))
    assert "None of the 4,090 streams read contains State messages." in section_of(page, "state")
    assert "No stream" in section_of(page, "joined")


def test_each_verdict_of_each_step_has_its_block_and_its_value() -> None:
    day = busy_day()
    chart = section_of(rendered("busy_day"), "traffic").split("</figure>")[0]
    blocks = sum(1 for moment in day.moments for number in moment.verdicts.values() if number)
    legend = sum(1 for verdict in day.totals.verdicts)
    assert len(re.findall(r'<rect class="v-', chart)) == blocks + legend
    assert chart.count("<tr>") == len(day.moments) + 1


def test_a_pile_is_as_high_as_its_requests() -> None:
    moment = replace(busy_day().moments[0], verdicts={"hit": 60, "miss": 40})
    chart = section_of(render(replace(busy_day(), moments=[moment])), "traffic")
    heights = re.findall(r'<rect class="v-\w+" y="([\d.]+)" height="([\d.]+)"', chart)
    assert heights == [("80", "108"), ("8", "72")]  # of 180 pixels, from 8 on


def test_verdicts_that_are_not_known_are_one_series() -> None:
    moment = replace(busy_day().moments[0], verdicts={"hit": 1, "new": 2, "newer": 3})
    chart = section_of(render(replace(busy_day(), moments=[moment])), "traffic")
    assert "other" in chart and "newer" not in chart


def test_the_hit_ratio_is_that_of_the_tables() -> None:
    """Hub and collapsed reads are no hits, and stand beside them."""
    day = busy_day()
    totals = replace(day.totals, verdicts={"hit": 5, "stale": 1, "hub": 2, "miss": 2})
    page = render(replace(day, totals=replace(totals, hits=6, hub=2, collapsed=1)))
    overview = section_of(page, "overview").replace(NBSP, " ")
    assert "<strong>60 %</strong><small>and 20 % by hubs, 10 % collapsed</small>" in overview
    legend = section_of(page, "traffic").split("<figure")[2].replace(NBSP, " ")
    for text in ("hit<b>60 %</b>", "hub<b>20 %</b>", "collapsed<b>10 %</b>"):
        assert text in legend


def test_types_beyond_the_largest_are_one_and_the_future_is_not_drawn() -> None:
    day = busy_day()
    assert day.state is not None
    others = replace(day.state.types[0], type="", entities=10**6)
    state = replace(day.state, types=[*day.state.types, others], all_types=2007, left_out=1)
    page = section_of(render(replace(day, state=state)), "state")
    assert "of 2,007 types" in page and "7 of 2,007, by entities." in page
    assert "2,002 other types" in page and "(all others)" in page
    assert "Excludes 1 change with timestamps in the future." in page
    assert "2,000 other types" in page  # in the bars, which have more types of their own


D1, D2, D3, FAR, OLD = date(2026, 6, 1), date(2026, 6, 2), date(2026, 6, 3), date.max, date.min


@pytest.mark.parametrize(
    ("requests", "files", "drawn"),
    [
        ({D1: 9, D2: 1}, [D1, D2], {D1, D2}),
        ({D1: 9, FAR: 1}, [D1], {D1}),
        ({D1: 9, OLD: 1}, [D1, D2], {D1}),
        ({D1: 9, FAR: 1}, [D1, FAR], {D1}),  # the whole gateway lived in the future
        ({D1: 9, D3: 1}, [D1, D3], {D1, D3}),  # as a clock does that is ahead of ours
        ({D1: 1, D2: 9}, [D1], {D1, D2}),
        ({D1: 1, FAR: 1}, [], {D1, FAR}),
        ({}, [D1], set()),
    ],
)
def test_days_that_no_clock_can_have_meant_are_not_drawn(
    requests: dict[date, int], files: list[date], drawn: set[date]
) -> None:
    assert choose_days(requests, files, today=D2) == drawn


def test_steps_without_requests_are_gaps_in_ratios_and_not_zeros() -> None:
    day = busy_day()
    kept = [m for number, m in enumerate(day.moments) if number not in (10, 11)]
    hits = section_of(render(replace(day, moments=kept)), "traffic").split("<figure")[2]
    path = re.search(r'class="line line-1" d="([^"]+)"', hits)
    assert path is not None and path[1].count("M") == 2


def test_state_is_drawn_up_to_its_last_change() -> None:
    day = busy_day()
    assert day.state is not None
    kept = [day.state.moments[number] for number in (0, 2, 3)]
    page = section_of(render(replace(day, state=replace(day.state, moments=kept))), "state")
    path = re.search(r'class="line line-1" d="([^"]+)"', page)
    assert path is not None and len(re.findall("[ML]", path[1])) == 4


def test_hot_streams_and_unread_ones_are_told_apart() -> None:
    base = busy_day().pairs[0]
    hot = replace(base, stream="hot", reads=1000, entities=1)
    large = replace(base, stream="large", reads=900, entities=10_000)
    calm = replace(base, stream="calm", reads=1, entities=1)
    written = replace(base, stream="written", requests=50, reads=0, entities=7)
    void = replace(base, stream="void", reads=0, entities=0)
    pairs = [calm, void, large, written, hot]
    assert [pair.stream for pair in hot_pairs(pairs)] == ["hot"]
    assert [pair.stream for pair in unread_pairs(pairs)] == ["written"]


def test_findings_tell_the_worst_first_and_nothing_of_nothing() -> None:
    day = busy_day()
    failing = replace(day, totals=replace(day.totals, errors=day.totals.requests // 10))
    first = next(findings(failing))
    assert first.level == "bad" and "10 %" in str(first.text).replace(NBSP, " ")
    assert "15:" in str(first.text)  # when it was
    assert list(findings(nothing())) == []


# -- in a browser ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    with Chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reports")
    for sample in SAMPLES:
        (folder / f"{sample}.html").write_text(rendered(sample), "utf-8")
    return folder


@pytest.fixture(scope="module")
def day(browser: Chromium, folder: Path) -> Page:
    return browser.open((folder / "busy_day.html").as_uri())


# Text and what lies behind it, for every element with text of its own.
FAINT = """
  const parse = (color) => {
    const numbers = color.match(/[\\d.]+/g).map(Number);
    if (!color.startsWith("color")) return numbers;
    return [...numbers.slice(0, 3).map((n) => n * 255), numbers[3] ?? 1];
  };
  const light = (color) => {
    const curve = (n) => (n <= 0.04045 ? n / 12.92 : ((n + 0.055) / 1.055) ** 2.4);
    const [r, g, b] = color.map((n) => curve(n / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const color = parse(getComputedStyle(at).backgroundColor);
      if ((color[3] ?? 1) > 0.9) return color;
    }
  };
  [...document.querySelectorAll("body *")].filter((element) => {
    const own = [...element.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
    if (!own || !element.getClientRects().length) return false;
    const style = getComputedStyle(element);
    const ink = element instanceof SVGElement ? style.fill : style.color;
    const [a, b] = [light(parse(ink)), light(behind(element))].sort((x, y) => y - x);
    return (a + 0.05) / (b + 0.05) < 4.5;
  }).map((element) => element.outerHTML.slice(0, 120))
"""


def picture_of(page: Page, selector: str, hide: str = "nothing") -> str:
    """What one sees of the first such element, without some of what is in it."""
    page.evaluate(f"globalThis.pictured = document.querySelector('{selector}')")
    hidden = f"pictured.querySelectorAll('{hide}')"
    page.evaluate(f"for (const one of {hidden}) one.style.visibility = 'hidden'")
    box = page.evaluate("pictured.getBoundingClientRect().toJSON()")
    top = box["y"] + page.evaluate("scrollY")
    clip = {"x": box["x"], "y": top, "width": box["width"], "height": box["height"], "scale": 0.3}
    shot = page.ask("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
    page.evaluate(f"for (const one of {hidden}) one.style.visibility = ''")
    return str(shot["data"])


@pytest.mark.parametrize(
    ("sample", "width", "dark"),
    [
        ("busy_day", 1280, False),
        ("busy_day", 390, True),
        ("nothing", 390, False),
        ("one_request", 800, True),
        ("hostile", 390, False),
        ("extremes", 1280, True),
    ],
)
def test_it_opens_without_complaint_and_fits(
    sample: str, width: int, dark: bool, browser: Chromium, folder: Path
) -> None:
    url = (folder / f"{sample}.html").as_uri()
    page = browser.open(url, width=width, dark=dark)
    assert page.requests == [url]
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    if sample == "busy_day":
        assert page.evaluate(FAINT) == []
    assert page.complaints == []
    assert "Page.javascriptDialogOpening" not in page.events


def test_all_charts_are_drawn(day: Page) -> None:
    """Each chart looks different without its marks."""
    drawn = drawn_charts(day)
    assert len(drawn) == 11 and all(drawn.values())
    assert len(picture_of(day, ".marks")) > 2 * len(picture_of(day, ".marks", hide="rect"))


def test_the_pointer_and_the_arrow_keys_show_values(day: Page) -> None:
    day.evaluate("document.documentElement.style.scrollBehavior = 'auto'")
    x, y, width = day.evaluate(
        """(async () => { const marks = document.querySelector(".timed .marks");
             marks.scrollIntoView({block: "center"});
             await new Promise((done) => addEventListener("scrollend", done));
             const box = marks.getBoundingClientRect(); return [box.x, box.y, box.width]; })()"""
    )
    day.point_at(x + width * 60.5 / 96, y + 50)
    moment = busy_day().moments[60]
    text = day.evaluate("tip.innerText").replace(NBSP, " ")
    assert "19 Nov 2026, 15:00–15:15" in text
    assert figures.count(moment.verdicts["error"]).replace(NBSP, " ") in text
    linked = day.evaluate("document.querySelectorAll('.cursor.on').length")
    assert linked == 9  # charts of the same time
    day.evaluate("document.querySelector('.timed').focus({preventScroll: true})")
    day.press("ArrowLeft")
    assert "14:45–15:00" in day.evaluate("tip.innerText")
    day.press("Home")
    assert "00:00–00:15" in day.evaluate("tip.innerText")
    day.press("Escape")
    assert day.evaluate("tip.hidden && !document.querySelector('.cursor.on')")


def test_tables_sort_filter_and_unfold(day: Page) -> None:
    day.evaluate(
        """globalThis.table = document.querySelector("#streams .sortable");
           globalThis.head = [...table.tHead.rows[0].cells];
           globalThis.find = (title) => head.findIndex((th) => th.textContent === title);
           globalThis.press = (title) => head[find(title)].firstChild.click();
           globalThis.shown = () => [...table.tBodies[0].rows].filter((row) => !row.hidden);
           globalThis.column = (title) => shown().map((row) => row.cells[find(title)]);
           globalThis.values = (title) => column(title).map((cell) => Number(cell.dataset.value))"""
    )
    streams = busy_day().streams
    assert day.evaluate("values('Requests')") == [s.requests for s in streams[:10]]
    day.evaluate("press('Readers')")
    assert (
        day.evaluate("values('Readers')") == sorted((s.readers for s in streams), reverse=True)[:10]
    )
    day.evaluate("press('Readers')")
    assert day.evaluate("values('Readers')") == sorted(s.readers for s in streams)[:10]
    assert day.evaluate("head.map((th) => th.ariaSort).filter(Boolean)") == ["ascending"]
    day.evaluate("press('Stream'); document.querySelector('#streams .more').click()")
    shown = day.evaluate("column('Stream').map((cell) => cell.textContent)")
    assert len(shown) == 60 and shown[0].startswith("/ds/game")
    day.evaluate(
        """(() => { const field = document.querySelector("#streams input");
             field.value = " CHAT/ "; field.dispatchEvent(new Event("input")); })()"""
    )
    shown = day.evaluate("column('Stream').map((cell) => cell.textContent)")
    assert len(shown) == 12 and all("chat/" in name for name in shown)


def test_rows_without_a_value_sort_last_both_ways(browser: Chromium, folder: Path) -> None:
    page = browser.open((folder / "extremes.html").as_uri(), width=390)
    page.evaluate(
        """globalThis.rows = () => [...document.querySelector("#streams tbody").rows]
             .map((row) => row.lastChild.dataset.value);
           globalThis.button = document.querySelector("#streams th:last-child button")"""
    )
    assert [page.evaluate("button.click(), rows()") for _ in "ab"] == [
        ["100000000000000.0", ""]
    ] * 2


def test_everything_has_a_name_and_headings_do_not_skip(day: Page) -> None:
    nodes = day.ask("Accessibility.getFullAXTree")["nodes"]
    seen = [node for node in nodes if not node["ignored"]]
    for role in ("button", "link", "image", "searchbox", "table", "region"):
        names = [n["name"]["value"] for n in seen if n["role"]["value"] == role]
        assert names and all(names), role
    levels = day.evaluate(
        "[...document.querySelectorAll('h1,h2,h3')].map((h) => Number(h.tagName[1]))"
    )
    assert levels.count(1) == 1
    assert all(b - a <= 1 for a, b in zip(levels, levels[1:], strict=False))


def test_light_and_dark_can_be_chosen(day: Page) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    light = day.evaluate(ground)
    assert day.evaluate(f"document.querySelector('.theme').click(), {ground}") != light
    assert day.evaluate(f"document.querySelector('.theme').click(), {ground}") == light


def test_the_policy_is_in_force(browser: Chromium, folder: Path) -> None:
    page = browser.open((folder / "nothing.html").as_uri(), width=390)
    page.evaluate(
        """globalThis.ran = false;
           const script = document.createElement("script");
           script.textContent = "globalThis.ran = true";
           document.body.append(script);
           document.body.insertAdjacentHTML("beforeend", "<img src='http://127.0.0.1:9/x.png'>")"""
    )
    browser.wait_for(lambda: len(page.complaints) >= 2)
    assert page.evaluate("ran") is False
    assert all("Content Security Policy" in str(complaint) for complaint in page.complaints)
