"""The shape of the product in numbers: `python -m tests.shape [FOLDER]`.

Sizes of files, classes and functions, how many of our modules a module imports, import cycles, and
attributes that are assigned from outside their object. Tests are left out.
"""

import ast
import sys
import tokenize
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from io import StringIO
from pathlib import Path
from statistics import median

PACKAGES = ("protocol", "wire", "origin", "gateway", "pages", "spark", "loadtest", "weir")
LONG_FILE, LONG_CLASS, LONG_FUNCTION = 400, 300, 60
WATCHED = ("gateway.door", "gateway.app")

Function = ast.FunctionDef | ast.AsyncFunctionDef
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_NO_CODE = (
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE),
    *(tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER),
)


class Module:
    def __init__(self, root: Path, path: Path) -> None:
        text = path.read_text()
        self.path = str(path.relative_to(root))
        self.name = self.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        self.lines = text.count("\n")
        self.tree = ast.parse(text)
        self.code_lines = len(_lines_of_code(text) - _lines_of_prose(self.tree))

    def sizes(self, *kinds: type[ast.AST]) -> Iterator[tuple[int, str]]:
        for node in ast.walk(self.tree):
            if isinstance(node, kinds) and isinstance(node, Function | ast.ClassDef):
                yield (node.end_lineno or 0) - node.lineno + 1, f"{self.path}: {node.name}"

    def imports(self, names: set[str]) -> set[str]:
        """Modules of ours, at run time: what only the type checker needs is no dependency."""
        return {name for name in _imported(self.tree) if name in names} - {self.name}

    def fields(self) -> Iterator[tuple[str, bool]]:
        """Declared attributes, and whether they hold something to call."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.AnnAssign):
                name = ast.unparse(node.target).removeprefix("self.")
                yield name, "Callable[" in ast.unparse(node.annotation)

    def late_assignments(self, callables: set[str]) -> Iterator[str]:
        """An object that somebody else completes: a callable handed to it after construction."""
        for node in ast.walk(self.tree):
            for target, value in _assigned(node):
                if not isinstance(target, ast.Attribute) or ast.unparse(target.value) == "self":
                    continue
                if isinstance(value, ast.Lambda) or target.attr in callables:
                    if not isinstance(value, ast.Constant):  # to let go of it is no completion
                        yield f"{self.path}:{target.lineno}: {ast.unparse(target)}"


def _lines_of_code(text: str) -> set[int]:
    tokens = tokenize.generate_tokens(StringIO(text).readline)
    spans = [(t.start[0], t.end[0] + 1) for t in tokens if t.type not in _NO_CODE]
    return {line for span in spans for line in range(*span)}


def _lines_of_prose(tree: ast.AST) -> set[int]:
    """Imports and docstrings."""
    nodes: list[ast.stmt] = [
        n for n in ast.walk(tree) if isinstance(n, ast.Import | ast.ImportFrom)
    ]
    nodes += [n.body[0] for n in ast.walk(tree) if isinstance(n, _DOCUMENTED) and _docstring(n)]
    return {line for n in nodes for line in range(n.lineno, (n.end_lineno or 0) + 1)}


def _docstring(node: ast.Module | ast.ClassDef | Function) -> bool:
    return ast.get_docstring(node, clean=False) is not None


def _assigned(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    for target in node.targets if isinstance(node, ast.Assign) else ():
        assert isinstance(node, ast.Assign)
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            yield from zip(target.elts, node.value.elts, strict=False)
        else:
            yield target, node.value


def _imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        else:
            yield from _imported(node)


def read_modules(root: Path) -> list[Module]:
    paths = [path for package in PACKAGES for path in sorted((root / package).rglob("*.py"))]
    return [Module(root, path) for path in paths]


def find_late_assignments(modules: list[Module]) -> list[str]:
    fields = [field for module in modules for field in module.fields()]
    callables = {name for name, holds in fields if holds} - {n for n, holds in fields if not holds}
    return [place for module in modules for place in module.late_assignments(callables)]


def find_cycle(modules: list[Module]) -> list[str]:
    names = {module.name for module in modules}
    try:
        TopologicalSorter({m.name: m.imports(names) for m in modules}).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def print_shape(root: Path) -> None:
    modules = read_modules(root)
    names = {module.name for module in modules}
    classes = [size for module in modules for size in module.sizes(ast.ClassDef)]
    functions = [
        size for module in modules for size in module.sizes(ast.FunctionDef, ast.AsyncFunctionDef)
    ]
    files = [(module.lines, module.path) for module in modules]
    code = sum(module.code_lines for module in modules)
    whole = sum(lines for lines, _ in files)
    print(f"product: {len(files)} files, {whole} lines, {code} without prose, imports and blanks")
    for package in PACKAGES:
        lines = sum(m.lines for m in modules if m.name.partition(".")[0] == package)
        print(f"  {package}: {lines}")
    for what, sizes, most in (
        ("files", files, LONG_FILE),
        ("classes", classes, LONG_CLASS),
        ("functions", functions, LONG_FUNCTION),
    ):
        long = sorted((size for size in sizes if size[0] > most), reverse=True)
        middle = median(size for size, _ in sizes)
        print(f"{what}: median {middle:.0f} lines, {len(long)} above {most}")
        for size, where in long:
            print(f"  {size} {where}")
    for module in modules:
        if module.name in WATCHED:
            print(f"{module.name} imports {len(module.imports(names))} of our modules")
    late = find_late_assignments(modules)
    print(f"late assignments: {len(late)}")
    print("".join(f"  {place}\n" for place in late), end="")
    print("import cycle:", " -> ".join(find_cycle(modules)) or "none")


if __name__ == "__main__":
    print_shape(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent.parent)
