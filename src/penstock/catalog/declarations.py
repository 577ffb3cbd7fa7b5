"""Declarations for readers: streams and queries by name, and each query compiled once.

The catalog changes them; everything that only reads takes these.
"""

from __future__ import annotations

from dataclasses import replace

from penstock.catalog.analysis import Analysis
from penstock.catalog.choices import Choices
from penstock.catalog.compiled import CompiledQuery, compile_query, lead_of
from penstock.catalog.index import Index
from penstock.catalog.listed import listed_of
from penstock.errors import RegistrationError, did_you_mean
from penstock.model import Stream, UserAggregate
from penstock.planner.build import build_network
from penstock.planner.meaning import settled
from penstock.planner.network import StandingQuery
from penstock.state.registry import QueryRecord, Registry


class Declarations:
    """The streams and queries of a registry, the users' aggregates, and the analysis of expressions."""

    def __init__(self, registry: Registry, analysis: Analysis, choices: Choices) -> None:
        self.registry, self.analysis, self.choices = registry, analysis, choices
        self.own: dict[str, UserAggregate] = {}
        self._index = Index()
        self._compiled: dict[int, CompiledQuery] = {}
        self._positions: dict[int, tuple[int, ...]] = {}

    @property
    def index(self) -> Index:
        self._index = self._index.of(self.registry.queries)
        return self._index

    @property
    def settings(self) -> dict[str, str]:
        """The settings that expressions depend on: those of the first registration, or the present ones."""
        return dict(self.registry.settings) or self.analysis.settings

    # -- streams ----------------------------------------------------------------------------------------------------

    @property
    def streams(self) -> dict[str, Stream]:
        return {name: r.stream for name, r in self.registry.streams.items() if not r.dropped}

    @property
    def known_streams(self) -> dict[str, Stream]:
        """With dropped ones: results of old queries stay readable."""
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

    # -- queries ----------------------------------------------------------------------------------------------------

    def names(self) -> list[str]:
        return [q.name for q in self.registry.shown()]

    def record(self, name: str) -> QueryRecord:
        """The query of that name, even if dropped."""
        return self._shown(name, self.registry.find(name, dropped=True))

    def live(self, name: str) -> QueryRecord:
        return self._shown(name, self.index.live.get(name))

    def _shown(self, name: str, record: QueryRecord | None) -> QueryRecord:
        if record is None or record.owner is not None:
            raise RegistrationError(f"there is no query {name!r}; {did_you_mean(name, self.names())}")
        return record

    def numbered(self, query: int) -> QueryRecord:
        """The query of that number, which identifies its results."""
        return self.index.numbers[query]

    def compiled(self, record: QueryRecord) -> CompiledQuery:
        """The compiled record, with the derived streams that it reads; a statement is parsed once for all records."""
        missing = [name for name in record.uses if name not in self.own]
        if missing:
            msg = (
                f"query {record.name!r} uses the aggregate {missing[0]!r}, which is not declared; declare it "
                "with engine.aggregate(..)"
            )
            raise RegistrationError(msg)
        if record.id not in self._compiled:
            lead = self.index.numbers.get(lead_of(record), record)
            if lead.id == record.united != record.id:
                compiled = self.compiled(lead)
                self._compiled[record.id] = replace(compiled, query=compiled.combinations[record.combination])
            else:
                parsed = None if lead.id == record.id else self.compiled(lead).parsed
                self._compiled[record.id] = compile_query(record, self.known_streams, self.own, parsed)
        return self._compiled[record.id]

    def streams_of(self, record: QueryRecord) -> dict[str, Stream]:
        """The streams that a query reads, including derived ones, and all others."""
        return {**self.known_streams, **self.compiled(record).derived}

    def standing(self, record: QueryRecord) -> StandingQuery:
        """A registered query in the planner's form."""
        return StandingQuery(
            record.id, record.owner or record.name, settled(self.compiled(record).query, self.settings),
            record.on_error, record.key_types, record.share,
            record.types[:2], max(record.since, 0), record.complete_from, delivered=record.into is not None,
            flush=record.flush, own=self.own, listed=listed_of(record),
        )  # fmt: skip

    def positions(self, record: QueryRecord) -> tuple[int, ...]:
        """The role of a join at each of its positions: the same in every network that it is ever part of."""
        if record.id not in self._positions:
            alone = build_network([self.standing(record)], self.streams_of(record))
            self._positions[record.id] = alone.joins[0].members[0].roles
        return self._positions[record.id]

    def forget(self, kept: frozenset[int] = frozenset()) -> None:
        """Keep only these compiled queries: numbers that were not committed are assigned again."""
        self._compiled = {n: compiled for n, compiled in self._compiled.items() if n in kept}
        self._positions = {n: positions for n, positions in self._positions.items() if n in kept}
