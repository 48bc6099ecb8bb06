"""Code in documents, found and made runnable.

A fence of `console` is a session: lines that begin with `$ ` are typed, the others are what comes
back. What differs from run to run (times, identities) is masked on both sides before comparing;
a line `...` stands for any lines. A fence of `js` is a module that must run. Settings in `toml`
must load, and the metrics in a query of `promql` must exist (test_operations.py). Code in `python`
is for Spark, and run by tests/spark/test_source.py; test_pictures.py reads those in `mermaid`.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
AT_THE_TOP = ("README.md", "CONTRIBUTING.md", "SPEC_VERSION.md")
DOCUMENTS = sorted([*(ROOT / name for name in AT_THE_TOP), *ROOT.glob("docs/**/*.md")])

LANGUAGES = ("console", "js", "toml", "promql", "python", "mermaid")

_FENCE = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_MASKS = (
    (re.compile(r"\w{3}, \d{2} \w{3} \d{4} \d{2}:\d{2}:\d{2} GMT"), "<date>"),
    (re.compile(r"\d{4}-\d{2}-\d{2}T[\d:.]+Z"), "<time>"),
    (re.compile(r"eyJ[\w-]+\.[\w-]+\.[\w-]+"), "<token>"),
    (re.compile(r"\b[0-9a-f]{12,32}\b"), "<id>"),
    (re.compile(r'(?i)(?<=etag: ")[^:"]+'), "<incarnation>"),
    (re.compile(r"[b-df-hj-np-tv-z]{15}_(?=_\d{16})"), "<stream>"),
    (re.compile(r'(?i)((?:stream-)?cursor"?: ?"?)\d+'), r"\1<cursor>"),
    (re.compile(r"(?i)^(age|content-length|date): .*$", re.MULTILINE), r"\1: <varies>"),
    (re.compile(r"\b1[789]\d{8}\b"), "<seconds>"),
    (re.compile(r"(?<='jti': ')[\w-]+"), "<id>"),
    (re.compile(r"127\.0\.0\.1:\d+|localhost:\d+"), "<address>"),
)


@dataclass(frozen=True, slots=True)
class Snippet:
    document: Path
    line: int
    language: str
    text: str

    @property
    def id(self) -> str:
        return f"{self.document.relative_to(ROOT)}:{self.line}"


@dataclass(frozen=True, slots=True)
class Exchange:
    """One command and what it prints."""

    command: str
    output: str


def snippets_of(document: Path) -> Iterator[Snippet]:
    text = document.read_text("utf-8")
    for found in _FENCE.finditer(text):
        line = text.count("\n", 0, found.start()) + 1
        yield Snippet(document, line, found[1], found[2])


def all_snippets(language: str) -> list[Snippet]:
    return [one for path in DOCUMENTS for one in snippets_of(path) if one.language == language]


def unknown_in(text: str) -> list[str]:
    """Openings of fences that no test knows, and commands outside of any."""
    found: list[str] = []
    inside = False
    for line in text.splitlines():
        if line.startswith("```"):
            inside = not inside
            if inside and line.removeprefix("```") not in LANGUAGES:
                found.append(line)
        elif not inside and re.match(r"(?: {4}|\t)\$ ", line):
            found.append(line)
    return found


def exchanges_of(text: str) -> list[Exchange]:
    """A command goes on in the next line after a backslash."""
    found: list[Exchange] = []
    typed, continues = "", False
    printed: list[str] = []
    for line in text.splitlines():
        if continues or line.startswith("$ "):
            if not continues and typed:
                found.append(Exchange(typed, "\n".join(printed)))
                typed, printed = "", []
            typed += ("\n" if continues else "") + (line if continues else line[2:])
            continues = line.endswith("\\")
        else:
            printed.append(line)
    if typed:
        found.append(Exchange(typed, "\n".join(printed)))
    return found


def masked(text: str) -> str:
    for pattern, word in _MASKS:
        text = pattern.sub(word, text)
    return "\n".join(line.rstrip() for line in text.replace("\r", "").strip().splitlines())


def agrees(shown: str, printed: str) -> bool:
    """Whether a document shows what was printed."""
    pattern = re.escape(masked(shown)).replace(re.escape("..."), r"(?:.|\n)*")
    return re.fullmatch(pattern, masked(printed)) is not None
