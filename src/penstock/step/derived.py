"""Results of queries as input of later steps: rows of the derived streams that other queries read.

A step reads what earlier steps committed and no step has read yet; how far that is, is committed with it, so that a
repeated step reads the same. `planner/derived.py` defines derived streams and their progress.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from penstock.model.limits import MOST_TAKEN
from penstock.model.punctuation import TO, part_of
from penstock.model.time import FOREVER, NEVER
from penstock.planner.derived import DerivedStream
from penstock.planner.network import Network
from penstock.planner.reached import Reached, as_answered
from penstock.planner.window_aggregate import WindowAggregate
from penstock.results.part import Part
from penstock.results.read import ResultView
from penstock.state.manifest import Manifest, Patterns, Progress
from penstock.state.owed import before, of_joins
from penstock.state.suspension import Suspension
from penstock.step.taken import Taken

KIND = "derived"  # of progress that follows from that of other streams
Views = Callable[[int], Sequence[ResultView]]  # the views on a query's results and on those that it continues


def cursors(network: Network, manifest: Manifest) -> dict[str, int]:
    """Up to which step each derived stream has been read; a new one begins with the next."""
    return {d.name: manifest.derived.get(d.name, manifest.step) for d in network.derived_streams}


def waiting(network: Network, manifest: Manifest, views: Views) -> list[DerivedStream]:
    """The derived streams with results that no step has read yet."""
    taken = cursors(network, manifest)
    found = []
    for derived in (
        network.derived_streams if manifest.results.since(min(taken.values(), default=manifest.step)) else ()
    ):
        since, own = taken[derived.name], [view.record.id for view in views(derived.query)]
        if any(file.count(query) for query in own for file in manifest.results.of(query, since=since)):
            found.append(derived)
    return found


def moved(network: Network, manifest: Manifest, progress: Mapping[str, Progress]) -> dict[str, Progress]:
    """Progress of the derived streams after a step that has read all results so far; `progress` is by what it saw."""
    reached = manifest.reached()
    found = {}
    for derived in network.derived_streams:
        old = progress.get(derived.name, Progress(NEVER, NEVER, KIND))
        known = before(reached, of_joins(manifest.owed, _joins_of(network, derived))) if manifest.owed else reached
        value = max(old.value, derived.progress(as_answered(known, derived.query)))
        if value > NEVER or old.newest > NEVER:
            new = replace(old, value=value, kind=KIND, closed=_boxes(network, derived, known))
            found[derived.name] = old if new == old else replace(new, grown=None)
    return found


def _joins_of(network: Network, derived: DerivedStream) -> set[str]:
    """The joins that find the results of the query that is read, or of its parts."""
    read = next(query for query in network.queries if query.id == derived.query)
    return {network.bits[part.id][0] for part in network.parts_of(read)}


def _boxes(network: Network, derived: DerivedStream, reached: Reached) -> Patterns:
    """What is complete of a join before its progress has passed it, as a punctuation.

    Only if all its readers group by the times of its streams: their groups are single moments. Windows with a length
    follow progress: they may be stored as panes, shown early or capped, for all groups alike.
    """
    box = derived.box(as_answered(reached, derived.query), network.streams)
    told = {f"{column}_{TO}": time for column, time in box.items()}
    readers = [(a, s) for a in network.aggregates for s in a.sources if s.stream == derived.name]
    if not box or not readers or not all(box.keys() <= set(s.groups) and _momentary(a) for a, s in readers):
        return ()
    if any(part_of(derived.stream, name) != (column, TO) for name, column in zip(told, box, strict=True)):
        return ()  # a column of the join happens to have that name
    return ((json.dumps(told), FOREVER),)


def _momentary(aggregate: WindowAggregate) -> bool:
    slowly = aggregate.flush is not None or any(m.paned or m.every is not None for m in aggregate.members)
    return not slowly and all(query.window is None for query in aggregate.plan.queries)


def all_taken(network: Network, manifest: Manifest) -> dict[str, int]:
    """The cursors of derived streams after a step that reads all results so far."""
    return {d.name: manifest.step for d in network.derived_streams}


def unread_since(network: Network, manifest: Manifest) -> int:
    """All readers have read result files of this step and earlier ones."""
    return min(cursors(network, manifest).values(), default=manifest.step)


def taken_in(network: Network, manifest: Manifest, views: Views) -> list[Taken]:
    """The rows of derived streams for the next step."""
    taken = cursors(network, manifest)
    left = too_many(network, manifest, views)
    found = []
    for derived in waiting(network, manifest, views):
        if derived.name in left or manifest.suspended.keys() >= set(_readers(network, derived)):
            continue
        part = Part(since=taken[derived.name], until=manifest.step)
        found.append(Taken(derived, views(derived.query), manifest, part))
    return found


def too_many(network: Network, manifest: Manifest, views: Views) -> dict[str, str]:
    """The derived streams with more rows for the next step than it can read, with their numbers."""
    taken, found = cursors(network, manifest), {}
    for derived in waiting(network, manifest, views):
        part = Part(since=taken[derived.name], until=manifest.step)
        own = views(derived.query)
        ticks = 1 if derived.ticks is None or _spread(network, derived) else derived.ticks.most
        count = ticks * sum(view.count(manifest, part) for view in own)
        if count > MOST_TAKEN:
            what = "the join below it" if derived.joined else f"query {own[-1].record.name!r}, which it reads,"
            found[derived.name] = f"{what} has up to {count:,} rows for one step, which can take in {MOST_TAKEN:,}"
    return found


def _spread(network: Network, derived: DerivedStream) -> bool:
    """Whether no reader expands a result to a row per tick."""
    return all(a.plan.spreads for a in network.aggregates if derived.name in a.streams)


def suspended_by(network: Network, manifest: Manifest, views: Views) -> dict[int, Suspension]:
    """Queries that can no longer be answered, since the next step does not read their input; and why."""
    found: dict[int, Suspension] = {}
    left = too_many(network, manifest, views)
    for derived in network.derived_streams:
        if derived.name in left:
            why = Suspension(f"{left[derived.name]}; there, give windows a longer SLIDE or a shorter RANGE")
            found |= {q: why for q in _readers(network, derived) if q not in manifest.suspended}
    return found


def _readers(network: Network, derived: DerivedStream) -> list[int]:
    """The queries that read a derived stream, all parts of each."""
    reading = [q for q in network.queries if any(derived.name in role.streams for role in q.query.roles)]
    return list(dict.fromkeys(part.id for query in reading for part in network.parts_of(query)))
