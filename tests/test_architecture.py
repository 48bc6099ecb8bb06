"""Who may import whom, which modules stay free of I/O, clocks and chance, and that objects are
complete when they are constructed."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.shape import Module, find_cycle, find_late_assignments, read_modules

ROOT = Path(__file__).parent.parent
MAY_IMPORT = {
    "protocol": {"protocol"},
    "wire": {"wire", "protocol"},
    "origin": {"origin", "wire", "protocol"},
    "gateway": {"gateway", "wire", "protocol"},
    "pages": {"pages"},
    "spark": {"spark", "pages", "protocol"},
    # Load tests start programs as the services do; apart from that they know servers by HTTP only.
    "loadtest": {"loadtest", "pages", "wire", "protocol"},
    "weir": {"weir", "origin", "gateway", "loadtest", "spark", "pages", "wire", "protocol"},
}
OURS = set(MAY_IMPORT) | {"tests"}
PURE: tuple[str, ...] = (
    "protocol/*.py",
    "origin/storage/base.py",
    "origin/storage/format.py",
    "origin/storage/cluster/packs.py",
    "wire/heads.py",
    "wire/encoding.py",
    "gateway/entries.py",
    "gateway/outcomes.py",
    "gateway/rules/*.py",
)
VERIFY: tuple[str, ...] = ("messages", "timeline", "check", "check_*", "verdict", "history", "plan")
PURE += tuple(f"loadtest/verify/{name}.py" for name in (*VERIFY, "availability", "completeness"))
PURE += tuple(f"loadtest/verify/cluster/{name}.py" for name in ("pauses", "clusterreport"))
PURE += ("pages/*.py", "loadtest/faults/plan.py", "loadtest/inspector/view.py")
IMPURE = {"asyncio", "aiohttp", "os", "io", "pathlib", "socket", "ssl", "subprocess", "threading"}
IMPURE |= {"time", "random", "secrets", "uuid", "logging", "tempfile", "shutil", "uvloop", "lmdb"}
IMPURE_CALLS = {"open", "print", "input", "now", "utcnow", "today"}

MODULES = {module.name: module for module in read_modules(ROOT)}
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
            if node.module == "random" and [alias.name for alias in node.names] == ["Random"]:
                continue  # by a seed, and so a value; `calls` sees one without
            yield (node.module or "").partition(".")[0]


def calls(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Call):
            function = node.func
            if ast.unparse(function) == "Random" and not node.args:
                yield "now"
            yield function.attr if isinstance(function, ast.Attribute) else ast.unparse(function)


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_imports_follow_the_direction(path: Path) -> None:
    package = path.relative_to(ROOT).parts[0]
    assert set(imports(path)) & OURS <= MAY_IMPORT[package]


@pytest.mark.parametrize("path", PURE_FILES, ids=name_of)
def test_pure_modules_touch_no_world(path: Path) -> None:
    assert not set(imports(path)) & IMPURE
    assert not set(calls(path)) & IMPURE_CALLS


@pytest.mark.parametrize("path", PURE_FILES, ids=name_of)
def test_pure_modules_import_only_pure_ones(path: Path) -> None:
    """Or the world would come in by way of somebody else's imports."""
    pure = {name_of(each) for each in PURE_FILES}
    module = next(module for module in MODULES.values() if module.path == name_of(path))
    impure = {MODULES[name].path for name in module.imports(set(MODULES))} - pure
    assert {path for path in impure if not path.endswith("__init__.py")} == set()


def test_no_module_imports_itself_by_way_of_others() -> None:
    assert find_cycle(list(MODULES.values())) == []


def test_nothing_is_handed_to_an_object_after_its_construction() -> None:
    assert find_late_assignments(list(MODULES.values())) == []


def test_a_late_assignment_would_be_seen(tmp_path: Path) -> None:
    code = tmp_path / "code.py"
    code.write_text(
        "class Cache:\n"
        "    def __init__(self) -> None:\n"
        "        self.trimmed: Callable[[str], None] = print\n"
        "def wire(hubs: Hubs, cache: Cache) -> None:\n"
        "    hubs.gone = lambda stream: None\n"
        "    cache.trimmed, cache.size = hubs.trim, 1\n"
    )
    assert len(find_late_assignments([Module(tmp_path, code)])) == 2


def test_the_walk_sees_the_code() -> None:
    pure = {"protocol/stream.py", "origin/storage/format.py", "wire/heads.py"}
    assert pure | {"gateway/rules/tails.py"} <= set(map(name_of, PURE_FILES))
    assert {"origin/app.py", "weir/cli.py", "wire/front.py"} <= set(map(name_of, FILES))
