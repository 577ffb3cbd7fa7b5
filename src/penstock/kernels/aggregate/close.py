"""Window aggregates in one task: partials of new rows, their merge, and the results of windows that progress closes.

`partials` turns a delta into a table that can be stored as a run, `merge` combines such tables, and `close` computes
the results of all windows with `after` < end <= `until`, each once. `entries` describes the tables. Buffered plans
store rows instead of partials; everything else is the same. `keep` decides what open windows still need.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.columns.terms.evaluation import holds, values
from penstock.columns.types import arrow_type
from penstock.kernels.aggregate import frames as framing
from penstock.kernels.aggregate.codes import Flags
from penstock.kernels.aggregate.columns import Column, Integers, Spans, Stacked
from penstock.kernels.aggregate.entries import (
    Entries,
    Sorted,
    lift,
    load,
    patterns_of,
    sort_together,
    starts_of,
    store,
)
from penstock.kernels.aggregate.finish import finished, overflows
from penstock.kernels.aggregate.frames import Frames
from penstock.kernels.aggregate.ranking import row_windows
from penstock.kernels.aggregate.results import Shown, TooManyError, leading, table_of
from penstock.model.expression import AGGREGATE_ROLE, GROUP_ROLE, WINDOW_START, Ref, Term
from penstock.model.time import FOREVER, NEVER
from penstock.model.windows import Landmark, PerRow, Session, Sliding, SlidingRows
from penstock.planner.aggregates import AggregatePlan, Windowed
from penstock.planner.panes import INSTANT
from penstock.planner.taxonomy import ROWS
from penstock.state.run import Ints


@dataclass(frozen=True)
class Closed:
    """Results of one query: `g0`.., `window_start`, `window_end`, `a0`..; for combined windows also `_windows`.

    A row with `_windows` = n stands for n windows one slide apart, of which it shows the first. `early` results are of
    windows still open. `errors` counts windows with a HAVING that raised, or with a sum that overflows its type and so
    is NULL. `refused` is the reason why there are no results: there would be too many.
    """

    query: int
    table: pa.Table
    early: bool = False
    errors: int = 0
    refused: str | None = None


def partials(plan: AggregatePlan, rows: pa.Table) -> pa.Table:
    """The partials of new rows by group and pane; the sorted rows themselves if the plan is buffered."""
    ordered = sort_together([rows], "_ts", ordered=plan.ordered)
    if plan.width is None:
        known = "_gone" in ordered.table.column_names or not plan.ranked
        return ordered.table if known else ordered.table.append_column("_gone", _zeros(len(rows)))
    panes = plan.base + (ordered.positions - plan.base) // plan.width * plan.width
    return folded(ordered, panes, lift(plan, ordered))


def merge(plan: AggregatePlan, tables: Sequence[pa.Table]) -> pa.Table:
    """One table of several: partials of the same group and pane are merged; rows are sorted together."""
    if len(tables) == 1:
        return tables[0].combine_chunks()
    if plan.width is None:
        return sort_together(tables, "_ts", ordered=plan.ordered).table
    return merged_anew(plan, tables)


def close(
    plan: AggregatePlan,
    tables: Sequence[pa.Table],
    after: int,
    until: int,
    *,
    newest: int | None = None,
    runs: bool = False,
) -> list[Closed]:
    """The results of every query for the windows with `after` < end <= `until`.

    `until` FOREVER ends the streams: every window that holds a row is closed, a landmark's up to the first that covers
    `newest`, the time of the newest row of the whole stream. `runs` combines windows of equal content.
    """
    queries = [q.query for q in plan.queries] if runs else ()
    return close_tables(plan, tables, after, until, newest, queries)


def close_tables(
    plan: AggregatePlan, tables: Sequence[pa.Table], after: int, until: int, newest: int | None, runs: Collection[int]
) -> list[Closed]:
    """As `close`; `runs` are the queries whose windows of equal content are combined."""
    gathered = gather(plan, tables)
    return [] if gathered is None else close_gathered(gathered, after, until, newest=newest, runs=runs)


@dataclass(frozen=True)
class Gathered:
    """All that a task has stored of an aggregate, sorted, and what each selection sees of it."""

    plan: AggregatePlan
    ordered: Sorted
    seen: dict[bytes, Entries] = field(default_factory=dict)

    @cached_property
    def columns(self) -> tuple[Column | None, ...]:
        return lift(self.plan, self.ordered) if self.plan.buffered else load(self.plan, self.ordered)

    def entries(self, query: Windowed) -> Entries:
        """The entries of a query over time, from its origin on."""
        alike = self.ordered.pattern(query.selection)
        if alike not in self.seen:
            # Rows of one time stay separate where a list or their order may be needed.
            self.seen[alike] = serving(self.ordered, self.columns, query.selection, fold=not self.plan.buffered)
        entries = since_origin(self.seen[alike], query)
        return by_begin(self.plan, entries) if isinstance(query.window, Session) else entries


def gather(plan: AggregatePlan, tables: Sequence[pa.Table]) -> Gathered | None:
    """The tables as one; None if there are no entries."""
    held = [table for table in tables if len(table)]
    if not held:
        return None
    time = "_ts" if plan.buffered else "_pane"
    return Gathered(plan, sort_together(held, time, ordered=plan.buffered and plan.ordered))


def close_gathered(
    gathered: Gathered,
    after: int,
    until: int,
    *,
    newest: int | None = None,
    runs: Collection[int] = (),
    leave: Collection[int] = (),
) -> list[Closed]:
    """As `close_tables`, of gathered tables; skips the queries in `leave`."""
    plan, ordered = gathered.plan, gathered.ordered
    if newest is None:
        newest = int(ordered.positions.max())
    found = []
    for query in plan.queries:
        if query.query in leave:
            continue
        together = query.query in runs
        try:
            if isinstance(query.window, SlidingRows | PerRow):
                entries, frames, shown = row_windows(query, ordered, gathered.columns, after, until)
            else:
                entries = gathered.entries(query)
                frames = time_frames(plan, query, entries, after, until, newest)
                shown = shown_as(query, frames)
            found.append(results_of(plan, query, entries, frames, shown, runs=together))
        except TooManyError as error:
            found.append(refused(query, error))
    return found


def refused(query: Windowed, error: TooManyError) -> Closed:
    """No results of a query, with the reason."""
    return Closed(query.query, pa.table({}), refused=str(error))


def merged_anew(plan: AggregatePlan, tables: Sequence[pa.Table]) -> pa.Table:
    ordered = sort_together(tables, "_pane")
    return folded(ordered, ordered.positions, load(plan, ordered))


def folded(ordered: Sorted, positions: Ints, columns: tuple[Column | None, ...]) -> pa.Table:
    """Entries of the same group, position and pattern folded into one, as a table."""
    bits: npt.NDArray[np.int32] | None = None
    index = np.arange(len(positions))
    codes = ordered.codes
    if patterns_of(ordered.table) is not None:
        bits = ordered.bits
        if len(ordered.patterns) > 1:
            index = np.lexsort((bits, positions, codes))
            columns = tuple(column and column.take(index) for column in columns)
            codes, positions, bits = codes[index], positions[index], bits[index]
    new = np.ones(len(positions), dtype=np.bool_)
    new[1:] = (np.diff(codes) != 0) | (np.diff(positions) != 0)
    if bits is not None:
        new[1:] |= np.diff(bits) != 0
    low = np.flatnonzero(new)
    high = np.append(low[1:], len(positions))[: len(low)]
    whole = tuple(column and column.fold(low, high) for column in columns)
    entries = Entries(starts_of(codes[low]), positions[low], whole, ordered.table, index[low])
    return store(entries, None if bits is None else bits[low], None if bits is None else ordered.patterns)


def serving(ordered: Sorted, columns: tuple[Column | None, ...], selection: int, *, fold: bool) -> Entries:
    """What a selection sees; with `fold`, partials of a group and pane that differ only in other selections are one."""
    entries = Entries(
        ordered.starts, ordered.positions, columns, ordered.table, np.arange(len(ordered.positions), dtype=np.int64)
    )
    serving = ordered.serving(selection)
    if serving is not None:
        entries = entries.take(np.flatnonzero(serving))
    return entries.fold() if fold else entries


def since_origin(entries: Entries, query: Windowed) -> Entries:
    """The entries from the query's origin on, if it has one."""
    origin = query.window.origin if isinstance(query.window, Sliding | Landmark) else None
    if origin is None:
        return entries
    # A landmark's total lies at NEVER and covers only rows after the origin.
    inside = entries.positions >= origin
    if isinstance(query.window, Landmark):
        inside |= entries.positions == NEVER
    return entries if inside.all() else entries.take(np.flatnonzero(inside))


