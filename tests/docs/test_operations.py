"""Operators paste what they read: metrics in alerts and settings in prose are those of the code."""

import re
import tomllib
from pathlib import Path

import pytest

from tests.docs.snippets import DOCUMENTS, ROOT, all_snippets
from weir.reference import codes, metrics

_METRIC = re.compile(r"\bweir_(?:gateway|origin)_\w+")
_SETTING = re.compile(r"`(\w+)\.(\w+)(?: = [^`]*)?`")
_SERIES = ("_bucket", "_count", "_sum")


def known_metrics() -> set[str]:
    return set(_METRIC.findall(metrics()))


def base_name(metric: str) -> str:
    ending = next((ending for ending in _SERIES if metric.endswith(ending)), "")
    return metric.removesuffix(ending)


def test_every_metric_in_a_query_exists() -> None:
    queries = "\n".join(snippet.text for snippet in all_snippets("promql"))
    queries += (ROOT / "configs/alerts.yml").read_text("utf-8")
    used = set(map(base_name, _METRIC.findall(queries)))
    assert len(used) > 15
    assert used <= known_metrics(), used - known_metrics()


def test_every_error_code_that_is_looked_up_exists() -> None:
    text = (ROOT / "docs/troubleshooting.md").read_text("utf-8")
    rows = re.findall(r"^\| ((?:`[a-z-]+`(?:, )?)+) \|", text, re.MULTILINE)
    named = {code for row in rows for code in row.split(", ")}
    assert len(named) > 15
    assert named <= set(re.findall(r"`[a-z-]+`", codes()))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_setting_that_is_named_exists(document: Path) -> None:
    tables = tomllib.loads((ROOT / "configs/default.toml").read_text("utf-8"))
    text = document.read_text("utf-8")
    named = {(section, key) for section, key in _SETTING.findall(text) if section in tables}
    unknown = {(section, key) for section, key in named if key not in tables[section]}
    assert not {one for one in unknown if not is_module(*one)}


def is_module(package: str, name: str) -> bool:
    return any(ROOT.glob(f"*/{package}/{name}.py"))
