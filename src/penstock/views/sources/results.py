"""The results of one of the engine's own standing queries as a source: each step's committed rows are a change.

Each result is an inserted row or, if changes come by stream, an inserted or deleted row, by a column of signs: so a
source may be any stream of changes, from Kafka or elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from penstock.errors import RegistrationError, StepError
from penstock.model import Column
from penstock.model.limits import MOST_TAKEN
from penstock.model.view import Source
from penstock.views.rows.bag import COUNT
from penstock.views.rows.difference import difference
from penstock.views.rows.files import to_arrow
from penstock.views.rows.types import schema_of
from penstock.views.sources.frame import FrameFeed
from penstock.views.sources.snapshot import STAMPS, Rows, counted

_SIGNS = ("tinyint", "smallint", "int", "bigint")


@dataclass(frozen=True)
class QueryResults:
    """A standing query as a source: columns, results after a step, about how many, and whether they may be lost.

    `lineage` are the ids of the query and of those whose results it continues.
    """

    columns: tuple[Column, ...]
    results: Callable[..., DataFrame]
    count: Callable[[int], int]
    growing: bool
    lineage: tuple[int, ...]


def sign_of(source: Source) -> str:
    """The column that says how often a row was inserted or deleted."""
    return dict(source.options).get("sign", COUNT)


class ResultsFeed:
    """Reads the steps committed since. All results are compared if they expire, or are those of another query."""

    hidden = pa.schema([])

    def __init__(self, source: Source, query: Callable[[], QueryResults]) -> None:
        self.source, self.query = source, query
        self.schema = schema_of(source.name, source.columns)
        self.told = source.changes == "stream"
        self.sign = sign_of(source) if self.told else None
        found = query()
        self._refuse_lost(found)
        if self.told and not any(c.name == self.sign and c.type in _SIGNS for c in found.columns):
            msg = (
                f"source {source.name!r}: changes by stream need a column {self.sign!r} of integers that says how "
                "often a row has come (1) or gone (-1); select it, or name it by OPTIONS (sign 'column')"
            )
            raise RegistrationError(msg)

    def look(self, state: dict[str, Any], held: Rows) -> tuple[pa.Table, dict[str, Any]] | None:
        query = self.query()
        if not query.growing:
            self._refuse_lost(query)
            self._refuse_large(query, -1)
            return FrameFeed(self.source, query.results).look({}, held)
        stamps = {"lineage": list(query.lineage)}
        goes_on = state.get(STAMPS) == stamps
        step = int(state["step"]) if goes_on else -1
        self._refuse_large(query, step)
        found = to_arrow(query.results(step=True, since_step=step))
        if goes_on and not len(found):
            return None
        rows = self._signed(found.drop_columns("_step").rename_columns([column.name for column in query.columns]))
        if not goes_on:
            rows = difference(held().select(rows.column_names).cast(rows.schema), rows)
        newest = pc.max(found.column("_step")).as_py()
        return rows, {"step": step if newest is None else newest, STAMPS: stamps}

    def estimate(self) -> None:
        """Only reading the results would give it."""

    def _signed(self, rows: pa.Table) -> pa.Table:
        """Results as inserted or deleted rows."""
        try:
            plain = rows.select(self.schema.names).cast(self.schema)
            signs = None if self.sign is None else rows.column(self.sign).cast(pa.int64())
        except (KeyError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            msg = f"source {self.source.name!r}: its query has other columns now ({error}); declare the source anew"
            raise StepError(msg) from None
        if signs is None:
            return counted(plain)
        if signs.null_count:
            raise StepError(
                f"source {self.source.name!r}: a change has no sign; correct the query, and declare the source anew"
            )
        return plain.append_column(pa.field(COUNT, pa.int64()), signs)

    def _refuse_large(self, query: QueryResults, step: int) -> None:
        count = query.count(step)
        if count > MOST_TAKEN:
            msg = (
                f"source {self.source.name!r}: its query has {count:,} new results, and a refresh takes "
                f"{MOST_TAKEN:,}; give the query fewer "
                "windows (a longer SLIDE, a shorter RANGE), and declare the source anew"
            )
            raise StepError(msg)

    def _refuse_lost(self, query: QueryResults) -> None:
        if self.told and not query.growing:
            name = dict(self.source.options)["query"]
            msg = (
                f"source {self.source.name!r}: results of {name!r} are given up or held back, so its changes would be "
                "lost; register the query without RETAIN and ORDER BY"
            )
            raise RegistrationError(msg)
