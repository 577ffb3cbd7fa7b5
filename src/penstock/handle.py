"""What people hold of a registered query: its results, counts and progress, as its engine knows them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.model.time import NEVER
from penstock.results.released import released

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.engine import Engine


class QueryHandle:
    """A registered query."""

    def __init__(self, engine: Engine, name: str) -> None:
        self.engine, self.name = engine, name

    def __repr__(self) -> str:
        return f"QueryHandle({self.name!r})"

    def results(self, *, step: bool = False, since_step: int | None = None) -> DataFrame:
        """The committed results: exactly the select list (plus `_step` if asked)."""
        return self.engine.results(self.name, step=step, since_step=since_step)

    def stats(self) -> dict[str, int | None]:
        """Counts of this query since it was registered: results, errors, and of an aggregate the rows that are in none of its windows.

        The number of results is None where HAVING or LIMIT compute what only Spark can, when results are read.
        """
        return self.engine._query_stats(self.name)  # noqa: SLF001

    def progress(self) -> int | None:
        """No result is yet to come with a time below this, in units of event time; None if nothing is known of it."""
        catalog = self.engine.catalog
        progress = released(catalog, catalog.record(self.name), self.engine.manifest())
        return progress if progress > NEVER else None

    def coverage(self) -> dict[str, Any]:
        """From when on the answer is that of a query that was always there; see `Engine.coverage`."""
        return self.engine.coverage(self.name)
