"""How rows are stored between steps: as partials of panes, as rows, or per bucket as whichever is smaller.

The form is a property of each stored table, visible in its columns; windows are assembled from both. So a plan may
change between two steps without rewriting state. Row tables here belong to plans that could also store partials.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.kernels.aggregate.close import folded, merge, partials
from penstock.kernels.aggregate.entries import Sorted, lift, load, patterns_of, sort_together, with_patterns
from penstock.kernels.aggregate.keep import expire, horizon
from penstock.kernels.aggregate.outside import inside
from penstock.kernels.aggregate.ticks import are_many, each_tick, spread
from penstock.model.time import NEVER
from penstock.planner.aggregates import AggregatePlan
from penstock.planner.panes import PARTIALS, ROWS_KEPT, PaneSet
from penstock.state.buckets import BUCKETS, bucket_of
from penstock.state.run import Ints

AT_EASE = 1.1  # a bucket changes its form only if the other is smaller by this factor
NO_CUTS: Mapping[int, Sequence[int]] = {}


@dataclass(frozen=True)
class Kept:
    """Tables to store; by pane width how many partials the rows make; an upper bound for the number of groups.

    `sets` are the numbers of the pane sets that the tables belong to.
    """

    tables: list[pa.Table]
    made: dict[int, int]
    groups: int = 0
    sets: list[int] = field(default_factory=list)


def are_rows(table: pa.Table) -> bool:
    return "_ts" in table.column_names


def keep_rows(
    plan: AggregatePlan,
    rows: pa.Table,
    cuts: Mapping[int, Sequence[int]] = NO_CUTS,
    before: npt.NDArray[np.bool_] | None = None,
    slide: int | None = None,
) -> Kept:
    """New rows in the form of each pane set; rows in no window are dropped.

    `cuts` are, by query, times that no partial may cross, even inside a pane: what lies before was already shown.
    `before` says which buckets store rows so far. With `slide` each row counts at several ticks that far apart, see
    `ticks`.
    """
    rows = inside(plan, rows)
    if not len(rows):
        return Kept([], {})
    if slide is not None and not (plan.spreads and are_many(rows, slide)):
        rows, slide = each_tick(rows, slide), None
    if plan.width is None:
        return Kept([partials(plan, rows)], {})
    tables: list[pa.Table] = []
    numbers: list[int] = []
    made: dict[int, int] = {}
    groups = 0
    for number, own in enumerate(plan.sets):
        served = _serving(plan, own, rows)
        if not len(served):
            continue
        ordered = sort_together([served], "_ts", ordered=plan.ordered)
        groups = max(groups, int(ordered.codes[-1]) + 1)
        place = partial(pane_places, own, cuts=sorted({cut for q in own.queries for cut in cuts.get(q, ())}))
        if slide is not None:
            tables.append(spread(plan, ordered, slide, place))
            numbers.append(number)
            made[own.width] = made.get(own.width, 0) + len(tables[-1])
            continue
        places = place(ordered.positions)
        if own.kept == ROWS_KEPT:
            tables.append(ordered.table)
            numbers.append(number)
            made[own.width] = made.get(own.width, 0) + _count(ordered, places)
            continue
        found = folded(ordered, places, lift(plan, ordered))
        made[own.width] = made.get(own.width, 0) + len(found)
        kept = [found] if own.kept == PARTIALS else _smaller(ordered.table, found, before)
        tables += kept
        numbers += [number] * len(kept)
    return Kept(tables, made, groups, numbers)


def with_partials(plan: AggregatePlan, kept: Kept, came: Mapping[int, Sequence[pa.Table]]) -> Kept:
    """`kept` merged with the partials of other rows, by pane set, as if all rows had come at once.

    All pane sets must store partials.
    """
    tables: list[pa.Table] = []
    numbers: list[int] = []
    made: dict[int, int] = {}
    groups = 0
    for number, own in enumerate(plan.sets):
        parts = [table for table, of in zip(kept.tables, kept.sets, strict=True) if of == number]
        parts += came.get(number, ())
        if not parts:
            continue
        ordered = sort_together(parts, "_pane")
        groups = max(groups, int(ordered.codes[-1]) + 1)
        whole = parts[0] if len(parts) == 1 else folded(ordered, ordered.positions, load(plan, ordered))
        tables.append(whole)
        numbers.append(number)
        made[own.width] = made.get(own.width, 0) + len(whole)
    return Kept(tables, made, groups, numbers)


def pane_places(own: PaneSet, times: Ints, cuts: Sequence[int]) -> Ints:
    """Where each row's pane begins; for rows after a cut inside the pane, the cut."""
    panes = own.base + (times - own.base) // own.width * own.width
    if not cuts:
        return np.asarray(panes)
    edges = np.array([NEVER, *cuts], dtype=np.int64)
    return np.asarray(np.maximum(panes, edges[np.searchsorted(edges, times, side="right") - 1]))


