"""Stream order, for windows that count rows: rows by `Stream.order`, values in Spark's order with NULL first.

Rows that are equal in all of these columns are interchangeable.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cmp_to_key
from itertools import chain, pairwise

from penstock.model import Rows, Stream
from penstock.reference.evaluate import compare

Row = dict[str, object]


def followers(stream: Stream, window: Rows, rows: Sequence[Row]) -> list[list[int]]:
    """For each row the times of the rows that follow it in stream order, in its partition."""
    compare_rows = _order(stream, rows)
    indexes = sorted(range(len(rows)), key=cmp_to_key(compare_rows))
    found: list[list[int]] = [[] for _ in rows]
    for position, index in enumerate(indexes):
        for later in indexes[position + 1 :]:
            time = rows[later][stream.event_time]
            assert isinstance(time, int)
            if all(compare_values(rows[index][c], rows[later][c]) == 0 for c in window.partition):
                found[index].append(time)
    return found


def ranks(stream: Stream, rows: Sequence[Row]) -> list[int]:
    """The rank of each row in stream order, from 0; equal rows share theirs."""
    compare_rows = _order(stream, rows)
    found = [0] * len(rows)
    for before, after in pairwise(sorted(range(len(rows)), key=cmp_to_key(compare_rows))):
        found[after] = found[before] + (compare_rows(before, after) != 0)
    return found


def by_sequence(stream: Stream, rows: Sequence[Row]) -> list[Row]:
    """Rows, given in stream order, by the stream's sequence."""
    sequence = str(stream.sequence)

    def compare_places(left: Row, right: Row) -> int:
        return compare_values(left[sequence], right[sequence])

    return sorted(rows, key=cmp_to_key(compare_places))


def _order(stream: Stream, rows: Sequence[Row]) -> Callable[[int, int], int]:
    """Compares two rows by their indexes."""

    def compare_rows(i: int, j: int) -> int:
        pairs = [(rows[i][c], rows[j][c]) for c in stream.order]
        signs = chain((compare_values(*pair) for pair in pairs), (_compare_zeros(*pair) for pair in pairs))
        return next((sign for sign in signs if sign), 0)

    return compare_rows


def compare_values(left: object, right: object) -> int:
    """NULL equals itself and is smallest."""
    if left is None or right is None:
        return (left is not None) - (right is not None)
    return compare(left, right)


def _compare_zeros(left: object, right: object) -> int:
    """Rows that differ only in -0.0 and 0.0 still need an order, although these are equal."""
    if not isinstance(left, float) or not isinstance(right, float) or math.isnan(left) or math.isnan(right):
        return 0
    one, other = math.copysign(1, left), math.copysign(1, right)
    return (one > other) - (one < other)
