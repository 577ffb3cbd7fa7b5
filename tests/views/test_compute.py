"""Shapes on Spark: each gives the bag of nested loops, sends rows only where the key changes, and writes pieces out."""

import re
from collections import Counter
from itertools import product
from math import isnan

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model import Edge, Expression, Item, Node, Ref, View, ViewAggregate
from penstock.planner.views.bushy import by_output, pieced_bushy, segmented_bushy
from penstock.planner.views.relations import equal_places
from penstock.planner.views.shape_cost import Costs
from penstock.planner.views.shapes import exchanges, left_deep, right_deep, segmented_right_deep, zigzag
from penstock.views.refresh.compute import choose_shape, compute, count_relations
from penstock.views.rows.bag import COUNT
from tests.effort import examples

pytestmark = pytest.mark.spark

NOTHING_SMALL = Costs(small=0.0)
NAN = float("nan")
KINDS = {"bigint": pa.int64(), "double": pa.float64(), "string": pa.string()}
VALUES = {
    "bigint": st.sampled_from([None, 0, 1]),
    "double": st.sampled_from([None, 0.0, -0.0, NAN]),
    "string": st.sampled_from([None, "", "ä"]),
}


def text(*parts):
    return Expression(parts, None, total=True)


def normal(value):
    """A value under Spark's equality of keys: NaN equals NaN, -0.0 equals 0.0."""
    if isinstance(value, float):
        return "NaN" if isnan(value) else value + 0.0
    return value


@st.composite
def views(draw):
    """A connected view over three sources with two join columns each, cyclic or not, perhaps with a comparison."""
    count = draw(st.integers(2, 5))
    kinds = {c: draw(st.sampled_from(sorted(KINDS))) for c in ("a", "b")}
    pairs = {(draw(st.integers(0, n - 1)), n) for n in range(1, count)}
    if count > 2 and draw(st.booleans()):
        pairs.add(tuple(sorted(draw(st.lists(st.integers(0, count - 1), min_size=2, max_size=2, unique=True)))))
    edges = []
    for left, right in sorted(pairs):
        column = draw(st.sampled_from(["a", "b"]))
        kind = draw(st.sampled_from(["equal", "equal", "both", "compared"]))
        equal = {"equal": ((column, column),), "both": (("a", "a"), ("b", "b")), "compared": ()}[kind]
        others = (text(Ref(left, "id"), " < ", Ref(right, "id")),) if kind == "compared" else ()
        edges.append(Edge(left, right, equal, others))
    nodes = tuple(Node(f"x{n}", f"s{draw(st.integers(0, 2))}") for n in range(count))
    filters = (text(Ref(0, "id"), " <> 2"),) if draw(st.booleans()) else ()
    items = tuple(Item(None, text(Ref(n, "id"))) for n in range(count))
    rows = st.fixed_dictionaries({c: VALUES[kind] for c, kind in kinds.items()} | {COUNT: st.integers(1, 2)})
    tables = {f"s{n}": draw(st.lists(rows, max_size=5)) for n in range(3)}
    return View("v", "", nodes, tuple(edges), filters, items), kinds, tables


def nested_loops(view, tables):
    found = Counter()
    for chosen in product(*(range(len(tables[node.source])) for node in view.nodes)):
        rows = [tables[node.source][n] for node, n in zip(view.nodes, chosen, strict=True)]
        if view.filters and chosen[0] == 2:
            continue
        for edge in view.edges:
            pairs = [(normal(rows[edge.left][a]), normal(rows[edge.right][b])) for a, b in edge.equal]
            if any(a is None or a != b for a, b in pairs) or (edge.others and chosen[edge.left] >= chosen[edge.right]):
                break
        else:
            weight = 1
            for row in rows:
                weight *= row[COUNT]
            found[chosen] += weight
    return found


def frames_of(spark, kinds, tables):
    schema = pa.schema([("id", pa.int64()), *((c, KINDS[k]) for c, k in kinds.items()), (COUNT, pa.int64())])
    return {
        name: spark.createDataFrame(pa.Table.from_pylist([{"id": n, **row} for n, row in enumerate(rows)], schema))
        for name, rows in tables.items()
    }


def bag(frame):
    found = Counter()
    for *row, weight in frame.collect():
        found[tuple(row)] += weight
    return found


@settings(max_examples=examples(3))
@given(views(), st.data())
def test_every_shape_gives_the_bag_of_nested_loops(spark, tmp_path_factory, case, data):
    check(spark, tmp_path_factory, case, data)


@pytest.mark.long
@settings(max_examples=examples(40))
@given(views(), st.data())
def test_every_shape_gives_the_bag_of_nested_loops_many_times(spark, tmp_path_factory, case, data):
    check(spark, tmp_path_factory, case, data)


