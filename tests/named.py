"""Queries over queries by the reference: each one evaluated on what those before it gave."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.model import Stream
from penstock.reference import Row, aggregate_results, results
from penstock.sql import Results, parse_query, results_of

Answers = dict[str, list[tuple[object, ...]]]


def evaluate(queries: Mapping[str, str], streams: Mapping[str, Stream], rows: Mapping[str, Sequence[Row]]) -> Answers:
    """The answer of every query at the end of all input, by name; a query may read those before it."""
    known: dict[str, Results] = {}
    own_streams, own_rows = dict(streams), dict(rows)
    found: Answers = {}
    for name, sql in queries.items():
        query = parse_query(sql, streams, queries=known)
        evaluated = results if query.aggregation is None else aggregate_results
        found[name] = evaluated(query, own_streams, own_rows)
        known[name] = results_of(query, streams, known)
        if known[name].times:
            time = known[name].usual or known[name].times[0]
            own_streams[name] = Stream(name, known[name].columns, time, delay=0)
            names = [str(item.name) for item in query.items]
            own_rows[name] = [dict(zip(names, row, strict=True)) for row in found[name]]
    return found
