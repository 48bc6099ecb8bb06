"""Every proof that docs/security.md names is there to be run."""

import ast
import re
from functools import cache

import pytest

from tests.docs.snippets import ROOT

_PROOF = re.compile(r"`([\w/]+\.py)(?:::(\w+))?`")
PROOFS = sorted(set(_PROOF.findall((ROOT / "docs/security.md").read_text("utf-8"))))


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


def test_there_are_proofs() -> None:
    assert len(PROOFS) > 80
