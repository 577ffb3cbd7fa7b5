"""What is checked of a new query before it is registered, and what its record says then: names, types, what it reads.

Nothing is registered here, and nothing waits for a step: a query is prepared beside the step that runs.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.catalog.compiled import CompiledQuery, compile_query, join_name, results
from penstock.catalog.dependencies import derived_of, readable
from penstock.errors import RegistrationError
from penstock.model import Aggregation, Query, Rows, Sink, Stream, Window
from penstock.planner.build import build_network, check_supported
from penstock.planner.meaning import settled
from penstock.planner.network import StandingQuery
from penstock.spark.analysis import Facts, analyze
from penstock.sql import parse_query, placed_bounds
from penstock.sql.position import Position, Text
from penstock.sql.unions import differing
from penstock.state.registry import QueryRecord, Reading
from penstock.storage.place import local_path

if TYPE_CHECKING:
    from penstock.catalog.catalog import Catalog

Into = str | Path | Sink | Callable[[pa.Table, int], None]
CALLABLE = "<callable>"


def prepare(
    catalog: Catalog,
    record: QueryRecord,
    target: Into | None,
    *,
    script: str | None = None,
    line: int = 1,
    column: int = 1,
) -> QueryRecord:
    """Check a new query and complete its record; nothing is registered yet."""
    _check_words(catalog, record)
    known = readable(catalog, record.name, record.sql)
    whole = parse_query(
        record.sql, catalog.streams, script=script, line=line, column=column, queries=results(known), own=catalog.own
    )
    place = Text(record.sql, script, Position(line, column))
    with placed_bounds(place, whole, catalog.streams):
        return _prepared(catalog, record, target, place, whole, known)


def _prepared(
    catalog: Catalog,
    record: QueryRecord,
    target: Into | None,
    place: Text,
    whole: Query,
    known: Mapping[str, Reading],
) -> QueryRecord:
    """The same for a query that is parsed: `whole`, over the queries `known` too."""
    name = record.name
    names = dict.fromkeys(name for role in whole.roles for name in role.streams)
    reads = tuple(known[n] for n in names if n not in catalog.streams)
    record = replace(record, reads=reads)
    parsed = compile_query(record, catalog.known_streams, catalog.own, whole)
    query, streams = parsed.query, {**catalog.streams, **parsed.derived}
    below: tuple[tuple[str, ...], ...] = ()
    if parsed.apart is not None:
        join = parsed.apart.join
        below = _check_join(catalog, record, parsed.combinations, {**catalog.streams, **parsed.below}, place)
        types = {c.name: c.type for c in parsed.apart.stream.columns}
        columns = tuple((str(item.name), types[str(item.name)]) for item in join.items)
        record = replace(record, reads=(*reads, Reading(join_name(name), 0, columns)))
    _check_derived(catalog, record, parsed)
    check_supported(StandingQuery(1, name, query, flush=record.flush))
    if record.flush is not None and (query.aggregation is None or min(record.flush) < 0 or record.flush[0] < 1):
        msg = f"query {name!r}: flush= is the number of results that a step of an aggregate may give, at least 1, and behind= at least 0"
        raise RegistrationError(msg)
    if record.on_error == "stop" and query.aggregation is not None:
        _check_computed_late(name, query, query.aggregation)
    checked = (query,) if parsed.apart is not None else parsed.combinations
    facts = _facts(catalog, name, checked, streams, place)
    into = _sink(name, target)
    ordered = record.ordered or query.ordered
    _check_sink(name, query, facts, into, ordered=ordered)
    if record.start == "state":
        _check_begins_from_state(record, query)
    standing = [
        StandingQuery(n, name, one, record.on_error, facts.key_types, types=facts.aggregated, own=catalog.own)
        for n, one in enumerate(checked)
    ]
    build_network(standing, streams, plan=catalog.choices.paned)
    joined = query if parsed.apart is None else parsed.apart.join
    for role in joined.roles:
        if len(joined.roles) > 1 and role.window == Window(None):
            text = f"query {name!r} keeps every row of {role.alias!r} for ever ([RANGE ALL]): its state only grows"
            warnings.warn(text, stacklevel=5)  # at the line that declares the query
    used = set() if query.aggregation is None else {a.function for a in query.aggregation.aggregates}
    return replace(
        record,
        into=into,
        ordered=ordered,
        item_names=facts.names,
        item_types=facts.types,
        key_types=facts.key_types or below,
        types=facts.aggregated,
        uses=tuple(sorted(catalog.own.keys() & used)),
    )


def standing_alone(catalog: Catalog, record: QueryRecord) -> tuple[list[StandingQuery], dict[str, Stream]]:
    """A query that is not registered, checked, as what would answer it, and the streams that this would read."""
    record = prepare(catalog, record, None)
    parsed = compile_query(record, catalog.streams, catalog.own)
    queries = parsed.combinations if parsed.apart is None else (*parsed.combinations, parsed.query)
    found = [
        StandingQuery(
            number,
            record.name,
            settled(query, catalog.settings),
            record.on_error,
            record.key_types,
            types=record.types[:2],
            own=catalog.own,
        )
        for number, query in enumerate(queries, start=1)
    ]
    return found, {**catalog.streams, **parsed.derived, **parsed.below}


def _check_words(catalog: Catalog, record: QueryRecord) -> None:
    name = record.name
    if not name:
        raise RegistrationError("a query needs a name; choose one that is not empty")
    if name in catalog.streams:
        msg = f"query {name!r} has the name of a stream, so that nobody could read its results by name; choose another name"
        raise RegistrationError(msg)
    if name.startswith("_"):
        raise RegistrationError(f"query {name!r}: names that begin with _ are reserved; choose another name")
    if record.on_error not in ("skip", "stop"):
        raise RegistrationError(f"query {name!r}: on_error must be 'skip' or 'stop', not {record.on_error!r}")
    if record.start not in ("now", "state"):
        raise RegistrationError(f"query {name!r}: start must be 'now' or 'state', not {record.start!r}")


def _check_join(
    catalog: Catalog, record: QueryRecord, queries: Sequence[Query], streams: Mapping[str, Stream], place: Text
) -> tuple[tuple[str, ...], ...]:
    """Check the join below an aggregate; the types of its keys."""
    facts = _facts(catalog, record.name, queries, streams, place)
    standing = [StandingQuery(n, record.name, one, record.on_error, facts.key_types) for n, one in enumerate(queries)]
    build_network(standing, streams)
    return facts.key_types


def _facts(catalog: Catalog, name: str, queries: Sequence[Query], streams: Mapping[str, Stream], place: Text) -> Facts:
    """What Spark says of a query; all combinations of the streams of its unions must be of the same types."""
    found = [analyze(catalog.spark, name, query, streams, catalog.own) for query in queries]
    types = list(found[0].types)
    for facts, query in zip(found[1:], queries[1:], strict=True):
        for number, (kind, other) in enumerate(zip(types, facts.types, strict=True)):
            if kind != other and "void" not in (kind, other):
                raise differing(place, found[0].names[number], kind, other, [role.stream for role in query.roles])
            types[number] = other if kind == "void" else kind
        if facts.key_types != found[0].key_types:
            one, other = (", ".join(k for key in f.key_types for k in key) for f in (found[0], facts))
            raise differing(place, "the join key", one, other, [role.stream for role in query.roles])
    return replace(found[0], types=tuple(types))


def _check_derived(catalog: Catalog, record: QueryRecord, parsed: CompiledQuery) -> None:
    """Refuse to read results whose time has no progress, or that are shown more than once."""
    for derived in derived_of(catalog, record, parsed):
        _ = derived.bounds  # refuses a time without progress
        if derived.definition.aggregation is not None and derived.definition.aggregation.emit is not None:
            read = next(q.name for q in catalog.registry.queries if q.id == derived.query)
            msg = f"query {record.name!r} cannot read query {read!r}, which shows windows more than once (EMIT EARLY); read one without it"
            raise RegistrationError(msg)


def _sink(name: str, target: Into | None) -> Sink | str | None:
    """The sink as it is registered; a folder that is not on this machine is for Spark's own writer."""
    if callable(target):
        return CALLABLE
    if isinstance(target, Sink):
        return target.stored
    if target is None:
        return None
    if not isinstance(target, str | Path):
        raise RegistrationError(f"query {name!r}: into= is a path, a function or a Sink, and not {target!r}")
    remedy = "let Spark write it: into=Sink('parquet', path=..), in SQL INTO parquet OPTIONS (path '..')"
    return str(target) if target == CALLABLE else local_path(target, f"query {name!r}: into=", remedy)


