"""Mappers that send partials instead of rows, and the tasks that merge them: the same state, counts and answers.

The work of a step without Spark: mappers, parcels, and the tasks of the engine. Rows come from several mappers, in
several batches each, and may be rows for a task that reads some itself.
"""

from dataclasses import replace
from unittest.mock import patch

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, event, given, settings
from hypothesis import strategies as st

from penstock.model import Landmark, Sliding
from penstock.model.time import FOREVER
from penstock.planner.build import build_network
from penstock.planner.folding import FoldingStatistics, folded_in, is_foldable
from penstock.planner.network import StandingQuery
from penstock.planner.panes import PaneSet, pane_width
from penstock.planner.reached import Closing
from penstock.planner.routes import build_routes
from penstock.sql import parse_query
from penstock.state.buckets import BucketMap
from penstock.step import folding
from penstock.step.accounts import counters_of
from penstock.step.envelope import PARTIALS
from penstock.step.mapper import truth_words
from penstock.step.report import Report
from penstock.step.run_mapper import run_mapper
from penstock.step.task import Plan, Task
from penstock.step.worker import run_task
from penstock.storage.local import LocalStore
from tests.aggregates import COLUMNS, STREAM, cases, same_bag
from tests.effort import examples

STREAMS = {"s": replace(STREAM, late="drop", bad="drop")}
ARROW = {"bigint": pa.int64(), "int": pa.int32(), "string": pa.string(), "double": pa.float64()}
NAMES = {"s": {c.name: c.name for c in COLUMNS}}
ROW = st.fixed_dictionaries({
    "t": st.none() | st.integers(-10, 30), "k": st.sampled_from(("a", "b", None)),
    "g": st.sampled_from((0, 1, 2, None)),
    "v": st.sampled_from((0, 1, 2, 3, None)), "x": st.sampled_from((0.0, 0.25, 1.5, -2.5, None)),
})  # fmt: skip
JOIN = "SELECT x.v, y.v AS w FROM s [RANGE 5] AS x, s [RANGE 3] AS y WHERE x.g = y.g"
PHASES = [Phase.explicit, Phase.reuse, Phase.generate]  # a failing example is shown as drawn
DIFFERENT = {
    "bytes_written",
    "shipped",
    "keys",
    "folded",
    "partials",
    "exchanged",
    "mappers",
    "rolled",
}  # what says how rows have come


def batch(rows):
    """Rows of one stream, as Spark brings them."""
    found = {"_stream": pa.array([0] * len(rows), pa.int32()), "_ts": pa.array([r["t"] for r in rows], pa.int64())}
    return pa.RecordBatch.from_pydict(
        found | {c.name: pa.array([r[c.name] for r in rows], ARROW[c.type]) for c in COLUMNS}
    )


def network_of(texts, arrange=None):
    queries = [
        StandingQuery(n + 1, f"q{n}", parse_query(text, STREAMS), delivered=True) for n, text in enumerate(texts)
    ]
    network = build_network(queries, STREAMS)
    if arrange is None:
        return network
    return replace(network, aggregates=tuple(
        a if a.plan.buffered else replace(a, plan=a.plan.arranged(arrange(a.plan))) for a in network.aggregates
    ))  # fmt: skip


def apart(plan):
    """Every query in a pane set of its own."""
    return [PaneSet((q.query,), *pane_width([q.window])) for q in plan.queries]


def plan_of(network):
    types = {"s": {c.name: ARROW[c.type] for c in COLUMNS}}
    return Plan(network, NAMES, truth_words(network), types)


def run_step(plan, task, mappers, itself=()):
    """The reports of a step whose rows come from these mappers, but for those that every task reads `itself`."""
    sent = [one for batches in mappers for one in run_mapper(((b, ()) for b in batches), plan, task.asked)]
    reports = []
    for number in range(task.buckets.tasks):
        mine = [one for one in sent if one.column("_to")[0].as_py() == number]
        (report,) = run_task(iter([*mine, *itself]), plan, task, number)
        reports.append(Report.decode(report.column("report")[0].as_py()))
    return reports, sent


