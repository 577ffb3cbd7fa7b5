"""Compile standing queries to a network: tables for keys, bits for roles, indexes for predicates, chains for lives."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise

from penstock.columns.terms.raising import is_decided_in_order
from penstock.errors import RegistrationError
from penstock.model import And, Expression, IsNull, Literal, Not, Query, Ref, Rows, Stream, Term, Tumbling
from penstock.model.expression import PSEUDO_ROLE
from penstock.model.time import FOREVER, NEVER
from penstock.planner.aggregate_tables import check_aggregated, grouped_tables
from penstock.planner.bounds import Bounds, check_bounded, time_bounds
from penstock.planner.derived import DerivedStream
from penstock.planner.index import INDEXED_TYPES, ColumnIndex, build_index, indexable
from penstock.planner.join import Join, KeyClass, Member
from penstock.planner.keys import INTEGRAL, bare_columns, common_type
from penstock.planner.listed import as_mapped, computed_items, is_mapped, listed_items, watched_items
from penstock.planner.network import Network, StandingQuery
from penstock.planner.reached import Clock, Closing
from penstock.planner.remap import remap_expression
from penstock.planner.state_table import ComputedColumn, Entry, StateTable, key_column, out_column
from penstock.planner.table_keys import KeyPart, TableKey, equation, table_key, tumble, within_another
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
        self.derived: dict[tuple[str, tuple[str | Ref, ...]], ComputedColumn] = {}

    def build(self, queries: Sequence[StandingQuery]) -> Network:
        known = sorted(queries, key=lambda q: q.id)
        laid = [self._lay_out(q) for q in known if q.query.aggregation is None]
        aggregated = [q for q in known if q.query.aggregation is not None]
        for standing in aggregated:
            check_supported(standing)
        keys: dict[str, TableKey] = {}
        for stream in self.streams:
            found = {t.name: t for plan in laid for own in plan.tables for t in own if t.stream == stream}
            if not found and not any(stream in role.streams for q in aggregated for role in q.query.roles):
                found = {stream: TableKey(stream, stream)}
            keys.update(found)
        number = {name: i for i, name in enumerate(keys)}
        groups: dict[str, list[_Laid]] = {}
        for plan in laid:
            groups.setdefault(plan.name, []).append(plan)
        joins = tuple(self._join(i, name, number, plans) for i, (name, plans) in enumerate(sorted(groups.items())))
        tables = tuple(self._table(number[name], key, keys, joins, laid) for name, key in keys.items())
        grouped = list(
            grouped_tables(aggregated, self.streams, self.strategy, len(tables), self, self.plan, self.ticks)
        )
        derived = tuple(self.derived.values())
        return Network(
            self.version, dict(self.streams), (*tables, *(table for own, _ in grouped for table in own)), joins,
            derived, tuple(queries),
            self.strategy, tuple(aggregate for _, aggregate in grouped),
        )  # fmt: skip

    def _lay_out(self, standing: StandingQuery) -> _Laid:
        """Choose the key classes, the state tables of each role, and the order of positions (by table names)."""
        check_supported(standing)
        classes, implied = self._key_classes(standing)
        query = replace(standing.query, residuals=(*standing.query.residuals, *implied))
        if self.strategy == "pull_up":
            query = pulled_up(query)
        bounds = time_bounds(query)
        check_bounded(query, bounds)
        own = f" of query {standing.bits_of}" if self.strategy == "isolated" else ""
        tables: list[list[TableKey]] = [[] for _ in query.roles]
        for key_class in classes:
            for i, key in key_class.items():
                tables[i].append(replace(key, name=key.name + own))
        for i, role in enumerate(query.roles):
            if not tables[i]:
                timed = len(query.roles) > 1 or isinstance(role.window, Rows)
                mapped = is_mapped(standing)
                called = role.stream + ("()" if timed else " for folders" if mapped else "") + own
                tables[i].append(TableKey(called, role.stream, timed=timed, mapped=mapped))
                standing = replace(standing, share=None) if mapped else standing
        roles = tuple(sorted(range(len(tables)), key=lambda i: ([t.name for t in tables[i]], i)))
        place = {role: p for p, role in enumerate(roles)}
        named = [tuple(sorted((place[i], key.name + own) for i, key in c.items())) for c in classes]
        return _Laid(standing, query, bounds, roles, tuple(tuple(tables[i]) for i in roles), tuple(sorted(named)))

    def _key_classes(self, standing: StandingQuery) -> tuple[list[dict[int, TableKey]], list[Expression]]:
        """The key classes as role -> key, and equalities that are conditions: another class has their roles too."""
        query = standing.query
        groups: dict[tuple[int, ...], list[KeyPart]] = {}
        for number, part in enumerate(query.keys):
            declared = standing.key_types[number] if standing.key_types else _declared(query, part, self.streams)
            ends = {i: (e, declared[i]) for i, e in enumerate(part) if e is not None}
            common = common_type([kind for _, kind in ends.values()])
            if common is None:
                sides = ", ".join(f"{query.roles[i].alias}: {kind}" for i, (_, kind) in ends.items())
                msg = f"the join key of query {standing.name!r} has types that do not compare ({sides}); CAST one side"
                raise RegistrationError(msg)
            groups.setdefault(tuple(ends), []).append(KeyPart(ends, common))
        if isinstance(query.roles[0].window, Tumbling) and len(query.roles) > 1:
            tumble(groups, range(len(query.roles)), query.roles[0].window)
        classes, implied = [], []
        for roles, parts in groups.items():
            if within_another(roles, groups):
                implied += [equation(part, one, other) for part in parts for one, other in pairwise(roles)]
                continue
            # The order of conditions in WHERE does not matter: queries with the same key must get the same tables.
            parts.sort(key=lambda part: part.text(query))
            classes.append({i: table_key(query.roles[i].stream, i, parts) for i in roles})
        return classes, implied

    def _join(self, index: int, name: str, number: Mapping[str, int], plans: Sequence[_Laid]) -> Join:
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
                listed = as_mapped(plan.standing, partial(self.derive, streams[0]))
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
        self, index: int, key: TableKey, keys: Mapping[str, TableKey], joins: Sequence[Join], laid: Sequence[_Laid]
    ) -> StateTable:
        stream = self.streams[key.stream]
        plans = {plan.standing.id: plan for plan in laid}
        guards = tuple(
            "" if total else self.derive(key.stream, part, risky=True, term=term)
            for part, total, term in zip(key.key, key.total, key.terms, strict=True)
        )
        held = _Held(stream)
        for join in joins:
            for position, table in join.places:
                if table == index:
                    self._hold(held, join, position, key, self._linked(position, index, join, list(keys)), keys, plans)
        verify = self._told_apart(key, stream)
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
            hashed=self.hashed(stream, key.key, key.types, key.terms, key.total),
            watched=frozenset(held.watched),
            mapped=key.mapped,
        )
        if built.by_cell:
            cells(built)  # refuses too many cells
        return built

    def _hold(
        self, held: _Held, join: Join, position: int, key: TableKey, linked: Mapping[str, str],
        keys: Mapping[str, TableKey], plans: Mapping[int, _Laid],
    ) -> None:  # fmt: skip
        """Add what a table stores for one position of a join: an entry per share of its members, and their columns.

        `linked` are the columns with a row's keys in the position's other tables.
        """
        stream = held.stream
        # A key that cannot be computed joins nothing, and is an error of every query that joins on it.
        computable = tuple(
            self.derive(
                key.stream, ("(", *part, ") IS NOT NULL"), risky=True, term=None if term is None else Not(IsNull(term))
            )
            for part, total, term in zip(key.key, key.total, key.terms, strict=True)
            if not total
        )
        apart = {column for table in linked.values() for column in self._told_apart(keys[table], stream)}
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
            terms, truths = self.predicates(plan.query, role, stream)
            watched = watched_items(plan.standing, partial(self.derive, key.stream)) if key.mapped else ()
            held.watched.update(watched)
            truths = tuple(dict.fromkeys((*truths, *computable, *watched)))
            needs = frozenset(linked.keys() | apart).union(*(m.reads[position] for m in group)) - {stream.event_time}
            lives = _lives(plan, position)
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

    def _told_apart(self, key: TableKey, stream: Stream) -> tuple[str, ...]:
        """The columns that distinguish keys of the same hash; none if the hash is one-to-one."""
        exact = len(key.types) == 1 and key.types[0] in INTEGRAL
        return () if exact else self._verify(key, stream)

    def predicates(self, query: Query, role: int, stream: Stream) -> tuple[list[tuple[str, Term]], tuple[str, ...]]:
        """Split a role's predicates into those the index decides and those Spark evaluates before the exchange.

        Predicates that may raise are evaluated as one, after all that cannot, so that a guard like `w <> 5 AND
        1/(w-5) > 0` still guards.
        """
        own = [remap_expression(p, {role: 0}) for p in query.predicates if p.roles in ((role,), ())]
        terms: list[tuple[str, Term]] = []
        truths: list[str] = []
        for predicate in own:
            if not predicate.total:
                continue
            column = indexable(predicate.term)
            declared = stream.column(column) if column else None
            if predicate.term is not None and declared is not None and declared.type in INDEXED_TYPES:
                terms.append((declared.name, predicate.term))
            else:
                truths.append(self.derive(stream.name, predicate.parts, risky=False, term=_truth([predicate])))
        if not all(p.total for p in own):
            parts: list[str | Ref] = []
            ordered = sorted(own, key=lambda p: not p.total)
            for predicate in ordered:
                parts += [" AND " if parts else "", "(", *predicate.parts, ")"]
            truths.append(self.derive(stream.name, tuple(parts), risky=True, term=_truth(ordered)))
        return terms, tuple(dict.fromkeys(truths))

    def _verify(self, key: TableKey, stream: Stream) -> tuple[str, ...]:
        """Columns with the key's values: the declared column itself if it is the key."""
        names = []
        for part, kind, total, term in zip(key.key, key.types, key.total, key.terms, strict=True):
            bare = part[0] if len(part) == 1 else None
            if isinstance(bare, Ref) and kind != "double" and bare.column != stream.event_time:
                names.append(bare.column)
            elif len(key.types) == 1 and kind in INTEGRAL:
                names.append("")
            else:
                names.append(self.derive(key.stream, part, risky=not total, term=term))
        return tuple(names)

    def hashed(
        self, stream: Stream, key: Sequence[tuple[str | Ref, ...]], types: Sequence[str], terms: Sequence[Term | None],
        total: Sequence[bool],
    ) -> tuple[str, ...] | None:  # fmt: skip
        """The columns, declared or computed by mappers, with the parts of a key; None if Spark must compute a part."""
        names = []
        for part, kind, term, safe in zip(key, types, terms, total, strict=True):
            bare = bare_columns([part], [kind], stream)
            if bare is None and term is None:
                return None
            names.append(bare[0] if bare is not None else self.derive(stream.name, part, risky=not safe, term=term))
        return tuple(names)

    def derive(self, stream: str, parts: tuple[str | Ref, ...], *, risky: bool, term: Term | None = None) -> str:
        """The name of a column that is computed for each row."""
        found = self.derived.get((stream, parts))
        if found is None:
            # Stored runs contain computed columns, so their names follow from the text and mean the same everywhere.
            text = "".join(p if isinstance(p, str) else f"\0{p.column}\0" for p in parts)
            digest = hashlib.sha256(f"{stream}\0{text}".encode()).hexdigest()[:12]
            found = ComputedColumn(
                f"_d{digest}", stream, parts, risky, None if isinstance(term, Ref | Literal) else term
            )
            self.derived[(stream, parts)] = found
        return found.name


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


