"""The sources and views of one state directory: declared, opened, dropped; and readers shared by all views of a source.

What a view is, is written down when it is first declared: declared again alike it goes on from its last version, declared
otherwise under the same name it is refused.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from penstock.errors import ChangesLostError, RegistrationError, did_you_mean
from penstock.model import Column
from penstock.model.view import CAPTURES, SYSTEMS, Source, View
from penstock.planner.views.first import Estimate, Machine, keyed
from penstock.planner.views.shape_cost import Costs
from penstock.sql import parse_view
from penstock.sql.words import words
from penstock.state.seal import seal, unseal
from penstock.state.store import LocalStore
from penstock.views import parquet, tables
from penstock.views.costs import known_costs, measured_costs, memory_of, room
from penstock.views.explain import explain_graph, explain_whole
from penstock.views.frame import MakeFrame, frame_columns, frame_feed, reader_frame
from penstock.views.parquet import ParquetFeed
from penstock.views.pool import CONNECTIONS, Pool
from penstock.views.postgres import PostgresReader
from penstock.views.results import ResultsFeed, sign_of
from penstock.views.snapshot import Comparison, Feed, SnapshotReader
from penstock.views.spark import Computed, Given, compute_on_spark
from penstock.views.store import ViewStore
from penstock.views.types import schema_of
from penstock.views.view import LiveReader, Parts, ViewHandle
from penstock.views.whole import priced

_NEEDED = {"postgres": ("url", "table"), "parquet": ("path",), "dataframe": (), "query": ("query",)}
_SETTLE_EVERY = 20  # refreshes


@dataclass(frozen=True)
class QueryResults:
    """A standing query as a source: its columns, its results after a step, and whether results are ever given up or held back."""

    columns: tuple[Column, ...]
    results: Callable[..., DataFrame]
    growing: bool


class ViewCatalog:
    """What is declared about views in one process."""

    def __init__(
        self, spark: SparkSession | None, store: LocalStore, query: Callable[[str], QueryResults] | None = None
    ) -> None:
        self.spark, self.store = spark, store
        self.sources: dict[str, Source] = {}
        self.views: dict[str, ViewHandle] = {}
        self._query = query
        self._frames: dict[str, MakeFrame] = {}
        self._readers: dict[str, LiveReader] = {}
        self._pools: dict[str, Pool] = {}
        self._refreshes = 0
        self._settling = threading.Lock()

    # -- sources ----------------------------------------------------------------------------------------------------

    def add_source(self, source: Source, frame: DataFrame | MakeFrame | None = None) -> Source:
        """Declare a source; columns that are not given are those of the table, file, DataFrame or query."""
        if source.system not in SYSTEMS:
            raise RegistrationError(f"there is no system {source.system!r}; known: {', '.join(SYSTEMS)}")
        if source.changes not in CAPTURES[source.system]:
            known = " or ".join(CAPTURES[source.system])
            msg = f"source {source.name!r}: a {source.system} source tells its changes by {known}, not by {source.changes}"
            raise RegistrationError(msg)
        if (source.changes == "table") != (source.change_table is not None):
            raise RegistrationError(
                f"source {source.name!r}: changes by table need a change_table, and nothing else does"
            )
        options = dict(source.options)
        for option in _NEEDED[source.system]:
            if option not in options:
                raise RegistrationError(f"source {source.name!r} needs the option {option!r}")
        if source.system == "dataframe":
            make = reader_frame(self._session, source) if frame is None else _maker(frame)
            self._frames[source.name] = make
        found = source if source.columns else replace(source, columns=self._columns(source, options))
        schema_of(found.name, found.columns)
        found = replace(found, key=tuple(_declared(found, name) for name in found.key))
        before = self.sources.get(found.name)
        if before is not None and before != found:
            raise RegistrationError(f"source {found.name!r} is declared twice and differently; choose another name")
        self.sources[found.name] = found
        return found

    def drop_source(self, name: str) -> None:
        """Forget a source that no view reads, with the capture of its changes."""
        self._source(name)
        for view in self.views.values():
            if any(node.source == name for node in view.view.nodes):
                raise RegistrationError(f"view {view.name!r} reads source {name!r}; drop the view first")
        if self.sources[name].changes == "trigger":  # also one that was set up by another process
            reader = self.reader(name)
            assert isinstance(reader, PostgresReader)
            reader.drop_capture()
        self._readers.pop(name, None)
        del self.sources[name]
        _remove(Path(self.store.path(f"sources/{_folder(name)}")))

    def reader(self, name: str) -> LiveReader:
        """The live connection to a source, opened when it is first needed."""
        if name not in self._readers:
            self._readers[name] = self._open(self._source(name))
        return self._readers[name]

    # -- views ------------------------------------------------------------------------------------------------------

    def add_view(
        self, sql: str, name: str, *, strategy: str = "auto", computed: str = "auto",
        script: str | None = None, line: int = 1, column: int = 1,
    ) -> ViewHandle:  # fmt: skip
        """Declare a view; it is computed by its first refresh."""
        if not name or name.startswith("_"):
            raise RegistrationError(f"{name!r} is no name for a view; names that begin with _ are reserved")
        view = parse_view(sql, self.sources, name=name, script=script, line=line, column=column)
        known = self.views.get(name)
        if known is not None:
            if words(known.view.sql) == words(sql):
                return known
            raise RegistrationError(f"view {name!r} is declared with another SELECT; drop it first")
        folder = f"views/{_folder(name)}"
        self._define(view, folder)
        readers = {node.source: self.reader(node.source) for node in view.nodes}

        def on_spark(wanted: View, sources: Mapping[str, Given], machine: Machine) -> Computed:
            scratch = Path(self.store.path(f"{folder}/scratch"))
            return compute_on_spark(self._session, wanted, sources, scratch, machine, self._measure)

        given = None if self.spark is None else on_spark
        parts = Parts(view, readers, self.store, folder, given, self._machine, self._settle, self._frame)
        self.views[name] = ViewHandle(parts, strategy=strategy, computed=computed)
        return self.views[name]

    def view(self, name: str) -> ViewHandle:
        found = self.views.get(name)
        if found is None:
            raise RegistrationError(f"there is no view {name!r}; {did_you_mean(name, self.views)}")
        return found

    def explain_view(self, sql: str, name: str, *, script: str | None = None, line: int = 1, column: int = 1) -> str:
        """The graph of a view, and how it would be computed whole. No source is opened, no change captured, nothing made."""
        view = parse_view(sql, self.sources, name=name, script=script, line=line, column=column)
        facts = ViewStore(self.store, f"views/{_folder(name)}", pa.schema([])).newest.facts
        found = None
        if len(view.nodes) > 1:
            found = priced(view, self.sources, self._estimate, facts, self._machine())
        return "\n".join([*explain_graph(view), *explain_whole(view, facts, found)])

    def drop_view(self, name: str, *, missing: bool = False) -> None:
        """Stop keeping a view, and give its rows up, whether it is declared here or was filled before; `missing`: there need be none."""
        folder = Path(self.store.path(f"views/{_folder(name)}"))
        if name not in self.views and not folder.is_dir():
            if missing:
                return
            self.view(name)
        if name in self.views:
            self.views.pop(name).close()
        _remove(folder)

    def close(self) -> None:
        """Stop refreshing, and close all connections."""
        for view in self.views.values():
            view.close()
        for reader in self._readers.values():
            reader.close()
        for pool in self._pools.values():
            pool.close()

    # -- inside -----------------------------------------------------------------------------------------------------

    def _results(self, query: str) -> QueryResults:
        if self._query is None:
            raise RegistrationError(f"query {query!r} is a standing query, and no engine runs here")
        return self._query(query)

    @property
    def _session(self) -> SparkSession:
        if self.spark is None:
            raise RegistrationError("this needs Spark, and there is none here; leave it to a running engine")
        return self.spark

    def _source(self, name: str) -> Source:
        found = self.sources.get(name)
        if found is None:
            raise RegistrationError(f"there is no source {name!r}; {did_you_mean(name, self.sources)}")
        return found

    def _columns(self, source: Source, options: dict[str, str]) -> tuple[Column, ...]:
        match source.system:
            case "postgres":
                return tables.columns_of(self._pool(options), options["table"])
            case "parquet":
                return parquet.columns_of(options["path"])
            case "dataframe":
                return frame_columns(source.name, self._frames[source.name])
            case _:
                found = self._results(options["query"]).columns
                return tuple(c for c in found if source.changes != "stream" or c.name != sign_of(source))

    def _estimate(self, name: str, columns: Sequence[str]) -> Estimate | None:
        """What can be said of a source that is not opened."""
        source = self.sources[name]
        options = dict(source.options)
        match source.system:
            case "postgres":
                pool = self._pool(options)
                found = tables.estimate(pool, tables.resolved(pool, options["table"]), columns)
            case "parquet":
                found = ParquetFeed(source).estimate()
            case _:
                return None
        return keyed(found, source)

    def _open(self, source: Source) -> LiveReader:
        options = dict(source.options)
        if source.system == "postgres" and source.changes != "snapshot":
            return PostgresReader(source, self._pool(options))
        return SnapshotReader(source, self.store, f"sources/{_folder(source.name)}", self._feed(source, options))

    def _feed(self, source: Source, options: dict[str, str]) -> Feed:
        match source.system:
            case "postgres":
                table = PostgresReader(source, self._pool(options))
                return Comparison(lambda: table.scan([c.name for c in source.columns], []).rows)
            case "parquet":
                return ParquetFeed(source)
            case "dataframe":
                return frame_feed(source, self._frames[source.name])
            case _:
                found = self._results(options["query"])
                if found.growing:
                    since = partial(_since, found)
                    return ResultsFeed(source, since, found.columns)
                if source.changes == "stream":
                    msg = f"source {source.name!r}: results of {options['query']!r} are given up or held back, so its changes would be lost; register the query without RETAIN and ORDER BY"
                    raise RegistrationError(msg)
                return frame_feed(source, found.results)

    def _pool(self, options: dict[str, str]) -> Pool:
        url = options["url"]
        if url not in self._pools:
            try:
                connections = int(options.get("connections", CONNECTIONS))
            except ValueError:
                raise RegistrationError(f"connections must be a number, not {options['connections']!r}") from None
            self._pools[url] = Pool(url, connections)
            self._pools[url].warm()
        return self._pools[url]

    def _define(self, view: View, folder: str) -> None:
        """Write down what a view is, or see that it is what was written down."""
        sources = {node.source: self.sources[node.source] for node in view.nodes}
        body: dict[str, Any] = {
            "sql": words(view.sql),
            "sources": {name: _identity(s) for name, s in sorted(sources.items())},
        }
        file = f"{folder}/definition"
        if self.store.put_if_absent(file, seal(body)):
            return
        known = unseal(self.store.read(file), self.store.path(file))
        if known["sql"] != body["sql"]:
            raise RegistrationError(
                f"view {view.name!r} was declared with another SELECT in {self.store.root}; drop it first"
            )
        for name, identity in body["sources"].items():
            if known["sources"].get(name) != identity:
                msg = f"source {name!r} of view {view.name!r} is not the one that {self.store.root} was filled from; drop the view, or declare the source as before"
                raise RegistrationError(msg)

    def _machine(self) -> Machine:
        """What Spark costs, as far as it was measured; without Spark, one of as many cores as are here."""
        cores = os.cpu_count() or 1 if self.spark is None else self.spark.sparkContext.defaultParallelism
        known = known_costs(self.store, cores)
        memory = inf if self.spark is None else memory_of(self.spark)
        return Machine(known or Costs(), cores, memory, room=room(), calibrated=known is not None)

    def _measure(self) -> Costs:
        return measured_costs(self.store, self._session)

    def _frame(self, rows: pa.Table) -> DataFrame:
        return self._session.createDataFrame(rows)

    def _settle(self) -> None:
        """Now and then, let sources forget changes that every view has taken in; no refresh waits for another one at it."""
        if not self._settling.acquire(blocking=False):
            return
        try:
            self._refreshes += 1
            if self._refreshes % _SETTLE_EVERY:
                return
            for name, reader in list(self._readers.items()):
                using = [v for v in list(self.views.values()) if any(node.source == name for node in v.view.nodes)]
                try:
                    taken = [v.positions().get(name) for v in using]
                except ChangesLostError:
                    continue  # a view that its own next refresh computes anew
                if taken and all(position is not None for position in taken):
                    reader.settle(min(position for position in taken if position is not None))
        finally:
            self._settling.release()


def _declared(source: Source, name: str) -> str:
    """The name of a column as it was declared."""
    column = source.column(name)
    if column is None:
        hint = did_you_mean(name, (c.name for c in source.columns))
        raise RegistrationError(f"source {source.name!r} has no column {name!r}; {hint}")
    return column.name


def _since(found: QueryResults, step: int) -> DataFrame:
    return found.results(step=True, since_step=step)


def _maker(frame: DataFrame | MakeFrame) -> MakeFrame:
    return frame if callable(frame) and not isinstance(frame, DataFrame) else lambda: frame


def _identity(source: Source) -> list[Any]:
    """What makes a source this source; how it is reached may change."""
    options = {k: v for k, v in source.options if k in ("table", "path", "query", "capture", "format", "sign")}
    columns = [[c.name, c.type] for c in source.columns]
    return [source.system, options, columns, source.changes, source.change_table]


def _folder(name: str) -> str:
    return quote(name, safe="")


def _remove(folder: Path) -> None:
    """Delete a folder of flat folders."""
    if not folder.is_dir():
        return
    for found in sorted(folder.rglob("*"), key=lambda p: len(p.parts), reverse=True):
        if found.is_dir():
            found.rmdir()
        else:
            found.unlink()
    folder.rmdir()
