"""The sources that views may read: declared, opened once for all views, and closed.

It does not know which views there are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from urllib.parse import quote

from pyspark.sql import DataFrame, SparkSession

from penstock.errors import RegistrationError, did_you_mean
from penstock.model import Column
from penstock.model.view import CAPTURES, SYSTEMS, Source
from penstock.planner.views.initial_load import Estimate, keyed
from penstock.spark.session import refuse_gone
from penstock.storage.place import local_path
from penstock.storage.secrets import resolved
from penstock.storage.store import Store
from penstock.views.postgres import tables
from penstock.views.postgres.capture import SIGN, XID
from penstock.views.postgres.pool import CONNECTIONS, Pool
from penstock.views.postgres.source import PostgresReader
from penstock.views.rows.bag import COUNT
from penstock.views.rows.types import schema_of
from penstock.views.sources import parquet
from penstock.views.sources.frame import FrameFeed, MakeFrame, frame_columns, reader_frame
from penstock.views.sources.parquet import FILE, ParquetFeed
from penstock.views.sources.results import QueryResults, ResultsFeed, sign_of
from penstock.views.sources.snapshot import Comparison, Feed, SnapshotReader
from penstock.views.sources.source import LiveReader

_NEEDED = {"postgres": ("url", "table"), "parquet": ("path",), "dataframe": (), "query": ("query",)}


class Sources:
    """The declared sources in one process, and the open readers."""

    def __init__(self, spark: SparkSession | None, store: Store, query: Callable[[str], QueryResults] | None) -> None:
        self.spark, self.store = spark, store
        self.declared: dict[str, Source] = {}
        self.readers: dict[str, LiveReader] = {}
        self._query = query
        self._frames: dict[str, MakeFrame] = {}
        self._pools: dict[str, Pool] = {}

    def add(self, source: Source, frame: DataFrame | MakeFrame | None = None) -> Source:
        """Declare a source; by default with the columns of the table, file, DataFrame or query."""
        if source.system not in SYSTEMS:
            raise RegistrationError(f"there is no system {source.system!r}; known: {', '.join(SYSTEMS)}")
        if source.changes not in CAPTURES[source.system]:
            known = " or ".join(CAPTURES[source.system])
            msg = (
                f"source {source.name!r}: a {source.system} source tells its changes by {known}, not by "
                f"{source.changes}"
            )
            raise RegistrationError(msg)
        if (source.changes == "table") != (source.change_table is not None):
            raise RegistrationError(
                f"source {source.name!r}: changes by table need a change_table, and nothing else does"
            )
        options = dict(source.options)
        for option in _NEEDED[source.system]:
            if option not in options:
                raise RegistrationError(f"source {source.name!r} needs the option {option!r}")
        if source.system == "parquet":
            remedy = (
                "let Spark read it: using='dataframe' with spark.read.parquet(..), "
                "in SQL USING dataframe OPTIONS (format 'parquet', path '..')"
            )
            options["path"] = local_path(options["path"], f"source {source.name!r}: path", remedy)
            source = replace(source, options=tuple(sorted(options.items())))
        make = None
        if source.system == "dataframe":
            make = reader_frame(self.session, source) if frame is None else _maker(frame)
        found = source if source.columns else replace(source, columns=self._columns(source, make))
        schema_of(found.name, found.columns)
        _refuse_taken(found)
        found = replace(found, key=tuple(_declared(found, name) for name in found.key))
        before = self.declared.get(found.name)
        if before is not None and before != found:
            raise RegistrationError(f"source {found.name!r} is declared twice and differently; choose another name")
        self.declared[found.name] = found
        if make is not None:
            self._frames[found.name] = make
        return found

    def drop(self, name: str) -> None:
        """Drop a source, with the capture of its changes and the copy of its rows."""
        if self.known(name).changes == "trigger":  # even if another process installed it
            reader = self.reader(name)
            assert isinstance(reader, PostgresReader)
            reader.drop_capture()
        self.readers.pop(name, None)
        self._frames.pop(name, None)
        del self.declared[name]

    def reader(self, name: str) -> LiveReader:
        """The live connection to a source, opened on first use."""
        if name not in self.readers:
            self.readers[name] = self._open(self.known(name))
        return self.readers[name]

    def close(self) -> None:
        """Close all connections."""
        for reader in self.readers.values():
            reader.close()
        for pool in self._pools.values():
            pool.close()

    def known(self, name: str) -> Source:
        found = self.declared.get(name)
        if found is None:
            raise RegistrationError(f"there is no source {name!r}; {did_you_mean(name, self.declared)}")
        return found

    @property
    def session(self) -> SparkSession:
        if self.spark is None:
            raise RegistrationError("this needs Spark, and there is none here; leave it to a running engine")
        refuse_gone(self.spark, self.store.root)
        return self.spark

    def estimate(self, name: str, columns: Sequence[str]) -> Estimate | None:
        """The estimate of a source that is not open."""
        source = self.declared[name]
        options = _resolved(source)
        match source.system:
            case "postgres":
                pool = self._pool(options)
                found = tables.estimate(pool, tables.resolved(pool, options["table"]), columns)
            case "parquet":
                found = ParquetFeed(source).estimate()
            case _:
                return None
        return keyed(found, source)

    # -- inside -----------------------------------------------------------------------------------------------------

    def _results(self, query: str) -> QueryResults:
        if self._query is None:
            raise RegistrationError(f"query {query!r} is a standing query, and no engine runs here")
        return self._query(query)

    def _columns(self, source: Source, make: MakeFrame | None) -> tuple[Column, ...]:
        options = _resolved(source)
        match source.system:
            case "postgres":
                return tables.columns_of(self._pool(options), options["table"])
            case "parquet":
                return parquet.columns_of(options["path"])
            case "dataframe":
                assert make is not None
                return frame_columns(source.name, make)
            case _:
                found = self._results(options["query"]).columns
                return tuple(c for c in found if source.changes != "stream" or c.name != sign_of(source))

    def _frame(self, name: str) -> DataFrame:
        """The DataFrame of the source's last declaration."""
        return self._frames[name]()

    def _open(self, source: Source) -> LiveReader:
        options = _resolved(source)
        if source.system == "postgres" and source.changes != "snapshot":
            return PostgresReader(source, self._pool(options))
        return SnapshotReader(source, self.store, copy_of(source.name), self._feed(source, options))

    def _feed(self, source: Source, options: dict[str, str]) -> Feed:
        match source.system:
            case "postgres":
                table = PostgresReader(source, self._pool(options))
                return Comparison(lambda: table.scan([c.name for c in source.columns], []).rows)
            case "parquet":
                return ParquetFeed(source)
            case "dataframe":
                return FrameFeed(source, partial(self._frame, source.name))
            case _:
                return ResultsFeed(source, partial(self._results, options["query"]))

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


def _resolved(source: Source) -> dict[str, str]:
    """The options with their references resolved."""
    return resolved(source.options, f"source {source.name!r}")


def copy_of(name: str) -> str:
    """The folder of the copy of a source's rows."""
    return f"sources/{quote(name, safe='')}"


def _refuse_taken(source: Source) -> None:
    """Refuse columns with the names that views or change tables use in each row."""
    kept = {("parquet", "snapshot"): (FILE,), ("postgres", "trigger"): (SIGN, XID)}
    taken = (COUNT, *kept.get((source.system, source.changes), ()))
    for column in source.columns:
        if column.name.lower() in taken:
            msg = (
                f"source {source.name!r} has a column {column.name!r}, a name that views use themselves; "
                "rename it, or declare the source's columns without it"
            )
            raise RegistrationError(msg)


def _declared(source: Source, name: str) -> str:
    """The name of a column as declared."""
    column = source.column(name)
    if column is None:
        hint = did_you_mean(name, (c.name for c in source.columns))
        raise RegistrationError(f"source {source.name!r} has no column {name!r}; {hint}")
    return column.name


def _maker(frame: DataFrame | MakeFrame) -> MakeFrame:
    return frame if callable(frame) and not isinstance(frame, DataFrame) else lambda: frame
