"""Private names of other libraries that the product uses, and the tests that would notice a change.

They are the reason for the narrow versions in pyproject.toml. A name is foreign here if it begins
with an underscore and a class of ours inherits it, or if it is read from anything but `self` and no
module of ours defines it.
"""

import ast
import importlib
import inspect
import textwrap
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PACKAGES = ("protocol", "wire", "origin", "gateway", "pages", "loadtest", "spark", "weir")
# Documented in spite of their underscore.
DOCUMENTED = {"_replace", "_asdict", "_fields", "_make", "_exit"}

FRONT = "tests/wire/test_front.py::"
UPSTREAM = "tests/gateway/test_connections.py::"
FORWARDING = "tests/origin/cluster/test_forwarding.py::"
REFERENCE = "tests/docs/test_reference.py::"
LISTED = {
    "wire": {  # aiohttp.web_protocol.RequestHandler
        "_request_count": FRONT + "test_pipelined_answers_come_in_order",
        "_reading_paused": FRONT + "test_large_appends_may_be_sent_ahead",
        "_buffer_paused": FRONT + "test_large_appends_may_be_sent_ahead",
        "_process_keepalive": FRONT + "test_an_active_connection_is_not_idle",
        "_next_keepalive_close_time": FRONT + "test_an_active_connection_is_not_idle",
    },
    "origin": {  # aiohttp.ClientSession
        "_retry_connection": FORWARDING + "test_a_write_is_never_sent_twice",
    },
    "gateway": {  # aiohttp.client_proto.ResponseHandler
        "_drain_helper": UPSTREAM + "test_uploads_of_all_sizes_over_tls",
        "_parser": UPSTREAM + "test_not_after_half_an_answer_that_nobody_asked_for",
        "_payload": UPSTREAM + "test_what_stops_being_http_is_told_at_once",
    },
    "weir": {  # argparse
        "_actions": REFERENCE + "test_the_reference_is_written_from_this_code",
        "_SubParsersAction": REFERENCE + "test_the_reference_is_written_from_this_code",
    },
}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def is_own(node: ast.expr) -> bool:
    return ast.unparse(node) in ("self", "cls", "super()")


@cache
def defined(path: Path) -> frozenset[str]:
    """Private names that a module gives to its own things."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                found.add(name)
            case ast.ClassDef(name=name):
                found.add(name)
            case ast.Name(id=name, ctx=ast.Store()):
                found.add(name)
            case ast.Attribute(attr=name, ctx=ast.Store(), value=value) if is_own(value):
                found.add(name)
    return frozenset(filter(is_private, found))


def inherited(path: Path, node: ast.ClassDef) -> set[str]:
    """Private names that a class of ours has from classes that are not."""
    if not node.bases:
        return set()
    try:
        module = importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
    except ModuleNotFoundError:  # it runs in an environment of its own
        return set()
    ours = getattr(module, node.name, None)
    bases = [] if ours is None else inspect.getmro(ours)[1:-1]
    foreign = [base for base in bases if base.__module__.partition(".")[0] not in PACKAGES]
    return set(filter(is_private, (name for base in foreign for name in names_in(base))))


@cache
def names_in(base: type) -> frozenset[str]:
    """What it defines, and what its methods set."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(base)))
    except (OSError, TypeError):  # not written in Python
        return frozenset(vars(base))
    used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    return frozenset(vars(base)) | used


def uses(path: Path) -> Iterator[str]:
    """Private names of others in a module of ours."""
    tree = ast.parse(path.read_bytes())
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(attr=name, value=value) if is_private(name) and not is_own(value):
                if name not in defined(path):
                    yield name
            case ast.ImportFrom(module=str(module), names=names):
                parts = [*module.split("."), *(alias.name for alias in names)]
                yield from filter(is_private, parts)
            case ast.Call(func=ast.Name(id="getattr"), args=[_, ast.Constant(value=str(name)), *_]):
                if is_private(name):
                    yield name
            case ast.ClassDef():
                of_others = inherited(path, node)
                yield from (name for name in own_names(node) if name in of_others)


def own_names(node: ast.ClassDef) -> Iterator[str]:
    for part in ast.walk(node):
        if isinstance(part, ast.Attribute) and is_own(part.value):
            yield part.attr
        elif isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef):
            yield part.name


@pytest.mark.parametrize("package", PACKAGES)
def test_every_private_name_of_another_library_is_listed(package: str) -> None:
    files = (ROOT / package).rglob("*.py")
    used = {name for path in files for name in uses(path)}
    assert used - DOCUMENTED == set(LISTED.get(package, ()))


@pytest.mark.parametrize(
    "test", sorted({test for names in LISTED.values() for test in names.values()})
)
def test_the_test_that_would_notice_is_there(test: str) -> None:
    path, _, name = test.partition("::")
    assert f"def {name}(" in (ROOT / path).read_text()
