"""Window aggregates in a task: new rows become partials, windows that progress has passed are closed, partials are kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from penstock.kernels.aggregate.ahead import close_groups, settle_groups
from penstock.kernels.aggregate.close import Closed, close_gathered, gather, partials
from penstock.kernels.aggregate.early import marked, open_windows
from penstock.kernels.aggregate.flush import Cap, Flushed, flush, share_of
from penstock.kernels.aggregate.keep import needed_until
from penstock.kernels.aggregate.outside import count_outside
from penstock.kernels.aggregate.stored import from_rows, received, to_rows
from penstock.model.time import FOREVER, NEVER
from penstock.planner.network import WindowAggregate, closing
from penstock.runtime.held import Held
from penstock.runtime.panes import write_panes
from penstock.runtime.windows import write_windows
from penstock.state.compaction import Merge
from penstock.state.run import Rows, RunEntry


def aggregate_rows(held: Held, aggregate: WindowAggregate, fresh: Mapping[int, Rows]) -> None:
    """Put new rows into partials, close the windows that progress has passed, and store the partials."""
    added = []
    for source in aggregate.sources:
        rows = fresh.get(source.table, ())
        if isinstance(rows, Rows) and len(rows):
            added.append(partials(aggregate.plan, received(aggregate, source, rows)))
            held.report.tables[held.network.tables[source.table].name]["aggregated"] = len(rows)
            for query, count in count_outside(aggregate.plan, rows).items():
                counts = held.report.queries.setdefault(str(query), {})
                counts["outside"] = counts.get("outside", 0) + count
    before, now = aggregate.closed(held.task.progress)
    ahead = held.task.ahead
    closes = aggregate.closes(before, now) or ahead.moves(aggregate)
    early = {m.id: held.task.early[m.id] for m in aggregate.members if m.id in held.task.early}
    if closes or early:
        tables = _shares(held, aggregate, held.task.runs.get(aggregate.home, ()), marks=bool(early))
        tables += [marked(table, held.task.step) for table in added] if early else added
        newest = max(held.task.newest.get(stream, NEVER) for stream in aggregate.streams)
        if aggregate.flush is not None:
            _flush(held, aggregate, tables, now, newest)
            tables = []
        paned = [m.id for m in aggregate.members if m.paned]
        found: list[Closed] = []
        if ahead.concerns(aggregate):  # then none is paned, and none shows open windows
            found = close_groups(aggregate, held.network.streams, tables, held.task.progress, ahead, newest)
        elif len(paned) < len(aggregate.members) and (gathered := gather(aggregate.plan, tables)) is not None:
            found = close_gathered(gathered, before, now, newest=newest, leave=paned) if closes else []
            found += [
                open_windows(gathered, q, now, early[q.query]) for q in aggregate.plan.queries if q.query in early
            ]
        write_windows(aggregate, found, held.task, held.network.version, held.report)
        if paned and closes and tables:
            write_panes(aggregate, tables, before, now, held.task, held.network.version, held.report)
    for table in added:
        stored = held.report.tables.setdefault(aggregate.name, {})
        stored["stored"] = stored.get("stored", 0) + len(table)
        _write(held, aggregate, table, 0)


def _flush(held: Held, aggregate: WindowAggregate, tables: Sequence[pa.Table], until: int, newest: int) -> None:
    """Let out as many results as this task may give, and report how far it has come."""
    assert aggregate.flush is not None
    rows, behind = aggregate.flush
    own = held.low, held.high
    before = min(held.task.progress.get(closing(stream), NEVER) for stream in aggregate.streams)
    known = [Flushed(*place) for place in held.task.flushed.get(aggregate.name, ())]
    # Shares go round, so that fewer results than tasks do not leave one out for ever.
    turn = (held.partition + held.task.step) % held.task.tasks
    cap = Cap(share_of(rows, turn, held.task.tasks), behind)
    found, reached = flush(
        gather(aggregate.plan, tables), aggregate.plan.queries[0], known, own, until, cap, (before, newest)
    )
    held.report.flushed[aggregate.name] = (reached.low, reached.high, reached.until, reached.bound)
    write_windows(aggregate, found, held.task, held.network.version, held.report)


def _shares(
    held: Held, aggregate: WindowAggregate, entries: Sequence[RunEntry], *, marks: bool = False
) -> list[pa.Table]:
    """The partials (or rows) that this task serves, marked with the step they came with if wanted."""
    found = []
    for entry in entries:
        rows = held.own(held.network.tables[aggregate.home], entry)
        if rows is not None and len(rows):
            table = from_rows(aggregate, rows)
            found.append(marked(table, entry.step) if marks else table)
    return found


def _write(held: Held, aggregate: WindowAggregate, table: pa.Table, level: int) -> None:
    rows = to_rows(aggregate, table)
    until = dict.fromkeys(map(closing, aggregate.closings), needed_until(aggregate.plan, int(rows.time.max())))
    table = replace(held.network.tables[aggregate.home], name=aggregate.name)
    held.write_run(table, rows, level, FOREVER, until=until)


def settle_runs(held: Held, aggregate: WindowAggregate, merge: Merge) -> None:
    """Merge partials, and give up what no window needs that this step leaves open."""
    names = set(merge.runs)
    shares = _shares(held, aggregate, [e for e in held.task.runs[aggregate.home] if e.name in names])
    before, now = aggregate.closed(held.task.progress)
    bound = now if aggregate.flush is None else before
    kept = settle_groups(aggregate, held.network.streams, shares, held.task.progress, held.task.ahead, bound)
    if kept is not None and len(kept):
        _write(held, aggregate, kept, merge.level)