def as_partials(plan: AggregatePlan, table: pa.Table) -> pa.Table:
    """A table in the form that windows are assembled from: rows become partials of single moments."""
    if plan.width is None or not are_rows(table):
        return table
    return partials(replace(plan, width=1, base=0), table)


def expire_forms(
    plan: AggregatePlan, tables: Sequence[pa.Table], progress: int, cuts: Mapping[int, Sequence[int]] = NO_CUTS
) -> list[pa.Table]:
    """Few tables of what open windows still need at this progress, each in the form that is wanted now."""
    rows = [table for table in tables if are_rows(table)]
    if plan.width is None or not rows or horizon(plan, progress) is None:
        whole = expire(plan, [as_partials(plan, table) for table in tables], progress)
        return [] if whole is None else [whole]
    left = expire(replace(plan, width=None, sets=()), rows, progress)
    formed = [] if left is None or not len(left) else keep_rows(plan, left, cuts, buckets_of(left)).tables
    held = expire(plan, [table for table in tables if not are_rows(table)], progress)
    made = [table for table in (held, *formed) if table is not None and len(table) and not are_rows(table)]
    return [*([merge(plan, made)] if made else ()), *(table for table in formed if are_rows(table))]


def _serving(plan: AggregatePlan, own: PaneSet, rows: pa.Table) -> pa.Table:
    """The rows that serve a query of the set, with their patterns restricted to it."""
    if len(plan.sets) == 1:
        return rows
    mine = {q.selection for q in plan.queries if q.query in own.queries}
    others = {q.selection for q in plan.queries if q.query not in own.queries}
    assert mine.isdisjoint(others), "queries of two pane sets are told apart by their selections"
    patterns = patterns_of(rows)
    if patterns is None:
        bits = pa.array(np.zeros(len(rows), dtype=np.int32))
        return with_patterns(rows.append_column("_bits", bits), [sorted(mine)])
    parts = [tuple(s for s in pattern if s in mine) for pattern in patterns]
    numbers = {part: n for n, part in enumerate(dict.fromkeys(parts))}
    local = np.array([numbers[part] for part in parts], dtype=np.int32)[rows.column("_bits").to_numpy()]
    at = rows.schema.get_field_index("_bits")
    mapped = with_patterns(rows.set_column(at, "_bits", pa.array(local)), list(numbers))
    return mapped if () not in numbers else mapped.filter(pa.array(local != numbers[()]))


def _count(ordered: Sorted, places: Ints) -> int:
    """How many partials the rows would make."""
    new = (np.diff(ordered.codes) != 0) | (np.diff(places) != 0)
    return int(new.sum()) + 1


def _smaller(rows: pa.Table, made: pa.Table, before: npt.NDArray[np.bool_] | None) -> list[pa.Table]:
    """Per bucket rows or partials, whichever is smaller; near a tie a bucket keeps its form."""
    of_rows, of_made = (_buckets(table) for table in (rows, made))
    room = np.bincount(of_rows, minlength=BUCKETS) * (rows.nbytes / len(rows))
    other = np.bincount(of_made, minlength=BUCKETS) * (made.nbytes / len(made))
    stay = np.zeros(BUCKETS, dtype=np.bool_) if before is None else before
    chosen = np.where(stay, room <= AT_EASE * other, AT_EASE * room < other)
    parts = [made.filter(pa.array(~chosen[of_made])), rows.filter(pa.array(chosen[of_rows]))]
    return [part for part in parts if len(part)]


def _buckets(table: pa.Table) -> Ints:
    return bucket_of(table.column("_key").to_numpy())


def buckets_of(rows: pa.Table) -> npt.NDArray[np.bool_]:
    """Which buckets these rows are in."""
    return np.asarray(np.bincount(_buckets(rows), minlength=BUCKETS) > 0)