@dataclass(frozen=True)
class _Laid:
    """A compiled query: join position p has role `roles[p]` and tables `tables[p]`; `classes` as (position, table)."""

    standing: StandingQuery
    query: Query
    bounds: Bounds
    roles: tuple[int, ...]
    tables: tuple[tuple[TableKey, ...], ...]
    classes: tuple[tuple[tuple[int, str], ...], ...]

    @property
    def mapped(self) -> bool:
        """Whether mappers answer it."""
        return any(key.mapped for own in self.tables for key in own)

    @property
    def counted(self) -> tuple[int, ...]:
        """The positions whose windows count rows."""
        return tuple(p for p, role in enumerate(self.roles) if isinstance(self.query.roles[role].window, Rows))

    @property
    def closes(self) -> tuple[str, ...]:
        return tuple(sorted({self.query.roles[self.roles[p]].stream for p in self.counted}))

    @property
    def name(self) -> str:
        """The name of the join: the same for all queries over the same tables and keys."""
        text = " x ".join(" + ".join(t.name for t in own) for own in self.tables)
        if self.closes:  # evaluated later than joins that do not wait for progress
            text += f" closed by {', '.join(self.closes)}"
        if len(self.classes) == 1 and len(self.classes[0]) == len(self.tables):
            return text
        keys = ", ".join("=".join(str(p) for p, _ in c) for c in self.classes)
        return f"{text} on {keys or 'no key'}" if len(self.tables) > 1 else text


