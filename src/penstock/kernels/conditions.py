"""Join conditions that kernels evaluate: which ones at a hop, which ones at the end, and how they clear query bits.

A condition that may raise is evaluated at its hop too, but only rows that it refutes are dropped there; rows on which
it raised continue. At the end a whole result is an error if some of its conditions raise and all others are TRUE. So
neither the order of lookups nor that of conditions changes the answer (decision 0015).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from penstock.columns.terms.evaluation import Lookup, holds
from penstock.kernels.probe import Words
from penstock.model import Expression, Term
from penstock.planner.join import Join, Member, decided_early
from penstock.state.run import Ints


@dataclass(frozen=True)
class Condition:
    """A condition of one query, with the query's bit in result rows."""

    query: int
    bit: int
    term: Term


def at_hop(join: Join, position: int, known: Collection[int], *, last: bool) -> list[Condition]:
    """The conditions to test once `position`, newest of `known`, is joined; at the `last` hop not those `at_end`."""
    return [
        Condition(member.id, member.bit, term)
        for member, residual, term in _residuals(join)
        if decided_early(residual)
        and position in residual.roles
        and set(known).issuperset(residual.roles)
        and not (last and _at_end(residual))
    ]


def at_end(join: Join) -> list[Condition]:
    """The conditions that are evaluated on whole results."""
    return [Condition(member.id, member.bit, term) for member, residual, term in _residuals(join) if _at_end(residual)]


def refuted(
    bits: Words,
    conditions: Sequence[Condition],
    columns: Callable[[Ints], Lookup],
    errors: Counter[int] | None = None,
) -> Words:
    """The bits without those of queries with a condition that is FALSE or NULL; `columns` gives columns of some rows.

    With `errors` the rows are whole results: a query with a condition that raised loses them too, and they are counted.
    """
    left, raising = bits, dict[Condition, Ints]()
    for condition in conditions:
        word, bit = condition.bit // 64, np.uint64(1 << (condition.bit % 64))
        wanted = np.flatnonzero(left[:, word] & bit)
        if len(wanted) == 0:
            continue
        true, raised = holds(condition.term, columns(wanted), len(wanted))
        false = wanted[~true & ~raised]
        if len(false):
            left = bits.copy(order="K") if left is bits else left
            left[false, word] &= ~bit
        if errors is not None and raised.any():
            raising[condition] = wanted[raised]
    for condition, rows in raising.items():
        word, bit = condition.bit // 64, np.uint64(1 << (condition.bit % 64))
        # A later condition may be FALSE, and a result with two errors counts once.
        wrong = rows[(left[rows, word] & bit) != 0]
        if errors is not None and len(wrong):
            errors[condition.query] += len(wrong)
            left = bits.copy(order="K") if left is bits else left
            left[wrong, word] &= ~bit
    return left


def _residuals(join: Join) -> Iterator[tuple[Member, Expression, Term]]:
    for member in join.leads:
        for residual in member.residuals:
            if residual.term is not None:
                yield member, residual, residual.term


def _at_end(residual: Expression) -> bool:
    return not residual.total or not decided_early(residual)
