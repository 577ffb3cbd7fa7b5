"""Mutation tests of the step, the state, progress, ranks and expiry: `python -m tools.mutate --seed 0 --count 60`.

A mutation changes one place of one module: a comparison, a sum, a bound or a condition, or it drops a statement. It is
killed if the unit tests of the module or the scenario runner fail on it, or take too long.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCES = ROOT / "src" / "penstock"
TARGETS = (
    "step/*.py",
    "state/*.py",
    "kernels/ranks.py",
    "kernels/delta.py",
    "kernels/aggregate/keep.py",
    "kernels/groups.py",
)
SPARKS = {"finish.py", "files.py", "selection.py", "handover.py"}  # used and tested only under Spark
SECONDS = 120.0  # for one mutation
SCENARIOS = 150

COMPARISONS = {ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "=="}
SUMS = {ast.Add: "-", ast.Sub: "+", ast.Mult: "+", ast.FloorDiv: "*"}
CALLS = {"min": "max", "max": "min", "any": "all", "all": "any"}


UNSEEN = (ast.Import, ast.ImportFrom, ast.AnnAssign, ast.JoinedStr, ast.Raise, ast.arguments, ast.Assert)


@dataclass(frozen=True)
class Mutation:
    """A piece of a module's text, and its replacement."""

    module: str
    line: int
    start: int
    end: int
    new: str
    what: str

    def __str__(self) -> str:
        return f"{self.module}:{self.line} {self.what}"


def mutations(path: Path) -> list[Mutation]:
    """All mutations of a module."""
    text = path.read_text(encoding="utf-8")
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line.encode()))
    data = text.encode()

    def place(line: int, column: int) -> int:
        return starts[line - 1] + column

    def made(node: ast.expr | ast.stmt, new: str, what: str) -> Mutation:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start, end = place(node.lineno, node.col_offset), place(node.end_lineno, node.end_col_offset)
        return Mutation(str(path.relative_to(SOURCES)), node.lineno, start, end, new, what)

    def source(node: ast.expr | ast.stmt) -> str:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return data[place(node.lineno, node.col_offset) : place(node.end_lineno, node.end_col_offset)].decode()

    return [
        made(node, new, f"{_short(source(node))} -> {_short(new)}") for node, new in _changes(ast.parse(text), source)
    ]


def _changes(
    tree: ast.Module, source: Callable[[ast.expr | ast.stmt], str]
) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    """(node, its replacement)."""
    for node in _meaningful(tree):
        match node:
            case ast.Compare(left, [op], [right]) if type(op) in COMPARISONS:
                yield node, f"({source(left)} {COMPARISONS[type(op)]} {source(right)})"
            case ast.Compare(left, [ast.In()], [right]):
                yield node, f"({source(left)} not in {source(right)})"
            case ast.BinOp(left, op, right) if type(op) in SUMS and not _is_text(left):
                yield node, f"({source(left)} {SUMS[type(op)]} {source(right)})"
            case ast.BoolOp(op, values):
                word = " or " if isinstance(op, ast.And) else " and "
                yield node, f"({word.join(f'({source(value)})' for value in values)})"
            case ast.UnaryOp(ast.Not(), operand):
                yield node, f"({source(operand)})"
            case ast.Constant(int(value)) if not isinstance(value, bool):
                yield node, f"{value + 1}"
            case ast.Call(ast.Name(name), arguments) if name in CALLS and arguments:
                yield node, CALLS[name] + source(node)[len(name) :]
            case ast.Expr(ast.Call()) | ast.AugAssign():
                yield node, "pass"


def _meaningful(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes on which answers may depend: no types, defaults of fields, messages, imports, module sizes."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, UNSEEN) or (isinstance(tree, ast.Module) and isinstance(child, ast.Assign)):
            continue
        yield child
        yield from _meaningful(child)


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 60 else f"{line[:57]}.."


def chosen(seed: int, count: int) -> list[Mutation]:
    """`count` mutations, spread over the modules."""
    chance = random.Random(seed)  # noqa: S311  (a seed repeats the choice)
    known = [
        mutations(path) for pattern in TARGETS for path in sorted(SOURCES.glob(pattern)) if path.name not in SPARKS
    ]
    known = [chance.sample(own, len(own)) for own in known if own]
    chance.shuffle(known)
    rounds = [own[number] for number in range(max(map(len, known))) for own in known if number < len(own)]
    return rounds[:count]


def killed(mutation: Mutation) -> str | None:
    """The tests that killed it; None if it survived."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / "src", f"{folder}/src", ignore=shutil.ignore_patterns("__pycache__"))
        target = Path(folder) / "src" / "penstock" / mutation.module
        data = target.read_bytes()
        target.write_bytes(data[: mutation.start] + mutation.new.encode() + data[mutation.end :])
        until = time.monotonic() + SECONDS
        for name, command in _killers(mutation):
            try:
                done = subprocess.run(  # noqa: S603  (our own tests)
                    [sys.executable, *command], cwd=ROOT, env={**os.environ, "PYTHONPATH": f"{folder}/src"},
                    capture_output=True,
                    timeout=max(1.0, until - time.monotonic()), check=False,
                )  # fmt: skip
            except subprocess.TimeoutExpired:
                return f"{name} (too slow)" if name == "unit tests" else None
            if done.returncode not in (0, 5):  # 5: no such tests exist
                return name
    return None


def _killers(mutation: Mutation) -> Iterator[tuple[str, list[str]]]:
    module = Path(mutation.module)
    unit = ROOT / "tests" / module.parent / f"test_{module.name}"
    if unit.exists():
        yield "unit tests", ["-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", str(unit)]
    yield "scenarios", ["-m", "penstock.testing", "--count", str(SCENARIOS), "--first"]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.mutate", description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--skip", type=int, default=0, help="of these, to go on where a run has ended")
    asked = parser.parse_args()
    survived = []
    known = chosen(asked.seed, asked.count)[asked.skip :]
    for mutation in known:
        by = killed(mutation)
        print(f"{'survived' if by is None else f'killed by {by}':24} {mutation}", flush=True)
        if by is None:
            survived.append(mutation)
    share = 100 * (len(known) - len(survived)) / max(1, len(known))
    print(f"{len(known) - len(survived)} of {len(known)} killed, {share:.0f} %")
    return 0


if __name__ == "__main__":
    sys.exit(main())
