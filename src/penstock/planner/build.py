"""Compile standing queries to a network: keys to state tables, roles to bits, predicates to indexes, windows to chains."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from penstock.errors import RegistrationError
from penstock.model import Expression, Query, Ref, Stream, Term
from penstock.model.expression import PSEUDO_ROLE
from penstock.model.time import FOREVER, NEVER
from penstock.planner.bounds import Bounds, check_bounded, time_bounds
from penstock.planner.index import INDEXED_TYPES, build_index, indexable
from penstock.planner.keys import INTEGRAL, common_type, normalized
from penstock.planner.network import Derived, Entry, Hop, Join, Member, Network, StandingQuery, StateTable
from penstock.planner.remap import remap_expression

MAX_CELLS = 256  # of one state table under push_down
STRATEGIES = ("state_slice", "push_down", "pull_up", "isolated")


def build_network(
    queries: Sequence[StandingQuery], streams: Mapping[str, Stream], version: int = 0, strategy: str = "state_slice"
) -> Network:
    """Compile the queries. Pure: the same arguments give the same network. Every life is the end of a link."""
    return _Builder(streams, version, strategy).build(queries)


class _Builder:
    """Collects tables, joins and derived values while queries are laid out one after the other."""

    def __init__(self, streams: Mapping[str, Stream], version: int, strategy: str) -> None:
        self.streams, self.version, self.strategy = streams, version, strategy
        self.derived: dict[tuple[str, tuple[str | Ref, ...]], Derived] = {}

    def build(self, queries: Sequence[StandingQuery]) -> Network:
        laid = [self._lay_out(q) for q in sorted(queries, key=lambda q: q.id)]
        keys: dict[str, _TableKey] = {}
        for stream in self.streams:
            found = {t.name: t for plan in laid for t in plan.tables if t.stream == stream}
            if not found:
                found = {stream: _TableKey(stream, stream, (), (), ())}
            keys.update(found)
        number = {name: i for i, name in enumerate(keys)}
        groups: dict[tuple[str, ...], list[_Laid]] = {}
        for plan in laid:
            groups.setdefault(tuple(t.name for t in plan.tables), []).append(plan)
        joins = tuple(self._join(i, names, number, plans) for i, (names, plans) in enumerate(sorted(groups.items())))
        tables = tuple(self._table(number[name], key, joins, laid) for name, key in keys.items())
        derived = tuple(self.derived.values())
        return Network(self.version, dict(self.streams), tables, joins, derived, tuple(queries), self.strategy)

    def _lay_out(self, standing: StandingQuery) -> _Laid:
        """Decide the key, the state table of each role, and the order of positions (by table name)."""
        query = pulled_up(standing.query) if self.strategy == "pull_up" else standing.query
        bounds = time_bounds(query)
        check_bounded(query, bounds)
        types = []
        for number, part in enumerate(query.keys):
            declared = standing.key_types[number] if standing.key_types else _declared(query, part, self.streams)
            common = common_type(declared)
            if common is None:
                sides = ", ".join(f"{query.roles[i].alias}: {t}" for i, t in enumerate(declared))
                msg = f"the join key of query {standing.name!r} has types that do not compare ({sides}); CAST one side"
                raise RegistrationError(msg)
            types.append((part, common, declared))
        # The order of conditions in WHERE means nothing: queries with the same key must get the same tables.
        types.sort(key=lambda part: _key_text(query, part[0]))
        tables = []
        for i, role in enumerate(query.roles):
            key = tuple(
                normalized(remap_expression(part[i], {i: 0}), declared[i], common) for part, common, declared in types
            )
            text = ", ".join("".join(p if isinstance(p, str) else p.column for p in part) for part in key)
            name = f"{role.stream}({text})" if key else role.stream
            total = tuple(part[i].total for part, _, _ in types)
            tables.append(_TableKey(name, role.stream, key, tuple(common for _, common, _ in types), total))
        roles = tuple(sorted(range(len(tables)), key=lambda i: (tables[i].name, i)))
        if self.strategy == "isolated":
            tables = [replace(table, name=f"{table.name} of query {standing.bits_of}") for table in tables]
        return _Laid(standing, query, bounds, roles, tuple(tables[i] for i in roles))

    def _join(self, index: int, names: tuple[str, ...], number: Mapping[str, int], plans: Sequence[_Laid]) -> Join:
        members, wanted = [], [set[str]() for _ in names]
        bits = {share: bit for bit, share in enumerate(dict.fromkeys(plan.standing.bits_of for plan in plans))}
        for plan in plans:
            position = {role: p for p, role in enumerate(plan.roles)} | {PSEUDO_ROLE: PSEUDO_ROLE}
            query = plan.query
            items = [remap_expression(item.expression, position) for item in query.items]
            residuals = tuple(remap_expression(r, position) for r in query.residuals)
            # Spark sees a result row only as the result table holds it, so what it must evaluate has to be held.
            for expression in (*items, *(r for r in residuals if r.term is None)):
                for ref in expression.refs:
                    if ref.role != PSEUDO_ROLE:
                        wanted[ref.role].add(ref.column)
            read = [ref for expression in (*items, *residuals) for ref in expression.refs]
            bounds = tuple(tuple(plan.bounds[i][j] for j in plan.roles) for i in plan.roles)
            members.append(
                Member(
                    plan.standing.id,
                    plan.standing.name,
                    bits[plan.standing.bits_of],
                    plan.roles,
                    bounds,
                    residuals,
                    tuple((i, e) for i, e in enumerate(items) if not e.total),
                    plan.standing.on_error,
                    plan.standing.bits_of,
                    tuple(frozenset(ref.column for ref in read if ref.role == p) for p in range(len(names))),
                )
            )
        orders = tuple(
            tuple(Hop(p, number[names[p]], fresh=p < start) for p in range(len(names)) if p != start)
            for start in range(len(names))
        )
        columns = tuple(
            tuple(c.name for c in self.streams[plans[0].tables[p].stream].columns if c.name in wanted[p])
            for p in range(len(names))
        )
        name = " x ".join(names)
        return Join(index, name, tuple(number[n] for n in names), tuple(members), orders, columns)

    def _table(self, index: int, key: _TableKey, joins: Sequence[Join], laid: Sequence[_Laid]) -> StateTable:
        stream = self.streams[key.stream]
        entries: list[Entry] = []
        indexed: dict[str, list[tuple[int, Term]]] = {}
        stored: set[str] = set()
        plans = {plan.standing.id: plan for plan in laid}
        guards = tuple(
            "" if total else self._derive(key.stream, part, risky=True)
            for part, total in zip(key.key, key.total, strict=True)
        )
        # A key that cannot be computed matches nothing, and is an error of every query that joins on it.
        computable = tuple(
            self._derive(key.stream, ("(", *part, ") IS NOT NULL"), risky=True)
            for part, total in zip(key.key, key.total, strict=True)
            if not total
        )
        for join in joins:
            for position, table in enumerate(join.tables):
                if table != index:
                    continue
                stored.update(join.columns[position])
                shares: dict[int, list[Member]] = {}
                for member in join.members:
                    shares.setdefault(member.share, []).append(member)
                for share, group in shares.items():
                    member = group[0]
                    plan = plans[member.id]
                    role = member.roles[position]
                    for residual in member.residuals:
                        stored.update(r.column for r in residual.refs if r.role == position)
                    terms, truths = self._predicates(plan.query, role, stream)
                    truths = tuple(dict.fromkeys((*truths, *computable)))
                    for column, term in terms:
                        indexed.setdefault(column, []).append((len(entries), term))
                    needs = frozenset[str]().union(*(m.reads[position] for m in group)) - {stream.event_time}
                    lives = _lives(plan, position)
                    entries.append(Entry(share, role, join.index, position, lives, truths, tuple(terms), needs))
        verify = self._verify(key, stream)
        exact = len(key.types) == 1 and key.types[0] in INTEGRAL
        if not exact:
            stored.update(v for v in verify if stream.column(v))
        if key.key and stream.sequence is not None:
            stored.add(stream.sequence)
        extra = tuple(v for v in verify if not stream.column(v)) if not exact else ()
        columns = tuple(c.name for c in stream.columns if c.name in stored and c.name != stream.event_time) + extra
        width = len(entries)
        indexes = tuple(build_index(c, pairs, width) for c, pairs in sorted(indexed.items()))
        built = StateTable(
            index,
            key.name,
            key.stream,
            key.key,
            key.types,
            guards,
            () if exact else verify,
            tuple(entries),
            columns,
            indexes,
            stream.sequence if key.key else None,
            tuple(sorted({e.life for e in entries})),
            self.strategy == "push_down",
        )
        if built.by_cell:
            cells(built)  # refuses too many
        return built

    def _predicates(self, query: Query, role: int, stream: Stream) -> tuple[list[tuple[str, Term]], tuple[str, ...]]:
        """Split a role's predicates into those the index decides and those Spark evaluates before the exchange.

        Predicates that may raise are evaluated as one, behind all that cannot, so that a guard like `w <> 5 AND
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
                truths.append(self._derive(stream.name, predicate.parts, risky=False))
        if not all(p.total for p in own):
            parts: list[str | Ref] = []
            for predicate in sorted(own, key=lambda p: not p.total):
                parts += [" AND " if parts else "", "(", *predicate.parts, ")"]
            truths.append(self._derive(stream.name, tuple(parts), risky=True))
        return terms, tuple(dict.fromkeys(truths))

    def _verify(self, key: _TableKey, stream: Stream) -> tuple[str, ...]:
        """Columns that hold the key's real values: the declared column itself where it is the key as it stands."""
        names = []
        for part, kind, total in zip(key.key, key.types, key.total, strict=True):
            bare = part[0] if len(part) == 1 else None
            if isinstance(bare, Ref) and kind != "double" and bare.column != stream.event_time:
                names.append(bare.column)
            elif len(key.types) == 1 and kind in INTEGRAL:
                names.append("")
            else:
                names.append(self._derive(key.stream, part, risky=not total))
        return tuple(names)

    def _derive(self, stream: str, parts: tuple[str | Ref, ...], *, risky: bool) -> str:
        found = self.derived.get((stream, parts))
        if found is None:
            # Stored runs hold derived columns, so a name must mean the same in every network: it follows from the text.
            text = "".join(p if isinstance(p, str) else f"\0{p.column}\0" for p in parts)
            digest = hashlib.sha256(f"{stream}\0{text}".encode()).hexdigest()[:12]
            found = Derived(f"_d{digest}", stream, parts, risky)
            self.derived[(stream, parts)] = found
        return found.name


@dataclass(frozen=True)
class _TableKey:
    name: str
    stream: str
    key: tuple[tuple[str | Ref, ...], ...]
    types: tuple[str, ...]
    total: tuple[bool, ...]


@dataclass(frozen=True)
class _Laid:
    """A query laid out: `roles[p]` is the role at join position p, `tables[p]` its state table."""

    standing: StandingQuery
    query: Query
    bounds: Bounds
    roles: tuple[int, ...]
    tables: tuple[_TableKey, ...]


def pulled_up(query: Query) -> Query:
    """The query with its selections above the join, where the router evaluates them on joined rows."""
    if len(query.roles) == 1:
        return query
    above = sorted((*query.predicates, *query.residuals), key=lambda p: not p.total)
    return replace(query, predicates=(), residuals=tuple(above))


def cells(table: StateTable) -> tuple[int, ...]:
    """The satisfiable combinations of a table's predicates, as masks of the entries they serve; refused if very many.

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
            f"push_down would split state table {table.name} into more than {MAX_CELLS} cells: the queries have too many different "
            "predicates for it; use strategy 'state_slice'"
        )
        raise RegistrationError(msg)


def _declared(query: Query, part: Sequence[Expression], streams: Mapping[str, Stream]) -> tuple[str, ...]:
    types = []
    for role, expression in zip(query.roles, part, strict=True):
        ref = expression.parts[0] if len(expression.parts) == 1 else None
        column = streams[role.stream].column(ref.column) if isinstance(ref, Ref) else None
        types.append(column.type if column else "unknown")
    return tuple(types)


def _key_text(query: Query, part: Sequence[Expression]) -> list[tuple[str, str]]:
    """A part of a key as text, whatever the order of FROM."""
    return sorted((role.stream, e.sql(lambda ref: ref.column)) for role, e in zip(query.roles, part, strict=True))


def _lives(plan: _Laid, position: int) -> tuple[tuple[str, int], ...]:
    """For each stream that another role reads: how long after its own time a row here can still meet it."""
    role = plan.roles[position]
    lives: dict[str, int] = {}
    for other, used in enumerate(plan.standing.query.roles):
        if other != role:
            bound = plan.bounds[role][other]
            life = FOREVER if bound >= FOREVER else bound + 1
            lives[used.stream] = max(lives.get(used.stream, NEVER), life)
    return tuple(lives.items())
