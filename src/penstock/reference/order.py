"""Stream order, for windows that count rows: rows by `Stream.order`, values in Spark's order with NULL first.

Rows that are equal in all of these columns are interchangeable.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from datetime import date
from decimal import Decimal
from itertools import pairwise

from penstock.model import Rows, Stream
from penstock.reference.evaluate import Unspecified, compare

Row = dict[str, object]


def followers(stream: Stream, window: Rows, rows: Sequence[Row]) -> list[list[int]]:
    """For each row the times of the rows that follow it in stream order, in its partition."""
    places = _places(stream, rows)
    found: list[list[int]] = [[] for _ in rows]
    behind: dict[Hashable, list[int]] = {}  # by partition, the last one first
    ordered = sorted(range(len(rows)), key=places.__getitem__)
    for index in reversed(ordered):
        later = behind.setdefault(tuple(place(rows[index][c]) for c in window.partition), [])
        found[index] = later[::-1]
        time = rows[index][stream.event_time]
        assert isinstance(time, int)
        later.append(time)
    return found


def ranks(stream: Stream, rows: Sequence[Row]) -> list[int]:
    """The rank of each row in stream order, from 0; equal rows share theirs."""
    places = _places(stream, rows)
    found = [0] * len(rows)
    for before, after in pairwise(sorted(range(len(rows)), key=places.__getitem__)):
        found[after] = found[before] + (places[before] != places[after])
    return found


def by_sequence(stream: Stream, rows: Sequence[Row]) -> list[Row]:
    """Rows, given in stream order, by the stream's sequence."""
    return sorted(rows, key=lambda row: place(row[str(stream.sequence)]))


def place(value: object) -> tuple[int, object]:
    """The place of a value among those of its column, in Spark's order: NULL first, NaN last, one zero."""
    match value:
        case None:
            return 0, 0
        case float() if math.isnan(value):
            return 2, 0
        case str():
            return 1, value.encode()
        case int() | float() | Decimal() | date():
            return 1, value
    msg = f"the reference does not order {value!r}"
    raise Unspecified(msg)


def _places(stream: Stream, rows: Sequence[Row]) -> list[tuple[object, ...]]:
    """Places of rows: by their values and, where these are equal, by the signs of zeros, which still need an order."""
    columns = stream.order
    return [(*(place(row[c]) for c in columns), *(_sign(row[c]) for c in columns)) for row in rows]


def _sign(value: object) -> float:
    return math.copysign(1, value) if isinstance(value, float) and value == 0 else 0


def compare_values(left: object, right: object) -> int:
    """NULL equals itself and is smallest."""
    if left is None or right is None:
        return (left is not None) - (right is not None)
    return compare(left, right)
