"""Counts the statements of penstock by package, without docstrings: `python -m tools.statements`.

Lines depend on how code is formatted, statements do not.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter

from tools.layers import modules, package_of

DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def statements(text: str) -> int:
    """The statements of a module, at any depth, without docstrings."""
    nodes = list(ast.walk(ast.parse(text)))
    found = sum(isinstance(node, ast.stmt) for node in nodes)
    return found - sum(isinstance(node, DOCUMENTED) and ast.get_docstring(node) is not None for node in nodes)


def main() -> int:
    found = Counter[str]()
    for name, path in modules().items():
        found[package_of(name)] += statements(path.read_text(encoding="utf-8"))
    for package, count in found.most_common():
        print(f"{package:10} {count:>6,}")
    print(f"{'all':10} {found.total():>6,}, without testing {found.total() - found['testing']:,}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