def time_frames(plan: AggregatePlan, query: Windowed, entries: Entries, after: int, until: int, newest: int) -> Frames:
    """The windows of time with `after` < end <= `until` that hold an entry."""
    match query.window:
        case Sliding() as window:
            bounds = (np.array([n], dtype=np.int64) for n in (window.closed(after), window.closed(until) - 1))
            return framing.sliding(entries.starts, entries.positions, window.range, window.slide, window.start, *bounds)
        case None:
            bounds = (np.array([n], dtype=np.int64) for n in (INSTANT.closed(after), INSTANT.closed(until) - 1))
            return framing.sliding(entries.starts, entries.positions, 1, 1, 0, *bounds)
        case Landmark() as window:
            last = (newest - window.start) // window.slide if until >= FOREVER else window.closed(until) - 1
            return framing.landmark(
                entries.starts, entries.positions, window.slide, window.start, window.closed(after), last
            )
        case Session(gap):
            spans = spans_of(plan, entries)
            return framing.sessions(entries.starts, spans.begins, spans.ends, gap, after, until)
    msg = f"{query.window} is a window of rows"
    raise AssertionError(msg)


def by_begin(plan: AggregatePlan, entries: Entries) -> Entries:
    """The entries of each group in the order of their first rows: panes of several widths may overlap."""
    begins = spans_of(plan, entries).begins
    order = np.lexsort((begins, np.repeat(np.arange(len(entries.starts) - 1), np.diff(entries.starts))))
    if (order[1:] > order[:-1]).all():
        return entries
    columns = tuple(column and column.take(order) for column in entries.columns)
    return replace(entries, positions=entries.positions[order], columns=columns, row_of=entries.row_of[order])


