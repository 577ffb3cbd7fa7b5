"""Expressions that only Spark can evaluate: the engine's answer is that of one batch query over the same files.

The batch query writes every window out as a time condition and every expression that may raise with its `try_` form.
"""

import pytest

from penstock.model.time import SECOND
from tests.oracle import bag
from tests.spark.replay import Replay, drain, generated_code, rows_of, stream

pytestmark = pytest.mark.spark

A = stream("a", "ts timestamp, k bigint, v bigint, w double, s string")
B = stream("b", "ts timestamp, k bigint, v bigint, w double, s string", delay=2 * SECOND)

WINDOWS = "FROM a [RANGE 4 SECONDS], b [RANGE 6 SECONDS] WHERE a.k = b.k"
STRICT = (
    "FROM a, b WHERE a.k = b.k AND timestampdiff(MICROSECOND, a.ts, b.ts) < 4000000 "
    "AND timestampdiff(MICROSECOND, b.ts, a.ts) < 6000000"
)

CHOICE = "CASE WHEN a.v > b.v THEN a.s ELSE concat(b.s, '!') END AS c"

# name -> (select list, condition, the same two for the batch query if they may raise)
CASES = {
    "quotient": ("a.v / b.v, a.w", "", "try_divide(a.v, b.v), a.w", ""),
    "remainder": ("a.v % b.v AS m, b.s", "", "try_mod(a.v, b.v), b.s", ""),
    "upper": ("upper(a.s), length(b.s)", "upper(a.s) = 'AB'", None, None),
    "similar": ("a.s, b.s", "levenshtein(a.s, b.s) < 2", None, None),
    "either": (f"{CHOICE}, result_time", "", f"{CHOICE}, greatest(a.ts, b.ts)", ""),
    "number": ("CAST(a.s AS INT) + b.v AS n", "", "try_add(try_cast(a.s AS INT), b.v)", ""),
    "text": ("CAST(a.v AS STRING), date_trunc('MINUTE', b.ts)", "CAST(b.v AS STRING) LIKE '1%'", None, None),
    "one side raises": ("a.v, b.v", "10 / a.v > 1", "a.v, b.v", "try_divide(10, a.v) > 1"),
    "pair raises": ("a.v, b.v", "a.v / b.v >= 1", "a.v, b.v", "try_divide(a.v, b.v) >= 1"),
    "raises twice": ("10 / b.v, a.s", "a.v / b.v < 2", "try_divide(10, b.v), a.s", "try_divide(a.v, b.v) < 2"),
    "guarded": ("a.v", "a.v <> 0 AND 10 / a.v > 2", "a.v", "try_divide(10, a.v) > 2"),
    "pair guarded": ("a.v, b.v", "b.v <> 0 AND a.v / b.v > 0", "a.v, b.v", "try_divide(a.v, b.v) > 0"),
    "guarded in OR": ("a.v", "(a.v = 0 OR 10 / a.v > 2)", "a.v", "(a.v = 0 OR try_divide(10, a.v) > 2)"),
    "overflow": ("a.v, b.w", "a.v * 9000000000000000000 > 0", "a.v, b.w", "try_multiply(a.v, 9000000000000000000) > 0"),
    "plain": ("a.v, b.v, a.s, b.s", "", None, None),
}
ALONE = ("SELECT s, v * 2 AS d FROM a WHERE length(s) > 1", "SELECT s, v * 2 FROM a WHERE length(s) > 1")
BY_TEXT = (
    "SELECT a.s, b.s FROM a [RANGE 4 SECONDS], b [RANGE 6 SECONDS] WHERE upper(a.s) = upper(b.s)",
    f"SELECT a.s, b.s {STRICT.replace('a.k = b.k', 'upper(a.s) = upper(b.s)')}",
)

WORDS = ("ab", "AB", "abc", "12", "", None, "7", "b")


