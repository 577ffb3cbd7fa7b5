"""What is declared: streams with their DataFrames, queries with their sinks; and the network that they compile to.

Changes are made to a registry in memory and take effect together, at a step boundary, by `commit`: that gives the new queries their
first step, writes a version of the registry, and builds the network that runs from then on.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from penstock.catalog.activate import begin
from penstock.catalog.check_query import CALLABLE, Into
from penstock.catalog.check_stream import check_stream, difference, remedy
from penstock.catalog.choices import Choices
from penstock.catalog.compiled import CompiledQuery, compile_query, join_below, join_name, parts_of
from penstock.catalog.dependencies import check_replaced, check_unread, derived_of
from penstock.catalog.listed import listed_of
from penstock.catalog.user_aggregates import declared
from penstock.errors import PenstockError, RegistrationError, StateError, did_you_mean
from penstock.model import Query, Sink, Stream, UserAggregate
from penstock.model.secrets import is_withheld, literal_secrets
from penstock.model.time import FOREVER, NEVER
from penstock.planner.build import build_network
from penstock.planner.derived import DerivedStream
from penstock.planner.meaning import ANSI, ZONE, settled
from penstock.planner.network import Network, StandingQuery, as_answered, output_progress
from penstock.planner.pane_sharing import arrange
from penstock.planner.share import choose_chains
from penstock.planner.steering import Steering
from penstock.results.read import ResultView
from penstock.results.read_aggregates import AggregateView
from penstock.sql.alter_stream import alike_but_for_changes
from penstock.state.forgetting import without_ended
from penstock.state.manifest import Manifest
from penstock.state.registry import QueryRecord, Registry, RegistryLog, StreamRecord
from penstock.step.compose import newest_time
from penstock.storage.store import Store

SQL_SETTINGS = (ZONE, ANSI)


class Catalog:
    """The declarations of one state directory."""

    def __init__(self, spark: SparkSession, store: Store, choices: Choices) -> None:
        self.spark, self.store, self.choices = spark, store, choices
        self.frames: dict[str, DataFrame] = {}
        # What the registry does not hold of sinks: functions, and those with secrets that are given literally.
        self.given: dict[str, Callable[[pa.Table, int], None] | Sink] = {}
        self.own: dict[str, UserAggregate] = {}
        self.registry = self.saved = RegistryLog(store).load()
        self._parsed: dict[int, CompiledQuery] = {}
        self._positions: dict[int, tuple[int, ...]] = {}
        self._network: tuple[Registry, Network] | None = None

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

    def live_stream(self, name: str) -> Stream:
        if name not in self.streams:
            raise RegistrationError(f"there is no stream {name!r}; {did_you_mean(name, self.streams)}")
        return self.streams[name]

    def add_stream(self, stream: Stream, frame: DataFrame, *, altered: bool = False) -> None:
        """Declare a stream; one that is registered must be the same, but that with `altered` it takes the delay and the path of this one."""
        check_stream(stream)
        if stream.name in self.frames:
            raise RegistrationError(f"stream {stream.name!r} is declared twice; choose another name")
        known = self.registry.streams.get(stream.name)
        if known is None and any(q.name == stream.name and not q.dropped for q in self.registry.queries):
            raise RegistrationError(f"stream {stream.name!r} has the name of a query; choose another name")
        if known is not None and known.dropped and known.stream.columns != stream.columns:
            msg = f"stream {stream.name!r} was dropped and had other columns, and old results are read with them; choose another name"
            raise RegistrationError(msg)
        if known is not None and known.dropped:
            # Spark's checkpoint knows the old source by its name: a new one must not resume its position.
            record = StreamRecord(stream, known.generation + 1, shared=self._same_source(stream, frame))
            self.registry = self.registry.with_stream(record)
        elif known is not None and not known.stream.same(stream):
            if not (altered and alike_but_for_changes(known.stream, stream)):
                msg = f"stream {stream.name!r} differs from the one registered in {self.store.root}: {difference(known.stream, stream)}; "
                raise RegistrationError(msg + remedy(known.stream, stream))
            self.alter_stream(stream)
        elif (
            known is not None and known.stream != stream
        ):  # a secret is given in another way, or late rows are kept for another time
            self.registry = self.registry.with_stream(replace(known, stream=stream))
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
            source = stream.source
            # Of secrets that are withheld nobody knows whether they are the same.
            declared = source is not None and source == record.stream.source and not is_withheld(source.options)
            alike = declared and set(stream.columns) == set(record.stream.columns)
            if (alike or frame is other) and not (stream.punctuated or record.stream.punctuated):
                return record.source_name
        return None

    def alter_stream(self, stream: Stream, frame: DataFrame | None = None) -> None:
        """Let a registered stream have the delay and the path of this one; `frame` reads the new path, if the stream is declared here.

        A new path is a new source to Spark's checkpoint: all of its files are new.
        """
        known = self.registry.streams[stream.name]
        if known.stream.source == stream.source:
            self.registry = self.registry.with_stream(replace(known, stream=stream))
            return
        self.registry = self.registry.with_stream(StreamRecord(stream, known.generation + 1))
        if frame is not None:
            self.frames[stream.name] = frame

    def drop_stream(self, name: str) -> None:
        self.live_stream(name)
        for record in self.registry.live():
            if any(name in role.streams for role in self.parsed(record).roles):
                raise RegistrationError(
                    f"query {record.owner or record.name!r} reads stream {name!r}; drop the query first"
                )
        self.registry = self.registry.with_stream(replace(self.registry.streams[name], dropped=True))
        self.frames.pop(name, None)

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

    def numbered(self, query: int) -> QueryRecord:
        """The query of that number, whose results are known by it."""
        return next(q for q in self.registry.queries if q.id == query)

    def live(self, name: str) -> QueryRecord:
        record = self.registry.find(name)
        if record is None or record.owner is not None:
            raise RegistrationError(f"there is no query {name!r}; {did_you_mean(name, self.names())}")
        return record

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
            news = "" if same else "has other columns"
            if same and record.ordered and any(map(listed_of, self.lineage(known))):
                news = "is ordered"  # and files of its own do not say the times of results
            if news:
                msg = (
                    f"query {record.name!r} {news} from now on; the results that it had are no longer read by its name"
                )
                warnings.warn(msg, stacklevel=2)
            record = replace(record, replaces=None if news else known.id)
            self.registry = self.registry.without_query(record.name).without_query(join_name(record.name))
        if callable(target) or (isinstance(target, Sink) and literal_secrets(target.options)):
            self.given[record.name] = target
        else:
            self.given.pop(record.name, None)
        if alike and known is not None and known.into != record.into:  # a secret is given in another way
            changed = tuple(replace(q, into=record.into) if q.id == known.id else q for q in self.registry.queries)
            self.registry = replace(self.registry, queries=changed)
        if not alike:
            parsed = compile_query(record, self.known_streams, self.own)
            below = join_below(record, self.registry.next_id)
            if below is None:
                record = replace(record, id=self.registry.next_id)
            lead = below or record
            for one in (lead, *parts_of(lead, parsed.combinations)):
                self.registry = self.registry.with_query(one)
            if below is None:
                self._parsed[lead.id] = parsed  # it is the same query, known by its number from now on
            if below is not None:
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

    def whole(self, record: QueryRecord) -> CompiledQuery:
        """What a record says, with the derived streams that it reads."""
        missing = [name for name in record.uses if name not in self.own]
        if missing:
            msg = f"query {record.name!r} uses the aggregate {missing[0]!r}, which is not declared; declare it with engine.aggregate(..)"
            raise RegistrationError(msg)
        if record.id not in self._parsed:
            self._parsed[record.id] = compile_query(record, self.known_streams, self.own)
        return self._parsed[record.id]

    def streams_of(self, record: QueryRecord) -> dict[str, Stream]:
        """The streams that a query reads, derived ones too, and all others."""
        return {**self.known_streams, **self.whole(record).derived}

    def derived_streams(self) -> dict[str, DerivedStream]:
        """The derived streams that live queries read."""
        return {d.name: d for record in self.registry.live() for d in derived_of(self, record, self.whole(record))}

    def views(self, query: int) -> list[ResultView]:
        """What holds the results of a query, and of those that it continues."""
        return [self.view(one) for one in self.lineage(self.numbered(query))]

    def view(self, record: QueryRecord) -> ResultView:
        query = settled(self.parsed(record), self.settings)
        if query.aggregation is not None:
            return AggregateView(self.store, record, query, self.streams_of(record), (), self.own)
        if record.id not in self._positions:
            alone = build_network([self.standing(record)], self.streams_of(record))
            # A query's role at each position of its join is the same in every network that it is ever part of.
            self._positions[record.id] = alone.joins[0].members[0].roles
        return ResultView(self.store, record, query, self.streams_of(record), self._positions[record.id])

    def lineage(self, record: QueryRecord) -> list[QueryRecord]:
        """The record and those whose results it continues, oldest first, each with its parts behind it."""
        found = [record]
        by_id = {q.id: q for q in self.registry.queries}
        while found[0].replaces in by_id:
            found.insert(0, by_id[found[0].replaces])
        return [one for lead in found for one in self._united(lead)]

    def _united(self, record: QueryRecord) -> list[QueryRecord]:
        """A record and its parts: the other combinations of the streams of its unions."""
        return [record, *(q for q in self.registry.queries if q.united == record.id)]

    def complete_from(self, record: QueryRecord) -> dict[str, int]:
        """Stream -> the time from which on all its rows take part, in all combinations."""
        found: dict[str, int] = {}
        for name, time in (pair for one in self._united(record) for pair in one.complete_from):
            found[name] = max(time, found.get(name, time))
        return found

    def released(self, record: QueryRecord, manifest: Manifest) -> int:
        """Results of a query with a time below this are all there: the least progress of its streams, as far as it has been answered."""
        return output_progress(self.whole(record).whole, as_answered(manifest.reached(), record.id))

    def horizon(self, record: QueryRecord, manifest: Manifest) -> int:
        """Results of a query with a time below this are given up, of a dropped one too.

        Later ones come at or after its output progress; at the end of the streams, from where their last rows are.
        """
        if record.retain is None:
            return NEVER
        try:
            least = self.released(record, manifest)
            roles = self.whole(record).whole.roles
        except PenstockError:
            return NEVER  # a stream or a function of a dropped query is no longer declared
        if least >= FOREVER:
            least = max(newest_time(manifest, stream) for role in roles for stream in role.streams) + 1
        return least - record.retain if least > NEVER + 1 else NEVER

    def target(self, record: QueryRecord) -> Into | None:
        target = self.given.get(record.name, record.into)
        if target == CALLABLE:
            raise PenstockError(f"query {record.name!r} delivers to a function; give it again with into= before start")
        return target

    @property
    def settings(self) -> dict[str, str]:
        """What gives expressions their meaning: as it was when the first query was registered, or as it is now."""
        return dict(self.registry.settings) or {key: str(self.spark.conf.get(key)) for key in SQL_SETTINGS}

    # -- the network --------------------------------------------------------------------------------------------------

    def network(self) -> Network:
        """The compiled plan of all live queries."""
        if self._network is None or self._network[0] is not self.registry:
            read = {r.query for q in self.registry.live() for r in q.reads}
            standing = [
                replace(one, delivered=one.delivered or one.name in read)
                for one in map(self.standing, self.registry.live())
            ]
            derived = tuple(self.derived_streams().values())
            network = build_network(
                standing, self.streams, self.registry.version, self.strategy, derived, self.choices.paned
            )
            self._network = (self.registry, replace(network, chosen=self._chosen()))
        return self._network[1]

    def commit(self, manifest: Manifest) -> tuple[Registry, Network]:
        """Let all changes take effect after the manifest's step: a version of the registry, durable, and its network."""
        strategy = self.strategy
        if manifest.runs and self.saved.version and strategy != self.saved.strategy:
            msg = (
                f"the state in {self.store.root} is kept by strategy {self.saved.strategy!r} and cannot be read by {strategy!r}; "
                "start with the same strategy, or use a new state directory"
            )
            raise StateError(msg)
        self.registry = without_ended(self.registry, manifest)
        begin(self, manifest)
        settings = self.settings
        network = self.network()
        wanted = replace(self.registry, settings=settings, bits=network.bits, strategy=strategy)
        if replace(wanted, version=self.saved.version) != self.saved or self.saved.version == 0:
            wanted = replace(wanted, version=self.saved.version + 1)
            RegistryLog(self.store).append(wanted)
        self.registry = self.saved = wanted
        known = {q.id for q in wanted.queries}
        self._parsed = {n: parsed for n, parsed in self._parsed.items() if n in known}
        self._positions = {n: positions for n, positions in self._positions.items() if n in known}
        network = self.cut(replace(network, version=wanted.version), manifest)
        self._network = (wanted, network)
        return wanted, network

    def steer(self, network: Network, manifest: Manifest, tasks: int) -> Steering:
        """The choice of probe orders, with what it remembers."""
        return Steering(
            network, self.choices.orders, self.choices.parameters, tasks, manifest.orders, manifest.counters
        )

    def cut(self, network: Network, manifest: Manifest) -> Network:
        """The network with the chains and the pane sets that fit what has been counted."""
        cut = choose_chains(network, self.choices.chain, manifest.counters, list(manifest.runs.values()))
        return arrange(cut, manifest.panes)

    def revert(self) -> None:
        """Forget what was not committed."""
        self.registry = self.saved
        self._parsed.clear()  # their numbers are given out again
        self._positions.clear()

    def check_newest(self) -> None:
        """Refuse to begin with what was declared before another engine has changed it: what is new would be given up unseen."""
        newest = RegistryLog(self.store).newest()
        if newest != self.saved.version:
            msg = (
                f"what is declared in {self.store.root} was changed by another engine since this one was made (version {newest} of the "
                f"registry, not {self.saved.version}); make a new Engine on the directory, and declare there what is new"
            )
            raise StateError(msg)

    def check_streams(self) -> None:
        """Every stream that a live query reads must be declared in this program, not only registered."""
        for record in self.registry.live():
            derived = self.whole(record).derived
            for stream in (s for role in self.parsed(record).roles for s in role.streams):
                if stream not in self.frames and stream not in derived:
                    msg = (
                        f"query {record.owner or record.name!r} is registered in {self.store.root} and reads stream {stream!r}, which is not "
                        "declared; declare the stream, or drop the query"
                    )
                    raise RegistrationError(msg)

    @property
    def strategy(self) -> str:
        """The strategy in use: 'auto' goes on with that of the state, and begins with the one that holds the fewest rows."""
        return self.saved.strategy if self.choices.strategy == "auto" else self.choices.strategy

    def _chosen(self) -> str:
        """Why it is that strategy; of a new state directory it is the default."""
        if self.choices.strategy != "auto":
            return "asked"
        return "auto" if self.saved.strategy == Registry().strategy else "kept"

    def standing(self, record: QueryRecord) -> StandingQuery:
        """A registered query as the planner takes it."""
        return StandingQuery(
            record.id, record.owner or record.name, settled(self.parsed(record), self.settings), record.on_error, record.key_types, record.share, record.types[:2],
            max(record.since, 0), record.complete_from, delivered=record.into is not None,
            flush=record.flush, own=self.own, listed=listed_of(record),
        )  # fmt: skip
