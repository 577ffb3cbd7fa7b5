"""Lookups for a database that only takes plain queries: one query per key, many combined by UNION ALL.

Neither arrays nor temporary tables are needed. All parts of a lookup read one snapshot, in a read-only transaction; the
number of keys per request adapts to measurements (Liu 2005, 10.5.2).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

import pyarrow as pa

from penstock.planner.views.knee import Knee
from penstock.views.postgres.capture import text_literal
from penstock.views.postgres.pool import Pool, reading


def fetch_composite(
    pool: Pool,
    keys: pa.Table,
    types: dict[str, tuple[str, str]],
    select: Callable[[str], str],
    head: str,
    knee: Knee,
    locked: Sequence[str] = (),
) -> tuple[list[pa.Table], int]:
    """(the answers, requests made). `types` has each column as it is compared, and its type.

    `select` makes the query for a condition, `head` the query of the single row before all others.
    """
    conditions = [_condition(row, types) for row in keys.to_pylist()]

    def request(cursor: Any) -> list[pa.Table]:
        answers: list[pa.Table] = []
        with reading(cursor, locked):
            for start, end in knee.parts(len(conditions)):
                began = perf_counter()
                cursor.execute(" UNION ALL ".join([head, *map(select, conditions[start:end])]))
                answers.append(cursor.fetch_arrow_table())
                knee.learn(end - start, perf_counter() - began)
        return answers

    answers = pool.read(request)
    return answers, len(answers)


def _condition(row: dict[str, Any], types: dict[str, tuple[str, str]]) -> str:
    tests = ((*types[name], _constant(value)) for name, value in row.items())
    return " AND ".join(f"{column} = {constant}::{kind}" for column, kind, constant in tests)


def _constant(value: Any) -> str:
    """A value as text that its type parses back to the same value."""
    if isinstance(value, bool):
        return text_literal("true" if value else "false")
    return text_literal(value.isoformat() if hasattr(value, "isoformat") else str(value))
