"""The predicate index: which of many predicates a value satisfies, by one search in sorted literals.

The literals of all predicates over one column cut its domain into cells: each literal, each gap between two of them,
NULL, and NaN (above all literals). A predicate is constant on a cell, so each cell has one mask. Pure data; the kernels
search many rows at once (decision 0016).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.model import And, Compare, In, IsNull, Literal, Not, Or, Ref, Term
from penstock.model.stream import INTEGER_TYPES

INDEXED_TYPES = INTEGER_TYPES | {"double", "float", "string", "boolean"}

FALSE, UNKNOWN, TRUE = -1, 0, 1  # so that OR is the maximum and NOT the sign
Truths = npt.NDArray[np.int64]

_OPERATORS = {
    "=": lambda c: c == 0,
    "<>": lambda c: c != 0,
    "<": lambda c: c < 0,
    "<=": lambda c: c <= 0,
    ">": lambda c: c > 0,
    ">=": lambda c: c >= 0,
}


@dataclass(frozen=True)
class ColumnIndex:
    """The cells of one column. `masks[c]` has bit b set iff entry b's predicates on this column hold in cell c.

    Cell 2i is the gap below `literals[i]`, cell 2i+1 the literal itself, cell 2n the gap above all of
    them (NaN included), and cell 2n+1 is NULL.
    """

    column: str
    literals: tuple[int | float | str | bool, ...]
    masks: tuple[int, ...]

    @cached_property
    def null_cell(self) -> int:
        return 2 * len(self.literals) + 1


def indexable(term: Term | None) -> str | None:
    """The one column that decides the predicate, if an index on it can evaluate it; else None."""
    columns: set[str] = set()
    return next(iter(columns)) if term is not None and _decidable(term, columns) and len(columns) == 1 else None


def build_index(column: str, predicates: Iterable[tuple[int, Term]], width: int) -> ColumnIndex:
    """Index `predicates`, pairs of (entry, term over `column`); entries without one have their bit in every cell."""
    pairs = list(predicates)
    found: set[int | float | str | bool] = set()
    for _, term in pairs:
        found.update(_literals(term))
    literals = tuple(sorted(found, key=_order))
    domain = _Domain({value: 2 * number + 1 for number, value in enumerate(literals)}, 2 * len(literals) + 2)
    holds = np.ones((width, domain.cells), dtype=np.bool_)
    for entry, term in pairs:
        holds[entry] &= domain.everywhere(domain.truth(term)) == TRUE
    packed = np.packbits(holds, axis=0, bitorder="little")
    return ColumnIndex(column, literals, tuple(int.from_bytes(cell.tobytes(), "little") for cell in packed.T))


def _order(value: float | str | bool) -> Any:
    return value.encode() if isinstance(value, str) else value


def _decidable(term: Term, columns: set[str]) -> bool:
    match term:
        case Compare(_, Ref(_, column), Literal()) | Compare(_, Literal(), Ref(_, column)):
            columns.add(column)
            return True
        case In(Ref(_, column), _) | IsNull(Ref(_, column)):
            columns.add(column)
            return True
        case And(terms) | Or(terms):
            return all(_decidable(t, columns) for t in terms)
        case Not(inner):
            return _decidable(inner, columns)
        case Literal(_, "boolean" | "void"):
            return True
        case _:
            return False


def _literals(term: Term) -> list[int | float | str | bool]:
    match term:
        case Compare(_, _, Literal(value)) | Compare(_, Literal(value), _):
            return [] if value is None else [value]
        case In(_, values):
            return [v.value for v in values if v.value is not None]
        case And(terms) | Or(terms):
            return [v for t in terms for v in _literals(t)]
        case Not(inner):
            return _literals(inner)
        case _:
            return []


@dataclass(frozen=True)
class _Steps:
    """The truth of a term over the cells of a column, by the cells where it changes; the last cell is NULL.

    A comparison changes at most three times, and a conjunction no more often than its terms together: so thousands of
    terms take time and memory by their number, not its square.
    """

    changes: tuple[tuple[int, int], ...]  # (cell, truth from there on); the first is of cell 0
    null: int


class _Domain:
    """The cells of one column, with the three-valued truth of a term in all of them; the last cell is NULL."""

    def __init__(self, places: Mapping[Any, int], cells: int) -> None:
        self.places, self.cells = places, cells

    def everywhere(self, steps: _Steps) -> Truths:
        """The truth in each cell."""
        starts, values = zip(*steps.changes, strict=True)
        lengths = np.diff([*starts, self.cells - 1])
        return np.append(np.repeat(np.array(values, dtype=np.int64), lengths), steps.null)

    def truth(self, term: Term) -> _Steps:
        match term:
            case Compare(op, Ref(), Literal(value)):
                return self._compare(op, value)
            case Compare(op, Literal(value), Ref()):
                return self._compare({"<": ">", "<=": ">=", ">": "<", ">=": "<="}.get(op, op), value)
            case In(_, values):
                return _any([self._compare("=", v.value) for v in values])
            case IsNull():
                return _Steps(((0, FALSE),), TRUE)
            case And(terms):
                return _not(_any([_not(self.truth(t)) for t in terms]))
            case Or(terms):
                return _any([self.truth(t) for t in terms])
            case Not(inner):
                return _not(self.truth(inner))
            case Literal(value):
                return _same(UNKNOWN if value is None else TRUE if value else FALSE)
            case _:
                raise AssertionError(term)

    def _compare(self, op: str, value: object) -> _Steps:
        if value is None:
            return _same(UNKNOWN)
        place = self.places[value]  # neither the first cell nor the last but one: all literals have gaps on both sides
        below, at, above = (TRUE if _OPERATORS[op](side) else FALSE for side in (-1, 0, 1))
        return _Steps(((0, below), (place, at), (place + 1, above)), UNKNOWN)


def _same(truth: int) -> _Steps:
    return _Steps(((0, truth),), truth)


def _not(steps: _Steps) -> _Steps:
    return _Steps(tuple((cell, -truth) for cell, truth in steps.changes), -steps.null)


def _any(several: Sequence[_Steps]) -> _Steps:
    """The greatest truth in each cell: counts how many are true and how many unknown, from change to change."""
    events = sorted((cell, number, truth) for number, steps in enumerate(several) for cell, truth in steps.changes)
    now = [FALSE] * len(several)
    count = {FALSE: len(several), UNKNOWN: 0, TRUE: 0}
    changes: list[tuple[int, int]] = [(0, FALSE)]
    for cell, number, truth in events:
        count[now[number]] -= 1
        count[truth] += 1
        now[number] = truth
        greatest = TRUE if count[TRUE] else UNKNOWN if count[UNKNOWN] else FALSE
        if changes[-1][0] == cell:
            changes.pop()
        if not changes or changes[-1][1] != greatest:
            changes.append((cell, greatest))
    return _Steps(tuple(changes), max((steps.null for steps in several), default=FALSE))
