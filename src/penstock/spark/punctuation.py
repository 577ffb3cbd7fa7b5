"""Punctuations among the rows of a stream: which rows they are, what they bound, and which pattern they have.

A stream with punctuations is read as one DataFrame with three more columns: `_mark` (NULL for a data row), `_bound`
(the time below which no later row comes; NULL if it does not bound time) and `_pattern` (the other columns it fixes, as
JSON). Punctuations from elsewhere are added as rows of the stream, so that Spark's log of offsets covers them too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import DataFrame

from penstock.columns.verdict import MALFORMED_MARK, MARK
from penstock.model import Column, Stream
from penstock.model.punctuation import FROM, IS, part_of
from penstock.model.time import EARLIEST, LATEST, NEVER
from penstock.sql.spelling import quote, time_in_units
from penstock.state.progress import EVERYTHING

if TYPE_CHECKING:
    from collections.abc import Sequence


def marked(stream: Stream, frame: DataFrame, elsewhere: DataFrame | None = None) -> DataFrame:
    """The stream's DataFrame with marks on its punctuations; unchanged if there are none."""
    names = [quote(c.name) for c in stream.columns]
    if stream.punctuation is not None:
        column = stream.column(stream.punctuation)
        event_time = stream.column(stream.event_time)
        assert column is not None
        assert event_time is not None
        value = quote(column.name)
        if column.type == "string":
            value = f"try_cast({value} AS {event_time.type})"
        bound = time_in_units(event_time.type if column.type == "string" else column.type, value)
        outside = f"({bound}) IS NULL OR {_outside(bound)}"
        fields = ", ".join(f"'{c.name}', {quote(c.name)}" for c in stream.patterns)
        return frame.selectExpr(
            *names,
            f"CASE WHEN {quote(column.name)} IS NULL THEN NULL WHEN {outside} THEN {MALFORMED_MARK} ELSE "
            f"{MARK} END AS _mark",
            f"{bound} AS _bound",
            f"to_json(named_struct({fields})) AS _pattern" if fields else f"'{EVERYTHING}' AS _pattern",
        )
    if elsewhere is None:
        return frame
    data = frame.selectExpr(
        *names, "CAST(NULL AS INT) AS _mark", "CAST(NULL AS BIGINT) AS _bound", "CAST(NULL AS STRING) AS _pattern"
    )
    return data.union(_patterns(stream, elsewhere))


def _patterns(stream: Stream, elsewhere: DataFrame) -> DataFrame:
    given = {c.name: part for c in stream.patterns if (part := part_of(stream, c.name)) is not None}
    constants = {column: name for name, (column, kind) in given.items() if kind == IS}
    event_time = stream.column(stream.event_time)
    assert event_time is not None
    bound = "CAST(NULL AS BIGINT)"
    if event_time.name in constants:
        bound = time_in_units(event_time.type, quote(constants[event_time.name]))
    others = [name for name, (column, _) in given.items() if column != event_time.name]
    fields = ", ".join(f"'{name}', {quote(name)}" for name in others)
    pattern = f"to_json(named_struct({fields}))" if others else f"'{EVERYTHING}'"
    wild = " AND ".join(f"{quote(name)} IS NULL" for name in others) or "TRUE"
    lower = {column: name for name, (column, kind) in given.items() if kind == FROM}
    upper = {column: name for name, (column, kind) in given.items() if kind not in (IS, FROM)}
    # A time of its own type may be out of our range; then it is an error, not a wildcard.
    wrong = [f"(({bound}) IS NULL AND {wild})", f"coalesce({_outside(bound)}, FALSE)"]
    wrong += [f"coalesce({quote(lower[c])} >= {quote(upper[c])}, FALSE)" for c in lower if c in upper]
    columns = [
        f"{quote(constants[c.name])} AS {quote(c.name)}"
        if c.name in constants
        else f"CAST(NULL AS {c.type}) AS {quote(c.name)}"
        for c in stream.columns
    ]
    mark = f"CASE WHEN {' OR '.join(wrong)} THEN {MALFORMED_MARK} ELSE {MARK} END AS _mark"
    return elsewhere.selectExpr(*columns, mark, f"{bound} AS _bound", f"{pattern} AS _pattern")


def closed_before(closed: Sequence[tuple[str, int]]) -> int:
    """Rows of this time or later match no stored punctuation of a group."""
    return max((until for _, until in closed), default=NEVER)


def pattern_columns(frame: DataFrame) -> tuple[Column, ...]:
    return tuple(Column(f.name, f.dataType.simpleString()) for f in frame.schema.fields)


def _outside(bound: str) -> str:
    return f"({bound}) < {EARLIEST}L OR ({bound}) > {LATEST}L"
