import numpy as np
import pytest

from penstock.kernels.aggregate.close import close, partials
from penstock.model import Aggregate, Aggregation, Landmark, PerRow, Session, Sliding
from penstock.model.time import FOREVER, NEVER
from penstock.planner.aggregates import plan_aggregates
from penstock.planner.pane_sql import pane_text, partial_columns
from tests.kernels.aggregate.scenes import TYPES, assert_same, column, items, listed, table_of

FUNCTIONS = (
    Aggregate("count", None), Aggregate("count", column("s")), Aggregate("sum", column("x")), Aggregate("avg", column("i")),
    Aggregate("min", column("s")), Aggregate("max", column("d")), Aggregate("min", column("d")), Aggregate("max", column("m")),
    Aggregate("stddev_samp", column("i")), Aggregate("var_pop", column("x")),
)  # fmt: skip


def plan_of(windows, aggregates, **options):
    queries = {n: Aggregation(w, items("k"), aggregates, None) for n, w in enumerate(windows)}
    return plan_aggregates(queries, {column(n): t for n, t in TYPES.items()}, **options)[0]


def rows_of(count):
    draw = np.random.default_rng(7)

    def some(values):
        return [None if draw.random() < 0.2 else values[draw.integers(len(values))] for _ in range(count)]

    columns = {
        "ts": draw.integers(-30, 60, count).tolist(), "k": some([0, 1, 2]), "p": some([1.0]),
        "x": some([1, -7, 10**6, -(2**40), 2**40]), "i": some([-5, 3, 2**31 - 1]), "d": some([0.5, -1e9, float("nan"), float("inf")]),
        "m": some([None]), "s": some(["", "a", "ä"]),
    }  # fmt: skip
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


@pytest.mark.spark
def test_partials_of_spark_are_as_good_as_those_of_the_kernels(spark):
    plan = plan_of([Sliding(12, 5), Sliding(7, 7, -31), Session(4), Landmark(9)], FUNCTIONS)
    rows = rows_of(300)
    table = table_of([column("k")], plan, rows, ((),))
    frame = spark.createDataFrame(table)
    texts = partial_columns(plan, [f"a{n}" for n in range(len(plan.arguments))], "_ts")
    grouped = frame.selectExpr("*", f"{pane_text(plan, '_ts')} AS _pane").groupBy("_key", "g0", "_pane")
    from pyspark.sql import functions

    spark_made = grouped.agg(*(functions.expr(text).alias(name) for name, text in texts)).toArrow()
    ours = {c.query: listed(c.table, plan, c.query) for c in close(plan, [partials(plan, table)], NEVER, FOREVER)}
    theirs = {c.query: listed(c.table, plan, c.query) for c in close(plan, [spark_made], NEVER, FOREVER)}
    assert len(ours) == 4
    for query, results in ours.items():
        assert_same(theirs[query], results)


@pytest.mark.parametrize(
    ("window", "aggregate"),
    [
        (PerRow(5), FUNCTIONS[0]),
        (Sliding(4, 2), Aggregate("sum", column("d"))),
        (Sliding(4, 2), Aggregate("first", column("x"))),
    ],
)
def test_what_spark_cannot_put_together_is_sent_as_rows(window, aggregate):
    plan = plan_of([window], (aggregate,))
    assert partial_columns(plan, ["x"], "ts") is None


def test_panes_begin_at_their_base_also_before_it():
    assert pane_text(plan_of([Sliding(12, 6, 2)], FUNCTIONS[:1]), "ts") == "(ts) - pmod((ts) - 2L, 6L)"
