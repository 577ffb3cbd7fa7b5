"""The registry: which streams and queries exist, durable, as a log of versions.

Query ids are permanent and never reused. Each version also records which bit of a result row belonged to which query,
so that an old result file is read with its own numbering (decision 0003).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.errors import StateError
from penstock.model import Sink, Stream
from penstock.model.secrets import masked
from penstock.model.time import format_length
from penstock.sql.words import words
from penstock.state.buckets import BUCKETS
from penstock.storage.codec import exact, plain
from penstock.storage.faults import RESTORE
from penstock.storage.log import Log
from penstock.storage.store import Store


@dataclass(frozen=True)
class StreamRecord:
    """A stream as declared; `generation` counts how often the name was declared again.

    `shared` is the name of the source that it reads together with another stream, so that its rows are read once.
    """

    stream: Stream
    generation: int = 0
    dropped: bool = False
    shared: str | None = None

    @property
    def source_name(self) -> str:
        """The source's name in Spark's checkpoint; a stream that is added again must not resume the old position."""
        return self.shared or f"{self.stream.name}_g{self.generation}"


@dataclass(frozen=True)
class Reading:
    """What a query reads of another one's results; `id` is that of the first query that the other one continues.

    `columns` are (name, type), `times` those with known progress, `usual` the one that is the result time.
    """

    query: str
    id: int
    columns: tuple[tuple[str, str], ...]
    times: tuple[str, ...] = ()
    usual: str | None = None


@dataclass(frozen=True)
class QueryRecord:
    """A query as declared, with the results of its analysis at registration.

    `since` is the first step that answers it (-1 until it is part of a network), `start` whether stored rows take part
    ("state") or only later ones ("now"). All rows with times from `complete_from[stream]` on take part; all rows of
    streams that are missing there. `share` is the query whose bits it reads, `replaces` the one whose results it
    continues. `types` are those of the groups, arguments and values of an aggregated query; `uses` are its user-defined
    functions. `reads` are the queries whose results it reads. A record with an `owner` is the join below that query,
    which aggregates over it, or a part of it, and is internal. A query over unions has one record per combination of
    their streams, with consecutive ids: the first is the query itself, and the others are parts of the one `united`.
    `flush` = (maximal results per step, windows by which this may delay a result), `emit` the interval at which open
    windows of an aggregate are shown again, if it is not part of the text.
    """

    id: int
    name: str
    sql: str
    on_error: str = "skip"
    retain: int | None = None
    into: Sink | str | None = None
    item_names: tuple[str, ...] = ()
    item_types: tuple[str, ...] = ()
    key_types: tuple[tuple[str, ...], ...] = ()
    dropped: bool = False
    ordered: bool = False
    start: str = "now"
    since: int = -1
    complete_from: tuple[tuple[str, int], ...] = ()
    share: int | None = None
    replaces: int | None = None
    types: tuple[tuple[str, ...], ...] = ()
    uses: tuple[str, ...] = ()
    reads: tuple[Reading, ...] = ()
    owner: str | None = None
    flush: tuple[int, int] | None = None
    united: int | None = None
    emit: int | None = None

    @property
    def combination(self) -> int:
        """Which combination of the streams of its unions it answers."""
        return 0 if self.united is None else self.id - self.united

    @property
    def text(self) -> str:
        """The query as it could have been written, with early results that were requested beside its text."""
        return self.sql if self.emit is None else f"{self.sql} EMIT EARLY EVERY {format_length(self.emit)}"

    def same_declaration(self, other: QueryRecord) -> bool:
        """Whether both were declared alike, apart from ids and derived fields."""
        return _declared(self) == _declared(other)


@dataclass(frozen=True)
class Registry:
    """One version of the registry. `settings` are the SQL settings (time zone, ANSI) that expressions depend on.

    Runs of versions below `stale` may have rows that only dropped queries needed. State has that many `buckets`.
    """

    version: int = 0
    next_id: int = 1
    streams: Mapping[str, StreamRecord] = field(default_factory=dict)
    queries: tuple[QueryRecord, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    bits: Mapping[int, tuple[str, int]] = field(default_factory=dict)
    strategy: str = "state_slice"
    stale: int = 0
    buckets: int = field(default_factory=lambda: BUCKETS)

    def live(self) -> tuple[QueryRecord, ...]:
        return tuple(q for q in self.queries if not q.dropped)

    def shown(self) -> tuple[QueryRecord, ...]:
        """The live queries that users have registered."""
        return tuple(q for q in self.live() if q.owner is None)

    def below(self) -> list[int]:
        """The joins below aggregates, even dropped ones: only these aggregates read their results."""
        owned = {q.id for q in self.queries if q.owner is not None and q.united is None}
        return [q.id for q in self.queries if q.id in owned or q.united in owned]

    def find(self, name: str, *, dropped: bool = False) -> QueryRecord | None:
        """The live query of that name, or with `dropped` also the last dropped one."""
        found = [q for q in self.queries if q.name == name and (dropped or not q.dropped)]
        return found[-1] if found else None

    def with_stream(self, record: StreamRecord) -> Registry:
        return replace(self, streams={**self.streams, record.stream.name: record})

    def with_query(self, record: QueryRecord) -> Registry:
        return replace(self, next_id=max(self.next_id, record.id + 1), queries=(*self.queries, record))

    def without_query(self, name: str) -> Registry:
        changed = tuple(replace(q, dropped=True) if q.name == name else q for q in self.queries)
        return replace(self, queries=changed, stale=self.version + 1)


class RegistryLog:
    """Reads and appends versions under `registry/`."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.versions = Log(store, "registry", "version", _encode, _decode)

    def load(self, version: int | None = None) -> Registry:
        """A version, by default the newest; an empty registry if there is none yet."""
        if version is None:
            version = self.newest()
            if not version:
                return Registry()
        try:
            return self.versions.read(version)
        except FileNotFoundError:
            msg = f"registry version {version} is missing ({self.versions.label(version)}); {RESTORE}"
            raise StateError(msg) from None

    def newest(self) -> int:
        """The newest version; 0 if there is none yet."""
        return max(self.versions.numbers(), default=0)

    def append(self, registry: Registry) -> None:
        if not self.versions.put(registry):
            msg = f"registry version {registry.version} was already written by another engine on {self.store.label('')}"
            raise StateError(msg)


