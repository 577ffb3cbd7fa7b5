"""What a running engine has chosen is in EXPLAIN and among its decisions, over a restart too."""

from unittest.mock import patch

import pytest

from penstock.model.time import SECOND
from tests.spark.replay import Replay, drain, stream

pytestmark = pytest.mark.spark

COLUMNS = "ts timestamp, k bigint, v bigint"
PAIR = "SELECT a.v FROM a [RANGE {} SECONDS], b [RANGE 2 SECONDS] WHERE a.k = b.k"


def test_explain_has_the_estimates_and_the_last_count_of_a_run(spark, tmp_path):
    replay = Replay(tmp_path / "source", stream("a", COLUMNS), stream("b", COLUMNS))
    replay.plain = False
    for step in range(4):
        rows = [{"ts": step * SECOND + n, "k": n % 2, "v": n} for n in range(6)]
        replay.add(a=rows, b=rows[:2])
    queries = {"short": PAIR.format(5), "long": PAIR.format(20)}
    queries["sums"] = "SELECT k, sum(v) AS s FROM a [RANGE 2 SECONDS SLIDE 1 SECOND] GROUP BY k"
    upkeep = patch.multiple("penstock.results.retention", UPKEEP_EVERY=2, FIRST_UPKEEP=1)
    engine = replay.engine(spark, tmp_path / "state", queries, tasks=2)
    assert "rows of the last step" not in engine.explain()
    assert "  chain: 5 seconds, 20 seconds" in engine.explain().splitlines()
    with upkeep:
        drain(engine)
    plan = engine.explain().splitlines()
    assert "rows of the last step, 8:" in plan
    assert "  by Spark to every task (8 rows; up to 16,384 go to every task): a 6, b 2" in plan
    assert any("a row goes to 2.0 tables, with one for each role to 3.0" in line for line in plan)
    assert any(line.startswith("  panes: measured 6 rows a second, ") for line in plan)
    # Every row of a is wanted by the longer query, so one link holds no more than two.
    (decision,) = [d for d in engine.decisions() if d["mode"] == "chain"]
    assert (decision["query"], decision["before"], decision["after"]) == (
        "a(k)", [5 * SECOND, 20 * SECOND], [20 * SECOND]
    )  # fmt: skip
    assert decision["old_rows"] == decision["new_rows"] > 0
    assert decision["old_cost"] > decision["new_cost"] > 0
    again = replay.engine(spark, tmp_path / "state", {})
    assert again.decisions() == engine.decisions()
    plan = again.explain().splitlines()
    assert "  chain: 20 seconds" in plan
    assert any(line.startswith("  chain changed after step ") for line in plan)
