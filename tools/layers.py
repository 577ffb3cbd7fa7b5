"""The packages of penstock in order, what each imports, and imports against the order: `python -m tools.layers`.

A package imports only those before it. Spark is known to `spark`, `views` and what people hold; everything before these
runs without it.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent / "src" / "penstock"
FACADE, CLI = "façade", "cli"
ORDER = (
    "errors", "model", "columns", "sql", "reference", "planner", "storage", "state", "kernels", "catalog", "results",
    "step",
    "testing", "spark", "views", FACADE, CLI,
)  # fmt: skip
WITHIN = {
    "views": ("rows", "sources", "postgres", "refresh")
}  # packages in a package, in order; its own modules come last
WITH_SPARK = frozenset({"spark", "views", FACADE, CLI})
ONLY = {"reference": {"errors", "model", "sql"}}  # the specification shares nothing with what it checks
OUTSIDE = frozenset({"pyspark", "py4j"})

Edges = dict[tuple[str, str], list[str]]  # (importer, imported) -> the places


def package_of(module: str) -> str:
    """The package of a module, named from the root of penstock; modules at the root are what people hold."""
    first, _, rest = module.partition(".")
    if first == "demo":
        return CLI
    return first if rest or first in ORDER else CLI if first == "__main__" else FACADE


def modules() -> dict[str, Path]:
    """All modules of penstock by name."""
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix("__init__").rstrip(".")
        found[name] = path
    return found


def imports(path: Path, known: dict[str, Path]) -> Iterator[tuple[int, str]]:
    """(line, module) of each import in a file; penstock's own modules without its name, others with a leading star."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            first, _, inner = name.partition(".")
            if first != "penstock":
                yield node.lineno, f"*{first}"
            else:
                module = inner if inner in known else inner.rpartition(".")[0]
                if module:  # from the root itself only the version is taken
                    yield node.lineno, module


def edges() -> Edges:
    """Which package imports which, and where."""
    known, found = modules(), defaultdict[tuple[str, str], list[str]](list)
    for name, path in known.items():
        for line, imported in imports(path, known):
            outer = imported[1:] if imported.startswith("*") else package_of(imported)
            if package_of(name) != outer and (outer in ORDER or outer in OUTSIDE):
                found[package_of(name), outer].append(f"{path.relative_to(ROOT)}:{line}")
    return dict(found)


def against(found: Edges) -> Edges:
    """The imports that go against the order, and those of Spark where it must not be known."""
    wrong = {}
    for (importer, imported), places in found.items():
        if imported in OUTSIDE:
            allowed = importer in WITH_SPARK
        elif importer in ONLY:
            allowed = imported in ONLY[importer]
        else:
            allowed = ORDER.index(imported) < ORDER.index(importer)
        if not allowed:
            wrong[importer, imported] = places
    return wrong


def against_within() -> Edges:
    """The imports between the parts of a package that go against their order."""
    known, wrong = modules(), defaultdict[tuple[str, str], list[str]](list)
    for name, path in known.items():
        outer, _, inner = name.partition(".")
        order = WITHIN.get(outer, ())
        for line, imported in imports(path, known) if order else ():
            package, _, other = imported.partition(".")
            if package == outer and _part(order, inner) < _part(order, other):
                wrong[name, imported].append(f"{path.relative_to(ROOT)}:{line}")
    return dict(wrong)


def _part(order: tuple[str, ...], module: str) -> int:
    first = module.partition(".")[0]
    return order.index(first) if first in order else len(order)


def cycles() -> list[list[str]]:
    """Modules that import one another in a circle, also for types only."""
    known = modules()
    graph = {
        name: {i for _, i in imports(path, known) if not i.startswith("*") and i != name}
        for name, path in known.items()
    }
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in sorted(graph[name]):
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            group = []
            while not group or group[-1] != name:
                group.append(stack.pop())
            if len(group) > 1:
                found.append(sorted(group))

    for name in sorted(graph):
        if name not in index:
            visit(name)
    return found


def main() -> int:
    found = edges()
    wrong, within = against(found), against_within()
    for name in ORDER:
        below = [f"{to} ({len(places)})" for (of, to), places in sorted(found.items(), key=_place) if of == name]
        print(f"{name:10} {', '.join(below) or '-'}")
    for (importer, imported), places in sorted(wrong.items()):
        print(f"against the order: {importer} imports {imported} at {', '.join(places)}")
    for (importer, imported), places in sorted(within.items()):
        print(f"against the order: {importer} imports {imported} at {', '.join(places)}")
    for group in cycles():
        print(f"in a circle: {', '.join(group)}")
    return 1 if wrong or within or cycles() else 0


def _place(edge: tuple[tuple[str, str], list[str]]) -> int:
    (_, imported), _ = edge
    return ORDER.index(imported) if imported in ORDER else -1


if __name__ == "__main__":
    sys.exit(main())
