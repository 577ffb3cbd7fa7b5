"""Window aggregates in a task: new rows become partials, windows that progress has passed are closed, partials are kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from penstock.kernels.aggregate.ahead import close_groups, settle_groups
from penstock.kernels.aggregate.close import partials
from penstock.kernels.aggregate.keep import needed_until
from penstock.kernels.aggregate.stored import from_rows, received, to_rows
from penstock.model.time import FOREVER, NEVER
from penstock.planner.network import WindowAggregate, closing
from penstock.runtime.held import Held
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
    before, now = aggregate.closed(held.task.progress)
    if aggregate.closes(before, now) or held.task.ahead.moves(aggregate):
        tables = [*_shares(held, aggregate, held.task.runs.get(aggregate.home, ())), *added]
        newest = max(held.task.newest.get(stream, NEVER) for stream in aggregate.streams)
        found = close_groups(aggregate, held.network.streams, tables, held.task.progress, held.task.ahead, newest)
        write_windows(aggregate, found, held.task, held.network.version, held.report)
    for table in added:
        counts = held.report.tables.setdefault(aggregate.name, {})
        counts["stored"] = counts.get("stored", 0) + len(table)
        _write(held, aggregate, table, 0)


def _shares(held: Held, aggregate: WindowAggregate, entries: Sequence[RunEntry]) -> list[pa.Table]:
    """The partials (or rows) that this task serves."""
    shares = [held.own(held.network.tables[aggregate.home], entry) for entry in entries]
    return [from_rows(aggregate, rows) for rows in shares if rows is not None and len(rows)]


def _write(held: Held, aggregate: WindowAggregate, table: pa.Table, level: int) -> None:
    rows = to_rows(aggregate, table)
    until = dict.fromkeys(map(closing, aggregate.streams), needed_until(aggregate.plan, int(rows.time.max())))
    table = replace(held.network.tables[aggregate.home], name=aggregate.name)
    held.write_run(table, rows, level, FOREVER, until=until)


def settle_runs(held: Held, aggregate: WindowAggregate, merge: Merge) -> None:
    """Merge partials, and give up what no window needs that this step leaves open."""
    names = set(merge.runs)
    shares = _shares(held, aggregate, [e for e in held.task.runs[aggregate.home] if e.name in names])
    kept = settle_groups(aggregate, held.network.streams, shares, held.task.progress, held.task.ahead)
    if kept is not None and len(kept):
        _write(held, aggregate, kept, merge.level)
