"""Every test and every chapter of the official suite that a document names is there to be run."""

import ast
import re
from functools import cache

import pytest

from tests.conformance.chapters import CHAPTERS, count_chapters, render
from tests.docs.snippets import ROOT

_PROOF = re.compile(r"`([\w/]+\.py)(?:::(\w+))?`")
_SUITE = re.compile(r"\| suite: ([^;|]+)")
SECURITY, SUPPORT, COMPATIBILITY = (
    (ROOT / f"docs/{name}.md").read_text("utf-8")
    for name in ("security", "protocol-support", "compatibility")
)
DOCUMENTS = (SECURITY, SUPPORT, COMPATIBILITY)
PROOFS = sorted({proof for text in DOCUMENTS for proof in _PROOF.findall(text)})


@cache
def runs_in(path: str) -> set[str]:
    """Defined there, or imported to be run there."""
    names: set[str] = set()
    for node in ast.walk(ast.parse((ROOT / "tests" / path).read_bytes())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.ImportFrom):
            names.update(alias.asname or alias.name for alias in node.names)
    return {name for name in names if name.startswith("test_")}


@pytest.mark.parametrize(("path", "test"), PROOFS)
def test_the_proof_is_there(path: str, test: str) -> None:
    assert (ROOT / "tests" / path).is_file(), f"there is no tests/{path}"
    assert not test or test in runs_in(path), f"tests/{path} has no {test}"


@pytest.mark.parametrize(("text", "least"), [(SECURITY, 80), (SUPPORT, 60), (COMPATIBILITY, 7)])
def test_there_are_proofs(text: str, least: int) -> None:
    assert len(set(_PROOF.findall(text))) > least


def test_every_feature_that_there_is_names_a_test_of_ours() -> None:
    features = SUPPORT.partition("## What other servers have")[0]
    rows = [row for row in features.splitlines() if row.startswith("| ") and "| tests" not in row]
    without = [row for row in rows if not any(test for _, test in _PROOF.findall(row))]
    assert [row for row in without if not row.startswith(("| all |", "| chapter |"))] == [
        "| subscriptions and webhooks (`__ds`) | no | no | |",
        "| Reserved subscription APIs | 6, left out | |",
    ]


def test_every_chapter_that_is_named_is_one() -> None:
    named = {name.strip() for names in _SUITE.findall(SUPPORT) for name in names.split(",")}
    assert len(named) > 15
    chapters = CHAPTERS.keys() | {chapter.partition(" - ")[0] for chapter in CHAPTERS}
    assert named <= chapters, named - chapters


def test_the_chapters_are_written_from_the_list() -> None:
    assert render(SUPPORT) == SUPPORT, "run `make docs`"
    assert "| SSE Mode | 31 |" in SUPPORT


def test_chapters_are_counted_from_what_vitest_lists() -> None:
    listed = ["a.js > One > deeper > should", "a.js > One > should > not split", "a.js > Two > x"]
    assert count_chapters(listed) == {"One": 2, "Two": 1}


def test_every_promise_that_can_be_broken_is_told() -> None:
    table = (ROOT / "docs/verify.md").read_text("utf-8").partition("## What is checked")[2]
    told = {name for row in re.findall(r"^\| (`.+?`) \|", table, re.M) for name in row.split(", ")}
    checks = sorted((ROOT / "loadtest/verify").rglob("*.py"))
    checker = "".join(path.read_text("utf-8") for path in checks)
    found = set(re.findall(r'(?:Violation|seen_by)\(\s*"([a-z-]+)"', checker))
    assert len(found) > 20
    assert {f"`{name}`" for name in found} <= told
    assert all(f'"{name.strip("`")}"' in checker for name in told)
