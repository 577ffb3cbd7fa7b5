"""The first rows of one window: sorted by the keys of ORDER BY, ties by their groups."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cmp_to_key, partial
from typing import TypeVar

from penstock.model import Ref, Top
from penstock.reference.evaluate import value_of
from penstock.reference.order import compare_values

_Row = TypeVar("_Row")


def first_rows(
    top: Top, rows: Sequence[_Row], column: Callable[[_Row, Ref], object], group: Callable[[_Row], Sequence[object]]
) -> list[_Row]:
    """At most `top.count` rows of these, which are all of a window; `column` and `group` read a row."""

    def compare(left: _Row, right: _Row) -> int:
        for key in top.keys:
            one, other = (value_of(key.expression, partial(column, row)) for row in (left, right))
            found = compare_values(one, other)
            if one is None or other is None:
                found = found if key.nulls_first else -found
            elif key.descending:
                found = -found
            if found:
                return found
        return next((c for pair in zip(group(left), group(right), strict=True) if (c := compare_values(*pair))), 0)

    return sorted(rows, key=cmp_to_key(compare))[: top.count]
