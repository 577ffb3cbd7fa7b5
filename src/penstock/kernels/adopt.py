"""Assign stored rows the bits of queries added later, as far as the stored columns allow."""

from __future__ import annotations

from collections.abc import Callable, Collection

import numpy as np
import numpy.typing as npt

from penstock.kernels.bits import cells_of
from penstock.model import Term
from penstock.planner.index import build_index
from penstock.planner.state_table import COUNTING, Entry, StateTable
from penstock.state.run import Rows, gap

Known = npt.NDArray[np.bool_]


def adopt(table: StateTable, rows: Rows, shares: Collection[int]) -> Rows:
    """The rows, with the roles of the queries in `shares` set where their predicates are known to hold.

    A predicate is evaluated on a stored column. Without the column, a row satisfies it if it serves a query with the
    same predicate. A row that lacks a column the query needs does not serve the query.
    """
    new = [entry for entry in table.entries if entry.query in shares]
    others = {entry.id: entry for entry in table.entries if entry.query not in shares}
    ids = rows.bits.astype(np.int64)
    patterns = list(rows.patterns)
    for entry in new:
        serves = _serves(entry, others, rows)
        numbers = np.unique(ids[serves]).tolist()
        moved = np.arange(len(patterns))
        for number in numbers:
            moved[number] = len(patterns)
            patterns.append((*patterns[number], entry.id))
        ids[serves] = moved[ids[serves]]
    return Rows(rows.key, rows.time, ids.astype(np.int32), tuple(patterns), rows.columns)


def _serves(entry: Entry, others: dict[int, Entry], rows: Rows) -> Known:
    def implied(holds: Callable[[Entry], bool]) -> Known:
        by_pattern = [any(role in others and holds(others[role]) for role in pattern) for pattern in rows.patterns]
        return np.array(by_pattern, dtype=np.bool_)[rows.bits]

    # A row stored only to be counted may have no key.
    serves = np.array([any(0 <= role < COUNTING for role in pattern) for pattern in rows.patterns], dtype=np.bool_)[
        rows.bits
    ]
    for column in entry.needs:
        serves &= _stored(column, rows)
    for column, term in entry.terms:
        known = implied(lambda other, wanted=(column, term): wanted in other.terms)  # type: ignore[misc]
        stored = _stored(column, rows)
        if stored.any():
            known |= stored & _holds(column, term, rows)
        serves &= known
    for truth in entry.truths:
        serves &= implied(lambda other, wanted=truth: wanted in other.truths)  # type: ignore[misc]
    return serves


def _stored(column: str, rows: Rows) -> Known:
    if column not in rows.columns:
        return np.zeros(len(rows), dtype=np.bool_)
    return np.array([gap(column) not in pattern for pattern in rows.patterns], dtype=np.bool_)[rows.bits]


def _holds(column: str, term: Term, rows: Rows) -> Known:
    index = build_index(column, [(0, term)], 1)
    return np.asarray(np.array(index.masks, dtype=np.int64)[cells_of(index, rows.columns[column])] == 1)
