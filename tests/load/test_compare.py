"""`weir load compare` from end to end, with one small scenario."""

from dataclasses import replace
from pathlib import Path

import pytest

from loadtest.errors import RunFailedError, UnavailableError
from loadtest.load import compare, report
from loadtest.load.bench import parse_options, run_suite
from loadtest.load.paced import SCENARIOS, Scenario
from loadtest.load.session import Knobs, Session
from loadtest.load.suites import SUITES, Suite
from loadtest.peers.names import NGINX, OURS

POLLS = replace(SCENARIOS["polls"], knobs=Knobs(seconds=1, readers=10, rate=4, size=256))


def suite_of(scenario: Scenario) -> Suite:
    """With two peers, one of which is not installed."""

    def ensure() -> None:
        raise UnavailableError("nginx is not there")

    load = next(suite for suite in SUITES if suite.name == "load")
    peers = {OURS: load.peers[OURS], NGINX: ensure}
    return replace(load, peers=peers, scenarios=(compare.contest(scenario),))


def run(suite: Suite, monkeypatch: pytest.MonkeyPatch, folder: Path) -> tuple[int, str]:
    """The exit code, and the document."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(report, "SUITES", (suite,))
    monkeypatch.setattr(report, "write_pictures", lambda runs, images: None)
    monkeypatch.delenv("WEIR_REQUIRE_ALL", raising=False)
    code = run_suite(suite, parse_options(["--suite", "load"]))
    report.write_docs(folder)
    return code, (folder / "results.md").read_text()


def test_results_are_written_with_who_was_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    code, text = run(suite_of(POLLS), monkeypatch, tmp_path)
    assert code == 0
    assert "- skipped: nginx: nginx is not there." in text
    assert "10 readers wait by long-poll" in text and ", Weir " in text
    assert "![polls](images/polls.png)" in text
    figures = {
        cells[2]: cells[3]
        for line in text.splitlines()
        if len(cells := [cell.strip() for cell in line.split("|")]) > 3
    }
    assert figures["failed requests"] == "0"
    assert figures["readers' requests"] == "40"  # each reader asked four times
    assert float(figures["at origin requests"]) <= 8  # and the origin was asked for all together


def test_a_run_that_fails_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async def fail(session: Session) -> None:
        raise RunFailedError("the server died")

    code, text = run(suite_of(replace(POLLS, run=fail)), monkeypatch, tmp_path)
    assert code == 1
    assert "- FAILED: load-polls, ours, round 1: the server died." in text
