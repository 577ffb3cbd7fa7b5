"""The window join by definition: every tuple of rows that satisfies keys, predicates, windows and bands.

A result is one row per role, with equal keys and true predicates, such that every row is still in its window at T, the
newest of their times. With `[RANGE w]` on role i this is `ts_j - ts_i < w` for every other role j; with `[TUMBLING w]`
all times lie in one piece of time; with `[ROWS n]` fewer than n rows of the stream, before any predicate, lie after
row i and not after T. Arrival plays no part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from penstock.model import Branch, Column, Query, Ref, Role, Rows, Stream, Tumbling, Window
from penstock.model.expression import PSEUDO_ROLE, RESULT_TIME
from penstock.model.time import FOREVER
from penstock.reference.evaluate import Lookup, Unspecified, compare, holds, value_of
from penstock.reference.order import Row, followers

Member = tuple[Row, list[int]]  # a row, and the times of later rows, which push it out of windows that count rows


def combinations(
    query: Query, streams: Mapping[str, Stream], rows: Mapping[str, Sequence[Row]]
) -> list[tuple[Row, ...]]:
    """All results as tuples of rows, one per role, by nested loops in the order of FROM.

    `rows` are the accepted rows of each stream. Two roles over one stream range over the same rows, so that a row also
    joins itself. A role over several streams must be united first, by `one_stream_a_role`.
    """
    if any(role.union for role in query.roles):
        msg = "a union is no stream of its own yet"
        raise Unspecified(msg)
    found: list[tuple[Member, ...]] = [()]
    for i, role in enumerate(query.roles):
        members = members_of(role, streams[role.stream], rows.get(role.stream, ()))
        candidates = [member for member in members if serves(query, streams, i, member[0])]
        found = [(*partial, new) for partial in found for new in candidates if _fits(query, streams, partial, new)]
    return [tuple(row for row, _ in members) for members in found]


def serves(query: Query, streams: Mapping[str, Stream], role: int, row: Row) -> bool:
    """Whether a row can take part in that role at all: it has an event time and a key, and its predicates hold."""
    lookup = _lookup(role, row)
    return (
        row[streams[query.roles[role].stream].event_time] is not None
        and all(value_of(end, lookup) is not None for key in query.keys if (end := key[role]) is not None)
        and all(holds(p, lookup) for p in query.predicates if p.roles in ((), (role,)))
    )


def bounds(query: Query) -> dict[tuple[int, int], int]:
    """For each two roles (i, j) the least known bound u of `ts_j - ts_i <= u`; `FOREVER` if there is none.

    Windows and bands bound single pairs; bounds that follow from several of them are shortest paths between the roles.
    A window that counts rows bounds no time.
    """
    roles = range(len(query.roles))
    bound = {(i, j): _closed_length(query.roles[i]) for i in roles for j in roles if i != j}
    for band in query.bands:
        pair = band.earlier, band.later
        bound[pair] = min(bound[pair], band.upper)
    for k in roles:
        for (i, j), direct in bound.items():
            if k not in (i, j) and FOREVER not in (bound[i, k], bound[k, j]):
                bound[i, j] = min(direct, bound[i, k] + bound[k, j])
    return bound


def result_time(query: Query, streams: Mapping[str, Stream], combination: Sequence[Row]) -> int:
    """The newest event time among the rows of a result."""
    return max(_times(query, streams, combination))


def project(query: Query, streams: Mapping[str, Stream], combination: Sequence[Row]) -> tuple[object, ...]:
    """The select list of one result; an item that raises is NULL."""

    def lookup(ref: Ref) -> object:
        if ref.role != PSEUDO_ROLE:
            return combination[ref.role][ref.column]
        if ref.column == RESULT_TIME:
            return result_time(query, streams, combination)
        msg = f"a join has no pseudo-column {ref.column!r}"
        raise Unspecified(msg)

    return tuple(value_of(item.expression, lookup) for item in query.items)


def results(query: Query, streams: Mapping[str, Stream], rows: Mapping[str, Sequence[Row]]) -> list[tuple[object, ...]]:
    """The bag of a query's answer over the accepted rows of its streams, in no particular order."""
    flat, flat_streams, flat_rows = one_stream_a_role(query, streams, rows)
    return [project(flat, flat_streams, c) for c in combinations(flat, flat_streams, flat_rows)]