def rows(first, count, numbers):
    return [
        {
            "ts": (first + i // 3) * SECOND,
            "k": (0, 1, None, 0, 0)[i % 5],
            "v": numbers[i % len(numbers)],
            "w": (0.5, float("nan"), None, -0.0)[i % 4],
            "s": WORDS[(first + i) % len(WORDS)],
        }
        for i in range(count)
    ]


def joined(items, condition, source):
    return f"SELECT {items} {source}" + (f" AND {condition}" if condition else "")


@pytest.fixture(scope="module")
def answered(spark, tmp_path_factory):
    """An engine that has answered all cases, and the batch query's views."""
    root = tmp_path_factory.mktemp("expressions")
    replay = Replay(root / "source", A, B)
    for step in range(2):
        replay.add(a=rows(4 * step, 12, (0, 1, 5, -3, None, 2)), b=rows(4 * step - 1, 12, (1, 0, 2, None, 10)))
    queries = {name.replace(" ", "_"): joined(items, where, WINDOWS) for name, (items, where, _, _) in CASES.items()}
    engine = replay.engine(spark, root / "state", {**queries, "alone": ALONE[0], "by_text": BY_TEXT[0]})
    for name in replay.streams:
        spark.read.parquet(str(root / "source" / name)).createOrReplaceTempView(name)
    with generated_code(spark):
        return engine, drain(engine, final=True)


@pytest.mark.parametrize("name", CASES)
def test_answers_as_the_batch_query(answered, spark, name):
    engine, _ = answered
    items, where, safe_items, safe_where = CASES[name]
    expected = rows_of(spark.sql(joined(safe_items or items, where if safe_items is None else safe_where, STRICT)))
    assert expected
    with generated_code(spark):
        assert bag(rows_of(engine.results(name.replace(" ", "_")))) == bag(expected)


@pytest.mark.parametrize(("name", "texts"), [("alone", ALONE), ("by_text", BY_TEXT)])
def test_answers_filters_and_computed_keys_as_the_batch_query(answered, spark, name, texts):
    engine, _ = answered
    expected = bag(rows_of(spark.sql(texts[1])))
    assert expected
    assert bag(rows_of(engine.results(name))) == expected


@pytest.mark.parametrize(
    ("name", "raising"),
    [
        ("quotient", f"SELECT 1 {STRICT} AND b.v = 0 AND a.v IS NOT NULL"),
        ("one side raises", "SELECT 1 FROM a WHERE v = 0"),
        ("pair raises", f"SELECT 1 {STRICT} AND b.v = 0 AND a.v IS NOT NULL"),
        ("number", f"SELECT 1 {STRICT} AND a.s IS NOT NULL AND try_cast(a.s AS INT) IS NULL"),
        ("guarded", None),
        ("pair guarded", None),
        ("guarded in OR", None),
        ("plain", None),
        ("upper", None),
    ],
)
def test_counts_for_each_query_the_rows_on_which_it_raised(answered, spark, name, raising):
    engine, run = answered
    errors = spark.sql(raising).count() if raising else 0
    assert bool(errors) == bool(raising)
    name = name.replace(" ", "_")
    assert run.status()["queries"][name]["errors"] == errors
    assert engine.manifest().suspended == {}


def test_a_query_that_stops_on_an_error_stops_alone(spark, tmp_path):
    replay = Replay(tmp_path / "source", A, B)
    for step, (left, right) in enumerate([(6, 2), (6, 0), (8, 2)]):
        replay.add(
            a=[{"ts": step * SECOND, "k": 1, "v": left, "w": 1.0, "s": "x"}],
            b=[{"ts": step * SECOND, "k": 1, "v": right, "w": 1.0, "s": "y"}],
        )
    same_step = "FROM a [RANGE 1 MICROSECOND], b [RANGE 1 MICROSECOND] WHERE a.k = b.k"
    engine = replay.engine(spark, tmp_path / "state")
    stopped = engine.query(f"SELECT a.v / b.v AS q {same_step}", name="stopped", on_error="stop")
    ahead = engine.query("SELECT 6 / v AS q FROM b WHERE 6 / v > 0", name="ahead", on_error="stop")
    skipping = engine.query(f"SELECT a.v / b.v AS q {same_step}", name="skipping")
    plain = engine.query(f"SELECT a.v, b.v {same_step}", name="plain")
    status = drain(engine).status()["queries"]
    assert bag(rows_of(plain.results())) == bag([(6, 2), (6, 0), (8, 2)])
    assert bag(rows_of(skipping.results())) == bag([(3.0,), (None,), (4.0,)])
    assert skipping.stats() == {"results": 3, "errors": 1, "outside": 0}
    assert (3.0,) in rows_of(stopped.results())
    assert (4.0,) not in rows_of(stopped.results())
    assert rows_of(ahead.results())[:1] == [(3.0,)]
    assert len(rows_of(ahead.results())) == 1
    for name in ("stopped", "ahead"):
        assert "on_error" in status[name]["suspended"], name
    for name in ("skipping", "plain"):
        assert not status[name]["suspended"], name
    before = engine.manifest().step
    again = replay.engine(spark, tmp_path / "state")
    replay.add(
        a=[{"ts": 9 * SECOND, "k": 1, "v": 9, "w": 1.0, "s": "x"}],
        b=[{"ts": 9 * SECOND, "k": 1, "v": 3, "w": 1.0, "s": "y"}],
    )
    drain(again)
    assert rows_of(again.results("skipping", since_step=before)) == [(3.0,)]
    assert rows_of(again.results("plain", since_step=before)) == [(9, 3)]
    assert rows_of(again.results("ahead", since_step=before)) == []
    assert rows_of(again.results("stopped", since_step=before)) == []


def test_a_sum_that_is_too_large_is_an_error_of_its_query_alone(spark, tmp_path):
    replay = Replay(tmp_path / "source", A)
    for step, values in enumerate([(2**62, 2**62), (1, 2), (3,), (4,)]):
        replay.add(a=[{"ts": 4 * step * SECOND, "k": 1, "v": v, "w": 1.0, "s": "x"} for v in values])
    windows = "FROM a [RANGE 4 SECONDS SLIDE 2 SECONDS]"
    engine = replay.engine(spark, tmp_path / "state")
    engine.query(f"SELECT sum(v) AS s {windows}", name="stopped", on_error="stop")
    skipping = engine.query("SELECT sum(v) AS s FROM a [TUMBLING 4 SECONDS]", name="skipping")
    engine.query(f"SELECT count(v) AS n {windows}", name="plain", on_error="stop")
    status = drain(engine).status()["queries"]
    assert "on_error" in status["stopped"]["suspended"]
    assert not status["plain"]["suspended"]
    assert bag(rows_of(skipping.results())) == bag([(None,), (3,), (3,)])
    assert skipping.stats()["errors"] == 1
    shown = rows_of(engine.results("stopped"))
    assert shown[:2] == [(None,), (None,)]
    assert (3,) not in shown[2:]
