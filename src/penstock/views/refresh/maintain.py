"""Execute a maintenance plan against live sources: the change of a view's joined rows, and its costs.

Only distinct join keys are sent to a source; rows come back, are converted to the state that each member must see, and
are joined here. The caller installs the change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from time import perf_counter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.columns.hash import Ints
from penstock.model import View
from penstock.planner.orders.graph import JoinGraph
from penstock.planner.views.plan import MaintenancePlan, Request
from penstock.planner.views.statistics import Sample
from penstock.views.postgres.join_pushdown import computed_together
from penstock.views.refresh.changes import Changes, flat, take_back
from penstock.views.rows.bag import normalized
from penstock.views.rows.delta import Delta, Joins, split, unify
from penstock.views.rows.fit import fitted
from penstock.views.rows.match import Codes, combined
from penstock.views.sources.change_audit import Told, telling, told_between
from penstock.views.sources.source import Answer, SourceReader

Choose = Callable[[tuple[int, ...]], MaintenancePlan]  # from the number of changed rows per node
Recompute = Callable[[MaintenancePlan], "Refreshed"]

_NONE: Ints = np.empty(0, np.int64)


@dataclass(frozen=True)
class Refreshed:
    """Signed rows of the view's outputs as of `positions`: its change, consolidated, or (`whole`) all of it.

    `requests` counts those of the plan, `physical` those actually made, including changes. `told` are the rows that
    sources with their own change tables reported up to these positions; `fetched` counts the changed rows that sources
    sent, whether they affect the view or not.
    """

    rows: pa.Table
    positions: dict[str, int]
    plan: MaintenancePlan
    requests: int
    physical: int
    samples: tuple[Sample, ...]
    seconds: float
    whole: bool = False
    told: Told = field(default_factory=Told)
    fetched: int = 0


def graph_of(view: View) -> JoinGraph:
    """The join graph of a view."""
    return JoinGraph(len(view.nodes), (), [(edge.left, edge.right) for edge in view.edges])


def maintain(
    view: View,
    sources: Mapping[str, SourceReader],
    positions: Mapping[str, int],
    choose: Choose,
    pool: Executor | None = None,
    foreseen: MaintenancePlan | None = None,
    recompute: Recompute | None = None,
) -> Refreshed:
    """The change of the view since `positions`, by the plan that `choose` makes once the deltas are known.

    If a recompute is `foreseen`, it is made at once, without fetching changes. `recompute` replaces `compute`, if
    given.
    """
    began, asked = perf_counter(), _asked(view, sources)
    own = ThreadPoolExecutor(2 * len(view.nodes)) if pool is None else None

    def recomputed(plan: MaintenancePlan) -> Refreshed:
        found = recompute(plan) if recompute is not None else compute(view, sources, own or pool, plan)
        told = told_between(telling(view, sources), sources, positions, found.positions)
        return replace(found, told=told, physical=_asked(view, sources) - asked, seconds=perf_counter() - began)

    try:
        if foreseen is not None and foreseen.strategy == "recompute":
            return recomputed(foreseen)
        changes = Changes.since(view, sources, positions, own or pool)
        plan = choose(changes.sizes)
        if plan.strategy == "recompute":
            return recomputed(plan)
        plan = plan.without(changes.empty)
        run = _Run(view, sources, changes, plan)
        rows = run.carry_out(own or pool)
    finally:
        if own is not None:
            own.shutdown()
    requests = sum(sum(changes.sizes[m] for m in r.members) if plan.each_row else 1 for r in plan.requests)
    return Refreshed(
        rows,
        changes.reached,
        plan,
        requests,
        _asked(view, sources) - asked,
        tuple(run.samples),
        perf_counter() - began,
        told=changes.told,
        fetched=changes.fetched,
    )


class _Run:
    """One refresh: the rows fetched so far, and the progress of each member."""

    def __init__(
        self, view: View, sources: Mapping[str, SourceReader], changes: Changes, plan: MaintenancePlan
    ) -> None:
        self.view = view
        self.changes = changes
        self.plan = plan
        self.samples: list[Sample] = []
        self._readers = [sources[node.source] for node in view.nodes]
        self._joins = Joins(view, changes.schemas)
        self._members: dict[int, Delta] = {}
        self._delta_rows: dict[int, Ints] = {}
        for node, delta in enumerate(changes.deltas):
            if delta.num_rows:
                self._delta_rows[node] = self._joins.rows[node].append(delta)
                self._members[node] = self._joins.start(node, node, self._delta_rows[node])

    def carry_out(self, pool: Executor | None) -> pa.Table:
        """The signed rows of the outputs."""
        if self.plan.each_row:
            finished = [done for node in self._members for done in self._row_by_row(node)]
        else:
            if self.plan.parallel and pool is not None:
                self._at_once(pool)
            else:
                for request in self.plan.requests:
                    self._take(request, *self._ask(request, self._keys(request)))
            finished = list(self._members.values())
        whole = set(range(len(self.view.nodes)))
        finished = [m for m in finished if len(m)]
        assert all(set(m.held) == whole for m in finished), "a plan leads every member through all nodes"
        nothing = Delta(np.empty(0, np.int64), np.empty(0, np.int64), {v: np.empty(0, np.int64) for v in whole})
        return self._joins.outputs(finished or [nothing])

    def _row_by_row(self, node: int) -> list[Delta]:
        requests = [r for r in self.plan.requests if r.members == (node,)]
        finished = []
        for row in self._delta_rows[node]:
            self._members[node] = self._joins.start(node, node, np.array([row], np.int64))
            for request in requests:
                self._take(request, *self._ask(request, self._keys(request)))
            finished.append(self._members[node])
        return finished

    def _at_once(self, pool: Executor) -> None:
        """Make each request as soon as its members have joined the nodes `via`; join answers in this thread."""
        waiting = list(self.plan.requests)
        under_way: dict[Future[tuple[Answer | None, float]], tuple[Request, pa.Table | None]] = {}
        visited = {m: {m} for m in self._members}
        while waiting or under_way:
            for request in [r for r in waiting if all(visited[m].issuperset(r.via) for m in r.members)]:
                waiting.remove(request)
                keys = self._keys(request)
                under_way[pool.submit(self._timed, request, keys)] = (request, keys)
            for done in wait(under_way, return_when=FIRST_COMPLETED).done:
                request, keys = under_way.pop(done)
                self._take(request, keys, *done.result())
                for m in request.members:
                    visited[m].add(request.node)

    def _keys(self, request: Request) -> pa.Table | None:
        """The distinct keys of all members in one table; None for the whole source, empty if there are none."""
        members = unify([self._members[m] for m in request.members])
        sought: dict[str, tuple[int, str, pa.DataType]] = {}
        for v in request.via:
            for a, b, kind in self._joins.equal(v, request.node):
                sought.setdefault(b, (v, a, kind))
        if not sought:
            return None if len(members) else pa.table({})
        rows = self._joins.rows
        codes = [rows[v].codes(a, kind).take(members.held[v]) for v, a, kind in sought.values()]
        none = [Codes(c.codes[:0], c.valid[:0]) for c in codes]
        key, _ = combined(codes, none)
        usable = np.flatnonzero(key.valid)
        _, first = np.unique(key.codes[usable], return_index=True)
        at = usable[first]
        schema = rows[request.node].schema
        table = pa.table(
            [normalized(rows[v].column(a).take(pa.array(members.held[v][at]))) for v, a, _ in sought.values()],
            list(sought),
        )
        return _fitted(table, pa.schema([schema.field(b) for b in sought]))

    def _ask(self, request: Request, keys: pa.Table | None) -> tuple[pa.Table | None, Answer | None, float]:
        return keys, *self._timed(request, keys)

    def _timed(self, request: Request, keys: pa.Table | None) -> tuple[Answer | None, float]:
        if keys is not None and keys.num_rows == 0:
            return None, 0.0
        reader, columns = self._readers[request.node], self.view.columns(request.node)
        filters = self.view.local(request.node)
        began = perf_counter()
        answer = reader.scan(columns, filters) if keys is None else reader.lookup(columns, keys, filters)
        return answer, perf_counter() - began

    def _take(self, request: Request, keys: pa.Table | None, answer: Answer | None, seconds: float) -> None:
        """Join an answer to its members, each with the state of the source that it must see."""
        node = request.node
        if answer is None:
            for m in request.members:
                held = {v: index[:0] for v, index in self._members[m].held.items()}
                self._members[m] = Delta(self._members[m].tag[:0], self._members[m].count[:0], held | {node: _NONE})
            return
        new = self._joins.rows[node].append(answer.rows)
        later = self.changes.later(node, answer.position)
        if later is not None:
            new = self._before(node, new, self._joins.rows[node].append(later), keys)
        before = after = 0
        for sees_new in (True, False):
            members = [m for m in request.members if self.plan.sees_new(m, node) == sees_new]
            if not members:
                continue
            seen = new if sees_new else self._before(node, new, self._delta_rows.get(node, _NONE), keys)
            parts = {m: self._members[m] for m in members}
            unified = unify(list(parts.values()))
            grown = self._joins.join(unified, node, seen, request.via)
            before, after = before + len(unified), after + len(grown)
            self._members |= split(grown, parts, node)
        shipped, columns = 0 if keys is None else keys.num_rows, answer.rows.num_columns - 1
        self.samples.append(Sample(node, request.via, shipped, columns, answer.rows.num_rows, before, after, seconds))

    def _before(self, node: int, rows: Ints, change: Ints, keys: pa.Table | None) -> Ints:
        return take_back(self._joins, node, rows, change, keys, self.view.nodes[node].source)


def compute(
    view: View, sources: Mapping[str, SourceReader], pool: Executor | None = None, plan: MaintenancePlan | None = None
) -> Refreshed:
    """The whole view: computed by the database that has all sources, else from scans, joined here, smallest first.

    Nodes of one source are converted to one position; different sources may differ.
    """
    began, asked = perf_counter(), _asked(view, sources)
    nodes = range(len(view.nodes))
    plan = plan if plan is not None else MaintenancePlan("recompute", tuple(nodes), (), parallel=True)
    together = computed_together(view, sources)
    if together is not None:
        return Refreshed(*together, plan, 1, 2, (), perf_counter() - began, whole=True)  # one for the snapshot

    def scan(node: int) -> tuple[Answer, float]:
        start = perf_counter()
        return sources[view.nodes[node].source].scan(view.columns(node), view.local(node)), perf_counter() - start

    answers = list(pool.map(scan, nodes)) if pool is not None else [scan(node) for node in nodes]
    positions: dict[str, int] = {}
    for node, (answer, _) in zip(view.nodes, answers, strict=True):
        positions[node.source] = min(answer.position, positions.get(node.source, answer.position))
    changes = Changes(view, sources, positions)
    joins = Joins(view, changes.schemas)
    rows, samples = [], []
    for k, (answer, seconds) in enumerate(answers):
        found = joins.rows[k].append(answer.rows)
        later = changes.later(k, answer.position)
        if later is not None:
            found = take_back(joins, k, found, joins.rows[k].append(later), None, view.nodes[k].source)
        rows.append(found)
        samples.append(Sample(k, (), 0, 0, answer.rows.num_rows, 0, 0, seconds))
    joined = join_all(graph_of(view), joins, rows)
    spent = perf_counter() - began
    physical = _asked(view, sources) - asked
    return Refreshed(
        joins.outputs([joined], cancel=False),
        positions,
        plan,
        len(answers),
        physical,
        tuple(samples),
        spent,
        whole=True,
    )


def join_all(graph: JoinGraph, joins: Joins, rows: Sequence[Ints]) -> Delta:
    """Join everything, starting from the smallest node and always taking the smallest neighbour next."""
    first = min(range(graph.count), key=lambda k: len(rows[k]))
    joined, held = joins.start(first, first, rows[first]), frozenset((first,))
    while len(held) < graph.count:
        node = min(graph.following(held), key=lambda k: len(rows[k]))
        joined = joins.join(joined, node, rows[node], sorted(v for v in held if graph.joined(v, node)))
        held |= {node}
    return joined


def _fitted(keys: pa.Table, schema: pa.Schema) -> pa.Table:
    """Keys in the types of the columns that they are compared with; keys without an equal value there are dropped."""
    if keys.schema.types == schema.types:
        return keys
    fits = pa.array(np.ones(keys.num_rows, np.bool_))
    columns = []
    for column, wanted in zip(keys.columns, schema, strict=True):
        if column.type == wanted.type:
            columns.append(column)
            continue
        cast, same = fitted(flat(column), wanted.type)
        fits = pc.and_(fits, same)
        columns.append(cast)
    return pa.table(columns, schema=schema).filter(fits)


def _asked(view: View, sources: Mapping[str, SourceReader]) -> int:
    return sum(sources[name].requests for name in {node.source for node in view.nodes})