def check_supported(standing: StandingQuery) -> None:
    """Refuse what SQL can express and no plan supports yet."""
    query = standing.query
    if query.aggregation is not None:
        check_aggregated(standing)
        return
    if any(role.union or role.branches for role in query.roles):
        msg = f"query {standing.name!r} has a union in a join, which is answered as several queries (`distribute`)"
        raise RegistrationError(msg)


def pulled_up(query: Query) -> Query:
    """The query with its selections above the join, where the router evaluates them on joined rows."""
    if len(query.roles) == 1:
        return query
    above = sorted((*query.predicates, *query.residuals), key=lambda p: not p.total)
    return replace(query, predicates=(), residuals=tuple(above))


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


def _declared(query: Query, part: Sequence[Expression | None], streams: Mapping[str, Stream]) -> tuple[str, ...]:
    types = []
    for role, expression in zip(query.roles, part, strict=True):
        ref = expression.parts[0] if expression is not None and len(expression.parts) == 1 else None
        column = streams[role.stream].column(ref.column) if isinstance(ref, Ref) else None
        types.append(column.type if column else "unknown")
    return tuple(types)


def _truth(predicates: Sequence[Expression]) -> Term | None:
    """The conjunction of predicates; None if one of them needs Spark."""
    known = tuple(p.term for p in predicates if p.term is not None)
    return And(known) if len(known) == len(predicates) and is_decided_in_order(known) else None


def _lives(plan: _Laid, position: int) -> tuple[tuple[Clock, int], ...]:
    """For each stream that another role reads: how long after its own time a row here can still join it."""
    role = plan.roles[position]
    lives: dict[Clock, int] = {}
    longest = 1
    for other, used in enumerate(plan.standing.query.roles):
        if other != role:
            bound = plan.bounds[role][other]
            life = FOREVER if bound >= FOREVER else bound + 1
            lives[used.stream] = max(lives.get(used.stream, NEVER), life)
            longest = max(longest, life)
    # Where windows count rows, a row is needed until its results are delivered, not only until its partners have come.
    return (*lives.items(), *((Closing(stream), longest) for stream in plan.closes))
