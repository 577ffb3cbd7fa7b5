"""What is declared: streams with their DataFrames, queries with their sinks; and the network that they compile to.

Changes are made to a registry in memory and take effect together, at a step boundary, by `commit`: that gives the new queries their
first step, writes a version of the registry, and builds the network that runs from then on.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from penstock.errors import PenstockError, RegistrationError, StateError, did_you_mean
from penstock.model import Query, Rows, Sink, Stream, UserAggregate, Window
from penstock.model.time import FOREVER, NEVER
from penstock.planner.arranging import arrange
from penstock.planner.bounds import time_bounds
from penstock.planner.build import STRATEGIES, build_network, check_supported
from penstock.planner.coverage import held_from
from penstock.planner.derived import DerivedStream
from penstock.planner.grouped import reach as aggregate_reach
from penstock.planner.network import Network, StandingQuery, as_answered, output_progress
from penstock.planner.orders.decision import Parameters
from penstock.planner.orders.modes import MODES
from penstock.planner.panes import PLANS
from penstock.planner.share import CHAINS, choose_chains
from penstock.planner.steering import Steering
from penstock.runtime.analysis import analyze, spark_message
from penstock.runtime.declare import check_stream, difference
from penstock.runtime.derived import Parsed, join_below, join_name, parse, results
from penstock.runtime.own import declared
from penstock.runtime.readings import check_replaced, check_unread, derived_of, readable, seen_from
from penstock.runtime.results import AggregateView, ResultView
from penstock.sql import parse_query
from penstock.state.manifest import Manifest
from penstock.state.registry import QueryRecord, Reading, Registry, RegistryLog, StreamRecord
from penstock.state.store import LocalStore

Into = str | Path | Sink | Callable[[pa.Table, int], None]
CALLABLE = "<callable>"
SQL_SETTINGS = ("spark.sql.session.timeZone", "spark.sql.ansi.enabled")
# What one step takes in at most unless the stream says otherwise: the first batch after a pause must not be everything.
_FILES = ("maxFilesPerTrigger", "100")
_ADMISSION = {
    "parquet": _FILES, "json": _FILES, "csv": _FILES, "orc": _FILES, "text": _FILES, "avro": _FILES,
    "kafka": ("maxOffsetsPerTrigger", "1000000"),
}  # fmt: skip


class Catalog:
    """The declarations of one state directory."""

    def __init__(
        self,
        spark: SparkSession,
        store: LocalStore,
        strategy: str,
        chain: str,
        orders: str = "adaptive",
        parameters: Parameters | None = None,
        plan: str = "auto",
    ) -> None:
        self.spark, self.store = spark, store
        self.frames: dict[str, DataFrame] = {}
        self.callables: dict[str, Callable[[pa.Table, int], None]] = {}
        self.own: dict[str, UserAggregate] = {}
        self.registry = self.saved = RegistryLog(store).load()
        self.strategy, self.chain, self.orders, self.parameters = strategy, chain, orders, parameters
        self.plan = None if plan == "auto" else plan
        self._parsed: dict[int, Parsed] = {}
        self._positions: dict[int, tuple[int, ...]] = {}
        self._network: tuple[Registry, Network] | None = None
        if strategy not in ("auto", *STRATEGIES):
            known = ", ".join(("auto", *STRATEGIES))
            raise RegistrationError(f"there is no strategy {strategy!r}; known: {known}")
        if chain not in CHAINS:
            raise RegistrationError(f"there is no chain {chain!r}; known: {', '.join(CHAINS)}")
        if orders not in MODES:
            raise RegistrationError(f"there is no way of choosing orders {orders!r}; known: {', '.join(MODES)}")
        if plan not in ("auto", *PLANS):
            raise RegistrationError(
                f"there is no plan {plan!r} for window aggregates; known: {', '.join(('auto', *PLANS))}"
            )

    # -- streams ----------------------------------------------------------------------------------------------------

    @property
    def streams(self) -> dict[str, Stream]:
        return {name: r.stream for name, r in self.registry.streams.items() if not r.dropped}

    @property
    def known_streams(self) -> dict[str, Stream]:
        """With those that were dropped: results of old queries stay readable."""
        return {name: r.stream for name, r in self.registry.streams.items()}

    def stream(self, name: str) -> Stream:
        found = self.known_streams.get(name)
        if found is None:
            raise RegistrationError(f"there is no stream {name!r}; {did_you_mean(name, self.registry.streams)}")
        return found

    def add_stream(self, stream: Stream, frame: DataFrame) -> None:
        check_stream(stream)
        if stream.name in self.frames:
            raise RegistrationError(f"stream {stream.name!r} is declared twice; choose another name")
        known = self.registry.streams.get(stream.name)
        if known is not None and known.dropped and known.stream.columns != stream.columns:
            msg = f"stream {stream.name!r} was dropped and had other columns, and old results are read with them; choose another name"
            raise RegistrationError(msg)
        if known is not None and known.dropped:
            # Spark's checkpoint knows the old source by its name: a new one must not resume its position.
            record = StreamRecord(stream, known.generation + 1, shared=self._same_source(stream, frame))
            self.registry = self.registry.with_stream(record)
        elif known is not None and known.stream != stream:
            msg = f"stream {stream.name!r} differs from the one registered in {self.store.root}: {difference(known.stream, stream)}; "
            raise RegistrationError(msg + "declare it as before, or use a new state directory")
        if known is None:
            self.registry = self.registry.with_stream(StreamRecord(stream, shared=self._same_source(stream, frame)))
        # Streams on one source have one DataFrame, by which they are known to be read together.
        source = self.registry.streams[stream.name].source_name
        together = [n for n in self.frames if self.registry.streams[n].source_name == source]
        self.frames[stream.name] = self.frames[together[0]] if together else frame

    def _same_source(self, stream: Stream, frame: DataFrame) -> str | None:
        """The source of a declared stream that a new one reads too: from the same DataFrame, or declared in SQL in the same words."""
        for name, other in self.frames.items():
            record = self.registry.streams[name]
            declared = stream.source is not None and stream.source == record.stream.source
            alike = declared and set(stream.columns) == set(record.stream.columns)
            if (alike or frame is other) and not (stream.punctuated or record.stream.punctuated):
                return record.source_name
        return None

    def drop_stream(self, name: str) -> None:
        if name not in self.streams:
            raise RegistrationError(f"there is no stream {name!r}; {did_you_mean(name, self.streams)}")
        for record in self.registry.live():
            if any(name in (role.stream, *role.union) for role in self.parsed(record).roles):
                raise RegistrationError(
                    f"query {record.owner or record.name!r} reads stream {name!r}; drop the query first"
                )
        self.registry = self.registry.with_stream(replace(self.registry.streams[name], dropped=True))
        self.frames.pop(name, None)

    def read(self, stream: Stream) -> DataFrame:
        """The streaming DataFrame of a stream that SQL declares."""
        assert stream.source is not None
        if stream.source.format == "socket":
            msg = f"stream {stream.name!r}: what a socket has sent cannot be read again after a crash; put a log in between (files, Kafka)"
            raise RegistrationError(msg)
        schema = ", ".join(f"`{c.name}` {c.type}" for c in stream.columns)
        reader = self.spark.readStream.format(stream.source.format).options(**dict(stream.source.options))
        if stream.source.format not in ("rate", "rate-micro-batch", "kafka"):
            reader = reader.schema(schema)
        limit = _ADMISSION.get(stream.source.format)
        if limit is not None and limit[0].lower() not in {k.lower() for k, _ in stream.source.options}:
            reader = reader.option(*limit)
        try:
            frame = reader.load()
            return frame.selectExpr(*[f"CAST(`{c.name}` AS {c.type}) AS `{c.name}`" for c in stream.columns])
        except (PySparkException, Py4JJavaError) as error:
            raise RegistrationError(f"stream {stream.name!r}: {spark_message(error)}") from None

    # -- queries ----------------------------------------------------------------------------------------------------

    def add_aggregate(self, name: str, function: UserAggregate) -> None:
        """Let queries use a user's own aggregate."""
        called, travelling = declared(name, function)
        if called in self.own:
            raise RegistrationError(f"aggregate {name!r} is declared twice; choose another name")
        self.own[called] = travelling

    def names(self) -> list[str]:
        return [q.name for q in self.registry.shown()]

    def record(self, name: str) -> QueryRecord:
        """The query of that name, also one that was dropped."""
        record = self.registry.find(name, dropped=True)
        if record is None or record.owner is not None:
            raise RegistrationError(f"there is no query {name!r}; {did_you_mean(name, self.names())}")
        return record

    def live(self, name: str) -> QueryRecord:
        record = self.registry.find(name)
        if record is None or record.owner is not None:
            raise RegistrationError(f"there is no query {name!r}; {did_you_mean(name, self.names())}")
        return record

    def prepare(
        self, record: QueryRecord, target: Into | None, *, script: str | None = None, line: int = 1, column: int = 1
    ) -> QueryRecord:
        """Check a new query and complete its record; nothing is registered yet."""
        name = record.name
        if name.startswith("_"):
            raise RegistrationError(f"query {name!r}: names that begin with _ are reserved; choose another name")
        if record.on_error not in ("skip", "stop"):
            raise RegistrationError(f"query {name!r}: on_error must be 'skip' or 'stop', not {record.on_error!r}")
        if record.start not in ("now", "state"):
            raise RegistrationError(f"query {name!r}: start must be 'now' or 'state', not {record.start!r}")
        known = readable(self, name, record.sql)
        whole = parse_query(
            record.sql, self.streams, script=script, line=line, column=column, queries=results(known), own=self.own
        )
        names = dict.fromkeys(name for role in whole.roles for name in (role.stream, *role.union))
        reads = tuple(known[n] for n in names if n not in self.streams)
        record = replace(record, reads=reads)
        parsed = parse(record, self.known_streams, self.own)
        query, streams = parsed.query, {**self.streams, **parsed.derived}
        below: tuple[tuple[str, ...], ...] = ()
        if parsed.apart is not None:
            join = parsed.apart.join
            below = self._check_join(name, record.on_error, join, {**self.streams, **parsed.below})
            types = {c.name: c.type for c in parsed.apart.stream.columns}
            columns = tuple((str(item.name), types[str(item.name)]) for item in join.items)
            record = replace(record, reads=(*reads, Reading(join_name(name), 0, columns)))
        for derived in derived_of(self, record, parsed):
            _ = derived.bounds  # refuses a time without progress
            if derived.definition.aggregation is not None and derived.definition.aggregation.emit is not None:
                read = next(q.name for q in self.registry.queries if q.id == derived.query)
                msg = f"query {name!r} cannot read query {read!r}, which shows windows more than once (EMIT EARLY); read one without it"
                raise RegistrationError(msg)
        check_supported(StandingQuery(1, name, query, flush=record.flush))
        if record.flush is not None and (query.aggregation is None or min(record.flush) < 0 or record.flush[0] < 1):
            msg = f"query {name!r}: flush= is the number of results that a step of an aggregate may give, at least 1, and behind= at least 0"
            raise RegistrationError(msg)
        facts = analyze(self.spark, name, query, streams, self.own)
        into: Sink | str | None = CALLABLE if callable(target) else str(target) if isinstance(target, Path) else target
        if into is not None and len(set(facts.names)) < len(facts.names):
            twice = next(n for n in facts.names if facts.names.count(n) > 1)
            msg = f"query {name!r} has two columns named {twice!r}; a sink needs distinct names: use AS"
            raise RegistrationError(msg)
        ordered = record.ordered or query.ordered
        if ordered and isinstance(into, Sink):
            msg = f"query {name!r} is ordered, and a {into.format} sink keeps no order; deliver it to a path or a function"
            raise RegistrationError(msg)
        if ordered and query.aggregation is not None and query.aggregation.emit is not None:
            msg = f"query {name!r} is ordered, and EMIT EARLY shows windows before their time has come; leave out one of both"
            raise RegistrationError(msg)
        if record.start == "state" and query.aggregation is not None:
            msg = (
                f"query {name!r} cannot begin from the state: what is held for other aggregates is put together for their windows; let it "
                "begin with the rows to come (FROM NOW)"
            )
            raise RegistrationError(msg)
        if record.start == "state" and record.reads:
            msg = (
                f"query {name!r} cannot begin from the state: of the results of other queries only those to come are read; let it "
                "begin with them (FROM NOW)"
            )
            raise RegistrationError(msg)
        counted = next((role for role in query.roles if isinstance(role.window, Rows)), None)
        if record.start == "state" and counted is not None:
            msg = (
                f"query {name!r} cannot begin from the state: of the rows that [ROWS ..] on {counted.alias!r} counts only some are "
                "held; let it begin with the rows to come (FROM NOW)"
            )
            raise RegistrationError(msg)
        build_network(
            [StandingQuery(1, name, query, record.on_error, facts.key_types, types=facts.aggregated, own=self.own)],
            streams,
            plan=self.plan,
        )
        joined = query if parsed.apart is None else parsed.apart.join
        for role in joined.roles:
            if len(joined.roles) > 1 and role.window == Window(None):
                text = f"query {name!r} keeps every row of {role.alias!r} for ever ([RANGE ALL]): its state only grows"
                warnings.warn(text, stacklevel=4)
        return replace(
            record,
            into=into,
            ordered=ordered,
            item_names=facts.names,
            item_types=facts.types,
            key_types=facts.key_types or below,
            types=facts.aggregated,
            uses=tuple(sorted(self.own.keys() & _functions(query))),
        )

    def standing(self, record: QueryRecord) -> tuple[list[StandingQuery], dict[str, Stream]]:
        """A query that is not registered, checked, as what would answer it, and the streams that this would read."""
        record = self.prepare(record, None)
        parsed = parse(record, self.streams, self.own)
        found = [
            StandingQuery(
                2, record.name, parsed.query, record.on_error, record.key_types, types=record.types[:2], own=self.own
            )
        ]
        if parsed.apart is not None:
            found.insert(0, StandingQuery(1, record.name, parsed.apart.join, record.on_error, record.key_types))
        return found, {**self.streams, **parsed.derived, **parsed.below}

    def _check_join(
        self, name: str, on_error: str, join: Query, streams: Mapping[str, Stream]
    ) -> tuple[tuple[str, ...], ...]:
        """Check the join below an aggregate; the types of its keys."""
        check_supported(StandingQuery(1, name, join))
        facts = analyze(self.spark, name, join, streams)
        build_network([StandingQuery(1, name, join, on_error, facts.key_types)], streams)
        return facts.key_types

    def add(self, record: QueryRecord, target: Into | None, *, instead: bool = False) -> None:
        """Register a prepared query; with `instead` it takes the place of the live one of that name."""
        known = self.registry.find(record.name)
        alike = known is not None and known.same_declaration(record)
        if known is not None and not alike:
            if not instead:
                msg = f"query {record.name!r} is registered with another definition; use CREATE OR REPLACE QUERY, or drop it first"
                raise RegistrationError(msg)
            check_replaced(self, known, record)
            same = (known.item_names, known.item_types) == (record.item_names, record.item_types)
            if not same:
                msg = f"query {record.name!r} has other columns from now on; the results that it had are no longer read by its name"
                warnings.warn(msg, stacklevel=2)
            record = replace(record, replaces=known.id if same else None)
            self.registry = self.registry.without_query(record.name).without_query(join_name(record.name))
        if callable(target):
            self.callables[record.name] = target
        else:
            self.callables.pop(record.name, None)
        if not alike:
            below = join_below(record, self.registry.next_id)
            if below is not None:
                self.registry = self.registry.with_query(below)
                record = replace(record, reads=(*record.reads[:-1], replace(record.reads[-1], id=below.id)))
            self.registry = self.registry.with_query(replace(record, id=self.registry.next_id))

    def drop(self, name: str, *, purge: bool) -> None:
        self.live(name)
        check_unread(self.registry, name)
        gone = (name, join_name(name))
        self.registry = self.registry.without_query(name).without_query(join_name(name))
        if purge:
            kept = tuple(q for q in self.registry.queries if q.name not in gone)
            self.registry = replace(self.registry, queries=kept)

    def parsed(self, record: QueryRecord) -> Query:
        return self.whole(record).query

    def whole(self, record: QueryRecord) -> Parsed:
        """What a record says, with the derived streams that it reads."""
        missing = [name for name in record.uses if name not in self.own]
        if missing:
            msg = f"query {record.name!r} uses the aggregate {missing[0]!r}, which is not declared; declare it with engine.aggregate(..)"
            raise RegistrationError(msg)
        if record.id not in self._parsed:
            self._parsed[record.id] = parse(record, self.known_streams, self.own)
        return self._parsed[record.id]

    def streams_of(self, record: QueryRecord) -> dict[str, Stream]:
        """The streams that a query reads, derived ones too, and all others."""
        return {**self.known_streams, **self.whole(record).derived}

    def derived_streams(self) -> dict[str, DerivedStream]:
        """The derived streams that live queries read."""
        return {d.name: d for record in self.registry.live() for d in derived_of(self, record, self.whole(record))}

    def views(self, query: int) -> list[ResultView]:
        """What holds the results of a query, and of those that it continues."""
        record = next(q for q in self.registry.queries if q.id == query)
        return [self.view(one) for one in self.lineage(record)]

    def view(self, record: QueryRecord) -> ResultView:
        query = self.parsed(record)
        if query.aggregation is not None:
            return AggregateView(self.store, record, query, self.streams_of(record), (), self.own)
        if record.id not in self._positions:
            alone = build_network([self._standing(record)], self.streams_of(record))
            # A query's role at each position of its join is the same in every network that it is ever part of.
            self._positions[record.id] = alone.joins[0].members[0].roles
        return ResultView(self.store, record, query, self.streams_of(record), self._positions[record.id])

    def lineage(self, record: QueryRecord) -> list[QueryRecord]:
        """The record and those whose results it continues, oldest first."""
        found = [record]
        by_id = {q.id: q for q in self.registry.queries}
        while found[0].replaces in by_id:
            found.insert(0, by_id[found[0].replaces])
        return found

    def lives(self, record: QueryRecord) -> list[tuple[str, int]]:
        """(stream, how long past its time a row of it can be part of a result) of each role."""
        query = self.parsed(record)
        if query.aggregation is not None:
            role = query.roles[0]
            return [(stream, aggregate_reach(query.aggregation)) for stream in (role.stream, *role.union)]
        reach = [FOREVER if max(row) >= FOREVER else max(row) + 1 for row in time_bounds(query)]
        return [(role.stream, life) for role, life in zip(query.roles, reach, strict=True)]

    def released(self, record: QueryRecord, manifest: Manifest) -> int:
        """Results of a query with a time below this are all there: the least progress of its streams, as far as it has been answered."""
        return output_progress(self.parsed(record), as_answered(manifest.reached(), record.id))

    def target(self, record: QueryRecord) -> Into | None:
        target = self.callables.get(record.name, record.into)
        if target == CALLABLE:
            raise PenstockError(f"query {record.name!r} delivers to a function; give it again with into= before start")
        return target

    # -- the network --------------------------------------------------------------------------------------------------

    def network(self) -> Network:
        """The compiled plan of all live queries."""
        if self._network is None or self._network[0] is not self.registry:
            read = {r.query for q in self.registry.live() for r in q.reads}
            standing = [
                replace(one, delivered=one.delivered or one.name in read)
                for one in map(self._standing, self.registry.live())
            ]
            derived = tuple(self.derived_streams().values())
            network = build_network(standing, self.streams, self.registry.version, self._strategy(), derived, self.plan)
            self._network = (self.registry, replace(network, chosen=self._chosen()))
        return self._network[1]

    def commit(self, manifest: Manifest) -> tuple[Registry, Network]:
        """Let all changes take effect after the manifest's step: a version of the registry, durable, and its network."""
        strategy = self._strategy()
        if manifest.runs and self.saved.version and strategy != self.saved.strategy:
            msg = (
                f"the state in {self.store.root} is kept by strategy {self.saved.strategy!r} and cannot be read by {strategy!r}; "
                "start with the same strategy, or use a new state directory"
            )
            raise StateError(msg)
        self._begin(manifest)
        conf = {key: str(self.spark.conf.get(key)) for key in SQL_SETTINGS}
        settings = dict(self.registry.settings) or conf
        network = self.network()
        wanted = replace(self.registry, settings=settings, bits=network.bits, strategy=strategy)
        if replace(wanted, version=self.saved.version) != self.saved or self.saved.version == 0:
            wanted = replace(wanted, version=self.saved.version + 1)
            RegistryLog(self.store).append(wanted)
        self.registry = self.saved = wanted
        network = self.cut(replace(network, version=wanted.version), manifest)
        self._network = (wanted, network)
        return wanted, network

    def steer(self, network: Network, manifest: Manifest, tasks: int) -> Steering:
        """The choice of probe orders, with what it remembers."""
        return Steering(network, self.orders, self.parameters, tasks, manifest.orders, manifest.counters)

    def cut(self, network: Network, manifest: Manifest) -> Network:
        """The network with the chains and the pane sets that fit what has been counted."""
        cut = choose_chains(network, self.chain, manifest.counters, list(manifest.runs.values()))
        return arrange(cut, manifest.panes)

    def revert(self) -> None:
        """Forget what was not committed."""
        self.registry = self.saved
        self._parsed.clear()  # their numbers are given out again
        self._positions.clear()

    def check_streams(self) -> None:
        """Every stream that a live query reads must be declared in this program, not only registered."""
        for record in self.registry.live():
            derived = self.whole(record).derived
            for stream in (s for role in self.parsed(record).roles for s in (role.stream, *role.union)):
                if stream not in self.frames and stream not in derived:
                    msg = (
                        f"query {record.owner or record.name!r} is registered in {self.store.root} and reads stream {stream!r}, which is not "
                        "declared; declare the stream, or drop the query"
                    )
                    raise RegistrationError(msg)

    def _strategy(self) -> str:
        """The strategy in use: 'auto' goes on with that of the state, and begins with the one that holds the fewest rows."""
        return self.saved.strategy if self.strategy == "auto" else self.strategy

    def _chosen(self) -> str:
        """Why it is that strategy; of a new state directory it is the default."""
        if self.strategy != "auto":
            return "asked"
        return "auto" if self.saved.strategy == Registry().strategy else "kept"

    def _standing(self, record: QueryRecord) -> StandingQuery:
        return StandingQuery(
            record.id, record.owner or record.name, self.parsed(record), record.on_error, record.key_types, record.share, record.types[:2],
            max(record.since, 0), record.complete_from, delivered=record.into is not None,
            flush=record.flush, own=self.own,
        )  # fmt: skip

    def _begin(self, manifest: Manifest) -> None:
        """Give new queries their first step, the times from which on they see all rows, and bits they can share."""
        newest = {name: p.newest + 1 for name, p in manifest.progress.items() if p.newest > NEVER}
        begins = {q.id for q in self.registry.queries if q.since < 0}
        newest |= seen_from(self, manifest, newest, begins)
        shares: dict[object, int] = {}
        changed = []
        for record in self.registry.queries:
            if record.since < 0 and not record.dropped:
                query = self.parsed(record)
                read = dict.fromkeys(s for r in query.roles for s in (r.stream, *r.union))
                seen = tuple((s, newest[s]) for s in read if s in newest)
                record = replace(record, since=manifest.step + 1, complete_from=seen)  # noqa: PLW2901
                alike = _shared_form(record, query)
                if alike is not None:
                    lead = shares.setdefault(alike, record.id)
                    record = replace(record, share=None if lead == record.id else lead)  # noqa: PLW2901
            changed.append(record)
        self.registry = replace(self.registry, queries=tuple(changed))
        begun = [q for q in changed if q.since == manifest.step + 1 and q.start == "state" and not q.dropped]
        if begun and manifest.runs:
            self._begin_from_state({q.id for q in begun}, manifest, newest)

    def _begin_from_state(self, begun: Collection[int], manifest: Manifest, newest: Mapping[str, int]) -> None:
        saved = {q.id: q for q in self.saved.live()}
        streams = {**self.streams, **{s: d for q in saved.values() for s, d in self.whole(q).derived.items()}}
        before = build_network([self._standing(q) for q in saved.values()], streams, strategy=self._strategy())
        # Bits are those of the first query of a share, which may have been dropped since; all began alike.
        alike = {q.share or q.id: q for q in saved.values()}
        since = {share: q.since for share, q in alike.items()}
        complete = {share: dict(q.complete_from) for share, q in alike.items()}
        changed = []
        for record in self.registry.queries:
            if record.id in begun and record.id not in saved:
                held = held_from(
                    before, self.network(), record.share or record.id, since, complete, manifest.reached(), newest
                )  # fmt: skip
                changed.append(replace(record, complete_from=tuple(held.items())))
            else:
                changed.append(record)
        self.registry = replace(self.registry, queries=tuple(changed))


def _functions(query: Query) -> set[str]:
    return set() if query.aggregation is None else {a.function for a in query.aggregation.aggregates}


def _shared_form(record: QueryRecord, query: Query) -> object | None:
    """What queries must have in common to read the same bits; None if something in the query may raise, on its own account."""
    expressions = [*query.predicates, *query.residuals, *(e for part in query.keys for e in part if e is not None)]
    if query.aggregation is not None:
        # Aggregates of the same rows share what is kept of them, whatever they compute and show.
        expressions += [item.expression for item in query.aggregation.groups]
        expressions += [a.argument for a in query.aggregation.aggregates if a.argument is not None]
        total = all(e.total for e in expressions)
        return (
            ("aggregate", query.roles[0].stream, query.roles[0].union, query.predicates, record.start)
            if total
            else None
        )
    if not all(e.total for e in expressions) or not all(item.expression.total for item in query.items):
        return None
    roles = tuple((role.stream, role.window) for role in query.roles)
    conditions = (query.keys, query.bands, query.predicates, query.residuals)
    return (roles, conditions, record.key_types, record.start)
