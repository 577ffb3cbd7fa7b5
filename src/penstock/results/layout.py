"""The layout of result files: their kinds, and the column names that writers and readers share.

Column names follow from their content, so that the query is enough to read a file. Rows of joins are in files of the
default kind of `ResultFile`: all columns that some query selects, and the bits of the queries of each row.
"""

from __future__ import annotations

import hashlib

from penstock.model import Aggregate
from penstock.planner.aggregates import AggregatePlan
from penstock.planner.taxonomy import ROWS

WINDOWS = "aggregate"  # windows of aggregates, for all queries: rows may stand for several windows
PANES = "panes"  # closed panes, from which windows are assembled on read
OWN = "own"  # only the select list of one query, of the step at the start of the file's name
MERGED = "own merged"  # such files merged, with the step as a column
OWN_KINDS = (OWN, MERGED)

STEP = "_step"
FINAL = "_final"  # for queries with early results: whether the window is closed


def computed_column(query: int, item: int) -> str:
    """A select item that was computed before it was stored."""
    return f"x{query}_{item}"


def measure_column(aggregate: Aggregate) -> str:
    """The values of an aggregate."""
    argument = "" if aggregate.argument is None else aggregate.argument.shown(lambda ref: f"\0{ref.column}\0")
    return _named("m", aggregate.function, argument, aggregate.distinct, aggregate.parameters)


def piece_columns(plan: AggregatePlan) -> list[str]:
    """Each piece of a plan, without the number of its part."""
    names = []
    for piece in plan.pieces:
        own = None if piece.argument == ROWS else plan.arguments[piece.argument]
        argument = "" if own is None else own.shown(lambda ref: f"\0{ref.column}\0")
        names.append(_named("p", piece.kind, argument, piece.function, piece.parameters))
    return names


def _named(letter: str, *facts: object) -> str:
    return letter + hashlib.sha256("\0".join(map(str, facts)).encode()).hexdigest()[:12]