class Bits:
    """The bit of each query by version of the registry; versions are cached, since every result file needs its own."""

    MOST = 64  # cached versions

    def __init__(self, store: Store) -> None:
        self.store = store
        self._known: dict[int, Mapping[int, tuple[str, int]]] = {}

    def of(self, query: int, version: int) -> int:
        if version not in self._known:
            if len(self._known) >= self.MOST:
                self._known.clear()
            self._known[version] = RegistryLog(self.store).load(version).bits
        return self._known[version][query][1]

    def __reduce__(self) -> tuple[type[Bits], tuple[Store]]:
        return Bits, (self.store,)  # the cache is not sent along


def _declared(record: QueryRecord) -> tuple[object, ...]:
    into = record.into
    return (
        words(record.sql),
        record.on_error,
        record.retain,
        (into.format, masked(into.options)) if isinstance(into, Sink) else into,
        record.ordered,
        record.start,
        record.flush,
        record.emit,
    )


def _encode(registry: Registry) -> dict[str, Any]:
    """Literal secrets are not stored, whoever declares them."""
    streams = {name: replace(record, stream=record.stream.stored) for name, record in registry.streams.items()}
    queries = (replace(q, into=q.into.stored) if isinstance(q.into, Sink) else q for q in registry.queries)
    return plain(replace(registry, streams=streams, queries=tuple(queries)))


def _decode(body: dict[str, Any]) -> Registry:
    return exact(body, Registry)
