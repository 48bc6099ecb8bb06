"""What docs/analytics.md says there is."""

import re

from tests.docs.snippets import ROOT

DOCUMENT = ROOT / "docs/analytics.md"

_ROWS = r"\|---\|---\|\n((?:\|.*\n)+)"
_NAME = re.compile(r"`([^`]+)`")


def documented_tables() -> dict[str, list[str]]:
    """Columns by table; each has its own below its name."""
    text = DOCUMENT.read_text("utf-8")
    found = re.findall(rf"^\*\*(\w+)\*\*(?:.*\n)+?\| column \| \|\n{_ROWS}", text, re.MULTILINE)
    assert len(dict(found)) == len(found)
    return {table: _names(rows) for table, rows in found}


def documented(kind: str) -> list[str]:
    """Names in the one table with that heading."""
    [rows] = re.findall(rf"^\| {kind} \| \|\n{_ROWS}", DOCUMENT.read_text("utf-8"), re.MULTILINE)
    return _names(rows)


def _names(rows: str) -> list[str]:
    """Those in the first cells."""
    return [name for row in rows.splitlines() for name in _NAME.findall(row.split("|")[1])]
