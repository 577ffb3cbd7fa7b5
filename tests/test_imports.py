"""Packages import only earlier ones (`tools/layers.py` has the order), and those before `spark` import no Spark."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import penstock
from tools import layers
from tools.statements import statements

ROOT = Path(penstock.__file__).parent
WITHOUT_SPARK = [
    "model",
    "columns",
    "sql",
    "reference",
    "planner",
    "storage",
    "state",
    "kernels",
    "catalog",
    "results",
    "step",
]

PROGRAM = """
import importlib, json, pkgutil, sys
import penstock

for name in sys.argv[1:]:
    package = importlib.import_module(f"penstock.{name}")
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)
print(json.dumps({
    "spark": sorted(name for name in sys.modules if name.split(".")[0] in ("pyspark", "py4j")),
    "exported": "Engine" in penstock.__all__,
    "loaded": "Engine" in vars(penstock) or "penstock.engine" in sys.modules,
}))
"""


def test_importing_all_layers_without_spark_imports_no_spark_and_no_engine():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *WITHOUT_SPARK], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"spark": [], "exported": True, "loaded": False}


def test_a_package_imports_only_those_before_it():
    assert layers.against(layers.edges()) == {}


def test_the_parts_of_a_package_import_only_those_before_them():
    assert layers.against_within() == {}


def test_no_modules_import_one_another_in_a_circle():
    """Not for types either."""
    assert layers.cycles() == []


def test_statements_are_counted_at_any_depth_and_docstrings_are_none():
    assert (
        statements('"""A module."""\nX = 1\n\ndef f():\n    """Text."""\n    if X:\n        return 2\n    return 1\n')
        == 5
    )


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.level == 0:
        return [node.module or ""]
    return []


# What turns bytes into code that runs. Functions that a program gives travel to the workers of its own run, and never
# through a file.
RUNNING = frozenset({"pickle", "_pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve", "jsonpickle", "yaml"})
CALLS = frozenset({"eval", "exec", "compile", "__import__", "allow_pickle", "read_pickle"})
TRAVELLING = "spark/user_aggregates.py: cloudpickle"


def test_nothing_that_lies_on_disk_can_be_run():
    """State, registry, manifest, views and requests are data; so no module can read anything but data."""
    found = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in sorted(ROOT.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        for name in _running(node)
    }
    assert found == {TRAVELLING}


def _running(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return [node.func.id] if node.func.id in CALLS else []
    if isinstance(node, ast.Attribute):
        return [node.attr] if node.attr in RUNNING | {"read_pickle"} else []
    if isinstance(node, ast.keyword):
        return [node.arg] if node.arg in CALLS else []
    parts = {part for name in _imported(node) for part in name.split(".")}
    parts |= {alias.name for alias in node.names} if isinstance(node, ast.ImportFrom) else set()
    return sorted(parts & RUNNING)