def _check_sink(name: str, query: Query, facts: Facts, into: Sink | str | None, *, ordered: bool) -> None:
    """Refuse names and orders that the sink, or the results themselves, cannot keep."""
    if into is not None and len(set(facts.names)) < len(facts.names):
        twice = next(n for n in facts.names if facts.names.count(n) > 1)
        msg = f"query {name!r} has two columns named {twice!r}; a sink needs distinct names: use AS"
        raise RegistrationError(msg)
    if ordered and isinstance(into, Sink):
        msg = f"query {name!r} is ordered, and a {into.format} sink keeps no order; deliver it to a path or a function"
        raise RegistrationError(msg)
    if ordered and query.aggregation is not None and query.aggregation.emit is not None:
        msg = (
            f"query {name!r} is ordered, and EMIT EARLY shows windows before their time has come; leave out one of both"
        )
        raise RegistrationError(msg)


def _check_computed_late(name: str, query: Query, aggregation: Aggregation) -> None:
    """Refuse ON ERROR STOP for what is computed of aggregates when results are read: no step would see it raise."""
    keys = [] if aggregation.top is None else [key.expression for key in aggregation.top.keys]
    clauses = (
        ("SELECT", [item.expression for item in query.items]),
        ("HAVING", [] if aggregation.having is None else [aggregation.having]),
        ("ORDER BY", keys),
    )
    for clause, expressions in clauses:
        if not all(e.total for e in expressions):
            msg = (
                f"query {name!r}: what {clause} computes of aggregates may raise, and it is computed when results are read, where no step could "
                "suspend the query; write it so that it cannot raise (try_divide, nullif), or leave out ON ERROR STOP"
            )
            raise RegistrationError(msg)


def _check_begins_from_state(record: QueryRecord, query: Query) -> None:
    """Refuse to begin from the state where it does not hold all that the query would have seen."""
    counted = next((role for role in query.roles if isinstance(role.window, Rows)), None)
    if query.aggregation is not None:
        cause, those = "what is held for other aggregates is put together for their windows", "the rows to come"
    elif record.reads:
        cause, those = "of the results of other queries only those to come are read", "them"
    elif counted is not None:
        cause, those = f"of the rows that [ROWS ..] on {counted.alias!r} counts only some are held", "the rows to come"
    else:
        return
    msg = f"query {record.name!r} cannot begin from the state: {cause}; let it begin with {those} (FROM NOW)"
    raise RegistrationError(msg)