def run(root, network, mappers, tasks, *, folded, itself=(), cuts=None, early=None, rolled=None):
    """What two steps say and answer: one with rows, one that closes everything."""
    store = LocalStore(str(root))
    for name in ("runs", "results", "sides"):
        (root / name).mkdir(parents=True)
    plan = plan_of(network)
    aggregates = frozenset(a.index for a in network.aggregates if is_foldable(a)) if folded else frozenset()
    task = Task(
        1, BucketMap.even(tasks), store, {"s": -5}, {}, build_network_routes(network), panes=cuts or {},
        early=early or {}, folded=aggregates,
        rolled=rolled or {},
    )  # fmt: skip
    reports, sent = run_step(plan, task, mappers, itself)
    runs = {a.index: [] for a in network.aggregates}
    for report in reports:
        for entry in report.runs:
            for a in network.aggregates:
                if entry.table == a.name:
                    runs[a.index].append(entry)
    last = replace(
        task, step=2, runs={a.home: tuple(runs[a.index]) for a in network.aggregates}, early={},
        progress={"s": FOREVER, Closing("s"): -5}, newest={"s": 40},
    )  # fmt: skip
    closed, _ = run_step(plan, last, [])
    return [told(root, own) for own in (reports, closed)], counters_of(reports), sent


def build_network_routes(network):
    return build_routes(network)


def told(root, reports):
    """Counts, what runs hold, and results."""
    counts = msgspec.to_builtins(counters_of(reports))
    del counts["engine"]
    counts = {
        (kind, name): {k: v for k, v in own.items() if k not in DIFFERENT}
        for kind, by_name in counts.items()
        for name, own in by_name.items()
    }
    runs = sorted((run.table, run.rows, run.min_key, run.max_key, run.min_time) for r in reports for run in r.runs)
    answers = {}
    for report in reports:
        for file in report.results:
            table = pq.read_table(root / file.name)
            answers.setdefault(file.kind, []).extend(tuple(row.values()) for row in table.to_pylist())
    return {name: own for name, own in counts.items() if own}, runs, answers


def assert_same(found, wanted):
    for mine, others in zip(found, wanted, strict=True):
        assert mine[:2] == others[:2]
        assert mine[2].keys() == others[2].keys()
        for file, rows in others[2].items():
            assert same_bag(mine[2][file], rows), file


@settings(max_examples=examples(60), deadline=None, phases=PHASES, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(cases("sliding", "landmark", "session"), min_size=1, max_size=4),
    st.lists(st.lists(st.lists(ROW, max_size=12), max_size=3), min_size=1, max_size=3),
    st.lists(ROW, max_size=6),
    st.integers(1, 4),
    st.data(),
)
def test_partials_of_mappers_are_those_of_tasks(tmp_path_factory, queries, dealt, itself, tasks, data):
    own_sets = data.draw(st.booleans(), label="a pane set for each query")
    network = network_of([case.sql for case in queries] + [JOIN], apart if own_sets else None)
    mappers = [[batch(rows) for rows in parts] for parts in dealt]
    alone = [batch(itself)] if itself else []
    cuts = {n + 1: data.draw(st.integers(-5, 30)) for n in range(len(queries)) if data.draw(st.booleans())}
    early = {
        n + 1: 0
        for n, case in enumerate(queries)
        if isinstance(case.window, Sliding | Landmark) and case.having is None and case.top is None
    }
    at_once, most = data.draw(st.sampled_from((1, 6, 1 << 18))), data.draw(st.sampled_from((0, 600, 1 << 25)))
    root = tmp_path_factory.mktemp("folding")
    rest = {"itself": alone, "cuts": cuts, "early": early}
    wanted, _, _ = run(root / "rows", network, mappers, tasks, folded=False, **rest)
    with patch.multiple(folding, AT_ONCE=at_once, MOST_BYTES=most):
        found, counts, sent = run(root / "partials", network, mappers, tasks, folded=True, **rest)
    assert_same(found, wanted)
    foldable = [a for a in network.aggregates if is_foldable(a)]
    for aggregate in foldable:
        own = counts.table(aggregate.name)
        assert own.folded == own.exchanged
        assert own.aggregated == own.folded + own.shipped
        assert own.mappers <= len(mappers)
    event(f"{len(foldable)} aggregates of which partials are sent, {len(sent)} parcels")


