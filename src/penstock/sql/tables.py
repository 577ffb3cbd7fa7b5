"""FROM: its tables, the stream, query or union that each one is, and their windows; they form a query's scope.

`windows` and `aggregate_windows` read the content of a window.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from math import prod

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from penstock.errors import did_you_mean
from penstock.model import Branch, Query, Role, Rows, Stream, Tumbling, Window
from penstock.sql.aggregate_windows import FORMS, Slide, aggregate_window, slides
from penstock.sql.aggregates import Own
from penstock.sql.branches import read_branches
from penstock.sql.dialect import WINDOW, WINDOW_START
from penstock.sql.named import Results, query_stream, results_of
from penstock.sql.position import Text, start_of
from penstock.sql.scope import Scope
from penstock.sql.unions import Part, check_known, united
from penstock.sql.windows import check_alike, range_window, stream_window

MAX_ROLES = 16
MAX_COMBINATIONS = 64  # of the streams of a query's unions: each costs as much as a query

_TABLE_ARGS = frozenset({"this", "alias", "joins"})


@dataclass(frozen=True)
class Table:
    """One item of FROM with its ON condition; `cross` after the words CROSS JOIN."""

    node: exp.Table
    on: exp.Expr | None
    cross: bool

    @property
    def start(self) -> int:
        return start_of(self.node.this)


@dataclass(frozen=True)
class Named:
    """What the names in FROM may denote, and what was split off the text."""

    streams: Mapping[str, Stream]
    queries: Mapping[str, Query | Results]
    unions: Mapping[int, list[Part]]
    trailing: Sequence[Token]
    own: Own


def read_tables(source: Text, tree: exp.Select, tokens: Sequence[Token], noun: str = "stream") -> list[Table]:
    """The tables of FROM, in order; `noun` is the word for them in messages."""
    clause = tree.args.get("from_")
    if clause is None:
        raise source.error(tokens[-1].end, f"A query needs FROM with at least one {noun}")
    joins = [join for root in (clause.this, tree) for join in root.args.get("joins") or []]
    found = [(clause.this, None), *(each for join in joins for each in _joined(source, join))]
    tables: list[Table] = []
    for node, join in found:
        start = start_of(node)
        if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier):
            raise source.unsupported(
                start or _keyword(tokens, TokenType.FROM), f"Only {noun}s are supported in FROM", f"name a {noun}"
            )
        if len(node.parts) > 1:
            raise source.error(start, f"{noun.capitalize()}s have plain names", "write the name without a qualifier")
        if node.args.get("alias") is not None and node.args["alias"].args.get("columns"):
            raise source.unsupported(start_of(node.args["alias"]), "Aliases for columns are not supported in FROM")
        refuse_other_args(source, node, _TABLE_ARGS, start)
        on = None if join is None else join.args.get("on")
        tables.append(Table(node, on, join is not None and join.args.get("kind") == "CROSS"))
    return tables


def conditions_of(tree: exp.Select, tables: Sequence[Table]) -> Iterator[exp.Expr]:
    yield from (table.on for table in tables if table.on is not None)
    where = tree.args.get("where")
    if where is not None:
        yield where.this


def read_scope(source: Text, tables: Sequence[Table], named: Named, *, aggregated: bool) -> Scope:
    known = {s.name.lower(): s for s in named.streams.values()}
    windowed = aggregated and any(slides(table.node.meta.get(WINDOW)) for table in tables)
    roles: list[Role] = []
    used: list[Stream] = []
    for table in tables:
        start, given = table.start, table.node.name
        is_query = given.lower() not in known
        stream = _query_stream(source, table, named) if is_query else known[given.lower()]
        if stream is None:
            hint = did_you_mean(given, (s.name for s in known.values())) or "declare it with CREATE STREAM"
            raise source.error(start, f"Unknown stream {given}", hint)
        if used and stream.integer_time != used[0].integer_time:
            raise source.error(
                start, f"Streams {used[0].name} and {stream.name} cannot be joined: one has integer event time"
            )
        union = _union(source, table, stream, named, aggregated=aggregated)
        stream = union.stream
        alias = table.node.args.get("alias")
        name = alias.name if alias is not None else stream.name
        if any(r.alias.lower() == name.lower() for r in roles):
            place = start_of(alias) if alias is not None else start
            raise source.error(place, f"The name {name} is used twice in FROM", "give each its own alias")
        if len(roles) == MAX_ROLES:
            raise source.unsupported(start, f"A query may join at most {MAX_ROLES} streams")
        reads = is_query or any(other not in named.streams for other in union.others)
        if windowed:
            slide = slide_of(source, table, stream)
            on = _other_time(source, table, stream, slide, is_query=reads)
            roles.append(Role(name, stream.name, slide.window, union.others, on))
        else:
            follows = reads and not union.branches
            on = stream.event_time if follows and _on_column(table) else None
            window = _window(source, table, stream, named.trailing, is_query=follows, aggregated=aggregated)
            roles.append(Role(name, stream.name, window, union.others, on, union.branches))
        if not aggregated or len(tables) > 1:
            _check_distributes(source, table, roles)
        used.append(stream)
    if not windowed:
        check_alike(source, roles, [window_place(table) for table in tables])
    return Scope(source, tuple(roles), tuple(used), windowed)


@dataclass(frozen=True)
class _Union:
    """A united table: columns and event time of `stream`; its rows are those of `stream` and `others`, by branch."""

    stream: Stream
    others: tuple[str, ...] = ()
    branches: tuple[Branch, ...] = ()


def _union(source: Text, table: Table, first: Stream, named: Named, *, aggregated: bool) -> _Union:
    parts = named.unions.get(table.start, [])
    if not parts:
        return _Union(first)
    known = {s.name.lower(): s for s in named.streams.values()}
    selects = next((part for part in parts if part.select), None)
    found = [known.get(p.name.text.lower()) or _query_stream(source, table, named, p.name) for p in parts]
    check_known(source, parts, found, [*named.streams, *named.queries])
    streams = [first, *(stream for stream in found[1:] if stream is not None)]
    if selects is None:
        return _Union(first, united(source, first, parts[1:], streams[1:], aggregated=aggregated))
    if aggregated:
        raise source.unsupported(
            selects.start,
            "In an aggregate, a union is made of whole streams and queries",
            "register this SELECT as a query, and put the query's name in its place",
        )
    if _on_column(table) is not None:
        raise source.unsupported(
            window_place(table),
            "A window over the SELECTs of a union follows their event times, so that ON is not supported",
            "leave ON out; of a query, register one that has the other time as its result time",
        )
    shown, branches = read_branches(source, parts, streams, named.own)
    return _Union(shown, tuple(stream.name for stream in streams[1:]), branches)


def _check_distributes(source: Text, table: Table, roles: Sequence[Role]) -> None:
    """Refuse a union that cannot be answered part by part, and too many parts."""
    role = roles[-1]
    if role.union and isinstance(role.window, Rows):
        raise source.unsupported(
            window_place(table),
            f"[ROWS ..] counts the rows of one stream, and {role.alias} is a union of {len(role.streams)}",
            "write [RANGE ..], or declare one stream that reads them all",
        )
    if role.union and prod(len(r.streams) for r in roles) > MAX_COMBINATIONS:
        raise source.unsupported(
            table.start,
            f"The unions of this query have {prod(len(r.streams) for r in roles)} combinations of streams, and at most "
            f"{MAX_COMBINATIONS} are supported",
            "declare one stream that reads several of them, or register several queries",
        )


def _query_stream(source: Text, table: Table, named: Named, part: Token | None = None) -> Stream | None:
    """The registered query that a name in FROM denotes, as a stream: a table's first name, or a union's `part`."""
    given, start = (table.node.name, table.start) if part is None else (part.text, part.start)
    alike = (name for name in named.queries if name.lower() == given.lower())
    name = given if given in named.queries else next(alike, None)
    if name is None:
        return None
    found = named.queries[name]
    results = found if isinstance(found, Results) else results_of(found, named.streams)
    return query_stream(source, start, name, results, _on_column(table))


def _on_column(table: Table) -> str | None:
    """The column that ON names in the brackets of a table."""
    tokens: list[Token] = table.node.meta.get(WINDOW) or []
    words = ["" if t.token_type == TokenType.IDENTIFIER else t.text.upper() for t in tokens]
    after = words.index("ON") + 1 if "ON" in words else len(tokens)
    return tokens[after].text if after < len(tokens) else None


def _other_time(source: Text, table: Table, stream: Stream, slide: Slide, *, is_query: bool) -> str | None:
    """The column of ON, if the window does not use the stream's event time."""
    if slide.on is None or (slide.on == stream.event_time and not is_query):
        return None
    if not is_query:
        raise source.unsupported(
            window_place(table),
            f"The window follows {slide.on}, and progress is known for {stream.event_time} of {stream.name} only",
            f"declare a second stream on the same source, with WATERMARK FOR {slide.on}",
        )
    return slide.on


