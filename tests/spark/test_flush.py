"""Capped results through Spark: what is owed comes by ticks; `tests/step/test_flush.py` has the rest."""

import pytest

from penstock.errors import RegistrationError
from penstock.model.time import SECOND
from tests.spark.replay import Replay, stream, wait_until
from tests.spark.test_aggregates import SLIDING, aggregated
from tests.spark.test_online import live, rows_at  # noqa: F401  (a fixture)

pytestmark = pytest.mark.spark

STREAM = stream("a", "ts bigint, k bigint, v bigint", delay=0)
SQL = "SELECT k, count(*) AS n, sum(v) AS s, window_end FROM a [RANGE 8 SLIDE 4] GROUP BY k"


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