def test_partials_that_are_sent_do_not_grow_with_the_rows_and_rows_for_others_travel_once(tmp_path):
    network = network_of(
        ["SELECT g, count(*), sum(v) FROM s [RANGE 4 SLIDE 2] GROUP BY g", JOIN.replace("x.g = y.g", "x.v = y.v")]
    )
    (aggregate,) = network.aggregates

    def rows(count):
        return [{"t": n % 20, "k": "a", "g": n // 20 % 10, "v": n, "x": 0.5} for n in range(count)]

    for count in (1_000, 10_000):
        (own, _), counts, sent = run(tmp_path / f"{count}", network, [[batch(rows(count))]], 3, folded=True)
        assert counts.table(aggregate.name).folded == count
        assert counts.table(aggregate.name).partials == 100
        assert counts.table(aggregate.name).shipped == 0
        assert counts.engine.sent_rows == count + 100
        assert sum(one.column("_kind")[0].as_py() == PARTIALS for one in sent) <= 3
        assert sum(run[1] for run in own[1] if run[0] == aggregate.name) == 100


def test_parcels_of_partials_are_of_bounded_size(tmp_path):
    network = network_of(["SELECT g, count(*) FROM s [RANGE 4 SLIDE 2] GROUP BY g"])
    rows = [{"t": n, "k": "a", "g": n, "v": n, "x": 0.5} for n in range(4_000)]
    with patch("penstock.columns.parcels.MOST_BYTES", 10_000):
        _, counts, sent = run(tmp_path, network, [[batch(rows)]], 2, folded=True)
    assert counts.table(network.aggregates[0].name).partials == 4_000
    sizes = [len(one.column("_body")[0].as_py()) for one in sent if one.column("_kind")[0].as_py() == PARTIALS]
    assert len(sizes) > 10
    assert max(sizes) < 20_000


def test_parcels_of_which_only_some_bring_truths_are_read(tmp_path):
    texts = ["SELECT g, count(*) FROM s [RANGE 4 SLIDE 2] WHERE k = 'a' OR v IS NULL GROUP BY g", JOIN]
    one = {"t": 0, "k": "a", "g": 0, "v": 0, "x": 0.0}
    mappers = [[batch([{**one, "k": k}])] for k in "ab"]  # the truths of the second one's row are not needed
    for folded in (False, True):
        _, counts, _ = run(tmp_path / str(folded), network_of(texts), mappers, 1, folded=folded)
        assert counts.table(network_of(texts).aggregates[0].name).aggregated == 1


@pytest.mark.parametrize("sql", [
    "SELECT g, collect_list(v) FROM s [RANGE 4 SLIDE 2] GROUP BY g",
    "SELECT g, count(*) FROM s [RANGE 4 ROWS SLIDE 2 ROWS PARTITION BY g] GROUP BY g",
])  # fmt: skip
def test_rows_travel_where_rows_are_kept(tmp_path, sql):
    network = network_of([sql])
    stored = {a.name: FoldingStatistics(folded=True) for a in network.aggregates}
    assert folded_in(network, stored) == frozenset()
    rows = [{"t": n, "k": "a", "g": n % 3, "v": n, "x": 0.5} for n in range(40)]
    _, counts, _ = run(tmp_path, network, [[batch(rows)]], 2, folded=True)
    assert counts.table(network.aggregates[0].name).shipped == 40
