"""Checks a new query before its registration, and completes its record: names, types, dependencies.

Nothing is registered here, and nothing waits for a step: a query is prepared beside the running step.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace

from penstock.catalog.analysis import Facts, analyze
from penstock.catalog.check_sink import Into, check_sink, sink_of
from penstock.catalog.compiled import CompiledQuery, ParsedSelect, compile_query, join_name, meant, results, with_emit
from penstock.catalog.declarations import Declarations
from penstock.catalog.dependencies import derived_of, readable
from penstock.errors import RegistrationError
from penstock.model import Aggregation, Query, Rows, Stream, Window
from penstock.planner.build import build_network
from penstock.planner.meaning import settled
from penstock.planner.network import StandingQuery
from penstock.planner.placed import check_supported
from penstock.sql import parse_query, placed_bounds
from penstock.sql.position import Position, Text
from penstock.sql.unions import differing
from penstock.state.registry import QueryRecord, Reading


def prepare(
    declared: Declarations,
    record: QueryRecord,
    target: Into | None,
    *,
    script: str | None = None,
    line: int = 1,
    column: int = 1,
    parsed: ParsedSelect | None = None,
) -> tuple[QueryRecord, CompiledQuery]:
    """Check a new query, complete its record, and compile it, without registering it. It may be `parsed` already."""
    _check_words(declared, record)
    known = readable(declared, record.name, record.sql)
    streams, queries = declared.streams, results(known)
    if parsed is not None and not declared.own and parsed.over == meant(parsed.query, streams, queries):
        whole = parsed.query
    else:
        whole = parse_query(
            record.sql, streams, script=script, line=line, column=column, queries=queries, own=declared.own
        )
    whole = with_emit(record, whole)
    place = Text(record.sql, script, Position(line, column))
    with placed_bounds(place, whole, streams):
        return _prepared(declared, record, target, place, whole, known)


def _prepared(
    declared: Declarations,
    record: QueryRecord,
    target: Into | None,
    place: Text,
    whole: Query,
    known: Mapping[str, Reading],
) -> tuple[QueryRecord, CompiledQuery]:
    """The same for a parsed query `whole`, over the queries `known` too."""
    name = record.name
    names = dict.fromkeys(name for role in whole.roles for name in role.streams)
    reads = tuple(known[n] for n in names if n not in declared.streams)
    record = replace(record, reads=reads)
    parsed = compile_query(record, declared.known_streams, declared.own, whole)
    query, streams = parsed.query, {**declared.streams, **parsed.derived}
    below: tuple[tuple[str, ...], ...] = ()
    if parsed.apart is not None:
        join = parsed.apart.join
        below = _check_join(declared, record, parsed.combinations, {**declared.streams, **parsed.below}, place)
        types = {c.name: c.type for c in parsed.apart.stream.columns}
        columns = tuple((str(item.name), types[str(item.name)]) for item in join.items)
        record = replace(record, reads=(*reads, Reading(join_name(name), 0, columns)))
    _check_derived(declared, record, parsed)
    check_supported(StandingQuery(1, name, query, flush=record.flush))
    if record.flush is not None and (query.aggregation is None or min(record.flush) < 0 or record.flush[0] < 1):
        msg = (
            f"query {name!r}: flush= is the number of results that a step of an aggregate may give, at least 1, "
            "and behind= at least 0"
        )
        raise RegistrationError(msg)
    if record.on_error == "stop" and query.aggregation is not None:
        _check_computed_late(name, query, query.aggregation)
    checked = (query,) if parsed.apart is not None else parsed.combinations
    facts = _facts(declared, name, checked, streams, place)
    into = sink_of(name, target)
    ordered = record.ordered or query.ordered
    check_sink(name, query, facts, into, ordered=ordered)
    if record.start == "state":
        _check_begins_from_state(record, query)
    standing = [
        StandingQuery(n, name, one, record.on_error, facts.key_types, types=facts.aggregated, own=declared.own)
        for n, one in enumerate(checked)
    ]
    build_network(standing, streams, plan=declared.choices.aggregate_plan)
    joined = query if parsed.apart is None else parsed.apart.join
    for role in joined.roles:
        if len(joined.roles) > 1 and role.window == Window(None):
            text = f"query {name!r} keeps every row of {role.alias!r} for ever ([RANGE ALL]): its state only grows"
            warnings.warn(text, stacklevel=5)  # at the line that declares the query
    used = set() if query.aggregation is None else {a.function for a in query.aggregation.aggregates}
    record = replace(
        record,
        into=into,
        ordered=ordered,
        item_names=facts.names,
        item_types=facts.types,
        key_types=facts.key_types or below,
        types=facts.aggregated,
        uses=tuple(sorted(declared.own.keys() & used)),
    )
    return record, parsed


def standing_alone(declared: Declarations, record: QueryRecord) -> tuple[list[StandingQuery], dict[str, Stream]]:
    """An unregistered query, checked, as the queries that would answer it, and the streams that these would read."""
    record, parsed = prepare(declared, record, None)
    queries = parsed.combinations if parsed.apart is None else (*parsed.combinations, parsed.query)
    found = [
        StandingQuery(
            number,
            record.name,
            settled(query, declared.settings),
            record.on_error,
            record.key_types,
            types=record.types[:2],
            own=declared.own,
        )
        for number, query in enumerate(queries, start=1)
    ]
    return found, {**declared.streams, **parsed.derived, **parsed.below}


def _check_words(declared: Declarations, record: QueryRecord) -> None:
    name = record.name
    if not name:
        raise RegistrationError("a query needs a name; choose one that is not empty")
    if name in declared.streams:
        msg = (
            f"query {name!r} has the name of a stream, so that nobody could read its results by name; choose "
            "another name"
        )
        raise RegistrationError(msg)
    if name.startswith("_"):
        raise RegistrationError(f"query {name!r}: names that begin with _ are reserved; choose another name")
    if record.on_error not in ("skip", "stop"):
        raise RegistrationError(f"query {name!r}: on_error must be 'skip' or 'stop', not {record.on_error!r}")
    if record.start not in ("now", "state"):
        raise RegistrationError(f"query {name!r}: start must be 'now' or 'state', not {record.start!r}")


def _check_join(
    declared: Declarations, record: QueryRecord, queries: Sequence[Query], streams: Mapping[str, Stream], place: Text
) -> tuple[tuple[str, ...], ...]:
    """Check the join below an aggregate; the types of its keys."""
    facts = _facts(declared, record.name, queries, streams, place)
    standing = [StandingQuery(n, record.name, one, record.on_error, facts.key_types) for n, one in enumerate(queries)]
    build_network(standing, streams)
    return facts.key_types


def _facts(
    declared: Declarations, name: str, queries: Sequence[Query], streams: Mapping[str, Stream], place: Text
) -> Facts:
    """Names and types of a query's expressions; all combinations of the streams of its unions must have equal types."""
    found = [analyze(declared.analysis, name, query, streams, declared.own) for query in queries]
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


