"""Capped results through Spark: few per step, none too late, progress waits for them, and each comes once."""

import pytest

from penstock.errors import RegistrationError
from penstock.model.time import SECOND
from penstock.results.released import released
from tests.oracle import bag
from tests.spark.replay import Replay, drain, rows_of, stream, wait_until
from tests.spark.test_aggregates import SLIDING, aggregated
from tests.spark.test_online import live, rows_at  # noqa: F401  (a fixture)

pytestmark = pytest.mark.spark

STREAM = stream("a", "ts bigint, k bigint, v bigint", delay=0)
SQL = "SELECT k, count(*) AS n, sum(v) AS s, window_end FROM a [RANGE 8 SLIDE 4] GROUP BY k"
ROWS, BEHIND, GROUPS = 7, 2, 12


@pytest.mark.parametrize("sql", [SQL, SQL.replace("RANGE 8", "RANGE ALL")])
def test_few_results_in_a_step_none_too_late_and_all_in_the_end(spark, tmp_path, sql):
    replay = Replay(tmp_path / "source", STREAM)
    for number in range(9):
        # The last steps bring one group only, so that what was held back comes out.
        groups = GROUPS if number < 3 else 1
        replay.add(a=[{"ts": 4 * number + n % 4, "k": n % groups, "v": n} for n in range(max(4, groups))])
        if number in (3, 8):
            engine = replay.engine(spark, tmp_path / "state", {"all": sql}, tasks=2 if number == 3 else 3)
            engine.query(sql, name="few", flush=ROWS, behind=BEHIND)
            begun = engine.manifest().step + 1
            drain(engine)
            answered = check(engine, begun)
            assert answered or number == 3 or sql != SQL  # of a landmark all groups have results for ever
    drain(engine, final=True)
    assert bag(rows_of(engine.results("few"))) == bag(rows_of(engine.results("all")))
    assert not engine.manifest().runs


def check(engine, begun):
    """Whether nothing is owed; what is, is not too old, and output progress has not passed it."""
    due, out = (rows_of(engine.results(name, step=True)) for name in ("all", "few"))
    assert bag(row[:-1] for row in out) <= bag(row[:-1] for row in due)
    closed_in = {row[3]: row[4] for row in due}  # end of a window -> the step that could close it
    for row in out:
        latest = closed_in.get(row[3] + 4 * BEHIND)
        assert closed_in[row[3]] <= row[4] <= (latest if latest is not None else row[4])
    for step in {row[4] for row in out} - {begun}:  # with other tasks than before the first step may give more
        forced = [row for row in out if row[4] == step and closed_in.get(row[3] + 4 * BEHIND) == step]
        assert len([row for row in out if row[4] == step]) <= ROWS + len(forced)
    record, manifest = engine.catalog.record("few"), engine.manifest()
    until = released(engine.catalog, record, manifest)
    owed = bag(row[:-1] for row in due) - bag(row[:-1] for row in out)
    assert all(row[3] >= until for row in owed)
    assert until <= released(engine.catalog, engine.catalog.record("all"), manifest)
    return not owed


def test_what_is_owed_comes_without_new_rows(live):  # noqa: F811
    one = live({"all": SLIDING})
    one.engine.query(SLIDING, name="few", flush=1, behind=100)
    assert "few, differential (CF; sums of panes by difference), at most 1 results a step" in one.engine.explain()
    for number in range(4):
        one.feed(**rows_at(number))
    # Ticks go on, one result after the other.
    wait_until(lambda: one.answer("few") == aggregated(SLIDING, range(4), 5 * SECOND))
    one.run.stop(final=True)
    assert one.answer("few") == one.answer("all") == aggregated(SLIDING, range(4))


def test_what_cannot_be_let_out_slowly_is_refused(spark, tmp_path):
    engine = Replay(tmp_path / "source", STREAM).engine(spark, tmp_path / "state")
    with pytest.raises(RegistrationError, match="flush= is for windows that slide by time"):
        engine.query("SELECT count(*) AS n FROM a [SESSION 5]", name="q", flush=5)
    with pytest.raises(RegistrationError, match="flush= holds results back and EMIT EARLY shows them"):
        engine.query(SQL, name="q", flush=5, emit="1 second")
    with pytest.raises(RegistrationError, match="at least 1, and behind= at least 0"):
        engine.query(SQL, name="q", flush=0)
    with pytest.raises(RegistrationError, match="a step of an aggregate"):
        engine.query("SELECT v FROM a", name="q", flush=5)
