"""Which partials a mapper can make from other partials instead of rows: those by (a) from those by (a, b), if cheaper.

A mapper that sends partials of both aggregates then sorts and folds its rows once. It needs no state and no common key
(decision 0018). The rule is narrow, so that the result is the same as from rows: the same rows by the same predicates,
nested panes, and windows that leave out no row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from penstock.model.time import NEVER
from penstock.model.windows import Landmark, Sliding
from penstock.planner.decisions import Sending
from penstock.planner.folding import GAIN, UNKNOWN, FoldingStatistics, folded_in
from penstock.planner.network import Network
from penstock.planner.panes import PaneSet
from penstock.planner.state_table import MAX_ROLES, Entry, StateTable
from penstock.planner.taxonomy import ROWS, Piece
from penstock.planner.window_aggregate import WindowAggregate

# Microseconds of CPU, from `python -m benchmarks.grouping`: it pays from 2.9 rows per partial on, and not below 1.8.
FOLD = 0.07  # to hash, sort and fold a row
ROLL = 0.16  # to do the same with a partial


@dataclass(frozen=True)
class Rollup:
    """How partials of an aggregate are made from another's: its group columns, pieces, pane sets and selections."""

    groups: tuple[int, ...]
    pieces: tuple[int, ...]
    sets: tuple[int, ...]
    selections: Mapping[int, int]


def rollup_of(network: Network, coarse: WindowAggregate, fine: WindowAggregate) -> Rollup | str:
    """How partials of `coarse` can be made from those of `fine`, or why not; mappers can make partials of both."""
    if len(coarse.sources) > 1 or len(fine.sources) > 1 or coarse.streams != fine.streams:
        return "their rows are not those of one stream"
    own, other = coarse.sources[0], fine.sources[0]
    if len(own.groups) >= len(other.groups) or not set(own.groups) <= set(other.groups):
        return "its groups are not some of the other's"
    table = network.tables[own.table]
    if table.key and not (table.hashed and set(table.hashed) <= set(own.groups)):
        return "the hash of its groups does not follow from their values"
    if any(_leaves_out(a) for a in (coarse, fine)):
        return "rows may be in no window"
    if coarse.order and coarse.order != fine.order:
        return "the other does not order rows of one time"
    pieces = _pieces(coarse, fine)
    if isinstance(pieces, str):
        return pieces
    asked = _same_rows(coarse, fine, table, network.tables[other.table])
    sets, selections = [], dict[int, int]()
    for panes in coarse.plan.sets:
        for number, narrow in enumerate(fine.plan.sets):
            found = _served(panes, narrow, coarse, fine, asked)
            if found is not None and _nested(panes, narrow):
                sets.append(number)
                selections |= found
                break
        else:
            return "no panes of the other that its own are made of hold its rows"
    return Rollup(tuple(map(other.groups.index, own.groups)), pieces, tuple(sets), selections)


def is_cut_alike(rollup: Rollup, coarse: WindowAggregate, fine: WindowAggregate, cuts: Mapping[int, int]) -> bool:
    """Whether no partial of `fine` crosses a cut of `coarse`; `cuts` are times by query that no partial may cross."""
    for panes, number in zip(coarse.plan.sets, rollup.sets, strict=True):
        narrow = fine.plan.sets[number]
        known = {cuts[q] for q in narrow.queries if q in cuts}
        for cut in (cuts[q] for q in panes.queries if q in cuts):
            if cut > NEVER and cut not in known and (cut - narrow.base) % narrow.width:
                return False
    return True


def rolled_in(network: Network, stored: Mapping[str, FoldingStatistics]) -> dict[int, int]:
    """The aggregates whose partials mappers make from another's, and the number of that one."""
    folded = folded_in(network, stored)
    by_name = {a.name: a for a in network.aggregates if a.index in folded}
    found = {}
    for coarse in by_name.values():
        fine = by_name.get(stored.get(coarse.name, UNKNOWN).rolled)
        if fine is not None and isinstance(rollup_of(network, coarse, fine), Rollup):
            found[coarse.index] = fine.index
    return found


