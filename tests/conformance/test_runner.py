"""The runner must not take a run that went wrong for a pass."""

import sys
from pathlib import Path

import pytest

from tests.conformance import runner
from tests.conformance.runner import TESTS, Node, Report, SuiteError, Target, parse_report


def vitest_report(*statuses: str, file_status: str = "passed") -> dict[str, object]:
    tests = [
        {"fullName": f"test {index}", "status": status, "failureMessages": ["Error: no\n  at x"]}
        for index, status in enumerate(statuses)
    ]
    file = {"name": "conformance.test.js", "status": file_status, "assertionResults": tests}
    return {"testResults": [file]}


def test_every_test_passed() -> None:
    report = parse_report(vitest_report(*["passed"] * TESTS, *["skipped"] * 6))
    assert len(report.passed) == TESTS
    assert report.complete


def test_failure_is_told_in_one_line() -> None:
    report = parse_report(vitest_report("passed", "failed", file_status="failed"))
    assert str(report).splitlines()[1:] == ["FAILED test 1: Error: no"]
    assert not report.complete


def test_missing_tests_are_not_a_pass() -> None:
    assert not parse_report(vitest_report(*["passed"] * (TESTS - 1), "skipped")).complete


def test_file_that_does_not_load_is_a_failure() -> None:
    report = parse_report(vitest_report(file_status="failed"))
    assert report.failures == {"conformance.test.js": "failed"}


def test_what_fails_or_is_missing_only_here_is_lost() -> None:
    direct = Report(frozenset({"a", "b", "c"}), {"d": "known"})
    through = Report(frozenset({"a"}), {"b": "broken", "d": "known"})
    assert through.lost_since(direct) == {"b": "broken", "c": "did not run"}
    assert not direct.lost_since(through)


def test_crash_without_a_report_is_an_error(tmp_path: Path) -> None:
    nowhere = Target("http://127.0.0.1:1")
    with pytest.raises(SuiteError, match="wrote no report"):
        runner.run_suite(Node(sys.executable, ()), nowhere, tmp_path / "report.json")
