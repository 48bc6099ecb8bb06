"""The reference is what the code says, and leaves no header out."""

import re

from tests.docs.snippets import ROOT
from weir.reference import HEADERS, render

PACKAGES = ("protocol", "origin", "gateway", "wire")
OURS = re.compile(r'"((?:Stream|Producer)-[A-Za-z-]+|Cache-Status|CDN-Cache-Control|Retry-After)"')


def test_the_reference_is_written_from_this_code() -> None:
    assert (ROOT / "docs/reference.md").read_text() == render(), "run `make docs`"


def test_every_header_of_ours_is_explained() -> None:
    sources = [path.read_text() for name in PACKAGES for path in (ROOT / name).rglob("*.py")]
    named = {header for source in sources for header in OURS.findall(source)}
    assert len(named) > 15
    assert named <= set(HEADERS)
