"""Changes of declarations: streams, and queries with their sinks; and the network that they compile to.

Changes apply to a registry in memory and take effect together, at a step boundary, by `commit`: it assigns new queries
their first step, writes a version of the registry, and builds the network that runs from then on.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pyarrow as pa

from penstock.catalog.activate import begin
from penstock.catalog.analysis import Analysis
from penstock.catalog.check_sink import CALLABLE, Into
from penstock.catalog.check_stream import check_stream, difference, remedy
from penstock.catalog.choices import Choices
from penstock.catalog.compiled import CompiledQuery, compile_query, join_below, join_name, parts_of
from penstock.catalog.declarations import Declarations
from penstock.catalog.dependencies import check_replaced, check_unread, derived_streams
from penstock.catalog.lineage import lineage
from penstock.catalog.listed import listed_of
from penstock.catalog.user_aggregates import checked_aggregate
from penstock.errors import PenstockError, RegistrationError, StateError
from penstock.model import Sink, Stream, UserAggregate
from penstock.model.secrets import is_withheld, literal_secrets
from penstock.planner.build import build_network
from penstock.planner.network import Network
from penstock.planner.pane_sharing import arrange
from penstock.planner.share import choose_chains
from penstock.planner.steering import Steering
from penstock.sql.alter_stream import alike_but_for_changes
from penstock.state.forgetting import without_ended
from penstock.state.manifest import Manifest
from penstock.state.registry import Bits, QueryRecord, Registry, RegistryLog, StreamRecord
from penstock.storage.store import Store


class Catalog(Declarations):
    """The declarations of one state directory, and their changes."""

    def __init__(self, store: Store, analysis: Analysis, choices: Choices) -> None:
        super().__init__(RegistryLog(store).load(), analysis, choices)
        self.store, self.saved = store, self.registry
        self.opened: set[str] = set()  # the streams that this program declares and can read
        # Parts of sinks outside the registry: functions, and literal secrets.
        self.given: dict[str, Callable[[pa.Table, int], None] | Sink] = {}
        self._network: tuple[Registry, Network] | None = None
        self.bits = Bits(store)

    # -- streams ----------------------------------------------------------------------------------------------------

    def add_stream(self, stream: Stream, beside: Collection[str] = (), *, altered: bool = False) -> None:
        """Declare a stream that reads the same rows as those `beside` it.

        A registered stream must be equal, except that `altered` takes delay and path of this declaration.
        """
        check_stream(stream)
        if stream.name in self.opened:
            raise RegistrationError(f"stream {stream.name!r} is declared twice; choose another name")
        known = self.registry.streams.get(stream.name)
        if known is None and stream.name in self.index.live:
            raise RegistrationError(f"stream {stream.name!r} has the name of a query; choose another name")
        if known is not None and known.dropped and known.stream.columns != stream.columns:
            msg = (
                f"stream {stream.name!r} was dropped and had other columns, and old results are read with them; "
                "choose another name"
            )
            raise RegistrationError(msg)
        if known is not None and known.dropped:
            # Spark's checkpoint knows the old source by its name: a new one must not resume its position.
            record = StreamRecord(stream, known.generation + 1, shared=self._same_source(stream, beside))
            self.registry = self.registry.with_stream(record)
        elif known is not None and not known.stream.same(stream):
            if not (altered and alike_but_for_changes(known.stream, stream)):
                msg = (
                    f"stream {stream.name!r} differs from the one registered in {self.store.root}: "
                    f"{difference(known.stream, stream)}; "
                )
                raise RegistrationError(msg + remedy(known.stream, stream))
            self.alter_stream(stream)
        elif (
            known is not None and known.stream != stream
        ):  # a secret is supplied differently, or late rows are kept for another time
            self.registry = self.registry.with_stream(replace(known, stream=stream))
        if known is None:
            self.registry = self.registry.with_stream(StreamRecord(stream, shared=self._same_source(stream, beside)))
        self.opened.add(stream.name)

    def _same_source(self, stream: Stream, beside: Collection[str]) -> str | None:
        """The source of a declared stream that a new one reads too: beside it, or with the same declaration in SQL."""
        for name, record in self.registry.streams.items():
            if name not in self.opened:
                continue
            source = stream.source
            # Withheld secrets cannot be compared.
            declared = source is not None and source == record.stream.source and not is_withheld(source.options)
            alike = declared and set(stream.columns) == set(record.stream.columns)
            if (alike or name in beside) and not (stream.punctuated or record.stream.punctuated):
                return record.source_name
        return None

    def alter_stream(self, stream: Stream) -> None:
        """Change delay and path of a registered stream to this stream's.

        A new path is a new source to Spark's checkpoint: all of its files are new.
        """
        known = self.registry.streams[stream.name]
        same = known.stream.source == stream.source
        record = replace(known, stream=stream) if same else StreamRecord(stream, known.generation + 1)
        self.registry = self.registry.with_stream(record)

    def drop_stream(self, name: str) -> None:
        self.live_stream(name)
        for record in self.registry.live():
            if any(name in role.streams for role in self.compiled(record).query.roles):
                raise RegistrationError(
                    f"query {record.owner or record.name!r} reads stream {name!r}; drop the query first"
                )
        self.registry = self.registry.with_stream(replace(self.registry.streams[name], dropped=True))
        self.opened.discard(name)

    # -- queries ----------------------------------------------------------------------------------------------------

    def add_aggregate(self, name: str, function: UserAggregate) -> None:
        """Declare a user's own aggregate for queries."""
        called = checked_aggregate(name, function)
        if called in self.own:
            raise RegistrationError(f"aggregate {name!r} is declared twice; choose another name")
        self.own[called] = function

    def add(self, record: QueryRecord, compiled: CompiledQuery, target: Into | None, *, instead: bool = False) -> None:
        """Register a checked query; with `instead` it replaces the live one of that name."""
        known = self.index.live.get(record.name)
        alike = known is not None and known.same_declaration(record)
        if known is not None and not alike:
            if not instead:
                msg = (
                    f"query {record.name!r} is registered with another definition; use CREATE OR REPLACE QUERY, "
                    "or drop it first"
                )
                raise RegistrationError(msg)
            check_replaced(self, known, record, compiled)
            same = (known.item_names, known.item_types) == (record.item_names, record.item_types)
            news = "" if same else "has other columns"
            if same and record.ordered and any(map(listed_of, lineage(self.registry, known))):
                news = "is ordered"  # and its own files do not contain the times of results
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
        if alike and known is not None and known.into != record.into:  # a secret is supplied differently
            changed = tuple(replace(q, into=record.into) if q.id == known.id else q for q in self.registry.queries)
            self.registry = replace(self.registry, queries=changed)
        if not alike:
            below = join_below(record, self.registry.next_id)
            if below is None:
                record = replace(record, id=self.registry.next_id)
            else:
                compiled = compile_query(below, self.known_streams, self.own, compiled.parsed)
            lead = below or record
            for one in (lead, *parts_of(lead, compiled.combinations)):
                self.registry = self.registry.with_query(one)
            self._compiled[lead.id] = compiled
            if below is not None:
                record = replace(record, reads=(*record.reads[:-1], replace(record.reads[-1], id=below.id)))
                self.registry = self.registry.with_query(replace(record, id=self.registry.next_id))

    def drop(self, name: str, *, purge: bool) -> None:
        self.live(name)
        check_unread(self, name)
        gone = (name, join_name(name))
        self.registry = self.registry.without_query(name).without_query(join_name(name))
        if purge:
            kept = tuple(q for q in self.registry.queries if q.name not in gone)
            self.registry = replace(self.registry, queries=kept)

    def target(self, record: QueryRecord) -> Into | None:
        target = self.given.get(record.name, record.into)
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
                for one in map(self.standing, self.registry.live())
            ]
            derived = tuple(derived_streams(self).values())
            network = build_network(
                standing, self.streams, self.registry.version, self.strategy, derived, self.choices.aggregate_plan
            )
            self._network = (self.registry, replace(network, chosen=self._chosen()))
        return self._network[1]

    def commit(self, manifest: Manifest) -> tuple[Registry, Network]:
        """Apply all changes after the manifest's step: a version of the registry, durable, and its network."""
        strategy = self.strategy
        if manifest.runs and self.saved.version and strategy != self.saved.strategy:
            msg = (
                f"the state in {self.store.root} is kept by strategy {self.saved.strategy!r} and cannot be "
                f"read by {strategy!r}; "
                "start with the same strategy, or use a new state directory"
            )
            raise StateError(msg)
        self.registry = without_ended(self.registry, manifest)
        begin(self, self.saved, manifest, self.network)
        settings = self.settings
        network = self.network()
        wanted = replace(self.registry, settings=settings, bits=network.bits, strategy=strategy)
        if replace(wanted, version=self.saved.version) != self.saved or self.saved.version == 0:
            wanted = replace(wanted, version=self.saved.version + 1)
            RegistryLog(self.store).append(wanted)
        self.registry = self.saved = wanted
        self.forget(frozenset(q.id for q in wanted.queries))
        network = self.cut(replace(network, version=wanted.version), manifest)
        self._network = (wanted, network)
        return wanted, network

    def steer(self, network: Network, manifest: Manifest, tasks: int) -> Steering:
        """The choice of probe orders, with its stored statistics."""
        return Steering(
            network, self.choices.orders, self.choices.parameters, tasks, manifest.orders, manifest.counters
        )

    def cut(self, network: Network, manifest: Manifest) -> Network:
        """The network with the chains and the pane sets that fit the counts so far."""
        cut = choose_chains(network, self.choices.chain, manifest.counters, list(manifest.runs.values()))
        return arrange(cut, manifest.panes)

    @contextmanager
    def whole_or_not_at_all(self) -> Iterator[None]:
        """Declarations inside take effect with their commit, or not at all if one is refused."""
        declared, given = set(self.opened), dict(self.given)
        try:
            yield
        except BaseException:
            self.registry, self.opened, self.given = self.saved, declared, given
            self.forget()
            raise

    def check_newest(self) -> None:
        """Refuse to begin with declarations from before a change by another engine: its changes would be lost."""
        newest = RegistryLog(self.store).newest()
        if newest != self.saved.version:
            msg = (
                f"what is declared in {self.store.root} was changed by another engine since this one was "
                f"made (version {newest} of the "
                f"registry, not {self.saved.version}); make a new Engine on the directory, and declare there "
                "what is new"
            )
            raise StateError(msg)

    def check_streams(self) -> None:
        """Every stream that a live query reads must be declared in this program, not only registered."""
        for record in self.registry.live():
            derived = self.compiled(record).derived
            for stream in (s for role in self.compiled(record).query.roles for s in role.streams):
                if stream not in self.opened and stream not in derived:
                    msg = (
                        f"query {record.owner or record.name!r} is registered in {self.store.root} and reads "
                        f"stream {stream!r}, which is not "
                        "declared; declare the stream, or drop the query"
                    )
                    raise RegistrationError(msg)

    @property
    def strategy(self) -> str:
        """The strategy in use: 'auto' keeps that of the state, and starts with the one that stores the fewest rows."""
        return self.saved.strategy if self.choices.strategy == "auto" else self.choices.strategy

    def _chosen(self) -> str:
        """Why it has that strategy; for a new state directory it is the default."""
        if self.choices.strategy != "auto":
            return "asked"
        return "auto" if self.saved.strategy == Registry().strategy else "kept"
