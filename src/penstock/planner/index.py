"""The predicate index: which of many predicates a value satisfies, by one search in sorted literals.

The literals of all predicates over one column cut its domain into cells: each literal is a cell of its own, and so
is each gap between two of them, the NULLs, and (above all gaps) NaN. A predicate is constant on a cell, so each cell
has one mask. Pure data and evaluation by position; searching many rows at once is the kernels' work.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from penstock.model import And, Compare, In, IsNull, Literal, Not, Or, Ref, Term
from penstock.model.stream import INTEGER_TYPES

INDEXED_TYPES = INTEGER_TYPES | {"double", "float", "string", "boolean"}

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
    """Index `predicates`, pairs of (entry, term over `column`); entries without one keep their bit in every cell."""
    pairs = list(predicates)
    found: set[int | float | str | bool] = set()
    for _, term in pairs:
        found.update(_literals(term))
    literals = tuple(sorted(found, key=_order))
    full = (1 << width) - 1
    masks = []
    for cell in range(2 * len(literals) + 2):
        position = None if cell == 2 * len(literals) + 1 else cell
        mask = full
        for entry, term in pairs:
            if _truth(term, position, literals) is not True:
                mask &= ~(1 << entry)
        masks.append(mask)
    return ColumnIndex(column, literals, tuple(masks))


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


def _truth(term: Term, position: int | None, literals: Sequence[int | float | str | bool]) -> bool | None:
    """Three-valued truth of the term for any value at this position among the literals."""
    match term:
        case Compare(op, Ref(), Literal(value)):
            return _compare(op, position, value, literals)
        case Compare(op, Literal(value), Ref()):
            flipped = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}.get(op, op)
            return _compare(flipped, position, value, literals)
        case In(_, values):
            return _any(_compare("=", position, v.value, literals) for v in values)
        case IsNull():
            return position is None
        case And(terms):
            return _not(_any(_not(_truth(t, position, literals)) for t in terms))
        case Or(terms):
            return _any(_truth(t, position, literals) for t in terms)
        case Not(inner):
            return _not(_truth(inner, position, literals))
        case Literal(value):
            return None if value is None else bool(value)
        case _:
            raise AssertionError(term)


def _compare(op: str, position: int | None, value: object, literals: Sequence[object]) -> bool | None:
    if position is None or value is None:
        return None
    return bool(_OPERATORS[op](position - (2 * literals.index(value) + 1)))


def _any(truths: Iterable[bool | None]) -> bool | None:
    seen = list(truths)
    if True in seen:
        return True
    return None if None in seen else False


def _not(truth: bool | None) -> bool | None:
    return None if truth is None else not truth
