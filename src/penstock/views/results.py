"""The results of one of the engine's own standing queries as a source: each step's committed rows are a change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from penstock.model.view import Source
from penstock.views.frame import to_arrow
from penstock.views.snapshot import Rows, counted
from penstock.views.types import schema_of

Since = Callable[[int], DataFrame]  # results of later steps than this one, with `_step`


class ResultsFeed:
    """Looks at the steps that were committed since. Results that are given up again need a comparison instead."""

    hidden = pa.schema([])

    def __init__(self, source: Source, since: Since) -> None:
        self.since = since
        self.schema = schema_of(source.name, source.columns)

    def look(self, state: dict[str, Any], held: Rows) -> tuple[pa.Table, dict[str, Any]] | None:
        del held
        found = to_arrow(self.since(int(state.get("step", -1))))
        if not len(found):
            return None
        step = pc.max(found.column("_step")).as_py()
        return counted(found.drop_columns("_step").rename_columns(self.schema.names).cast(self.schema)), {"step": step}

    def estimate(self) -> None:
        """Only reading the results would tell."""
