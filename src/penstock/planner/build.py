"""Compile standing queries to a network: tables for keys, bits for roles, indexes for predicates, chains for lives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from penstock.errors import RegistrationError
from penstock.model import IsNull, Not, Rows, Stream, Term, Tumbling
from penstock.model.expression import PSEUDO_ROLE
from penstock.planner.aggregate_tables import grouped_tables
from penstock.planner.computed import ComputedColumns
from penstock.planner.derived import DerivedStream
from penstock.planner.index import ColumnIndex, build_index
from penstock.planner.join import Join, KeyClass, Member
from penstock.planner.listed import as_mapped, computed_items, listed_items, watched_items
from penstock.planner.network import Network, StandingQuery
from penstock.planner.placed import Placed, check_supported, place
from penstock.planner.remap import remap_expression
from penstock.planner.state_table import Entry, StateTable, key_column, out_column
from penstock.planner.table_keys import TableKey
from penstock.planner.window_aggregate import TickColumn

MAX_CELLS = 256  # of one state table under push_down
STRATEGIES = ("state_slice", "push_down", "pull_up", "isolated")


def build_network(
    queries: Sequence[StandingQuery],
    streams: Mapping[str, Stream],
    version: int = 0,
    strategy: str = "state_slice",
    derived: Sequence[DerivedStream] = (),
    plan: str | None = None,
) -> Network:
    """Compile the queries. Pure: the same arguments give the same network. Every life is the end of a link.

    `derived` are the streams that are results of other queries. `plan` forces the plan of all window aggregates.
    """
    whole = {**streams, **{d.name: d.stream for d in derived}}
    ticks = {d.name: d.ticks.column for d in derived if d.ticks is not None}
    network = _Builder(whole, version, strategy, plan, ticks).build(queries)
    return replace(network, derived_streams=tuple(derived), plan=plan or "")


class _Builder:
    """Collects tables, joins and computed columns while queries are compiled one by one."""

    def __init__(
        self,
        streams: Mapping[str, Stream],
        version: int,
        strategy: str,
        plan: str | None,
        ticks: Mapping[str, TickColumn],
    ) -> None:
        self.streams, self.version, self.strategy, self.plan, self.ticks = streams, version, strategy, plan, ticks
        self.computed = ComputedColumns()

    def build(self, queries: Sequence[StandingQuery]) -> Network:
        known = sorted(queries, key=lambda q: q.id)
        placed = [place(q, self.streams, self.strategy) for q in known if q.query.aggregation is None]
        aggregated = [q for q in known if q.query.aggregation is not None]
        for standing in aggregated:
            check_supported(standing)
        keys: dict[str, TableKey] = {}
        for stream in self.streams:
            found = {t.name: t for plan in placed for own in plan.tables for t in own if t.stream == stream}
            if not found and not any(stream in role.streams for q in aggregated for role in q.query.roles):
                found = {stream: TableKey(stream, stream)}
            keys.update(found)
        number = {name: i for i, name in enumerate(keys)}
        groups: dict[str, list[Placed]] = {}
        for plan in placed:
            groups.setdefault(plan.name, []).append(plan)
        joins = tuple(self._join(i, name, number, plans) for i, (name, plans) in enumerate(sorted(groups.items())))
        tables = tuple(self._table(number[name], key, keys, joins, placed) for name, key in keys.items())
        grouped = list(
            grouped_tables(aggregated, self.streams, self.strategy, len(tables), self.computed, self.plan, self.ticks)
        )
        return Network(
            self.version, dict(self.streams), (*tables, *(table for own, _ in grouped for table in own)), joins,
            self.computed.all, tuple(queries),
            self.strategy, tuple(aggregate for _, aggregate in grouped),
        )  # fmt: skip

    def _join(self, index: int, name: str, number: Mapping[str, int], plans: Sequence[Placed]) -> Join:
        streams = [tables[0].stream for tables in plans[0].tables]
        members, wanted = [], [set[str]() for _ in streams]
        bits = {share: bit for bit, share in enumerate(dict.fromkeys(plan.standing.bits_of for plan in plans))}
        for plan in plans:
            position = {role: p for p, role in enumerate(plan.roles)} | {PSEUDO_ROLE: PSEUDO_ROLE}
            query = plan.query
            items = [remap_expression(item.expression, position) for item in query.items]
            residuals = tuple(remap_expression(r, position) for r in query.residuals)
            # Spark reads a result row from the result table, so the table must hold every column that Spark evaluates.
            for expression in (*items, *(r for r in residuals if r.term is None)):
                for ref in expression.refs:
                    if ref.role != PSEUDO_ROLE and not plan.mapped:
                        wanted[ref.role].add(ref.column)
            read = [ref for expression in (*items, *residuals) for ref in expression.refs]
            bounds = tuple(tuple(plan.bounds[i][j] for j in plan.roles) for i in plan.roles)
            listed = listed_items(plan.standing, items)
            if plan.mapped:
                listed = as_mapped(plan.standing, partial(self.computed.derive, streams[0]))
            members.append(
                Member(
                    plan.standing.id,
                    plan.standing.name,
                    bits[plan.standing.bits_of],
                    plan.roles,
                    bounds,
                    residuals,
                    computed_items(items, listed) if not plan.mapped else (),
                    plan.standing.on_error,
                    plan.standing.bits_of,
                    tuple(frozenset(ref.column for ref in read if ref.role == p) for p in range(len(streams))),
                    tuple((p, out_column(plan.standing.bits_of, p)) for p in plan.counted),
                    tuple((position[band.earlier], position[band.later]) for band in query.bands),
                    listed,
                )
            )
        columns = tuple(
            tuple(c.name for c in self.streams[stream].columns if c.name in wanted[p])
            for p, stream in enumerate(streams)
        )
        classes = tuple(KeyClass(tuple((p, number[table]) for p, table in c)) for c in plans[0].classes)
        homes = tuple(number[tables[0].name] for tables in plans[0].tables)
        return Join(index, name, homes, tuple(members), classes, columns, closes=plans[0].closes)

    def _table(
        self, index: int, key: TableKey, keys: Mapping[str, TableKey], joins: Sequence[Join], placed: Sequence[Placed]
    ) -> StateTable:
        stream = self.streams[key.stream]
        plans = {plan.standing.id: plan for plan in placed}
        guards = tuple(
            "" if total else self.computed.derive(key.stream, part, risky=True, term=term)
            for part, total, term in zip(key.key, key.total, key.terms, strict=True)
        )
        held = _Held(stream)
        for join in joins:
            for position, table in join.places:
                if table == index:
                    self._hold(held, join, position, key, self._linked(position, index, join, list(keys)), keys, plans)
        verify = self.computed.told_apart(key, stream)
        ordered = bool(key.key) or key.timed
        held.stored.update(verify)
        if ordered and stream.tiebreak is not None:
            held.stored.add(stream.tiebreak)
        built = StateTable(
            index,
            key.name,
            key.stream,
            key.key,
            key.types,
            guards,
            verify,
            tuple(held.entries),
            held.columns,
            held.indexes,
            stream.tiebreak if ordered else None,
            tuple(sorted({e.life for e in held.entries})),
            self.strategy == "push_down",
            key.timed,
            tuple(sorted(held.others.items())),
            stream.order if any(e.counting for e in held.entries) else (),
            hashed=self.computed.hashed(stream, key.key, key.types, key.terms, key.total),
            watched=frozenset(held.watched),
            mapped=key.mapped,
        )
        if built.by_cell:
            cells(built)  # refuses too many cells
        return built

    def _hold(
        self, held: _Held, join: Join, position: int, key: TableKey, linked: Mapping[str, str],
        keys: Mapping[str, TableKey], plans: Mapping[int, Placed],
    ) -> None:  # fmt: skip
        """Add what a table stores for one position of a join: an entry per share of its members, and their columns.

        `linked` are the columns with a row's keys in the position's other tables.
        """
        stream = held.stream
        # A key that cannot be computed joins nothing, and is an error of every query that joins on it.
        computable = tuple(
            self.computed.derive(
                key.stream, ("(", *part, ") IS NOT NULL"), risky=True, term=None if term is None else Not(IsNull(term))
            )
            for part, total, term in zip(key.key, key.total, key.terms, strict=True)
            if not total
        )
        apart = {column for table in linked.values() for column in self.computed.told_apart(keys[table], stream)}
        held.others |= linked
        held.stored.update(join.columns[position], apart - linked.keys())
        shares: dict[int, list[Member]] = {}
        for member in join.members:
            shares.setdefault(member.share, []).append(member)
        if key.mapped:
            held.stored.update(
                ref.column for m in join.members for item in m.listed for ref in item.refs if ref.role >= 0
            )
        for share, group in shares.items():
            plan, role = plans[group[0].id], group[0].roles[position]
            for residual in group[0].residuals:
                held.stored.update(r.column for r in residual.refs if r.role == position)
            terms, truths = self.computed.predicates(plan.query, role, stream)
            watched = watched_items(plan.standing, partial(self.computed.derive, key.stream)) if key.mapped else ()
            held.watched.update(watched)
            truths = tuple(dict.fromkeys((*truths, *computable, *watched)))
            needs = frozenset(linked.keys() | apart).union(*(m.reads[position] for m in group)) - {stream.event_time}
            lives = plan.lives(position)
            window = plan.query.roles[role].window
            held.add(
                Entry(
                    share, role, join.index, position, lives, truths, tuple(terms), needs,
                    tumbles=window if isinstance(window, Tumbling) else None,
                    counts=window if isinstance(window, Rows) else None,
                )
            )  # fmt: skip

    def _linked(self, position: int, index: int, join: Join, names: Sequence[str]) -> dict[str, str]:
        """The columns with a row's keys in the position's other tables."""
        return {key_column(names[t]): names[t] for p, t in join.places if p == position and t != index}


@dataclass
class _Held:
    """The contents of a state table, collected position by position.

    `others` = column -> the other table of the stream whose key it holds. `stored` are all columns that some query
    needs of its rows; `watched` are the computed predicates that only report whether something raised.
    """

    stream: Stream
    entries: list[Entry] = field(default_factory=list)
    others: dict[str, str] = field(default_factory=dict)
    stored: set[str] = field(default_factory=set)
    watched: set[str] = field(default_factory=set)

    def add(self, entry: Entry) -> None:
        self.entries.append(entry)
        if entry.counts is not None:
            # All rows count, before any predicate, and rows without a key too.
            needs = frozenset(self.stream.order[1:])
            self.entries.append(replace(entry, truths=(), terms=(), needs=needs, counting=True))
            self.stored |= needs

    @property
    def columns(self) -> tuple[str, ...]:
        declared = [c.name for c in self.stream.columns if c.name in self.stored and c.name != self.stream.event_time]
        return (*declared, *sorted(v for v in self.stored if not self.stream.column(v)), *sorted(self.others))

    @property
    def indexes(self) -> tuple[ColumnIndex, ...]:
        found: dict[str, list[tuple[int, Term]]] = {}
        for number, entry in enumerate(self.entries):
            for column, term in entry.terms:
                found.setdefault(column, []).append((number, term))
        return tuple(build_index(column, pairs, len(self.entries)) for column, pairs in sorted(found.items()))


def cells(table: StateTable) -> tuple[int, ...]:
    """The satisfiable combinations of a table's predicates, as masks of the entries they serve; refuses too many.

    A predicate that is NULL counts as false.
    """
    found = {(1 << len(table.entries)) - 1}
    for index in table.indexes:
        found = {mask & own for mask in found for own in set(index.masks)}
        _check_cells(table, len(found))
    for _, entries in table.truths:
        without = ~sum(1 << e for e in entries)
        found |= {mask & without for mask in found}
        _check_cells(table, len(found))
    return tuple(sorted(found - {0}))


def _check_cells(table: StateTable, count: int) -> None:
    if count > MAX_CELLS:
        msg = (
            f"push_down would split state table {table.name} into more than {MAX_CELLS} cells: the queries "
            "have too many different "
            "predicates for it; use strategy 'state_slice'"
        )
        raise RegistrationError(msg)
