"""A registered query for users: its results, counts and progress, from its engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from penstock.catalog.catalog import Catalog
from penstock.model.time import NEVER
from penstock.results.released import released
from penstock.state.manifest import Manifest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Answers(Protocol):
    """The engine of a query, as its handle knows it."""

    @property
    def catalog(self) -> Catalog: ...

    def manifest(self) -> Manifest: ...

    def results(self, name: str, *, step: bool = False, since_step: int | None = None) -> DataFrame: ...

    def coverage(self, name: str) -> dict[str, Any]: ...

    def _query_stats(self, name: str) -> dict[str, int | None]: ...


class QueryHandle:
    """A registered query."""

    def __init__(self, engine: Answers, name: str) -> None:
        self.engine, self.name = engine, name

    def __repr__(self) -> str:
        return f"QueryHandle({self.name!r})"

    def results(self, *, step: bool = False, since_step: int | None = None) -> DataFrame:
        """The committed results: exactly the select list (plus `_step` if requested)."""
        return self.engine.results(self.name, step=step, since_step=since_step)

    def stats(self) -> dict[str, int | None]:
        """Counts of this query since its registration: results, errors, and for an aggregate the rows in no window.

        The number of results is None if HAVING or LIMIT need Spark when results are read.
        """
        return self.engine._query_stats(self.name)  # noqa: SLF001

    def progress(self) -> int | None:
        """No later result has a time below this, in units of event time; None if unknown."""
        catalog = self.engine.catalog
        progress = released(catalog, catalog.record(self.name), self.engine.manifest())
        return progress if progress > NEVER else None

    def coverage(self) -> dict[str, Any]:
        """From when on the answer equals that of a query that was always registered; see `Engine.coverage`."""
        return self.engine.coverage(self.name)
