"""What the reports of a step's tasks add up to: files, counts, and queries to suspend."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from msgspec.structs import replace

from penstock.planner.counters import Counters, EngineCounters, QueryCounters, StreamCounters, TableCounters
from penstock.planner.network import Network
from penstock.results.layout import OWN
from penstock.state.flushed import Flushed
from penstock.state.manifest import Entry, Manifest
from penstock.state.result_files import ResultFile
from penstock.state.run import RunEntry
from penstock.state.side_files import SideFile
from penstock.state.suspension import Suspension
from penstock.step.bound import Bound
from penstock.step.report import summed
from penstock.step.task import Reports


def runs_of(reports: Reports) -> tuple[RunEntry, ...]:
    return tuple(run for report in reports for run in report.runs)


def results_of(reports: Reports) -> tuple[ResultFile, ...]:
    refused = refused_by(reports)
    files = [file for report in reports for file in report.results]
    # What other tasks have found for such a query is only a part of the answer, which must not be taken for the whole.
    if not refused:
        return tuple(files)
    left = [replace(f, counts=tuple(c for c in f.counts if c[0] not in refused)) for f in files]
    return tuple(replace(f, without=tuple(sorted(refused))) for f in left if f.kind != OWN or f.counts)


def sides_of(reports: Reports) -> tuple[SideFile, ...]:
    return tuple(side for report in reports for side in report.sides)


def flushed_by(reports: Reports) -> dict[str, tuple[Flushed, ...]]:
    """How far the results of aggregates with capped results are emitted: a position per range of keys."""
    names = dict.fromkeys(name for report in reports for name in report.flushed)
    return {name: tuple(r.flushed[name] for r in reports if name in r.flushed) for name in names}


def with_dropped(entry: Entry, manifest: Manifest) -> Counters:
    """The step's counters with the rows that expired or were dropped by a merge, per state table, and expired sides."""
    dropped, expired = Counter[str](), Counter[str]()
    gone = [manifest.runs[name] for name in entry.runs_removed]
    merged = [run for run in entry.runs_added if run.level > 0]
    for run, sign in [(r, 1) for r in gone] + [(r, -1) for r in merged]:
        dropped[run.table] += sign * run.rows
    removed = set(entry.sides_removed)
    if removed:  # then those that the step adds are merged ones
        aside = [(s, 1) for s in manifest.sides if s.name in removed] + [(s, -1) for s in entry.sides]
        for side, sign in aside:
            expired[side.stream] += sign * side.rows
    lost = Counters(
        tables={name: TableCounters(dropped=rows) for name, rows in dropped.items()},
        streams={name: StreamCounters(expired=rows) for name, rows in expired.items()},
    )
    return entry.counters.plus(lost)


def suspended_by(network: Network, reports: Reports, before: Collection[int]) -> dict[int, Suspension]:
    """Queries that can no longer be answered, or stop at their first error; the parts of a query stop together."""
    found: dict[int, Suspension] = {}
    refused = refused_by(reports)
    for query in network.queries:
        errors = sum(report.counters.query(query.id).errors for report in reports)
        if query.id in refused:
            why = refused[query.id]
        elif query.on_error == "stop" and errors:
            reason = f"an expression of the query raised on {errors} row(s), and on_error is 'stop'"
            why = Suspension(reason, resumable=True)
        else:
            continue
        found |= {q.id: why for q in network.parts_of(query) if q.id not in before}
    return found


def refused_by(reports: Reports) -> dict[int, Suspension]:
    """Queries for which a task could not build the results, and why."""
    return {query: why for report in reports for query, why in report.refused.items()}


def bounded(network: Network, reports: Reports, bound: Bound) -> None:
    """Refuse queries with more results than allowed, over all tasks and parts; the parts of a query together."""
    rows, sizes = Counter[int](), Counter[int]()
    for file in (f for report in reports for f in report.results):
        for number, count in file.counts:
            stored = min(count, file.rows)  # a row may stand for several results
            rows[number] += stored
            sizes[number] += file.bytes * stored // max(file.rows, 1)
    refused, together = refused_by(reports), dict[tuple[str, bool], list[int]]()
    for query in network.queries:
        together.setdefault((query.name, query.query.aggregation is None), []).append(query.id)
    for parts in together.values():
        known = [refused[part] for part in parts if part in refused]
        why = known[0] if known else bound.passed(sum(rows[p] for p in parts), sum(sizes[p] for p in parts))
        if why is not None:
            reports[0].refused.update(dict.fromkeys(parts, why))


def counters_of(reports: Reports) -> Counters:
    """The counts of a step with a job."""
    totals = summed(reports)
    totals.add(Counters(EngineCounters(steps=1)))
    for query, results in _leading(reports).items():
        totals.add(Counters(queries={query: QueryCounters(results=results)}))
    for query in refused_by(reports):
        if query in totals.queries:
            totals.queries[query].results = 0
    return totals


def phases_of(reports: Reports) -> dict[str, dict[str, float]]:
    """The seconds of mappers and of tasks by phase, summed; what tasks map themselves is also in their 'receive'."""
    found: dict[str, dict[str, float]] = {"mappers": {}, "tasks": {}}
    for report in reports:
        for kind, phases in (("mappers", report.mapping), ("tasks", report.phases)):
            for phase, seconds in phases.items():
                found[kind][phase] = round(found[kind].get(phase, 0.0) + seconds, 4)
    return found


def _leading(reports: Reports) -> dict[int, int]:
    """By query: how many rows are the first of their windows, among those that each task kept."""
    most, kept = dict[int, int](), Counter[tuple[int, int]]()
    for report in reports:
        for query, told in report.leading.items():
            most[query] = told.most
            for end, rows in zip(told.ends, told.rows, strict=True):
                kept[query, end] += rows
    found = Counter[int]()
    for (query, _), rows in kept.items():
        found[query] += min(rows, most[query])
    return found
