"""The network: all standing queries compiled into one plan of state tables and joins.

This one object is what runs, what EXPLAIN prints and what the tests check. Queries over the same streams and key
share a *join*: its state tables are probed once for all of them, and a result row carries one bit per query. A state
table (stream x key class) is shared by all joins that use it; a stored row carries one bit per query role it serves.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from penstock.errors import RegistrationError
from penstock.model import Expression, Query, Ref, Stream
from penstock.model.expression import PSEUDO_ROLE
from penstock.model.time import FOREVER, NEVER
from penstock.planner.bounds import Bounds, check_bounded, time_bounds
from penstock.planner.index import INDEXED_TYPES, ColumnIndex, build_index, indexable
from penstock.planner.keys import INTEGRAL, common_type, normalized
from penstock.planner.remap import remap_expression

MAX_ROLES = 16


@dataclass(frozen=True)
class StandingQuery:
    """A query with its permanent id. `key_types` (per key part and role) is needed for keys that are not bare columns."""

    id: int
    name: str
    query: Query
    on_error: str = "skip"
    key_types: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True)
class Derived:
    """A value that Spark computes for each row of a stream before the exchange; `risky` if it may raise."""

    name: str
    stream: str
    parts: tuple[str | Ref, ...]
    risky: bool


@dataclass(frozen=True)
class Entry:
    """One bit of a state table: a query in a role. `lives[s]` = how long past its time a row meets stream s."""

    query: int
    role: int
    join: int
    position: int
    lives: tuple[tuple[str, int], ...]
    truths: tuple[str, ...]

    @property
    def id(self) -> int:
        """The permanent id of the query role, as stored with state."""
        return self.query * MAX_ROLES + self.role


@dataclass(frozen=True)
class StateTable:
    """Rows of one stream, sorted by one key. Without a key it keeps nothing: its rows only pass through."""

    index: int
    name: str
    stream: str
    key: tuple[tuple[str | Ref, ...], ...]
    key_types: tuple[str, ...]
    guards: tuple[str, ...]  # per key part: the derived value that stands for it because it may raise, or ""
    verify: tuple[str, ...]
    entries: tuple[Entry, ...]
    columns: tuple[str, ...]
    indexes: tuple[ColumnIndex, ...]
    sequence: str | None = None  # the declared column that orders rows of equal time

    @property
    def stateless(self) -> bool:
        return not self.key

    @cached_property
    def truths(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """Each computed predicate with the entries that demand it."""
        wanted: dict[str, list[int]] = {}
        for bit, entry in enumerate(self.entries):
            for truth in entry.truths:
                wanted.setdefault(truth, []).append(bit)
        return tuple((name, tuple(bits)) for name, bits in wanted.items())

    @property
    def plain_key(self) -> str | None:
        """The BIGINT column that is the whole key and travels for itself: its hash can be computed wherever it arrives."""
        bare = self.key[0][0] if len(self.key) == 1 and len(self.key[0]) == 1 else None
        if not isinstance(bare, Ref) or self.key_types != ("bigint",) or bare.column not in self.needed:
            return None
        return bare.column

    @cached_property
    def needed(self) -> frozenset[str]:
        """The columns that a task needs of each row: to store, to decide predicates, to verify keys."""
        return frozenset({*self.columns, *(i.column for i in self.indexes), *self.verify})

    def horizon(self, entry: Entry, progress: Mapping[str, int]) -> int:
        """Rows serving `entry` with a time at or before this can find no partner any more."""
        return min((_horizon(life, progress.get(stream, NEVER)) for stream, life in entry.lives), default=FOREVER)


def _horizon(life: int, progress: int) -> int:
    if progress >= FOREVER:
        return FOREVER  # the stream has ended: not even [RANGE ALL] meets a row of it any more
    return NEVER if life >= FOREVER or progress <= NEVER else progress - life


@dataclass(frozen=True)
class Hop:
    """One probe of a plan: look up the rows of join position `position`; `fresh` includes those of this very step."""

    position: int
    table: int
    fresh: bool


@dataclass(frozen=True)
class Member:
    """A query as part of a join; `bit` is its bit in result rows, `roles[p]` its role at join position p."""

    id: int
    name: str
    bit: int
    roles: tuple[int, ...]
    bounds: Bounds
    residuals: tuple[Expression, ...]
    computed: tuple[tuple[int, Expression], ...]
    on_error: str

    @property
    def finished_by_spark(self) -> bool:
        """True if a residual or a select item must be evaluated by Spark between the probe and the write."""
        return any(r.term is None for r in self.residuals) or any(e.term is None for _, e in self.computed)


@dataclass(frozen=True)
class Join:
    """Queries over the same state tables: probed together, stored in one result table."""

    index: int
    name: str
    tables: tuple[int, ...]
    members: tuple[Member, ...]
    orders: tuple[tuple[Hop, ...], ...]
    columns: tuple[tuple[str, ...], ...]
    kind: str = "join"

    @property
    def finished_by_spark(self) -> bool:
        return any(m.finished_by_spark for m in self.members)


@dataclass(frozen=True)
class Network:
    """The whole plan. `version` is the registry version it was built from."""

    version: int
    streams: Mapping[str, Stream]
    tables: tuple[StateTable, ...]
    joins: tuple[Join, ...]
    derived: tuple[Derived, ...]
    queries: tuple[StandingQuery, ...] = field(default=())

    def tables_of(self, stream: str) -> tuple[StateTable, ...]:
        """The state tables of a stream; its first one also carries late and bad rows and all counts."""
        return tuple(t for t in self.tables if t.stream == stream)

    @cached_property
    def bits(self) -> dict[int, tuple[int, int]]:
        """Query id -> (join, bit in its result rows)."""
        return {m.id: (j.index, m.bit) for j in self.joins for m in j.members}


def result_column(position: int, stream: Stream, column: str) -> str:
    """The name under which a result table holds a column of one of its positions."""
    ordinal = next(i for i, c in enumerate(stream.columns) if c.name == column)
    return f"r{position}_c{ordinal}"


def build_network(queries: Sequence[StandingQuery], streams: Mapping[str, Stream], version: int = 0) -> Network:
    """Compile the queries. Pure: the same queries and streams give the same network."""
    return _Builder(streams, version).build(queries)


class _Builder:
    """Collects tables, joins and derived values while queries are laid out one after the other."""

    def __init__(self, streams: Mapping[str, Stream], version: int) -> None:
        self.streams = streams
        self.version = version
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
        return Network(self.version, dict(self.streams), tables, joins, tuple(self.derived.values()), tuple(queries))

    def _lay_out(self, standing: StandingQuery) -> _Laid:
        """Decide the key, the state table of each role, and the order of positions (by table name)."""
        query = standing.query
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
        return _Laid(standing, bounds, roles, tuple(tables[i] for i in roles))

    def _join(self, index: int, names: tuple[str, ...], number: Mapping[str, int], plans: Sequence[_Laid]) -> Join:
        members, wanted = [], [set[str]() for _ in names]
        for bit, plan in enumerate(plans):
            position = {role: p for p, role in enumerate(plan.roles)} | {PSEUDO_ROLE: PSEUDO_ROLE}
            query = plan.standing.query
            computed = []
            for i, item in enumerate(query.items):
                expression = remap_expression(item.expression, position)
                if not expression.total:
                    computed.append((i, expression))
                for ref in expression.refs:
                    if ref.role != PSEUDO_ROLE:
                        wanted[ref.role].add(ref.column)
            residuals = tuple(remap_expression(r, position) for r in query.residuals)
            # Spark sees a result row only as the result table holds it, so what it must evaluate has to be held.
            for residual in residuals:
                if residual.term is None:
                    for ref in residual.refs:
                        wanted[ref.role].add(ref.column)
            bounds = tuple(tuple(plan.bounds[i][j] for j in plan.roles) for i in plan.roles)
            members.append(
                Member(
                    plan.standing.id,
                    plan.standing.name,
                    bit,
                    plan.roles,
                    bounds,
                    residuals,
                    tuple(computed),
                    plan.standing.on_error,
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
        indexed: dict[str, list[tuple[int, object]]] = {}
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
                for member in join.members:
                    plan = plans[member.id]
                    role = member.roles[position]
                    for residual in member.residuals:
                        stored.update(r.column for r in residual.refs if r.role == position)
                    terms, truths = self._predicates(plan.standing.query, role, stream)
                    truths = tuple(dict.fromkeys((*truths, *computable)))
                    for column, term in terms:
                        indexed.setdefault(column, []).append((len(entries), term))
                    entries.append(Entry(member.id, role, join.index, position, _lives(plan, position), truths))
        verify = self._verify(key, stream)
        exact = len(key.types) == 1 and key.types[0] in INTEGRAL
        if not exact:
            stored.update(v for v in verify if stream.column(v))
        if key.key and stream.sequence is not None:
            stored.add(stream.sequence)
        extra = tuple(v for v in verify if not stream.column(v)) if not exact else ()
        columns = tuple(c.name for c in stream.columns if c.name in stored and c.name != stream.event_time) + extra
        width = len(entries)
        indexes = tuple(build_index(c, pairs, width) for c, pairs in sorted(indexed.items()))  # type: ignore[arg-type]
        return StateTable(
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
        )

    def _predicates(self, query: Query, role: int, stream: Stream) -> tuple[list[tuple[str, object]], tuple[str, ...]]:
        """Split a role's predicates into those the index decides and those Spark evaluates before the exchange.

        Predicates that may raise are evaluated as one, behind all that cannot, so that a guard like `w <> 5 AND
        1/(w-5) > 0` still guards.
        """
        own = [remap_expression(p, {role: 0}) for p in query.predicates if p.roles in ((role,), ())]
        terms: list[tuple[str, object]] = []
        truths: list[str] = []
        for predicate in own:
            if not predicate.total:
                continue
            column = indexable(predicate.term)
            declared = stream.column(column) if column else None
            if column and declared is not None and declared.type in INDEXED_TYPES:
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
    bounds: Bounds
    roles: tuple[int, ...]
    tables: tuple[_TableKey, ...]


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
