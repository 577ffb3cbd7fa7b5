"""Probe orders in a running engine: what was counted reaches the planner, also from another join, and is reported."""

import pytest

from penstock import Engine
from penstock.model.time import SECOND
from tests.spark.replay import Replay, drain, rows_of, stream

pytestmark = pytest.mark.spark

STAR = (
    "SELECT a.v AS av, b.v AS bv, c.v AS cv FROM a [RANGE 9 SECONDS], b [RANGE 9 SECONDS], c [RANGE 9 SECONDS] "
    "WHERE a.k = b.k AND a.v = c.v"
)
PAIR = "SELECT a.v AS av, b.v AS bv FROM a [RANGE 9 SECONDS], b [RANGE 9 SECONDS] WHERE a.k = b.k"


def test_orders_are_checked_with_the_counts_of_all_joins_and_the_checks_are_reported(spark, tmp_path):
    replay = Replay(tmp_path / "source", *(stream(n, "ts timestamp, k bigint, v bigint") for n in "abc"))
    for step in range(3):
        rows = {n: [{"ts": step * SECOND, "k": step, "v": v} for v in range(4)] for n in "abc"}
        replay.add(**rows)
    engine = Engine(spark, tmp_path / "state", tasks=2, durable=False, order_options={"period": 1})
    replay.declare(engine)
    engine.query(STAR, name="star")
    engine.query(PAIR, name="pair")
    run = drain(engine)
    orders = run.status()["orders"]
    (checks,) = orders["checks"].values()  # a join of two streams has nothing to choose
    assert checks["checks"] == 3
    assert checks["useful"] <= checks["regenerations"]
    assert orders["seconds"]["planning"] > 0
    assert orders["seconds"]["probing"] > 0
    assert [d["check"] for d in engine.decisions()] == [1, 2, 3]
    plan = engine.explain("star")
    assert f"  orders: checks 3, bypassed {checks['bypasses']}, planned anew {checks['regenerations']}" in plan
    assert f"  last check: number 3 (adaptive) after step {engine.decisions()[-1]['step']}, distance " in plan
    assert "last check" not in engine.explain("pair")
    # A step has one value of k and four of v; keys are counted in each step.
    counted = engine.manifest().counters
    assert {n: counted.table(n).keys for n in ("a(k)", "a(v)", "c(v)")} == {"a(k)": 3, "a(v)": 12, "c(v)": 12}
    assert ", keys 12" in plan
    (state,) = engine.manifest().orders.values()
    known = {(start, tuple(members)) for start, members, *_ in state.learned.known.flows}
    assert {(0, (0, 1)), (1, (0, 1))} <= known  # as the pair has counted them, whatever the star looks at first
    assert len(rows_of(engine.results("pair"))) == 3 * 16
    assert sorted(rows_of(engine.results("star"))) == sorted(
        (v, w, v) for v in range(4) for w in range(4) for _ in range(3 * 3)
    )


def test_counts_between_two_checks_are_remembered_when_the_engine_starts_again(spark, tmp_path):
    replay = Replay(tmp_path / "source", *(stream(n, "ts timestamp, k bigint, v bigint") for n in "abc"))
    for step in range(2):
        replay.add(**{n: [{"ts": step * SECOND, "k": step, "v": v} for v in range(4)] for n in "abc"})
        engine = Engine(
            spark, tmp_path / "state", tasks=2, durable=False, orders="oracle", order_options={"period": 2 * 3 * 4}
        )
        replay.declare(engine)
        if step == 0:
            engine.query(STAR, name="star")
        drain(engine)
        (state,) = engine.manifest().orders.values()
        assert state.interval.arrivals == ((4, 4, 4) if step == 0 else (0, 0, 0))
        assert len(engine.decisions()) == step
