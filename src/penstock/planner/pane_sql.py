"""Partials in Spark SQL: the same columns that the kernels make of rows, so that rows can be put together before they are exchanged.

Only pieces that Spark can aggregate by itself have a text; a plan with others sends its rows as they are. The kernels read both alike.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.planner.aggregates import AggregatePlan
from penstock.planner.taxonomy import ROWS, Piece

_SMALL = frozenset({"tinyint", "smallint", "int"})
_FLOATING = frozenset({"float", "double"})


def partial_columns(plan: AggregatePlan, arguments: Sequence[str], time: str) -> list[tuple[str, str]] | None:
    """(name, aggregate expression) of each column of partials, to be grouped by the group columns and `pane_text`.

    `arguments` are the texts of the plan's arguments, `time` that of the event time as a BIGINT. None if rows must be sent, because the
    plan is buffered or a piece cannot be said.
    """
    if plan.width is None:
        return None
    found: list[tuple[str, str]] = []
    for number, piece in enumerate(plan.pieces):
        kind = "" if piece.argument == ROWS else plan.types[piece.argument]
        texts = _texts(piece, kind, "" if piece.argument == ROWS else arguments[piece.argument], time)
        if texts is None:
            return None
        found += [(f"p{number}_{k}", text) for k, text in enumerate(texts)]
    return found


def pane_text(plan: AggregatePlan, time: str) -> str:
    """Where the pane of a row begins; `time` is the event time as a BIGINT."""
    assert plan.width is not None
    return f"({time}) - pmod(({time}) - {plan.base}L, {plan.width}L)"


def _texts(piece: Piece, kind: str, argument: str, time: str) -> list[str] | None:
    match piece.kind:
        case "count":
            return ["count(*)" if piece.argument == ROWS else f"count({argument})"]
        case "span":
            return [f"min({time})", f"max({time})"]
        case "sum" if kind in _SMALL:
            return [f"coalesce(sum(bigint({argument})), 0L)"]
        case "sum" if kind == "bigint":
            # In halves, so that no sum overflows; the shift keeps the sign.
            return [
                f"coalesce(sum(({argument}) & 4294967295L), 0L)",
                f"coalesce(sum(shiftright(({argument}), 32)), 0L)",
            ]
        case "least":
            return [f"min({argument})"]
        case "greatest":
            return [f"max({argument})"]
        case "moments" if kind in _SMALL | _FLOATING | {"bigint"}:
            # A sketch of deviations that Spark computes by merging, as the kernels do.
            plain = f"double({argument})"
            return [
                f"double(count({argument}))",
                f"coalesce(avg({plain}), 0D)",
                f"coalesce(var_pop({plain}) * count({argument}), 0D)",
            ]
    return None  # sums of doubles are kept with their error, which Spark does not do
