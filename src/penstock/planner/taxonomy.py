"""Properties of each aggregate function: the size of its partials, whether they can be subtracted, and its pieces.

A *piece* is what partials hold for one argument, and functions share pieces: avg(x) reads the sum and the count that
sum(x) and count(x) need anyway. The classes are those of Li 2008, 6.2.2. The kernels compute the pieces.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.model.aggregate import Aggregate

ROWS = -1  # the argument of a piece that is about rows, not values

DISTRIBUTIVE, ALGEBRAIC, HOLISTIC = "distributive", "algebraic", "holistic"
FULL, PSEUDO, NONE = "full", "pseudo", "none"

MOMENTS = frozenset({"stddev_samp", "stddev_pop", "var_samp", "var_pop"})
SKETCHES = frozenset({"approx_count_distinct", "approx_percentile", "approx_top_k"})
REPEATS_CHANGE_NOTHING = frozenset({"min", "max", "first", "last", "any_value", "approx_count_distinct"})
EXTREMES = {"min": "least", "any_value": "least", "max": "greatest"}  # any value may be the least
_FLOATING = frozenset({"float", "double"})


@dataclass(frozen=True)
class Piece:
    """What partials hold: `kind` over the argument of that number (`ROWS` for none).

    Kinds: count; sum; moments (count, mean, squared deviations; of exact numbers count, sum, sum of squares); least;
    greatest; first; last; valid_first and valid_last (skipping NULLs); bag (values with counts); state (of a sketch or
    of a user's own function); list (all values in order); span (first and last time).
    """

    kind: str
    argument: int = ROWS
    function: str = ""
    parameters: tuple[int | float, ...] = ()


@dataclass(frozen=True)
class Nature:
    """`size` of partials (holistic: unbounded), and whether they are `differential`: can be subtracted again.

    Differential is `full` at constant size, `pseudo` if the state for it grows, and `exact` if subtracting leaves no
    error, as with integers and unlike floating numbers.
    """

    size: str
    differential: str
    exact: bool

    @property
    def bounded(self) -> bool:
        return self.size != HOLISTIC

    @property
    def by_differences(self) -> bool:
        """Whether windows may be computed by subtracting old panes."""
        return self.differential == FULL and self.exact


def nature(aggregate: Aggregate, kind: str = "bigint") -> Nature:
    """The nature of an aggregate over an argument of this type. Users' own functions can only be merged."""
    function = aggregate.function
    exact = kind not in _FLOATING
    if function == "collect_list":
        return Nature(HOLISTIC, NONE, exact=True)
    if function == "heavy_hitters" or (aggregate.distinct and function not in REPEATS_CHANGE_NOTHING):
        return Nature(HOLISTIC, PSEUDO, exact=True)
    if function == "count":
        return Nature(DISTRIBUTIVE, FULL, exact=True)
    if function == "sum":
        return Nature(DISTRIBUTIVE, FULL, exact)
    if function == "avg":
        return Nature(ALGEBRAIC, FULL, exact)
    if function in MOMENTS:
        return Nature(ALGEBRAIC, FULL, exact)
    if function in {"min", "max", "first", "last", "any_value"}:
        return Nature(DISTRIBUTIVE, NONE, exact=True)
    if function in SKETCHES:
        return Nature(ALGEBRAIC, NONE, exact=False)
    return Nature(ALGEBRAIC, NONE, exact=True)


def pieces(aggregate: Aggregate, argument: int) -> tuple[Piece, ...]:
    """The pieces of this aggregate, whose argument has that number."""
    count = Piece("count", argument)
    function = aggregate.function
    if function == "collect_list":
        return (Piece("list", argument),)
    if function == "heavy_hitters" or (aggregate.distinct and function not in REPEATS_CHANGE_NOTHING):
        return (Piece("bag", argument),)
    if function == "count":
        return (count,)
    if function in {"sum", "avg"}:
        return (count, Piece("sum", argument))
    if function in MOMENTS:
        return (Piece("moments", argument),)
    if function in EXTREMES:
        return (count, Piece(EXTREMES[function], argument))
    if function in {"first", "last"}:
        return (Piece(f"valid_{function}" if any(aggregate.parameters) else function, argument),)
    return (Piece("state", argument, function, aggregate.parameters),)
