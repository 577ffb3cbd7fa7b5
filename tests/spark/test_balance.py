"""Buckets move between the tasks of Spark's job, and a hot one is shared by them."""

import pytest

from penstock import Engine
from penstock.errors import RegistrationError
from penstock.model.time import SECOND
from penstock.state.balance.costs import Prices
from penstock.state.balance.costs import costs_of as priced
from penstock.step import balancing
from tests.spark.replay import Replay, drain, rows_of, stream

pytestmark = pytest.mark.spark

SQL = "SELECT a.v AS av, b.v AS bv FROM a [RANGE 20 SECONDS], b [RANGE 20 SECONDS] WHERE a.k = b.k"
EAGER = {"theta_r": 0.95, "tau_m": 1e-6, "least": 1e-12}
STEPS = 6


def brought(step, shift):
    """Most rows of a have one key, and b has all keys alike."""
    keys = [7] * 20 + [*range(10)] if shift else [*range(10)] * 3
    return [{"ts": (5 * step + n % 5) * SECOND, "k": k, "v": 100 * step + n} for n, k in enumerate(keys)]


def expected(steps):
    a, b = ([row for step in range(steps) for row in brought(step, shift)] for shift in (1, 0))
    near = ((x, y) for x in a for y in b if x["k"] == y["k"] and abs(x["ts"] - y["ts"]) < 20 * SECOND)
    return sorted((x["v"], y["v"]) for x, y in near)


@pytest.mark.parametrize("tasks", [2, 5])  # each maps for itself, or mappers do
def test_skewed_keys_are_spread_over_tasks_and_shown(spark, tmp_path, monkeypatch, tasks):
    # So few rows hardly cost anything: what is worth sharing are the probes.
    monkeypatch.setattr(balancing, "costs_of", lambda counted, buckets: priced(counted, buckets, Prices(row=1e-9)))
    replay = Replay(tmp_path / "source", *(stream(n, "ts timestamp, k bigint, v bigint") for n in "ab"))
    for step in range(STEPS):
        replay.add(a=brought(step, 1), b=brought(step, 0))
    engine = replay.engine(spark, tmp_path / "state", {"j": SQL}, tasks=tasks, balance_options=EAGER)
    run = engine.start(available_now=True)
    assert run.await_termination(300)
    assert sorted(rows_of(engine.results("j"))) == expected(STEPS)
    changes = [d for d in engine.decisions() if d["mode"] == "balance" and d["action"] == "changed"]
    assert changes
    assert changes[-1]["new_cost"] < changes[-1]["old_cost"]
    shown = run.status()["balance"]
    assert (shown["policy"], shown["tasks"]) == ("weighted", tasks)
    assert shown["skew"] >= 1
    assert shown["hottest"][0]["share"] > 0.2
    assert shown["split"].keys() == {split.bucket for split in engine.manifest().balance.splits} != set()

    replay.add(a=brought(STEPS, 1), b=brought(STEPS, 0))
    again = replay.engine(spark, tmp_path / "state", {"j": SQL}, tasks=tasks, balance="off")
    drain(again)  # another engine goes on with any map
    assert sorted(rows_of(again.results("j"))) == expected(STEPS + 1)


def test_other_ways_and_options_are_refused_with_what_is_known(spark, tmp_path):
    with pytest.raises(RegistrationError, match=r"no way 'random' of moving buckets; known: auto, off, weighted"):
        Engine(spark, tmp_path / "one", balance="random")
    with pytest.raises(RegistrationError, match=r"balance_options: theta_r must be more than 0 and at most 1, not 1.5"):
        Engine(spark, tmp_path / "two", balance_options={"theta_r": 1.5})
    with pytest.raises(RegistrationError, match=r"balance_options: .*unexpected keyword"):
        Engine(spark, tmp_path / "three", balance_options={"theta": 1})