def one_stream_a_role(
    query: Query, streams: Mapping[str, Stream], rows: Mapping[str, Sequence[Row]]
) -> tuple[Query, dict[str, Stream], dict[str, list[Row]]]:
    """The same query over one new stream per role: unions are united, and the time is where the window looks for it."""
    roles, own_streams, own_rows = [], {}, {}
    for number, role in enumerate(query.roles):
        name = f"{role.stream}#{number}"
        stream = streams[role.stream]
        own_streams[name] = replace(stream, name=name, event_time=role.on or stream.event_time)
        # A row that is given twice is two rows: each gets an object of its own.
        own_rows[name] = [dict(row) for part in role.streams for row in rows.get(part, ())]
        if role.branches:
            times = [i.expression.parts == (Ref(0, stream.event_time),) for i in role.branches[0].columns]
            event_time = str(role.branches[0].columns[times.index(True)].name)
            columns = tuple(Column(str(item.name), "") for item in role.branches[0].columns)
            own_streams[name] = Stream(name, columns, event_time, stream.delay)
            pairs = zip(role.streams, role.branches, strict=True)
            own_rows[name] = [shown for part, branch in pairs for shown in _selected(branch, rows.get(part, ()))]
        roles.append(replace(role, stream=name, union=(), on=None, branches=()))
    return replace(query, roles=tuple(roles)), own_streams, own_rows


def _selected(branch: Branch, rows: Sequence[Row]) -> list[Row]:
    """The output of one SELECT of a union, row by row; a column that raises is NULL."""
    found: list[Row] = []
    for row in rows:
        lookup = _lookup(0, row)
        if all(holds(predicate, lookup) for predicate in branch.predicates):
            found.append({str(item.name): value_of(item.expression, lookup) for item in branch.columns})
    return found


def members_of(role: Role, stream: Stream, rows: Sequence[Row]) -> list[Member]:
    """The rows of a stream in a role that have a time; they count, whether they serve the role or not."""
    timed = [row for row in rows if row[stream.event_time] is not None]
    if not isinstance(role.window, Rows):
        return [(row, []) for row in timed]
    return list(zip(timed, followers(stream, role.window, timed), strict=True))


def _fits(query: Query, streams: Mapping[str, Stream], partial: tuple[Member, ...], new: Member) -> bool:
    """Whether a row of the next role joins the rows of the roles before it."""
    members = (*partial, new)
    rows = [row for row, _ in members]
    times = _times(query, streams, rows)
    return (
        _close_in_time(query, times)
        and _same_keys(query, rows)
        and all(counts(role, later, max(times)) for role, (_, later) in zip(query.roles, members, strict=False))
        and all(holds(r, _lookups(rows)) for r in query.residuals if max(r.roles) == len(partial))
    )


def _same_keys(query: Query, rows: Sequence[Row]) -> bool:
    """Whether the keys of the last of these rows equal those of the others, for classes that include both."""
    new = len(rows) - 1
    return all(
        compare(value_of(one, _lookup(i, rows[i])), value_of(own, _lookup(new, rows[new]))) == 0
        for key in query.keys
        if (own := key[new]) is not None
        for i in range(new)
        if (one := key[i]) is not None
    )


def counts(role: Role, later: Sequence[int], at: int) -> bool:
    """Whether a row with these followers is among the last of its stream at that time, which grows with more rows."""
    return not isinstance(role.window, Rows) or sum(time <= at for time in later) < role.window.count


def _close_in_time(query: Query, times: Sequence[int]) -> bool:
    """Every window and band between the last of these rows and the others, which were tested before."""
    new = len(times) - 1
    return all(
        times[new] - times[i] <= _closed_length(query.roles[i])
        and times[i] - times[new] <= _closed_length(query.roles[new])
        and _piece(query.roles[i], times[i]) == _piece(query.roles[new], times[new])
        for i in range(new)
    ) and all(
        times[band.later] - times[band.earlier] <= band.upper
        for band in query.bands
        if max(band.earlier, band.later) == new
    )


def _closed_length(role: Role) -> int:
    """The greatest age at which a row of this role is still in its window, which is open at the far end."""
    if not isinstance(role.window, Window | Tumbling) or role.window.length is None:
        return FOREVER
    return role.window.length - 1


def _piece(role: Role, time: int) -> int:
    """The number of the piece of a tumbling window that contains this time; without one all time is one piece."""
    return (time - role.window.origin) // role.window.length if isinstance(role.window, Tumbling) else 0


def _times(query: Query, streams: Mapping[str, Stream], members: Sequence[Row]) -> list[int]:
    times = []
    for role, row in zip(query.roles, members, strict=False):  # a partial result has fewer rows than roles
        time = row[streams[role.stream].event_time]
        assert isinstance(time, int)
        times.append(time)
    return times


def _lookup(role: int, row: Row) -> Lookup:
    def lookup(ref: Ref) -> object:
        assert ref.role == role
        return row[ref.column]

    return lookup


def _lookups(members: Sequence[Row]) -> Lookup:
    return lambda ref: members[ref.role][ref.column]