def spans_of(plan: AggregatePlan, entries: Entries) -> Spans:
    number = next(n for n, piece in enumerate(plan.pieces) if piece.kind == "span")
    spans = entries.columns[number]
    assert isinstance(spans, Spans)
    return spans


def shown_as(query: Windowed, frames: Frames) -> Shown:
    """The window_start and window_end that the windows of frames show."""
    match query.window:
        case Sliding() as window:
            return Shown(window.slide, window.start + (frames.first + 1) * window.slide, window.range, window.origin)
        case Landmark() as window:
            ends = window.start + (frames.first + 1) * window.slide
            return Shown(window.slide, ends, None, window.origin)
        case Session():
            return Shown(0, frames.last, starts=frames.first)
        case _:
            return Shown(1, frames.first)  # a moment shows itself


def results_of(
    plan: AggregatePlan, query: Windowed, entries: Entries, frames: Frames, shown: Shown, *, runs: bool = False
) -> Closed:
    """Evaluate HAVING with the aggregates it needs, then the other aggregates for the remaining windows."""
    made: dict[int, pa.Array] = {}
    errors = 0

    def value(number: int) -> pa.Array:
        nonlocal errors
        if number not in made:
            made[number], wrong = _aggregate(plan, query, entries, frames, number)
            errors += 0 if wrong is None else int(shown.counts(frames)[wrong].sum())
        return made[number]

    def lookup(ref: Ref) -> pa.Array:
        if ref.role == AGGREGATE_ROLE:
            return value(int(ref.column[1:]))
        if ref.role == GROUP_ROLE:
            return entries.group_values(frames.group)[int(ref.column[1:])]
        return pa.array(shown.begins if ref.column == WINDOW_START else shown.ends)

    if query.having is not None and query.having.term is not None and len(frames):
        if any(ref.role not in {AGGREGATE_ROLE, GROUP_ROLE} for ref in query.having.refs):
            frames, shown = shown.expanded(frames)
        kept, raised = holds(query.having.term, lookup, len(frames))
        errors += int(shown.counts(frames)[raised].sum())
        frames, shown = frames.take(kept), shown.take(kept)
        made = {number: array.filter(pa.array(kept)) for number, array in made.items()}
    if query.top is not None and query.cut and len(frames):
        singles = shown.expanded(frames)
        index = pa.array(np.repeat(np.arange(len(frames)), shown.counts(frames)))
        for number in {
            int(r.column[1:]) for k in query.top.keys for r in k.expression.refs if r.role == AGGREGATE_ROLE
        }:
            value(number)  # once for all windows of a frame
        made = {number: array.take(index) for number, array in made.items()}
        frames, shown = singles
        keys = [_sort_values(key.expression.term, lookup, len(frames)) for key in query.top.keys]
        windows = shown.ends if shown.ids is None else shown.ids
        best = leading(query.top, keys, entries.group_values(frames.group), windows)
        frames, shown = frames.take(best), shown.take(best)
        made = {number: array.filter(pa.array(best)) for number, array in made.items()}
    aggregates = [value(number) for number in range(len(query.aggregates))]
    table = table_of(entries.group_values(frames.group), aggregates, frames, shown, runs=runs)
    return Closed(query.query, table, errors=errors)


def _sort_values(term: Term | None, lookup: Callable[[Ref], pa.Array], rows: int) -> pa.Array:
    assert term is not None, "kernels cut windows only by what they can compute"
    return lookup(term) if isinstance(term, Ref) else values(term, lookup, rows)[0]


def _aggregate(
    plan: AggregatePlan, query: Windowed, entries: Entries, frames: Frames, number: int
) -> tuple[pa.Array, Flags | None]:
    """The values of an aggregate, and where they overflowed and so are NULL."""
    columns = [entries.columns[piece] for piece in query.measures[number]]
    argument = plan.pieces[query.measures[number][0]].argument
    aggregate = query.aggregates[number]
    kind = None if argument == ROWS else arrow_type(plan.types[argument])
    whole = [column for column in columns if column is not None]
    if query.stacks:
        whole = [Stacked(column.parts) if isinstance(column, Integers) else column for column in whole]
    found = finished(aggregate, whole, frames.low, frames.high, kind, plan.own)
    return found, overflows(aggregate, whole, frames.low, frames.high, found)


def _zeros(count: int) -> pa.Array:
    return pa.array(np.zeros(count, dtype=np.int64))
