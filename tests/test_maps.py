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
        "origin.cluster",
        "origin.storage.cluster",
        "gateway",
        "gateway.rules",
        "gateway.console",
    ),
    *("loadtest", "loadtest.load", "loadtest.peers", "loadtest.analytics", "loadtest.faults"),
    *("loadtest.inspector", "loadtest.soak", "loadtest.verify"),
    "loadtest.verify.cluster",
    *(
        "pages",
        "spark",
        "spark.report",
        "weir",
        "weir.commands",
        "weir.edge",
        "weir.client",
        "weir.cluster",
    ),
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


def names_of_tests() -> set[str]:
    return {str(path.relative_to(ROOT / "tests")) for path in ROOT.glob("tests/**/test_*.py")}


def has_test(package: str, module: str, files: set[str]) -> bool:
    """By its name in the tests of the top-level package, or by a word in the map's paragraphs on
    tests."""
    top = package.partition(".")[0]
    if any(f.startswith(f"{top}/") and f.endswith(f"/test_{module}.py") for f in files):
        return True
    docstring = ast.get_docstring(ast.parse((folder_of(package) / "__init__.py").read_bytes()))
    told = [part for part in (docstring or "").split("\n\n") if "tests/" in part]
    return any(re.search(rf"\b{module}\b", part) for part in told)


@pytest.mark.parametrize("package", PACKAGES)
def test_the_test_of_each_module_is_findable(package: str) -> None:
    files = names_of_tests()
    modules = [path.stem for path in folder_of(package).glob("[!_]*.py")]
    assert [module for module in modules if not has_test(package, module, files)] == []


def test_paths_of_tests_in_maps_exist() -> None:
    for package in PACKAGES:
        text = (folder_of(package) / "__init__.py").read_text()
        for path in re.findall(r"tests/[\w/]+(?:\.py)?", text):
            assert (ROOT / path).exists(), (package, path)


def test_the_map_is_read() -> None:
    assert {"stream", "requests"} <= set(listed("protocol"))
    assert "storage" in present("origin")