def check(spark, tmp_path_factory, case, data):
    view, kinds, tables = case
    frames = frames_of(spark, kinds, tables)
    relations = count_relations(view, frames)
    assert list(relations.rows) == [
        len([n for n in range(len(tables[node.source])) if not (view.filters and number == 0 and n == 2)])
        for number, node in enumerate(view.nodes)
    ]
    memory = data.draw(st.sampled_from([0.0, 60.0, 1e9]))
    shapes = [
        right_deep(relations),
        segmented_right_deep(relations, memory),
        pieced_bushy(relations, memory, 2, by_output, 2),
    ]
    costs = data.draw(st.sampled_from([NOTHING_SMALL, Costs()]))
    expected = nested_loops(view, tables)
    for shape in shapes:
        frame = compute(view, frames, shape, relations, tmp_path_factory.mktemp("pieces"), costs)
        assert bag(frame) == expected, shape


def chain_view(count, columns="ab"):
    """x0.b = x1.a, x1.b = x2.a, ..; or one key all along."""
    edges = tuple(Edge(n, n + 1, ((columns[-1], columns[0]),)) for n in range(count - 1))
    nodes = tuple(Node(f"x{n}", "s") for n in range(count))
    return View("v", "", nodes, edges, (), tuple(Item(None, text(Ref(n, "id"))) for n in range(count)))


def planned(frame):
    return frame._jdf.queryExecution().executedPlan().toString()


@pytest.fixture(scope="module")
def rows(spark):
    table = pa.table({"id": range(60), "a": [n % 20 for n in range(60)], "b": [n * 7 % 20 for n in range(60)]})
    return {"s": spark.createDataFrame(table)}


@pytest.mark.parametrize(("columns", "inside"), [("ab", 2), ("aa", 0)])
def test_rows_are_sent_on_as_often_as_the_key_changes(rows, tmp_path, columns, inside):
    view = chain_view(4, columns)
    relations = count_relations(view, rows)
    shape = right_deep(relations)
    (segment,) = shape.segments
    assert exchanges(relations, shape, segment) == inside
    plan = planned(compute(view, rows, shape, relations, tmp_path, NOTHING_SMALL))
    assert plan.count("Exchange hashpartitioning") == len(segment.builds) + 1 + inside
    assert plan.count("ShuffledHashJoin") == 3


def test_groups_have_as_many_tasks_as_their_share_of_the_cores(rows, tmp_path):
    view = chain_view(4)
    relations = count_relations(view, rows)
    shape = segmented_bushy(relations, 2, by_output, 6)
    assert [s.cores for s in shape.segments] == [3, 3, 0]
    plan = planned(compute(view, rows, shape, relations, tmp_path, NOTHING_SMALL))
    assert re.findall(r"Exchange hashpartitioning\(\w+#\w+, (\d+)\)", plan) == ["2", "3", "3", "2", "3", "3"]


def test_small_tables_are_copied(rows, tmp_path):
    view = chain_view(3)
    relations = count_relations(view, rows)
    plan = planned(compute(view, rows, right_deep(relations), relations, tmp_path, Costs(small=1e9)))
    assert "Exchange hashpartitioning" not in plan
    assert plan.count("BroadcastHashJoin") == 2


def test_pieces_are_written_out(rows, tmp_path):
    view = chain_view(4)
    relations = count_relations(view, rows)
    shape = zigzag(relations, 1.0)
    assert len(shape.segments) == 3
    found = compute(view, rows, shape, relations, tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["piece-0", "piece-1"]
    whole = compute(view, rows, left_deep(relations), relations, tmp_path)
    assert bag(found) == bag(whole)
    assert bag(found).total() == 60 * 3**3


def test_the_chosen_shape_computes_the_arguments_of_aggregates(rows, tmp_path):
    view = chain_view(3)
    summed = ViewAggregate("sum", text(Ref(2, "id"), " + ", Ref(0, "a")))
    view = View("v", "", view.nodes, view.edges, (), (), (text(Ref(1, "b")),), (ViewAggregate("count", None), summed))
    choice, relations = choose_shape(view, rows)
    frame = compute(view, rows, choice.shape, relations, tmp_path)
    assert frame.columns == ["g0", "a1", COUNT]
    assert frame.count() == 60 * 9


def test_columns_that_are_equal_by_others_are_compared_once():
    edges = (Edge(0, 1, (("a", "a"),)), Edge(1, 2, (("a", "a"),)), Edge(0, 2, (("a", "a"), ("b", "a"))))
    view = View("v", "", tuple(Node(f"x{n}", "s") for n in range(3)), edges, (), ())
    from penstock.views.refresh.compute import _pairs

    assert set(equal_places(view).values()) == {equal_places(view)[0, "a"]}
    assert _pairs(view, frozenset((0, 1)), frozenset((2,))) == [((0, "b"), (2, "a")), ((1, "a"), (2, "a"))]
