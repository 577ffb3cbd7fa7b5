"""How far apart in event time the rows of a result may lie: one closed upper bound for each pair of roles.

`bounds[i][j]` means `ts_j - ts_i <= bounds[i][j]` for every result of the query. Windows and bands are both such
inequalities (decision 0014), so their conjunction is a graph of time differences, and its shortest paths are the
tightest bounds (a window of role i binds i to every other role, a band binds its pair only). Windows that count rows
bound no time: their rows expire when enough others have come.
"""

from __future__ import annotations

from penstock.errors import TimeBoundsError
from penstock.model import Landmark, Query, Role, Rows, Sliding, Tumbling, Window
from penstock.model.time import FOREVER

Bounds = tuple[tuple[int, ...], ...]


def time_bounds(query: Query) -> Bounds:
    """The tightest bounds implied by the query's windows and bands; FOREVER if there is none.

    Raises if the conditions contradict each other: such a query could never have a result.
    """
    count = len(query.roles)
    bound = [[0 if i == j else FOREVER for j in range(count)] for i in range(count)]
    for i, role in enumerate(query.roles):
        for j in range(count):
            if i != j:
                bound[i][j] = _reach(role)
    for band in query.bands:
        bound[band.earlier][band.later] = min(bound[band.earlier][band.later], band.upper)
    for via in range(count):
        for i in range(count):
            for j in range(count):
                bound[i][j] = min(bound[i][j], _plus(bound[i][via], bound[via][j]))
    for i, role in enumerate(query.roles):
        if bound[i][i] < 0:
            raise TimeBoundsError(
                f"the time conditions on {role.alias!r} contradict each other, so the query can never have a result",
                "widen the window or the band",
                role.alias,
                contradictory=True,
            )
    return tuple(tuple(row) for row in bound)


def unbounded_roles(query: Query, bounds: Bounds) -> list[str]:
    """Aliases of roles whose rows would never expire although `[RANGE ALL]` was not requested."""
    found = []
    for i, role in enumerate(query.roles):
        asked = role.window == Window(None) or isinstance(role.window, Landmark)
        counted = isinstance(role.window, Rows)
        if not asked and not counted and any(b >= FOREVER for j, b in enumerate(bounds[i]) if j != i):
            found.append(role.alias)
    return found


def check_bounded(query: Query, bounds: Bounds) -> None:
    """Refuse a join whose state would never expire, with the remedy."""
    loose = unbounded_roles(query, bounds)
    if loose:
        alias = loose[0]
        raise TimeBoundsError(
            f"rows of {alias!r} could match rows that come any time later, so they could never be purged",
            f"add a window ({alias} [RANGE 1 MINUTE]), a time band in WHERE, or [RANGE ALL] to keep them for ever",
            alias,
            contradictory=False,
        )


def _reach(role: Role) -> int:
    """How much later than a row of this role, by its window alone, the other rows of a result can be."""
    if isinstance(role.window, Sliding):
        # All rows of a result lie in one window.
        return role.window.range - 1
    if not isinstance(role.window, Window | Tumbling) or role.window.length is None:
        return FOREVER
    return role.window.length - 1


def _plus(a: int, b: int) -> int:
    return FOREVER if a >= FOREVER or b >= FOREVER else a + b
