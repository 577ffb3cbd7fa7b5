"""The window join by definition: every tuple of rows that satisfies keys, predicates, windows and bands.

A result is one row per role, with equal keys and true predicates, such that every row is still in its window at T, the
newest of their times. With `[RANGE w]` on role i this is `ts_j - ts_i < w` for every other role j; with `[TUMBLING w]`
all times lie in one piece of time; with `[ROWS n]` fewer than n rows of the stream, before any predicate, lie after
row i and not after T. Arrival plays no part.

Partners are looked up: rows of a role by key and time, so that only those are compared that can fit.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from operator import attrgetter

from penstock.model import Branch, Column, Query, Ref, Role, Rows, Stream, Tumbling, Window
from penstock.model.expression import PSEUDO_ROLE, RESULT_TIME
from penstock.model.time import FOREVER
from penstock.reference.evaluate import Lookup, Unspecified, compare, holds, value_of
from penstock.reference.order import Row, followers

_TIME = attrgetter("time")

Member = tuple[Row, list[int]]  # a row, and the times of later rows, which push it out of windows that count rows


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A row that serves a role, with its time, its value in each class of keys, and the times of later rows."""

    row: Row
    time: int
    keys: tuple[object, ...]
    later: Sequence[int]


def combinations(
    query: Query, streams: Mapping[str, Stream], rows: Mapping[str, Sequence[Row]]
) -> list[tuple[Row, ...]]:
    """All results as tuples of rows, one per role, in the order of FROM.

    `rows` are the accepted rows of each stream. Two roles over one stream range over the same rows, so that a row also
    joins itself. A role over several streams must be united first, by `one_stream_a_role`.
    """
    if any(role.union for role in query.roles):
        msg = "a union is no stream of its own yet"
        raise Unspecified(msg)
    found: list[tuple[_Candidate, ...]] = [()]
    for i, role in enumerate(query.roles):
        partners = _Partners(query, i, _candidates(query, streams[role.stream], i, rows.get(role.stream, ())))
        found = [(*partial, new) for partial in found for new in partners.of(partial)]
    return [tuple(member.row for member in members) for members in found]


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

    terms = ((item.expression, item.expression.term) for item in query.items)
    return tuple(lookup(term) if isinstance(term, Ref) else value_of(whole, lookup) for whole, term in terms)


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


def _candidates(query: Query, stream: Stream, role: int, rows: Sequence[Row]) -> list[_Candidate]:
    """The rows that serve a role."""
    found, ends = [], [key[role] for key in query.keys]
    for row, later in members_of(query.roles[role], stream, rows):
        if serves(query, {stream.name: stream}, role, row):
            lookup, time = _lookup(role, row), row[stream.event_time]
            keys = tuple(None if end is None else value_of(end, lookup) for end in ends)
            assert isinstance(time, int)
            found.append(_Candidate(row, time, keys, later))
    return found


class _Partners:
    """The rows that serve a role, to be found by rows of the roles before it."""

    def __init__(self, query: Query, role: int, candidates: Sequence[_Candidate]) -> None:
        self.query, self.role = query, role
        # The classes of keys that include this role, and the roles before it in each.
        known = [(n, [i for i in range(role) if key[i] is not None]) for n, key in enumerate(query.keys) if key[role]]
        self.classes = [(n, roles) for n, roles in known if roles]
        self.residuals = [r for r in query.residuals if max(r.roles) == role]
        self.counted = any(isinstance(r.window, Rows) for r in query.roles[: role + 1])
        self.near: dict[Hashable, list[_Candidate]] = {}
        for candidate in sorted(candidates, key=_TIME):
            self.near.setdefault(tuple(_rough(candidate.keys[n]) for n, _ in self.classes), []).append(candidate)

    def of(self, partial: tuple[_Candidate, ...]) -> Iterator[_Candidate]:
        """Those that join all of these rows."""
        same = self.near.get(tuple(_rough(partial[roles[0]].keys[n]) for n, roles in self.classes), ())
        low, high = _reach(self.query, partial)
        for new in same[bisect_left(same, low, key=_TIME) : bisect_right(same, high, key=_TIME)]:
            if (
                all(_equal(partial[i].keys[n], new.keys[n]) for n, roles in self.classes for i in roles)
                and (not self.counted or _counted(self.query, (*partial, new)))
                and all(holds(r, _lookups((*partial, new))) for r in self.residuals)
            ):
                yield new


def _equal(left: object, right: object) -> bool:
    return left == right if type(left) is type(right) is int else compare(left, right) == 0


def _rough(value: object) -> Hashable:
    """Equal for all values that are equal in Spark, and for some that are not."""
    match value:
        case bool() | str():
            return value
        case int() | float() | Decimal():
            number = float(value)
            return "NaN" if math.isnan(number) else number
    return None


def _reach(query: Query, partial: Sequence[_Candidate]) -> tuple[float, float]:
    """The least and the greatest time of a row of the next role, by every window and band between it and these rows."""
    new = len(partial)
    low, high = [-math.inf], [math.inf]
    for role, member in zip(query.roles, partial, strict=False):
        low.append(member.time - _closed_length(query.roles[new]))
        high.append(member.time + _closed_length(role))
        if isinstance(role.window, Tumbling):  # then all roles have it
            start = role.window.start(member.time)
            low.append(start)
            high.append(start + role.window.length - 1)
    for band in query.bands:
        if band.later == new > band.earlier:
            high.append(partial[band.earlier].time + band.upper)
        if band.earlier == new > band.later:
            low.append(partial[band.later].time - band.upper)
    return max(low), min(high)


def _counted(query: Query, members: Sequence[_Candidate]) -> bool:
    """Whether all these rows are in their windows, as far as these count rows."""
    at = max(map(_TIME, members))
    return all(counts(role, member.later, at) for role, member in zip(query.roles, members, strict=False))


def counts(role: Role, later: Sequence[int], at: int) -> bool:
    """Whether a row with these followers is among the last of its stream at that time, which grows with more rows."""
    return not isinstance(role.window, Rows) or sum(time <= at for time in later) < role.window.count


def _closed_length(role: Role) -> int:
    """The greatest age at which a row of this role is still in its window, which is open at the far end."""
    if not isinstance(role.window, Window | Tumbling) or role.window.length is None:
        return FOREVER
    return role.window.length - 1


def _times(query: Query, streams: Mapping[str, Stream], members: Sequence[Row]) -> list[int]:
    return [row[streams[role.stream].event_time] for role, row in zip(query.roles, members, strict=True)]  # type: ignore[misc]


def _lookup(role: int, row: Row) -> Lookup:
    def lookup(ref: Ref) -> object:
        assert ref.role == role
        return row[ref.column]

    return lookup


def _lookups(members: Sequence[_Candidate]) -> Lookup:
    return lambda ref: members[ref.role].row[ref.column]