def slide_of(source: Text, table: Table, stream: Stream) -> Slide:
    tokens = table.node.meta.get(WINDOW)
    if tokens is None:
        raise source.unsupported(
            table.start,
            f"{table.node.name} has no window, and the aggregate one that slides",
            "every stream of an aggregated join has its [RANGE <length> SLIDE <length>], with one SLIDE for all",
        )
    return aggregate_window(source, tokens, table.node.meta[WINDOW_START], stream)


def _window(
    source: Text, table: Table, stream: Stream, trailing: Sequence[Token], *, is_query: bool, aggregated: bool
) -> Window | Rows | Tumbling | None:
    tokens = table.node.meta.get(WINDOW)
    if tokens is not None:
        if is_query and len(tokens) > 2 and tokens[-2].text.upper() == "ON":
            tokens = tokens[:-2]  # for a query, ON names its time column
        if aggregated and tokens and tokens[0].text.upper() not in ("RANGE", "ROWS"):
            raise source.unsupported(tokens[0].start, "This window is not supported in an aggregate", FORMS)
        return stream_window(source, tokens, table.node.meta[WINDOW_START], stream)
    if trailing:
        return range_window(source, trailing[1:], trailing[0].start, stream.integer_time)
    return None


def window_place(table: Table) -> int:
    """Where a role's window begins, or its stream if it has none."""
    tokens: list[Token] | None = table.node.meta.get(WINDOW)
    return tokens[0].start if tokens else table.start


