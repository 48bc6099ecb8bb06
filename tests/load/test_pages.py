"""What people read: the page of charts and the document of results."""

import re
import shutil
import struct
from pathlib import Path

import pytest

from loadtest.errors import RunFailedError
from loadtest.load import report
from loadtest.load.contest import Results, Sample
from loadtest.load.paced import SCENARIOS
from loadtest.load.page import HEADLINE_PICTURE, PICTURE, render, render_headline, write_pictures
from loadtest.load.records import Ended, Gauges, Run, Second, Started
from loadtest.load.report import read_kept, render_document, write_report
from loadtest.load.summary import HOME
from loadtest.peers.names import NGINX, OURS
from tests.helpers.require import need

TITLES = (
    "Latency by percentile",
    "Latency, 99th percentile",
    "Requests",
    "Collapse factor",
    "Done a second",
    "Memory",
)


def make_run(scenario: str, peer: str, slow: int = 0) -> Run:
    headline = SCENARIOS[scenario].headline
    started = Started(
        scenario,
        peer,
        "http://127.0.0.1:1",
        1_700_000_000.0,
        {"seconds": 3.0, "readers": 10.0},
        {"cores": "2", "system": "Linux", "python": "3.11"},
    )
    seconds = [Second(n, headline, 10, times={50 + slow: 10}) for n in range(3)]
    asked = [Second(n, "long-poll", 100) for n in range(3)]
    gauges = [Gauges(n, {"upstream": n + 1.0, "memory_mb": 50.0}) for n in range(3)]
    ended = Ended(seconds=3.0, generator_cores=0.95, late_ms=1.0)
    return Run([started, *seconds, *asked, *gauges, ended])


def test_every_scenario_has_its_section_and_charts() -> None:
    page = render([make_run(name, peer) for name in SCENARIOS for peer in ("nginx", HOME)])
    for name in SCENARIOS:
        assert f'id="{name}"' in page
    for title in TITLES:
        assert page.count(f"<h3>{title}</h3>") == len(SCENARIOS)
    assert "100\u00a0×" in page and "0.95 of a core" in page


def test_percentiles_of_the_whole_run_are_drawn_and_told() -> None:
    page = render([make_run("polls", HOME, slow=15)])
    chart = page[page.index("Latency by percentile") : page.index("Latency, 99th percentile")]
    rows = re.findall(r'<th scope="row">(.*?)</th><td>(.*?)</td>', chart)
    assert [name for name, _ in rows] == ["p50", "p75", "p90", "p95", "p99", "p99.9", "max"]
    assert {value for _, value in rows} == {"0.24\u00a0ms"}


def test_requests_of_readers_stand_beside_those_at_the_origin() -> None:
    page = render([make_run("polls", HOME)])
    chart = page[page.index("<h3>Requests</h3>") : page.index("Collapse factor")]
    assert re.findall(r'class="number">(.*?)<', chart) == ["300", "3"]


def test_the_headline_tells_time_and_cost_of_everyone() -> None:
    runs = [make_run("polls", peer) for peer in (HOME, "nginx", "node")]
    page = render_headline(SCENARIOS["polls"], runs)
    waits, costs = page[page.index("Until a reader has it") :].split("Reads at the origin")
    for peer in (HOME, "nginx", "node"):
        assert f">{peer}<" in waits and f">{peer}<" in costs
    assert ">asked<" in costs and ">300<" in costs
    assert "<h2>10 readers wait by long-poll" in page and "<nav" not in page


def test_pictures_are_drawn_by_a_browser(tmp_path: Path) -> None:
    need(shutil.which("chromium"), "chromium is not installed")
    old = tmp_path / "headline.png"
    old.write_bytes(b"of an earlier run")
    write_pictures([make_run("polls", HOME)], tmp_path)
    for name, size in (("headline.png", HEADLINE_PICTURE), ("polls.png", PICTURE)):
        picture = (tmp_path / name).read_bytes()
        assert picture.startswith(b"\x89PNG")
        assert struct.unpack(">II", picture[16:24]) == size


def test_our_own_line_comes_first() -> None:
    page = render([make_run("polls", "nginx"), make_run("polls", HOME)])
    legend = re.search(r'class="legend">(.*?)</ul>', page)
    assert legend and legend[1].index("weir") < legend[1].index("nginx")


def make_results() -> Results:
    results = Results()
    results.tell(at=1_700_000_000.0, cores="2", processor="fast", memory="8 GiB", python="3.11")
    results.tell(versions=["Weir 1", "nginx 2"], fdatasync_ms=0.1)
    results.tell(took_s=12.3, stolen_cpu=0.02, other_cpu=0.25)
    results.add("load-polls", OURS, 1, Sample({"p50": 20.0, "p99": 40.0, "rate": 1000.0}))
    results.add("load-polls", NGINX, 1, Sample({"p50": 300.0, "p99": 500.0}, notes=("slow",)))
    return results


def test_the_document_has_tables_with_targets_and_charts() -> None:
    results = make_results()
    results.skip("varnish", "is not there")
    results.fail("load-zipf", OURS, 1, RunFailedError("too late"))
    text = render_document({"load": results}, [make_run("polls", HOME)])
    plain = " ".join(text.split())
    assert "14 November 2023; 2 cores, fast, 8 GiB; Python 3.11, Weir 1, nginx 2;" in plain
    assert "other programs used 0.25 cores (median), other machines of the host 2%" in plain
    assert "| polls | p50 ms | 20 | - | 300 | - | - |  |  |  |" in text
    assert "|  | p99 ms | 40 | - | 500 | - | - | >= 2x Varnish | - | not measured |" in text
    assert "|  |  |  |  |  |  |  | >= 10x nginx | 12.5x | yes |" in text
    assert "- skipped: varnish: is not there.\n- note: load-polls, nginx: slow.\n" in text
    assert "- FAILED: load-zipf, ours, round 1: too late.\n" in text
    assert "### polls\n\n10 readers wait" in text and "![polls](images/polls.png)" in text


def test_the_page_begins_with_the_tables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    nothing = Results()  # all of its runs failed
    monkeypatch.setattr(report, "read_kept", lambda: {"load": make_results(), "state": nothing})
    page = write_report([make_run("polls", HOME)], tmp_path).read_text()
    assert 'id="suite-state"' in page
    assert page.index('id="suite-load"') < page.index('id="polls"')
    assert "&gt;= 10x nginx" in page


def test_results_that_broke_off_are_not_reported(tmp_path: Path) -> None:
    Results(tmp_path / "load.jsonl").skip("nginx", "is not there")
    path = tmp_path / "gateway.jsonl"
    whole = Results(path)
    whole.add("cached", OURS, 1, Sample({"rate": 1.0}))
    whole.tell(took_s=1.0)
    path.write_text(path.read_text() + '{"kind": "sam')
    assert list(read_kept(tmp_path)) == ["gateway"]
