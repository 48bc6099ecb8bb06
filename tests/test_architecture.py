"""Who may import whom, and which modules must stay free of I/O, clocks and chance."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MAY_IMPORT = {
    "protocol": {"protocol"},
    "wire": {"wire", "protocol"},
    "origin": {"origin", "wire", "protocol"},
    "gateway": {"gateway", "wire", "protocol"},
    "pages": {"pages"},
    "spark": {"spark", "pages", "protocol"},
    "loadtest": {"loadtest", "pages", "protocol"},
    "weir": {"weir", "origin", "gateway", "loadtest", "spark", "pages", "wire", "protocol"},
}
OURS = set(MAY_IMPORT) | {"tests"}
PURE: tuple[str, ...] = (
    "protocol/*.py",
    "origin/storage/format.py",
    "wire/heads.py",
    "gateway/rules/*.py",
)
PURE += tuple(f"loadtest/verify/{name}.py" for name in ("messages", "timeline", "check", "verdict"))
PURE += ("pages/*.py", "loadtest/faultplan.py", "loadtest/inspectview.py")
IMPURE = {"asyncio", "aiohttp", "os", "io", "pathlib", "socket", "ssl", "subprocess", "threading"}
IMPURE |= {"time", "random", "secrets", "uuid", "logging", "tempfile", "shutil", "uvloop", "lmdb"}
IMPURE_CALLS = {"open", "print", "input", "now", "utcnow", "today"}

FILES = [path for package in MAY_IMPORT for path in sorted((ROOT / package).rglob("*.py"))]
PURE_FILES = [path for pattern in PURE for path in sorted(ROOT.glob(pattern))]


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def imports(path: Path) -> Iterator[str]:
    """Top-level packages a file imports, wherever in it the import stands."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield (node.module or "").partition(".")[0]


def calls(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Call):
            function = node.func
            yield function.attr if isinstance(function, ast.Attribute) else ast.unparse(function)


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_imports_follow_the_direction(path: Path) -> None:
    package = path.relative_to(ROOT).parts[0]
    assert set(imports(path)) & OURS <= MAY_IMPORT[package]


@pytest.mark.parametrize("path", PURE_FILES, ids=name_of)
def test_pure_modules_touch_no_world(path: Path) -> None:
    assert not set(imports(path)) & IMPURE
    assert not set(calls(path)) & IMPURE_CALLS


def test_the_walk_sees_the_code() -> None:
    assert {"protocol/stream.py", "origin/storage/format.py", "wire/heads.py"} <= set(
        map(name_of, PURE_FILES)
    )
    assert {"origin/app.py", "weir/cli.py", "wire/front.py"} <= set(map(name_of, FILES))
