"""The window join by its definition: every tuple of rows that satisfies keys, predicates, windows and bands.

A result is one row for each role, with equal keys, true predicates, and `ts_j - ts_i < w_i` for each two roles i, j:
with T the newest of their times this says that every row i still counts at T. Arrival plays no part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.model import Query, Ref, Role, Stream
from penstock.model.expression import PSEUDO_ROLE, RESULT_TIME
from penstock.model.time import FOREVER
from penstock.reference.evaluate import Lookup, Unspecified, compare, holds, value_of

Row = dict[str, object]


def combinations(
    query: Query, streams: Mapping[str, Stream], rows: Mapping[str, Sequence[Row]]
) -> list[tuple[Row, ...]]:
    """All results as tuples of rows, one for each role, by nested loops in the order of FROM.

    `rows` are the accepted rows of each stream. Two roles over one stream range over the same rows, so that a row
    also meets itself.
    """
    found: list[tuple[Row, ...]] = [()]
    for i, role in enumerate(query.roles):
        candidates = [row for row in rows.get(role.stream, ()) if serves(query, streams, i, row)]
        found = [(*partial, row) for partial in found for row in candidates if _fits(query, streams, partial, row)]
    return found


def serves(query: Query, streams: Mapping[str, Stream], role: int, row: Row) -> bool:
    """Whether a row can take part in that role at all: it has an event time and a key, and its predicates hold."""
    lookup = _lookup(role, row)
    return (
        row[streams[query.roles[role].stream].event_time] is not None
        and all(value_of(part[role], lookup) is not None for part in query.keys)
        and all(holds(p, lookup) for p in query.predicates if p.roles in ((), (role,)))
    )


def bounds(query: Query) -> dict[tuple[int, int], int]:
    """For each two roles (i, j) the least known bound u of `ts_j - ts_i <= u`; `FOREVER` where there is none.

    Windows and bands bind single pairs; what follows from several of them is a shortest path between the roles.
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
    return [project(query, streams, c) for c in combinations(query, streams, rows)]


def _fits(query: Query, streams: Mapping[str, Stream], partial: tuple[Row, ...], row: Row) -> bool:
    """Whether a row in the next role goes with the rows of the roles before it."""
    members = (*partial, row)
    return (
        _same_key(query, members)
        and _close_in_time(query, _times(query, streams, members))
        and all(holds(r, _lookups(members)) for r in query.residuals if max(r.roles) == len(partial))
    )


def _same_key(query: Query, members: tuple[Row, ...]) -> bool:
    new = len(members) - 1
    return all(
        compare(value_of(part[i], _lookup(i, members[i])), value_of(part[new], _lookup(new, members[new]))) == 0
        for part in query.keys
        for i in range(new)
    )


def _close_in_time(query: Query, times: Sequence[int]) -> bool:
    """Every window and band between the last of these rows and the others; the others were tested before it came."""
    new = len(times) - 1
    return all(
        times[new] - times[i] <= _closed_length(query.roles[i])
        and times[i] - times[new] <= _closed_length(query.roles[new])
        for i in range(new)
    ) and all(
        times[band.later] - times[band.earlier] <= band.upper
        for band in query.bands
        if max(band.earlier, band.later) == new
    )


def _closed_length(role: Role) -> int:
    """The greatest age at which a row of this role still counts: a window is open at its far end."""
    return FOREVER if role.window is None or role.window.length is None else role.window.length - 1


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
