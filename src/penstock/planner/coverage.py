"""From which time on state holds all rows of a query that begins from stored rows."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.model.time import NEVER
from penstock.planner.network import Network
from penstock.planner.reached import Reached
from penstock.planner.state_table import Entry, StateTable


def held_from(
    before: Network,
    after: Network,
    share: int,
    since: Mapping[int, int],
    complete: Mapping[int, Mapping[str, int]],
    progress: Reached,
    newest: Mapping[str, int],
) -> dict[str, int]:
    """Stream -> the time from which all its rows take part; streams whose rows all take part are left out.

    `since` (first step) and `complete` are those of the queries of the network `before`; `newest` is the first time
    that no row has reached yet: rows that no query needed have expired up to there.
    """
    kept = {table.name: table for table in before.tables}
    found: dict[str, int] = {}
    for table in after.tables:
        for entry in (e for e in table.entries if e.query == share):
            old = kept.get(table.name)
            times = (
                [] if old is None else [_held(old, other, entry, since, complete, progress) for other in old.entries]
            )
            start = min((t for t in times if t is not None), default=newest.get(table.stream, NEVER))
            if start > NEVER:
                found[table.stream] = max(found.get(table.stream, start), start)
    return found


def _held(
    table: StateTable,
    other: Entry,
    entry: Entry,
    since: Mapping[int, int],
    complete: Mapping[int, Mapping[str, int]],
    progress: Reached,
) -> int | None:
    """The time after which every row that serves `entry` is stored and marked, because it serves `other`; or None."""
    stored = frozenset[str]().union(*(e.needs for e in table.entries if since[e.query] <= since[other.query]))
    tested = {column for column, term in entry.terms if (column, term) not in other.terms}
    if other.counts is not None:
        return None  # its rows expire when others have come, whatever their time
    weaker = set(other.terms) <= set(entry.terms) and set(other.truths) == set(entry.truths)
    if not weaker or not (entry.needs | tested) <= stored:
        return None
    horizon = table.horizon(other, progress)
    return max(complete[other.query].get(table.stream, NEVER), horizon + 1 if horizon > NEVER else NEVER)