def check_connected(
    scope: Scope, tables: Sequence[Table], ties: Collection[AbstractSet[int]], advice: Callable[[str, str], str]
) -> None:
    """Refuse a role that no tie connects to the others; `advice` about two aliases says what to do."""
    reached = {0}
    while growing := [tie for tie in ties if tie & reached and not tie <= reached]:
        reached.update(*growing)
    for role, table in enumerate(tables):
        if role not in reached:
            alias, first = scope.roles[role].alias, scope.roles[0].alias
            raise scope.source.unsupported(
                table.start,
                f"No condition connects {alias} with {first}, so that every row of one would meet every row "
                "of the other",
                advice(alias, first),
            )


def _joined(source: Text, join: exp.Expr) -> Iterator[tuple[exp.Expr, exp.Expr]]:
    """The table that a join adds, after those joined to it first: `a JOIN b JOIN c ON .. ON ..`."""
    words = {str(join.args.get(k) or "").upper() for k in ("side", "kind", "method", "global_")}
    if words - {"", "INNER", "CROSS"} or join.args.get("using"):
        raise source.unsupported(start_of(join), "Only inner joins are supported")
    yield join.this, join
    for inner in join.this.args.get("joins") or []:
        yield from _joined(source, inner)


def refuse_other_args(source: Text, node: exp.Expr, allowed: frozenset[str], start: int) -> None:
    for key, value in node.args.items():
        if value and key not in allowed:
            place = start_of(value) if isinstance(value, exp.Expr) else 0
            raise source.unsupported(place or start, f"{key.strip('_').upper()} is not supported here")


def _keyword(tokens: Sequence[Token], kind: TokenType) -> int:
    return next((t.start for t in tokens if t.token_type == kind), 0)
