"""A named expression: one column of a select list, or of GROUP BY."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.model.expression import Expression


@dataclass(frozen=True)
class Item:
    """One column of the select list; `name` is None if Spark chooses the name."""

    name: str | None
    expression: Expression
