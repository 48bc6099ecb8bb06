from dataclasses import replace
from pathlib import Path

import pytest

from loadtest.errors import RunFailedError
from loadtest.load.bench import (
    default_names,
    exit_code,
    is_whole,
    parse_options,
    scratch_directory,
)
from loadtest.load.contest import Results, Sample
from loadtest.load.goals import Judgement, Verdict, below
from loadtest.load.report import render_text
from loadtest.load.run import describe_machine
from loadtest.load.suites import SUITES

MISSED = Judgement("idle", "ready", below(15), 20.0, Verdict.MISSED)
ORIGIN = SUITES[0]


def test_a_missed_target_fails_only_when_strict() -> None:
    results = Results()
    assert exit_code(results, [MISSED], strict=False) == 0
    assert exit_code(results, [MISSED], strict=True) == 1


def test_a_failed_run_fails() -> None:
    results = Results()
    results.fail("append64", "ours", 1, RunFailedError("3 answers were errors"))
    assert exit_code(results, [], strict=False) == 1


def test_a_skip_fails_only_where_all_is_required(monkeypatch: pytest.MonkeyPatch) -> None:
    results = Results()
    results.skip("append64", "no wrk")
    monkeypatch.delenv("WEIR_REQUIRE_ALL", raising=False)
    assert exit_code(results, [], strict=False) == 0
    monkeypatch.setenv("WEIR_REQUIRE_ALL", "1")
    assert exit_code(results, [], strict=False) == 1


def test_a_quick_run_leaves_out_what_takes_long() -> None:
    every = set(default_names(ORIGIN, quick=False))
    left_out = every - set(default_names(ORIGIN, quick=True))
    assert left_out == {"idle", "unlike64"}


def test_scratch_leaves_nothing(tmp_path: Path) -> None:
    with scratch_directory(tmp_path / "new") as scratch:
        (scratch / "data").mkdir()
    assert list(tmp_path.iterdir()) == []
    with scratch_directory(tmp_path) as scratch:
        assert scratch.parent == tmp_path.resolve()
    assert list(tmp_path.iterdir()) == []


def test_report_names_machine_skips_and_failures() -> None:
    results = Results()
    results.tell(**describe_machine(), at=0.0, versions=["Weir 1"], fdatasync_ms=0.12)
    results.add("idle", "ours", 1, Sample({"ready": 20.0}))
    results.skip("node-file", "no Node")
    results.fail("crowd", "ours", 2, RunFailedError("too late"))
    results.tell(took_s=12.3, stolen_cpu=0.02, other_cpu=0.1)
    text = render_text(replace(ORIGIN, scenarios=ORIGIN.scenarios[-2:-1]), results)
    assert "used 0.10 cores (median), other machines of the host 2% of the CPU" in text
    assert "Weir 1; fdatasync 0.12 ms" in text
    assert "skipped: node-file: no Node\nFAILED: crowd, ours, round 2: too late\n" in text
    assert text.endswith("0 of 2 targets reached, 12 s")


@pytest.mark.parametrize(
    ("arguments", "kept"),
    [
        ("--suite gateway", True),
        ("--suite load --seconds 5", True),
        ("--quick", False),
        ("--only cached", False),
        ("--peers ours", False),
        ("--before elsewhere", False),
    ],
)
def test_only_whole_suites_are_kept_for_reports(arguments: str, kept: bool) -> None:
    assert is_whole(parse_options(arguments.split())) is kept
