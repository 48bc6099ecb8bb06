"""Links in documents lead somewhere: files that there are, headings that there are."""

import re
from functools import cache
from pathlib import Path

import pytest

from tests.docs.snippets import DOCUMENTS, ROOT

_CODE = re.compile(r"^```.*?^```$|^(?: {4}|\t)[^\n]*$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} +(.+?)\s*$", re.MULTILINE)


def links_of(path: Path) -> list[str]:
    prose = _CODE.sub("", path.read_text("utf-8"))
    return [link for link in _LINK.findall(prose) if not re.match(r"[a-z]+:", link)]


@cache
def anchors_of(path: Path) -> set[str]:
    """As GitHub makes them of headings."""
    text = re.sub(r"^```.*?^```$", "", path.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    anchors: set[str] = set()
    for heading in _HEADING.findall(text):
        plain = re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")
        name, number = plain, 0
        while name in anchors:
            number += 1
            name = f"{plain}-{number}"
        anchors.add(name)
    return anchors


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_somewhere(path: Path) -> None:
    for link in links_of(path):
        name, _, anchor = link.partition("#")
        target = (path.parent / name).resolve() if name else path
        assert target.exists(), f"{link}: there is no such file"
        assert not anchor or anchor in anchors_of(target), f"{link}: there is no such heading"


def test_every_document_can_be_reached_from_the_readme() -> None:
    reached, waiting = set(), [ROOT / "README.md"]
    while waiting:
        path = waiting.pop()
        if path in reached or path.suffix != ".md":
            continue
        reached.add(path)
        names = (link.partition("#")[0] for link in links_of(path))
        waiting += [(path.parent / name).resolve() for name in names if name]
    assert set(DOCUMENTS) <= reached