def _check_derived(declared: Declarations, record: QueryRecord, parsed: CompiledQuery) -> None:
    """Refuse to read results whose time has no progress, or that are shown more than once."""
    for derived in derived_of(declared, record, parsed):
        _ = derived.bounds  # refuses a time without progress
        if derived.definition.aggregation is not None and derived.definition.aggregation.emit is not None:
            read = next(q.name for q in declared.registry.queries if q.id == derived.query)
            msg = (
                f"query {record.name!r} cannot read query {read!r}, which shows windows more than once (EMIT "
                "EARLY); read one without it"
            )
            raise RegistrationError(msg)


def _check_computed_late(name: str, query: Query, aggregation: Aggregation) -> None:
    """Refuse ON ERROR STOP for what is computed from aggregates on read: no step would see it raise."""
    keys = [] if aggregation.top is None else [key.expression for key in aggregation.top.keys]
    clauses = (
        ("SELECT", [item.expression for item in query.items]),
        ("HAVING", [] if aggregation.having is None else [aggregation.having]),
        ("ORDER BY", keys),
    )
    for clause, expressions in clauses:
        if not all(e.total for e in expressions):
            msg = (
                f"query {name!r}: what {clause} computes of aggregates may raise, and it is computed when "
                "results are read, where no step could "
                "suspend the query; write it so that it cannot raise (try_divide, nullif), or leave out ON ERROR STOP"
            )
            raise RegistrationError(msg)


def _check_begins_from_state(record: QueryRecord, query: Query) -> None:
    """Refuse to begin from state if it does not have all rows that the query would have seen."""
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