def check_rollups(
    network: Network, stored: Mapping[str, FoldingStatistics]
) -> tuple[dict[str, FoldingStatistics], list[Sending]]:
    """What mappers make partials from now on, and the changes; `stored` says for which aggregates they make any."""
    after, changes = dict(stored), []
    folded = [a for a in network.aggregates if a.index in folded_in(network, stored)]
    now = rolled_in(network, stored)
    for coarse in network.aggregates:
        known = stored.get(coarse.name, UNKNOWN)
        if coarse not in folded:
            if known.rolled:
                after[coarse.name] = replace(known, rolled="")
            continue
        current = known.rolled if coarse.index in now else ""
        costs = {"": FOLD} | {
            fine.name: ROLL / stored.get(fine.name, UNKNOWN).reduction
            for fine in folded
            if isinstance(rollup_of(network, coarse, fine), Rollup)
        }
        best = min(costs, key=lambda name: (costs[name], name))
        chosen = best if costs[best] < (1 - GAIN) * costs[current] else current
        if chosen != known.rolled:
            after[coarse.name] = replace(known, rolled=chosen)
        if chosen != current:
            reduction = stored.get(chosen or current, UNKNOWN).reduction
            reason = f"a partial of {chosen or current!r} stands for {reduction:,.1f} rows of a mapper"
            changes.append(Sending(coarse.name, _said(current), _said(chosen), costs[current], costs[chosen], reason))
    return after, changes


def rolled_text(network: Network, stored: Mapping[str, FoldingStatistics], coarse: WindowAggregate) -> str | None:
    """What mappers make an aggregate's partials from, if not from rows, for EXPLAIN."""
    fine = rolled_in(network, stored).get(coarse.index)
    if fine is None:
        return None
    name = network.aggregates[fine].name
    return f"rolled up from {name} in mappers ({stored.get(name, UNKNOWN).reduction:,.1f} rows a partial)"


def _leaves_out(aggregate: WindowAggregate) -> bool:
    """Whether a row that a query selects may be in none of its windows."""
    windows = [query.window for query in aggregate.plan.queries]
    origins = any(isinstance(w, Sliding | Landmark) and w.origin is not None for w in windows)
    return origins or any(isinstance(w, Sliding) and w.range < w.slide for w in windows)


def _pieces(coarse: WindowAggregate, fine: WindowAggregate) -> tuple[int, ...] | str:
    """For each piece of one the number of the same piece of the other."""
    if any(piece.kind in ("bag", "state") for piece in coarse.plan.pieces):
        return (
            "values that are kept each by itself, sketches and states of users' own are no cheaper to merge than "
            "to make"
        )
    known = {_about(fine, piece): number for number, piece in enumerate(fine.plan.pieces)}
    found = [known.get(_about(coarse, piece)) for piece in coarse.plan.pieces]
    return "the other does not keep all that it keeps" if None in found else tuple(n for n in found if n is not None)


def _about(aggregate: WindowAggregate, piece: Piece) -> tuple[object, ...]:
    plan, columns = aggregate.plan, aggregate.sources[0].arguments
    argument = None if piece.argument == ROWS else (columns[piece.argument], plan.types[piece.argument])
    return piece.kind, argument, piece.function, piece.parameters


def _same_rows(
    coarse: WindowAggregate, fine: WindowAggregate, table: StateTable, other: StateTable
) -> dict[int, set[int]]:
    """By query of one the queries of the other that select the same rows."""
    wanted, offered = _entries(coarse, table), _entries(fine, other)
    return {
        query: {q for q, found in offered.items() if _equal(_filters(entry, table), _filters(found, other))}
        for query, entry in wanted.items()
    }


def _entries(aggregate: WindowAggregate, table: StateTable) -> dict[int, Entry]:
    by_id = {entry.id: entry for entry in table.entries}
    return {m.id: by_id[m.share * MAX_ROLES] for m in aggregate.members}


def _filters(entry: Entry, table: StateTable) -> tuple[object, ...]:
    """Everything that excludes rows from an entry."""
    return (*entry.terms, *(truth for truth in entry.truths if truth not in table.watched))


def _equal(one: Iterable[object], other: Iterable[object]) -> bool:
    one, other = list(one), list(other)
    return all(term in other for term in one) and all(term in one for term in other)


def _served(
    panes: PaneSet, narrow: PaneSet, coarse: WindowAggregate, fine: WindowAggregate, asked: Mapping[int, set[int]]
) -> dict[int, int] | None:
    """By selection of a pane set the selection of another that sees the same rows; None if some has none."""
    selections = {q.query: q.selection for a in (coarse, fine) for q in a.plan.queries}
    found = {}
    for query in panes.queries:
        partner = next((q for q in narrow.queries if q in asked[query]), None)
        if partner is None:
            return None
        found[selections[query]] = selections[partner]
    return found


def _nested(panes: PaneSet, narrow: PaneSet) -> bool:
    return panes.width % narrow.width == 0 and (panes.base - narrow.base) % narrow.width == 0


def _said(name: str) -> str:
    return f"partials of those of {name!r}" if name else "partials of rows"
