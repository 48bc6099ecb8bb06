"""Versions and counts in documents are those that the tests run with."""

import json
import re

from tests.conformance.chapters import LEFT_OUT
from tests.conformance.runner import OLDEST_NODE, TESTS
from tests.docs.snippets import ROOT

ALL = TESTS + sum(LEFT_OUT.values())
SUITE = "@durable-streams/server-conformance-tests"
_ROW = re.compile(r"^\| (\S+)(?: \(Python\))? \| ([\d.]+) \|", re.MULTILINE)


def dependencies(folder: str) -> dict[str, str]:
    package = json.loads((ROOT / folder / "package.json").read_text("utf-8"))
    return {**package.get("dependencies", {}), **package.get("devDependencies", {})}


def python_pins() -> dict[str, str]:
    text = (ROOT / "requirements-dev.lock").read_text("utf-8")
    return dict(re.findall(r"^([\w.-]+)==(\S+)", text, re.MULTILINE))


def test_the_suite_is_the_one_that_is_named() -> None:
    text = (ROOT / "SPEC_VERSION.md").read_text("utf-8")
    version = dependencies("tests/conformance")[SUITE]
    assert f"`{SUITE}` {version}: {TESTS} of its {ALL} tests" in text


def test_the_readme_counts_as_the_suite_does() -> None:
    words = (ROOT / "README.md").read_text("utf-8").split()
    assert f"passes {TESTS} of the {ALL} tests of the official conformance suite" in " ".join(words)


def test_every_version_that_is_named_is_the_one_that_is_tried() -> None:
    rows = dict(_ROW.findall((ROOT / "docs/compatibility.md").read_text("utf-8")))
    needed = re.search(r'requires-python = ">=([\d.]+)"', (ROOT / "pyproject.toml").read_text())
    assert needed is not None
    assert rows.pop("Python") == needed[1] and rows.pop("Node") == str(OLDEST_NODE)
    pins = python_pins() | dependencies("tests/clients") | dependencies("loadtest")
    assert len(rows) > 7
    assert rows == {name: pins.get(name.strip("`")) for name in rows}


def test_no_official_package_is_left_out() -> None:
    text = (ROOT / "docs/compatibility.md").read_text("utf-8")
    tried = dependencies("tests/clients") | dependencies("loadtest")
    official = [name for name in tried if name.startswith("@durable-streams/")]
    assert len(official) > 3
    assert [name for name in official if f"| `{name}` |" not in text] == []
