"""Pictures in Mermaid are drawn by the pages that show them: what they would trip over fails here.

This knows the part of the language that our pictures use; all of it needs 150 MB of packages.
"""

import re

import pytest

from tests.docs.snippets import Snippet, all_snippets

PICTURES = all_snippets("mermaid")
_NAME = r"[A-Za-z]\w*"
_TEXT = r"[^;#]+"  # both end a line of Mermaid, wherever they stand
_OPENS = re.compile(rf"(?:box|alt|opt|loop) {_TEXT}|end|else {_TEXT}")
_PARTICIPANT = re.compile(rf"participant ({_NAME}) as {_TEXT}")
_ARROW = re.compile(rf"({_NAME})-{{1,2}}>>({_NAME}): ({_TEXT})")
_NOTE = re.compile(rf"Note over ({_NAME})(?:,({_NAME}))?: ({_TEXT})")


def faults_of(picture: str) -> list[str]:
    """Lines that Mermaid would refuse, or would draw as something else."""
    first, *lines = [line.strip() for line in picture.splitlines()]
    faults = [] if first == "sequenceDiagram" else [first]
    lanes: set[str] = set()
    opened: list[str] = []
    for line in lines:
        if declared := _PARTICIPANT.fullmatch(line):
            lanes.add(declared[1])
        elif said := _ARROW.fullmatch(line) or _NOTE.fullmatch(line):
            names = {said[1], said[2] or said[1]}
            if not names <= lanes or re.search(r"\bend\b", said[3]):
                faults.append(line)
        elif not _OPENS.fullmatch(line) or not follow(opened, line.partition(" ")[0]):
            faults.append(line)
    return faults + opened


def follow(opened: list[str], word: str) -> bool:
    """Whether a block may begin, go on or end here."""
    if word == "end":
        return bool(opened and opened.pop())
    if word == "else":
        return opened[-1:] == ["alt"]
    opened.append(word)
    return True


@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture.id)
def test_mermaid_can_draw_it(picture: Snippet) -> None:
    assert faults_of(picture.text) == []


def test_each_flow_has_its_picture() -> None:
    assert [picture.document.name for picture in PICTURES] == ["architecture.md"] * 5


@pytest.mark.parametrize(
    "line",
    [
        "A->>C: to nobody",
        "A->>B",
        "A->>B: one; two",
        "A->>B: number #1",
        "A->>B: the end",
        "Note over C: nobody",
        "else without an alt",
        "end",
        "alt never closed",
        "B is done",
    ],
)
def test_what_it_could_not_draw_is_found(line: str) -> None:
    lanes = "sequenceDiagram\n    participant A as One\n    participant B as Two\n"
    good = "    alt so\n        A->>B: x\n    else or so\n        B-->>A: y\n    end\n"
    assert faults_of(lanes + good) == []
    assert faults_of(f"{lanes}{good}    {line}\n") != []
