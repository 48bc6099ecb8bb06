"""The map in a package's docstring: one line for each module, and no line for what is not there."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = (
    *(
        "protocol",
        "wire",
        "origin",
        "origin.storage",
        "gateway",
        "gateway.rules",
        "gateway.console",
    ),
    *("pages", "spark", "spark.report", "weir", "weir.commands", "weir.edge", "weir.client"),
)
LINE = re.compile(r"(\w+) {2,}\S")


def folder_of(package: str) -> Path:
    return ROOT.joinpath(*package.split("."))


def listed(package: str) -> list[str]:
    """Names at the start of a line, with what they stand for behind some spaces."""
    docstring = ast.get_docstring(ast.parse((folder_of(package) / "__init__.py").read_bytes()))
    matches = map(LINE.match, (docstring or "").splitlines())
    return [match[1] for match in matches if match]


def present(package: str) -> list[str]:
    modules = [path.stem for path in folder_of(package).glob("[!_]*.py")]
    return modules + [path.parent.name for path in folder_of(package).glob("*/__init__.py")]


@pytest.mark.parametrize("package", PACKAGES)
def test_the_map_names_each_module_once(package: str) -> None:
    assert sorted(listed(package)) == sorted(present(package))


def test_the_map_is_read() -> None:
    assert {"stream", "requests"} <= set(listed("protocol"))
    assert "storage" in present("origin")
