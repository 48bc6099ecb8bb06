"""The reference is what the code says, and leaves no header and no metric out."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import gateway.console.minting as minting
import gateway.rules.forwarding as forwarding
from tests.docs.snippets import ROOT
from weir.reference import HEADERS, codes, metrics, render

PACKAGES = ("protocol", "origin", "gateway", "wire")
LISTED = {*forwarding._ANSWERED, *minting.FORWARDED, minting.SECRET_HEADER}
ADDED = forwarding.upstream_headers({}, subject="someone", request_id="1", token="a.b.c")
SPELLED = re.compile(r"(?!Nats-)[A-Z][A-Za-z]*(?:-[A-Z][A-Za-z]*)+")
WORD = re.compile(r"E?[A-Z][a-z]+")  # a header only where a value stands beside it


def headers_in(path: Path) -> Iterator[str]:
    """Written as headers are, beside a value, or asked of what holds headers; in lower case. NATS
    has its own."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        match node:
            case ast.Constant(value=str(name)) if SPELLED.fullmatch(name):
                yield name.lower()
            case ast.Tuple(elts=[ast.Constant(value=str(name)), _]) if WORD.fullmatch(name):
                yield name.lower()
            case (
                ast.Call(func=ast.Attribute(value=held), args=[ast.Constant(value=str(name)), *_])
                | ast.Subscript(value=held, slice=ast.Constant(value=str(name)))
                | ast.Compare(left=ast.Constant(value=str(name)), comparators=[held])
            ) if ast.unparse(held).endswith("headers") and name.islower():
                yield name


def test_the_reference_is_written_from_this_code() -> None:
    assert (ROOT / "docs/reference.md").read_text() == render(), "run `make docs`"


def test_every_header_is_explained_and_none_that_is_gone() -> None:
    sources = [path for name in PACKAGES for path in (ROOT / name).rglob("*.py")]
    found = {header for path in sources for header in headers_in(path)}
    named = LISTED | {*ADDED} | {name for name in found if not name.startswith("nats-")}
    assert len(named) > 60
    explained = {name.lower() for name in HEADERS}
    assert named == explained, named ^ explained


def test_metrics_of_workers_are_told() -> None:
    for name in ("workers", "workers_up", "worker_restarts_total"):
        assert f"| `weir_gateway_{name}` |" in metrics()


def test_a_code_tells_all_that_it_is_used_for() -> None:
    table = codes()
    rows = {row.split("`")[1]: row for row in table.splitlines() if row.startswith("| `")}
    assert "stopping" in rows["origin-unavailable"] and "breaker" in rows["origin-unavailable"]
    assert "one token" in rows["ambiguous-token"]  # said in a variable
