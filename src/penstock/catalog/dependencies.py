"""Which queries read the results of which others, and the consequences for added, changed and dropped queries."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from penstock.catalog.compiled import CompiledQuery, stream_name
from penstock.catalog.declarations import Declarations
from penstock.errors import RegistrationError
from penstock.model import Query
from penstock.model.time import FOREVER, NEVER
from penstock.planner.derived import DerivedStream, base_streams, derived_stream
from penstock.sql import results_of
from penstock.state.manifest import Manifest
from penstock.state.registry import QueryRecord, Reading


def readable(declared: Declarations, name: str, sql: str) -> dict[str, Reading]:
    """The queries that a text may read under that name: those that do not read its results themselves."""
    index = declared.index
    meant = list(index.named_in(sql))
    above = {name} if meant else set()
    while more := {reader for read in above for reader in index.readers.get(read, ())} - above:
        above |= more
    return {called: _reading(declared, index.live[called]) for called in meant if called not in above}


def check_unread(declared: Declarations, name: str) -> None:
    """Refuse to drop a query that others read."""
    readers = declared.index.readers.get(name)
    if readers:
        raise RegistrationError(f"query {readers[0]!r} reads the results of query {name!r}; drop that one first")


def check_replaced(declared: Declarations, known: QueryRecord, record: QueryRecord, compiled: CompiledQuery) -> None:
    """A replacement must have the columns that its readers use, and times that are no later."""
    readers = declared.index.readers.get(known.name)
    if not readers:
        return
    old, new = declared.compiled(known).whole, compiled.whole
    same = (known.item_names, known.item_types) == (record.item_names, record.item_types)
    if not same or _timing(old) != _timing(new) or record.start == "state":
        msg = (
            f"query {readers[0]!r} reads the results of query {known.name!r}, so that it can be replaced "
            "only by one with the same columns over "
            "the same streams and windows; drop the reader first, or choose another name"
        )
        raise RegistrationError(msg)


def derived_streams(declared: Declarations) -> dict[str, DerivedStream]:
    """The derived streams that live queries read."""
    live = declared.registry.live()
    return {d.name: d for record in live for d in derived_of(declared, record, declared.compiled(record))}


def derived_of(declared: Declarations, record: QueryRecord, compiled: CompiledQuery) -> list[DerivedStream]:
    """The derived streams that a query reads."""
    if compiled.apart is not None:
        apart, below = compiled.apart, record.reads[-1].id
        return [DerivedStream(apart.stream, below, apart.join, None, apart.ticks, joined=True)]
    found = []
    for reading in record.reads:
        source = declared.live(reading.query)
        own = [s for s in compiled.derived.values() if s.name == stream_name(reading, s.event_time)]
        found += [derived_stream(stream, source.id, declared.compiled(source).whole) for stream in own]
    return found


def seen_from(
    declared: Declarations, manifest: Manifest, newest: Mapping[str, int], begins: Collection[int]
) -> dict[str, int]:
    """Derived stream -> the time from which queries that begin now see all its rows.

    They see all results of a query that begins with them, but the join below an aggregate has not seen earlier rows.
    """
    streams = derived_streams(declared)
    lags = {p.apart.stream.name: p.apart.lag for p in map(declared.compiled, declared.registry.live()) if p.apart}
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


def _reading(declared: Declarations, record: QueryRecord) -> Reading:
    columns = tuple(zip(record.item_names, record.item_types, strict=True))
    results = results_of(declared.compiled(record).query, declared.streams_of(record))
    numbers, first = declared.index.numbers, record
    while first.replaces in numbers:
        first = numbers[first.replaces]
    return Reading(record.name, first.id, columns, results.times, results.usual)


def _timing(query: Query) -> tuple[object, ...]:
    """What the progress of a query's results depends on."""
    window = None if query.aggregation is None else query.aggregation.window
    return tuple((role.stream, role.union, role.window) for role in query.roles), query.bands, window
