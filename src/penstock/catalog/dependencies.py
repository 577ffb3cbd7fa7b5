"""Which queries read the results of which others, and what follows from it when queries come, change and go."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from penstock.catalog.compiled import CompiledQuery, compile_query, stream_name
from penstock.errors import RegistrationError
from penstock.model import Query
from penstock.model.time import FOREVER, NEVER
from penstock.planner.derived import DerivedStream, base_streams, derived_stream
from penstock.sql import results_of
from penstock.state.manifest import Manifest
from penstock.state.registry import QueryRecord, Reading, Registry

if TYPE_CHECKING:
    from penstock.catalog.catalog import Catalog


def readable(catalog: Catalog, name: str, sql: str) -> dict[str, Reading]:
    """The queries that this text may mean whose results a query of that name may read: those that do not read its own, over whatever others."""
    meant = [q for q in catalog.registry.shown() if q.name.lower() in sql.lower()]
    above = {name} if meant else set()
    while more := {reader for read in above for reader in readers_of(catalog.registry, read)} - above:
        above |= more
    return {q.name: _reading(catalog, q) for q in meant if q.name not in above}


def readers_of(registry: Registry, name: str) -> list[str]:
    """The live queries that read the results of the query of that name."""
    return [q.owner or q.name for q in registry.live() if q.name != name and any(r.query == name for r in q.reads)]


def check_unread(registry: Registry, name: str) -> None:
    """Refuse to drop a query that others read."""
    readers = readers_of(registry, name)
    if readers:
        raise RegistrationError(f"query {readers[0]!r} reads the results of query {name!r}; drop that one first")


def check_replaced(catalog: Catalog, known: QueryRecord, record: QueryRecord) -> None:
    """Who reads a query must find the same columns, and times that come no later, in the one that takes its place."""
    readers = readers_of(catalog.registry, known.name)
    if not readers:
        return
    old, new = catalog.whole(known).whole, compile_query(record, catalog.known_streams, catalog.own).whole
    same = (known.item_names, known.item_types) == (record.item_names, record.item_types)
    if not same or _timing(old) != _timing(new) or record.start == "state":
        msg = (
            f"query {readers[0]!r} reads the results of query {known.name!r}, so that it can be replaced only by one with the same columns over "
            "the same streams and windows; drop the reader first, or choose another name"
        )
        raise RegistrationError(msg)


def derived_of(catalog: Catalog, record: QueryRecord, parsed: CompiledQuery) -> list[DerivedStream]:
    """The derived streams that a query reads."""
    if parsed.apart is not None:
        apart, below = parsed.apart, record.reads[-1].id
        return [DerivedStream(apart.stream, below, apart.join, None, apart.ticks, joined=True)]
    found = []
    for reading in record.reads:
        source = catalog.live(reading.query)
        own = [s for s in parsed.derived.values() if s.name == stream_name(reading, s.event_time)]
        found += [derived_stream(stream, source.id, catalog.whole(source).whole) for stream in own]
    return found


def seen_from(
    catalog: Catalog, manifest: Manifest, newest: Mapping[str, int], begins: Collection[int]
) -> dict[str, int]:
    """Derived stream -> the time from which on those that begin now see all its rows.

    Of a query that begins with them they see all results, but the join below an aggregate has not seen the rows that came before it.
    """
    streams = catalog.derived_streams()
    lags = {p.apart.stream.name: p.apart.lag for q in catalog.registry.live() if (p := catalog.whole(q)).apart}
    found: dict[str, int] = {}
    for name, derived in streams.items():
        below = base_streams(derived, streams)
        if derived.joined:
            known = [newest[stream] for stream in below if stream in newest]
            if known:
                found[name] = max(known) + lags[name]
        elif derived.query not in begins:
            past = [p for stream, p in manifest.progress.items() if stream in below]
            found[name] = 1 + max((max(p.newest, p.value if p.value < FOREVER else NEVER) for p in past), default=NEVER)
    return found


def _reading(catalog: Catalog, record: QueryRecord) -> Reading:
    columns = tuple(zip(record.item_names, record.item_types, strict=True))
    results = results_of(catalog.parsed(record), catalog.streams_of(record))
    return Reading(record.name, catalog.lineage(record)[0].id, columns, results.times, results.usual)


def _timing(query: Query) -> tuple[object, ...]:
    """What the progress of a query's results depends on."""
    window = None if query.aggregation is None else query.aggregation.window
    return tuple((role.stream, role.union, role.window) for role in query.roles), query.bands, window
