"""Window aggregates in a task: new rows become partials, windows that progress has passed close."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.kernels.aggregate.ahead import close_groups, expire_groups
from penstock.kernels.aggregate.close import Closed, close_gathered, gather
from penstock.kernels.aggregate.early import marked, open_windows
from penstock.kernels.aggregate.flush import Cap, flush, share_of
from penstock.kernels.aggregate.forms import (
    Kept,
    are_rows,
    as_partials,
    buckets_of,
    expire_forms,
    keep_rows,
    with_partials,
)
from penstock.kernels.aggregate.keep import needed_until
from penstock.kernels.aggregate.outside import count_outside
from penstock.kernels.aggregate.stored import from_rows, received, refused, served, to_rows
from penstock.kernels.aggregate.ticks import TooManyTicksError
from penstock.model.memory import Limits
from penstock.model.time import FOREVER, NEVER
from penstock.planner.counters import PaneCounters
from penstock.planner.panes import EITHER
from penstock.planner.reached import Clock, Closing
from penstock.planner.window_aggregate import AggregateSource, WindowAggregate
from penstock.state.buckets import BUCKETS
from penstock.state.compaction import Merge
from penstock.state.flushed import Flushed
from penstock.state.run import Rows, RunEntry
from penstock.state.suspension import Suspension
from penstock.step.held import Held
from penstock.step.panes import write_panes
from penstock.step.windows import write_windows


def aggregate_rows(
    held: Held,
    aggregate: WindowAggregate,
    fresh: Mapping[int, Sequence[Rows]],
    folded: Mapping[int, Mapping[int, Sequence[pa.Table]]],
) -> None:
    """Add new rows to partials, close the windows that progress has passed, and store the partials.

    `folded` are partials that mappers have made of other new rows, by state table and pane set.
    """
    kept: list[pa.Table] = []
    counts = held.report.table(aggregate.name)
    for source in aggregate.sources:
        # Pieces of rows and of partials are stored as they come: a window merges them like those of several steps.
        pieces = fresh.get(source.table, ())
        made = _made(held, aggregate, source, pieces[0] if pieces else None)
        came = folded.get(source.table)
        parts = [] if came is None else in_parts(came, held.task.limits)
        if parts:
            made = with_partials(aggregate.plan, made, parts[0])
        every = [made, *(_made(held, aggregate, source, rows) for rows in pieces[1:])]
        every += [with_partials(aggregate.plan, Kept([], {}), part) for part in parts[1:]]
        for made in every:
            if made.tables:
                kept += made.tables
                counts.panes.add(PaneCounters(made.groups, made.made))
    added = [as_partials(aggregate.plan, table) for table in kept]
    before, now = aggregate.closed(held.task.progress)
    ahead = held.task.ahead
    closes = aggregate.closes(before, now) or ahead.closes(aggregate, held.task.progress)
    early = {m.id: held.task.early[m.id] for m in aggregate.members if m.id in held.task.early}
    if closes or early:
        tables = _shares(held, aggregate, held.task.runs.get(aggregate.home, ()), marks=bool(early))
        tables += [marked(table, held.task.step) for table in added] if early else added
        newest = max(held.task.newest.get(stream, NEVER) for stream in aggregate.streams)
        if aggregate.flush is not None:
            _flush(held, aggregate, tables, now, newest)
            tables = []
        paned = [m.id for m in aggregate.members if m.paned]
        runs = [m.id for m in aggregate.members if m.repeats]
        found: list[Closed] = []
        if ahead.concerns(aggregate):  # then none is paned, and none has early results
            found = close_groups(aggregate, held.network.streams, tables, held.task.progress, ahead, newest, runs)
        elif len(paned) < len(aggregate.members) and (gathered := gather(aggregate.plan, tables)) is not None:
            left = {*paned, *held.task.suspended}
            found = close_gathered(gathered, before, now, newest=newest, leave=left, runs=runs) if closes else []
            found += [
                open_windows(gathered, q, now, early[q.query], runs=q.query in runs)
                for q in aggregate.plan.queries
                if q.query in early and q.query not in left
            ]
        write_windows(aggregate, found, held)
        if paned and closes and tables:
            write_panes(aggregate, tables, before, now, held.task, held.network.version, held.report)
    for table in kept:
        counts.stored += len(table)
        _write(held, aggregate, table, 0)


def in_parts(
    came: Mapping[int, Sequence[pa.Table]], limits: Limits | None
) -> Sequence[Mapping[int, Sequence[pa.Table]]]:
    """Partials by pane set in parts that may be merged in memory."""
    if limits is None:
        return [came]
    parts: list[dict[int, list[pa.Table]]] = []
    size = limits.work
    for number, tables in came.items():
        for table in tables:
            if size >= limits.work:
                parts.append({})
                size = 0
            parts[-1].setdefault(number, []).append(table)
            size += table.nbytes
    return parts


def _made(held: Held, aggregate: WindowAggregate, source: AggregateSource, rows: Rows | None) -> Kept:
    """The state of new rows of one state table. A query whose rows count at too many ticks cannot be answered."""
    if rows is None or not len(rows):
        return Kept([], {})
    own = served(aggregate, rows)
    held.report.table(held.network.tables[source.table].name).aggregated += len(rows)
    for query, count in count_outside(aggregate.plan, own).items():
        held.report.query(query).outside += count
    slide = None if source.ticks is None else source.ticks.slide
    table, cuts, before = received(aggregate, source, own), _cuts(held, aggregate), _kept_as_rows(held, aggregate)
    try:
        return keep_rows(aggregate.plan, table, cuts, before, slide)
    except TooManyTicksError as error:
        why = Suspension(f"{error}; give windows a longer SLIDE or a shorter RANGE")
        held.report.refused.update((member.id, why) for member in aggregate.members)
        return Kept([], {})


def _flush(held: Held, aggregate: WindowAggregate, tables: Sequence[pa.Table], until: int, newest: int) -> None:
    """Emit as many results as this task may, and report how far it has come."""
    assert aggregate.flush is not None
    rows, behind = aggregate.flush
    own = held.low, held.high
    if aggregate.members[0].id in held.task.suspended:
        held.report.flushed[aggregate.name] = Flushed(*own, until)
        return
    before = min(held.task.progress.get(Closing(stream), NEVER) for stream in aggregate.streams)
    known = held.task.flushed.get(aggregate.name, ())
    # Shares rotate, so that fewer results than tasks do not leave one out for ever.
    turn = (held.partition + held.task.step) % held.task.buckets.tasks
    cap = Cap(share_of(rows, turn, held.task.buckets.tasks), behind)
    found, reached = flush(
        gather(aggregate.plan, tables), aggregate.plan.queries[0], known, own, until, cap, (before, newest)
    )
    held.report.flushed[aggregate.name] = reached
    write_windows(aggregate, found, held)


def _shares(
    held: Held, aggregate: WindowAggregate, entries: Sequence[RunEntry], *, marks: bool = False
) -> list[pa.Table]:
    """What windows are assembled from in this task, marked with the step that added it if wanted."""
    tables = [(entry.step, as_partials(aggregate.plan, table)) for entry, table in _stored(held, aggregate, entries)]
    return [marked(table, step) if marks else table for step, table in tables]


def _stored(held: Held, aggregate: WindowAggregate, entries: Sequence[RunEntry]) -> Iterator[tuple[RunEntry, pa.Table]]:
    """The stored partials and rows that this task serves."""
    for entry in entries:
        for rows in held.own(held.network.tables[aggregate.home], entry):
            yield entry, from_rows(aggregate, rows)


def _cuts(held: Held, aggregate: WindowAggregate) -> dict[int, tuple[int, ...]]:
    """By query: the time before which all panes are among its results."""
    return {m.id: (held.task.panes[m.id],) for m in aggregate.members if m.id in held.task.panes}


def _kept_as_rows(held: Held, aggregate: WindowAggregate) -> npt.NDArray[np.bool_] | None:
    """The buckets of which the last step has stored rows, if that is decided per bucket."""
    if all(own.kept != EITHER for own in aggregate.plan.sets):
        return None
    entries = [e for e in held.task.runs.get(aggregate.home, ()) if e.level == 0]
    last = [e for e in entries if e.step == max(e.step for e in entries)]
    found = np.zeros(BUCKETS, dtype=np.bool_)
    for _, table in _stored(held, aggregate, last):
        if are_rows(table):
            found |= buckets_of(table)
    return found


def _write(held: Held, aggregate: WindowAggregate, table: pa.Table, level: int) -> None:
    for query, why in refused(aggregate.plan, table).items():
        name = next(q.name for q in held.network.queries if q.id == query)
        again = f"query {name!r}: {why}; then drop the query and create it again"
        held.report.refused.setdefault(query, Suspension(again))
    rows, closings = to_rows(aggregate, table), list[Clock](aggregate.closings)
    until = dict.fromkeys(closings, needed_until(aggregate.plan, int(rows.time.max())))
    table = replace(held.network.tables[aggregate.home], name=aggregate.name)
    held.write_run(table, rows, level, FOREVER, until=until)


def settle_runs(held: Held, aggregate: WindowAggregate, merge: Merge) -> None:
    """Merge partials, and expire what no window needs that this step leaves open."""
    names = set(merge.runs)
    entries = [e for e in held.task.runs[aggregate.home] if e.name in names]
    tables = [table for _, table in _stored(held, aggregate, entries)]
    before, now = aggregate.closed(held.task.progress)
    bound = now if aggregate.flush is None else before
    if held.task.ahead.concerns(aggregate):
        whole = [as_partials(aggregate.plan, table) for table in tables]
        left = expire_groups(aggregate, held.network.streams, whole, held.task.progress, held.task.ahead, bound)
        kept = [] if left is None else [left]
    else:
        kept = expire_forms(aggregate.plan, tables, bound, _cuts(held, aggregate))
    for table in kept:
        if len(table):
            _write(held, aggregate, table, merge.level)
