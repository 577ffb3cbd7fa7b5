"""How result files are laid out: their kinds, and the names of the columns that whoever writes and whoever reads them agree on.

Columns have names that follow from what they hold, so that a file can be read with nothing but the query. Rows of joins lie in files of the kind
that `ResultFile` has by itself: all columns that some query selects, and the bits of the queries of each row.
"""

from __future__ import annotations

import hashlib

from penstock.model import Aggregate
from penstock.planner.aggregates import AggregatePlan
from penstock.planner.taxonomy import ROWS

WINDOWS = "aggregate"  # windows of aggregates, for all queries: rows may stand for several windows
PANES = "panes"  # closed panes, from which windows are put together when they are read
OWN = "own"  # the select list of one query and nothing else, of the step that the name of the file begins with
MERGED = "own merged"  # such files put together, with the step as a column
OWN_KINDS = (OWN, MERGED)

STEP = "_step"
FINAL = "_final"  # of queries whose open windows are shown too: whether the window is over


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
