"""The results of one of the engine's own standing queries as a source: each step's committed rows are a change.

They are rows that came, or, if changes come by stream, rows that came or went, as a column of signs says: so a source may be whatever
a stream of changes tells, from Kafka or anywhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from penstock.errors import RegistrationError, StepError
from penstock.model import Column
from penstock.model.view import Source
from penstock.views.rows.files import to_arrow
from penstock.views.rows.types import schema_of
from penstock.views.sources.snapshot import Rows, counted
from penstock.views.sources.source import COUNT

Since = Callable[[int], DataFrame]  # results of later steps than this one, with `_step`
_SIGNS = ("tinyint", "smallint", "int", "bigint")


def sign_of(source: Source) -> str:
    """The column that says how often a row has come, or gone."""
    return dict(source.options).get("sign", COUNT)


class ResultsFeed:
    """Looks at the steps that were committed since. Results that are given up again need a comparison instead."""

    hidden = pa.schema([])

    def __init__(self, source: Source, since: Since, columns: Sequence[Column]) -> None:
        self.source, self.since = source, since
        self.schema = schema_of(source.name, source.columns)
        self.told = source.changes == "stream"
        self.names = [column.name for column in columns]
        self.sign = sign_of(source) if self.told else None
        if self.told and not any(c.name == self.sign and c.type in _SIGNS for c in columns):
            msg = f"source {source.name!r}: changes by stream need a column {self.sign!r} of integers that says how often a row has come (1) or gone (-1); select it, or name it by OPTIONS (sign 'column')"
            raise RegistrationError(msg)

    def look(self, state: dict[str, Any], held: Rows) -> tuple[pa.Table, dict[str, Any]] | None:
        del held
        found = to_arrow(self.since(int(state.get("step", -1))))
        if not len(found):
            return None
        step = pc.max(found.column("_step")).as_py()
        rows = found.drop_columns("_step").rename_columns(self.names)
        if self.sign is None:
            return counted(rows.cast(self.schema)), {"step": step}
        signs = rows.column(self.sign)
        if signs.null_count:
            raise StepError(
                f"source {self.source.name!r}: a change has no sign; correct the query, and declare the source anew"
            )
        plain = rows.select(self.schema.names).cast(self.schema)
        return plain.append_column(pa.field(COUNT, pa.int64()), signs.cast(pa.int64())), {"step": step}

    def estimate(self) -> None:
        """Only reading the results would tell."""
