"""The facade: register streams and queries, start, watch, read results."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from penstock.errors import PenstockError, RegistrationError, StateError, did_you_mean
from penstock.model import Column, Query, Sink, Stream
from penstock.model.time import duration
from penstock.planner.build import build_network
from penstock.planner.explain import explain_network
from penstock.planner.network import Network, StandingQuery
from penstock.runtime.analysis import analyze, check_source, columns_of, spark_message
from penstock.runtime.declare import check_stream, difference
from penstock.runtime.results import Part, ResultView, side_rows
from penstock.runtime.retention import horizon
from penstock.runtime.run import Run
from penstock.runtime.session import local_session
from penstock.sql import (
    CreateQuery,
    CreateStream,
    DropQuery,
    Explain,
    ShowQueries,
    ShowStreams,
    parse_query,
    parse_script,
)
from penstock.state.manifest import Manifest, ManifestLog
from penstock.state.registry import QueryRecord, Registry, RegistryLog, StreamRecord
from penstock.state.store import LocalStore

__all__ = ["Engine", "QueryHandle", "Run"]

Into = str | Path | Sink | Callable[[pa.Table, int], None]
CALLABLE = "<callable>"
# What one step takes in at most unless the stream says otherwise: the first batch after a pause must not be everything.
_FILES = ("maxFilesPerTrigger", "100")
_ADMISSION = {
    "parquet": _FILES, "json": _FILES, "csv": _FILES, "orc": _FILES, "text": _FILES, "avro": _FILES,
    "kafka": ("maxOffsetsPerTrigger", "1000000"),
}  # fmt: skip
SQL_SETTINGS = ("spark.sql.session.timeZone", "spark.sql.ansi.enabled")


class QueryHandle:
    """A registered query."""

    def __init__(self, engine: Engine, name: str) -> None:
        self.engine, self.name = engine, name

    def __repr__(self) -> str:
        return f"QueryHandle({self.name!r})"

    def results(self, *, step: bool = False, since_step: int | None = None) -> DataFrame:
        """The committed results: exactly the select list (plus `_step` if asked)."""
        return self.engine.results(self.name, step=step, since_step=since_step)

    def stats(self) -> dict[str, int]:
        """Counts of this query since it was registered: results, errors."""
        return self.engine._query_stats(self.name)  # noqa: SLF001


class Engine:
    """Answers standing queries over streams from one shared state, kept in `state_dir`."""

    def __init__(
        self, spark: SparkSession, state_dir: str | Path, *, tasks: int | None = None, durable: bool = True
    ) -> None:
        """`tasks`: parallel tasks per step (default: the session's cores). `durable=False` skips syncs to disk."""
        self.spark = spark
        self.store = LocalStore(str(Path(state_dir).absolute()), durable)
        self.tasks = tasks or spark.sparkContext.defaultParallelism
        self._frames: dict[str, DataFrame] = {}
        self._callables: dict[str, Callable[[pa.Table, int], None]] = {}
        self._parsed: dict[int, Query] = {}
        self._registry = RegistryLog(self.store).load()
        self._saved = self._registry
        self._run: Run | None = None

    @classmethod
    def local(cls, state_dir: str | Path, *, cores: int | None = None, durable: bool = True, **settings: str) -> Engine:
        """An engine on a well-configured local Spark session (made if there is none)."""
        return cls(local_session(cores, **settings), state_dir, durable=durable)

    # -- registration -------------------------------------------------------------------------------------------

    def stream(
        self,
        name: str,
        frame: DataFrame,
        *,
        event_time: str,
        delay: str | int = 0,
        late: str = "side",
        bad: str = "side",
        idle: str | None = None,
        idle_skew: str = "1 hour",
        sequence: str | None = None,
    ) -> None:
        """Register a streaming DataFrame under a name.

        `delay` bounds how far rows may come behind the newest event time; a row further behind is late. `late` and `bad` say
        what happens to such rows: 'side' (kept, see `late()` and `bad()`), 'drop', or 'error'. `idle` lets the
        stream's progress follow the clock once it has been silent for that long.
        """
        check_source(name, frame)
        columns = tuple(Column(n, t) for n, t in columns_of(frame))
        skew = duration(idle_skew)
        stream = Stream(
            name,
            columns,
            event_time,
            duration(delay),
            late,
            bad,
            None if idle is None else duration(idle),
            skew,
            sequence,
        )
        self._add_stream(stream, frame)

    def query(
        self,
        sql: str,
        *,
        name: str,
        into: Into | None = None,
        on_error: str = "skip",
        retain: str | int | None = None,
    ) -> QueryHandle:
        """Register a standing query."""
        return self._add_query(sql, name, into, on_error, None if retain is None else duration(retain))

    def drop(self, name: str, *, purge: bool = False) -> None:
        """Stop answering a query. Its results stay readable; with `purge` they are given up too."""
        self._before_start("drop a query")
        record = self._registry.find(name)
        if record is None:
            raise RegistrationError(f"there is no query {name!r}; {did_you_mean(name, self._names())}")
        self._registry = self._registry.without_query(name)
        if purge:
            self._registry = replace(self._registry, queries=tuple(q for q in self._registry.queries if q.name != name))

    def execute(self, script: str) -> list[Any]:
        """Run SQL statements; returns what SHOW and EXPLAIN print, one entry each."""
        shown: list[Any] = []
        for statement in parse_script(script):
            match statement:
                case CreateStream(stream):
                    self._add_stream(stream, self._read(stream))
                case CreateQuery():
                    if statement.replace and self._registry.find(statement.name):
                        record = self._registry.find(statement.name)
                        if record and not self._same(record, statement):
                            self.drop(statement.name)
                    self._add_query(
                        statement.select, statement.name, statement.into, statement.on_error, statement.retain,
                        script=script, line=statement.line, column=statement.column,
                    )  # fmt: skip
                case DropQuery(name, purge, if_exists):
                    if not if_exists or self._registry.find(name):
                        self.drop(name, purge=purge)
                case ShowQueries():
                    shown.append(self.queries())
                case ShowStreams():
                    shown.append(self.streams())
                case Explain():
                    shown.append(
                        self.explain(statement.name)
                        if statement.select is None
                        else self.explain_select(statement.select)
                    )
        return shown

    # -- running ------------------------------------------------------------------------------------------------

    def start(self, trigger: str = "1 second", *, available_now: bool = False, final: bool = False) -> Run:
        """Start answering. `available_now` stops when all present input is read; `final` then ends the streams."""
        if final and not available_now:
            raise PenstockError("final=True needs available_now=True; a running engine ends with run.stop(final=True)")
        if self._run is not None and self._run.active:
            raise StateError(f"this engine already runs on {self.store.root}; stop it first")
        missing = self._missing_streams()
        if missing:
            stream, query = missing
            msg = (
                f"query {query!r} is registered in {self.store.root} and reads stream {stream!r}, which is not declared; "
                f"declare the stream, or drop the query"
            )
            raise RegistrationError(msg)
        if not self._frames:
            raise RegistrationError("no stream is declared; use engine.stream(..) or CREATE STREAM")
        self._run = Run(self, trigger=trigger, available_now=available_now, final=final)
        return self._run

    # -- reading ------------------------------------------------------------------------------------------------

    def results(self, name: str, *, step: bool = False, since_step: int | None = None) -> DataFrame:
        """The committed results of a query, also of one that was dropped."""
        record, manifest = self._record(name), self.manifest()
        oldest = horizon(self.network(), record.id, record.retain, manifest.progress_values())
        part = Part(since=-1 if since_step is None else since_step, horizon=oldest)
        return self._view(record).frame(self.spark, manifest, part, step=step)

    def late(self, stream: str) -> DataFrame:
        """Rows that came behind their stream's progress, whole, with `_step`, `_reason`, `_progress`."""
        return side_rows(self.spark, self.store, self.manifest(), self._stream(stream), "late")

    def bad(self, stream: str) -> DataFrame:
        """Rows without a usable event time, whole, with `_step`, `_reason`, `_progress`."""
        return side_rows(self.spark, self.store, self.manifest(), self._stream(stream), "bad")

    def queries(self) -> list[dict[str, Any]]:
        """The registered queries: name, SQL, sink, what happens on errors."""
        return [
            {
                "name": q.name,
                "sql": q.sql,
                "into": str(q.into) if q.into else None,
                "on_error": q.on_error,
                "retain": q.retain,
            }
            for q in self._registry.live()
        ]

    def streams(self) -> list[dict[str, Any]]:
        """The declared streams."""
        return [
            {
                "name": s.name, "event_time": s.event_time, "delay": s.delay, "late": s.late, "bad": s.bad,
                "columns": {c.name: c.type for c in s.columns},
            }
            for s in self._stream_models().values()
        ]  # fmt: skip

    def explain(self, name: str | None = None) -> str:
        """The plan that runs, as text: of the whole network, or of one query."""
        if name is not None:
            self._record(name)
        return explain_network(self.network(), _measured(self.manifest()), name)

    def explain_select(self, sql: str) -> str:
        """The plan of a query that is not registered."""
        streams = self._stream_models()
        query = parse_query(sql, streams)
        facts = analyze(self.spark, "(this query)", query, streams)
        standing = StandingQuery(1, "(this query)", query, key_types=facts.key_types)
        return explain_network(build_network([standing], streams), {})

    def network(self) -> Network:
        """The compiled plan of all live queries."""
        standing = [StandingQuery(q.id, q.name, self._parse(q), q.on_error, q.key_types) for q in self._registry.live()]
        return build_network(standing, self._stream_models(), self._registry.version)

    def manifest(self) -> Manifest:
        """The last committed state."""
        if self._run is not None and self._run.active:
            return self._run.stepper.manifest
        return ManifestLog(self.store).load()

    # -- inside -------------------------------------------------------------------------------------------------

    def _add_stream(self, stream: Stream, frame: DataFrame) -> None:
        self._before_start("declare a stream")
        check_stream(stream)
        if stream.name in self._frames:
            raise RegistrationError(f"stream {stream.name!r} is declared twice; choose another name")
        known = self._registry.streams.get(stream.name)
        if known is not None and known.stream != stream:
            msg = f"stream {stream.name!r} differs from the one registered in {self.store.root}: {difference(known.stream, stream)}; "
            raise RegistrationError(msg + "declare it as before, or use a new state directory")
        if known is None:
            self._registry = self._registry.with_stream(StreamRecord(stream))
        self._frames[stream.name] = frame

    def _add_query(
        self,
        sql: str,
        name: str,
        into: Into | None,
        on_error: str,
        retain: int | None,
        script: str | None = None,
        line: int = 1,
        column: int = 1,
    ) -> QueryHandle:
        self._before_start("add a query")
        if on_error not in ("skip", "stop"):
            raise RegistrationError(f"query {name!r}: on_error must be 'skip' or 'stop', not {on_error!r}")
        streams = self._stream_models()
        query = parse_query(sql, streams, script=script, line=line, column=column)
        facts = analyze(self.spark, name, query, streams)
        kept: Sink | str | None = CALLABLE if callable(into) else str(into) if isinstance(into, Path) else into
        record = QueryRecord(
            self._registry.next_id, name, sql.strip(), on_error, retain, kept, facts.names, facts.types, facts.key_types
        )
        if kept is not None and len(set(facts.names)) < len(facts.names):
            twice = next(n for n in facts.names if facts.names.count(n) > 1)
            raise RegistrationError(
                f"query {name!r} has two columns named {twice!r}; a sink needs distinct names: use AS"
            )
        if callable(into):
            self._callables[name] = into
        known = self._registry.find(name)
        if known is not None:
            if known.same_declaration(record):
                return QueryHandle(self, name)
            msg = f"query {name!r} is registered with another definition; use CREATE OR REPLACE QUERY, or drop it first"
            raise RegistrationError(msg)
        build_network([StandingQuery(record.id, name, query, on_error, facts.key_types)], streams)
        for role in query.roles:
            if len(query.roles) > 1 and role.window is not None and role.window.length is None:
                text = f"query {name!r} keeps every row of {role.alias!r} for ever ([RANGE ALL]): its state only grows"
                warnings.warn(text, stacklevel=3)
        self._registry = self._registry.with_query(record)
        return QueryHandle(self, name)

    def _same(self, record: QueryRecord, statement: CreateQuery) -> bool:
        new = QueryRecord(0, record.name, statement.select, statement.on_error, statement.retain, statement.into)
        return record.same_declaration(new)

    def _before_start(self, what: str) -> None:
        if self._run is not None and self._run.active:
            raise PenstockError(f"cannot {what} while the engine runs; stop it first")

    def _read(self, stream: Stream) -> DataFrame:
        assert stream.source is not None
        schema = ", ".join(f"`{c.name}` {c.type}" for c in stream.columns)
        reader = self.spark.readStream.format(stream.source.format).options(**dict(stream.source.options))
        if stream.source.format not in ("rate", "rate-micro-batch", "kafka", "socket"):
            reader = reader.schema(schema)
        limit = _ADMISSION.get(stream.source.format)
        if limit is not None and limit[0].lower() not in {k.lower() for k, _ in stream.source.options}:
            reader = reader.option(*limit)
        try:
            frame = reader.load()
            return frame.selectExpr(*[f"CAST(`{c.name}` AS {c.type}) AS `{c.name}`" for c in stream.columns])
        except (PySparkException, Py4JJavaError) as error:
            raise RegistrationError(f"stream {stream.name!r}: {spark_message(error)}") from None

    def _save(self, network_bits: Mapping[int, tuple[str, int]]) -> Registry:
        """Write the registry as a new version if it changed."""
        conf = {key: str(self.spark.conf.get(key)) for key in SQL_SETTINGS}
        settings = dict(self._registry.settings) or conf
        wanted = replace(self._registry, settings=settings, bits=dict(network_bits))
        if replace(wanted, version=self._saved.version) != self._saved or self._saved.version == 0:
            wanted = replace(wanted, version=self._saved.version + 1)
            RegistryLog(self.store).append(wanted)
        self._registry = self._saved = wanted
        return wanted

    def _missing_streams(self) -> tuple[str, str] | None:
        for record in self._registry.live():
            for role in self._parse(record).roles:
                if role.stream not in self._frames:
                    return role.stream, record.name
        return None

    def _stream_models(self) -> dict[str, Stream]:
        return {name: r.stream for name, r in self._registry.streams.items()}

    def _parse(self, record: QueryRecord) -> Query:
        if record.id not in self._parsed:
            self._parsed[record.id] = parse_query(record.sql, self._stream_models())
        return self._parsed[record.id]

    def _record(self, name: str) -> QueryRecord:
        record = self._registry.find(name, dropped=True)
        if record is None:
            raise RegistrationError(f"there is no query {name!r}; {did_you_mean(name, self._names())}")
        return record

    def _stream(self, name: str) -> Stream:
        record = self._registry.streams.get(name)
        if record is None:
            raise RegistrationError(f"there is no stream {name!r}; {did_you_mean(name, self._registry.streams)}")
        return record.stream

    def _view(self, record: QueryRecord) -> ResultView:
        query, streams = self._parse(record), self._stream_models()
        return ResultView(self.store, record, query, streams, join_positions(record, query, streams))

    def _names(self) -> list[str]:
        return [q.name for q in self._registry.live()]

    def _query_stats(self, name: str) -> dict[str, int]:
        counts = self.manifest().counters.get(f"query:{self._record(name).id}", {})
        return {"results": counts.get("results", 0), "errors": counts.get("errors", 0)}


def join_positions(record: QueryRecord, query: Query, streams: Mapping[str, Stream]) -> tuple[int, ...]:
    """The query's role at each position of its join: the same in every network it is ever part of."""
    network = build_network([StandingQuery(record.id, record.name, query, key_types=record.key_types)], streams)
    return network.joins[0].members[0].roles


def _measured(manifest: Manifest) -> dict[str, dict[str, int]]:
    """Counts so far, with what each state table holds now."""
    found = {name: dict(counts) for name, counts in manifest.counters.items()}
    for run in manifest.runs.values():
        held = found.setdefault(f"table:{run.table}", {})
        for key, value in (("rows", run.rows), ("bytes", run.bytes), ("runs", 1)):
            held[key] = held.get(key, 0) + value
    return found
