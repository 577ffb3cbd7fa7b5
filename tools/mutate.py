"""Mutation tests of the step, the state, progress, ranks and expiry: `python -m tools.mutate --seed 0 --count 60`.

A mutation changes one place of one module: a comparison, a sum, a bound or a condition, or it drops a statement. It is
killed if tests of its package, or scenarios that execute its line, fail on it. Processor time is limited, not time on
the clock: what else the machine does must not change the outcome.
"""

from __future__ import annotations

import argparse
import ast
import gc
import hashlib
import json
import os
import random
import resource
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

import pytest
from numba.core.caching import NullCache
from numba.core.dispatcher import Dispatcher

from penstock.testing.__main__ import _bounded, tried

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
SECONDS = 120  # of processor time for one mutation
SCENARIOS = 100  # of which those are run that execute the line
FIRST, MOST = 12, 60  # of these for one mutation
BESIDE = {  # tests of what else decides about a package
    "kernels": ("ranks", "groups", "delta", "monitored", "join", "sharing"),
}

EQUIVALENT = {  # a part of what is changed, and why no answer, no state and no count depends on it
    "watch.lap(": "seconds of phases, which are only shown",
    "self.phases.get(phase": "the same",
    "f.name in self.encoded": "which columns of a file are compressed as dictionaries",
    "self._bytes_since >= self._snapshot_bytes": "whether a log of exactly that size gets its snapshot a step later",
}

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
        made(node, new, f"{_short(source(node))} -> {_short(new)}")
        for node, new in _changes(ast.parse(text), source)
        if not any(part in source(node) for part in EQUIVALENT)
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


def killed(mutation: Mutation, seeds: Sequence[int]) -> str | None:
    """The tests that killed it; None if it survived. `seeds` are those of scenarios that execute its line."""
    left = float(SECONDS)
    for name, work in _killers(mutation, seeds):
        before = _children()
        passed = _apart(mutation, work, round(left) + 1)
        left -= _children() - before
        if not passed:
            return f"{name} (never ends)" if left <= 0 else name
    return None


def _children() -> float:
    """The processor time of all processes so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _apart(mutation: Mutation, work: Callable[[], bool], seconds: int) -> bool:
    """Whether work passes on the mutated code, in a process of its own, which has imported what it needs."""
    process = os.fork()
    if process:
        return os.waitpid(process, 0)[1] == 0
    try:
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        mutate(mutation)
        passed = work()
        os._exit(0 if passed else 1)
    except BaseException:  # noqa: BLE001  (whatever it is, the mutation has caused it)
        os._exit(1)


def mutate(mutation: Mutation) -> None:
    """Give the functions of an imported module their mutated code; compiled ones are compiled anew."""
    path = SOURCES / mutation.module
    data = path.read_bytes()
    changed = data[: mutation.start] + mutation.new.encode() + data[mutation.end :]
    old, new = ([*_codes(compile(text, str(path), "exec"))] for text in (data, changed))
    differing = {was: now for was, now in zip(old, new, strict=True) if was != now}
    known = [f for f in gc.get_objects() if isinstance(f, FunctionType) and f.__code__ in differing]
    for function in known:
        function.__code__ = differing[function.__code__]
    for dispatcher in [d for d in gc.get_objects() if isinstance(d, Dispatcher) and d.py_func in known]:
        signatures = list(dispatcher.nopython_signatures)
        dispatcher._cache = NullCache()  # noqa: SLF001
        dispatcher._can_compile = True  # noqa: SLF001
        dispatcher.overloads.clear()
        for signature in signatures:
            dispatcher.compile(signature.args)


def _codes(code: CodeType) -> Iterator[CodeType]:
    """The code of a module and of all functions in it, in order."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _killers(mutation: Mutation, seeds: Sequence[int]) -> Iterator[tuple[str, Callable[[], bool]]]:
    """What may kill it, the quickest first."""
    module = Path(mutation.module)
    folder = ROOT / "tests" / module.parent
    unit = folder / f"test_{module.name}"
    if unit.exists():
        yield "its unit tests", partial(_tests, [unit])
    if seeds[:FIRST]:
        yield "scenarios", partial(_scenarios, seeds[:FIRST])
    beside = [folder / f"test_{name}.py" for name in BESIDE.get(module.parts[0], ())]
    yield "unit tests", partial(_tests, beside or [folder])
    if seeds[FIRST:]:
        yield "scenarios", partial(_scenarios, seeds[FIRST:MOST])


def _tests(paths: Sequence[Path]) -> bool:
    """Whether these tests pass."""
    options = ["-q", "-x", "-p", "no:cacheprovider", "-m", "not spark and not long"]
    return pytest.main([*options, *map(str, paths)]) in (0, 5)  # 5: no such tests exist


def _scenarios(seeds: Sequence[int]) -> bool:
    """Whether none of these scenarios is wrong."""
    return not any(_bounded(seed) for seed in seeds)


def executed(count: int) -> dict[str, list[int]]:
    """By `module:line` the scenarios that execute it; found once for each state of the sources."""
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(SOURCES.rglob("*.py")))).hexdigest()
    cache = Path(tempfile.gettempdir()) / f"penstock-lines-{digest[:16]}-{count}.json"
    if not cache.exists():
        cache.write_text(json.dumps(_traced(range(count))), encoding="utf-8")
    found: dict[str, list[int]] = json.loads(cache.read_text(encoding="utf-8"))
    return found


def _traced(seeds: Iterable[int]) -> dict[str, list[int]]:
    wanted = {str(path): str(path.relative_to(SOURCES)) for pattern in TARGETS for path in SOURCES.glob(pattern)}
    lines: dict[CodeType, set[int | None]] = {}
    every: dict[CodeType, set[int | None]] = {}

    def line(frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            lines[frame.f_code].add(frame.f_lineno)
        return line

    def call(frame: FrameType, _event: str, _: Any) -> Any:
        code = frame.f_code
        if code.co_filename not in wanted:
            return None
        if code not in every:
            every[code] = {number for *_, number in code.co_lines()} - {code.co_firstlineno}
        return None if lines.setdefault(code, set()) >= every[code] else line

    found: dict[str, list[int]] = {}
    for seed in seeds:
        lines.clear()
        sys.settrace(call)
        tried([seed])
        sys.settrace(None)
        for place in {f"{wanted[code.co_filename]}:{number}" for code, own in lines.items() for number in own}:
            found.setdefault(place, []).append(seed)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.mutate", description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--skip", type=int, default=0, help="of these, to go on where a run has ended")
    asked = parser.parse_args()
    os.environ["PENSTOCK_TESTS"] = "mutated"  # so that no test looks for a smaller example
    survived = []
    known = chosen(asked.seed, asked.count)[asked.skip :]
    lines = executed(SCENARIOS)
    for mutation in known:
        by = killed(mutation, lines.get(f"{mutation.module}:{mutation.line}", []))
        print(f"{'survived' if by is None else f'killed by {by}':30} {mutation}", flush=True)
        if by is None:
            survived.append(mutation)
    share = 100 * (len(known) - len(survived)) / max(1, len(known))
    print(f"{len(known) - len(survived)} of {len(known)} killed, {share:.0f} %")
    return 0


if __name__ == "__main__":
    sys.exit(main())
