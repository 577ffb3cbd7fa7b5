"""Probes that are put off under pressure, on Spark: paid in pauses, on request, and when the available input ends."""

import pytest

from penstock.errors import RegistrationError
from penstock.model.time import SECOND
from penstock.step.owing import Chosen
from tests.spark.replay import Replay, drain, rows_of, stream, wait_until

pytestmark = pytest.mark.spark

QUERIES = {
    "pair": "SELECT a.v AS av, b.v AS bv FROM a [RANGE 9 SECONDS], b [RANGE 9 SECONDS] WHERE a.k = b.k",
    "chain": "SELECT a.v AS av, b.v AS bv, c.v AS cv FROM a [RANGE 9 SECONDS], b [RANGE 9 SECONDS], "
    "c [RANGE 9 SECONDS] WHERE a.k = b.k AND b.v = c.v",
    "by_spark": "SELECT sha2(CAST(a.v + b.v AS STRING), 256) AS h FROM a [RANGE 9 SECONDS], b [RANGE 9 SECONDS] "
    "WHERE a.k = b.k",
}


def input_of(root, steps=4):
    replay = Replay(root, *(stream(n, "ts timestamp, k bigint, v bigint") for n in "abc"))
    for step in range(steps):
        rows = [{"ts": 3 * step * SECOND, "k": key, "v": step} for key in range(3)]
        replay.add(a=rows, b=rows, c=rows)
    return replay


def put_off_all(run):
    """All probes are put off, as an overload does with some."""
    run.stepper.put_off = Chosen({table.name: ((0, 256),) for table in run.stepper.network.tables})


def test_what_was_put_off_is_found_later_exactly(spark, tmp_path):
    replay = input_of(tmp_path / "source")
    plain = replay.engine(spark, tmp_path / "plain", QUERIES)
    drain(plain)
    engine = replay.engine(spark, tmp_path / "state", QUERIES, overload="defer", overload_options={"seconds": 3600})
    run = engine.start(trigger="100 milliseconds")
    begun = run.stepper.manifest.last_batch
    put_off_all(run)  # from the next step on
    wait_until(lambda: run.status()["batch"] == replay.steps - 1)
    run.stepper.put_off = None
    if begun < replay.steps - 3:
        assert run.stepper.manifest.counters.tables["a(k)"].deferred > 0
    run.clean_up()
    owed = run.status()["owed"]
    assert (owed["rows"], owed["steps"], owed["seconds"], owed["joins"]) == (0, 0, None, [])
    assert "overload: defer by least_productive, steps may take 3600 s" in engine.explain()
    run.stop()
    for name in QUERIES:
        assert sorted(rows_of(engine.results(name))) == sorted(rows_of(plain.results(name)))


def test_pauses_pay_what_is_owed(spark, tmp_path):
    replay = input_of(tmp_path / "source", steps=1)
    engine = replay.engine(spark, tmp_path / "state", {"pair": QUERIES["pair"]})
    run = engine.start(trigger="100 milliseconds")
    wait_until(lambda: run.status()["batch"] == 0)
    put_off_all(run)
    rows = [{"ts": 3 * SECOND, "k": 1, "v": 7}]
    replay.add(a=rows, b=rows)
    wait_until(lambda: run.status()["batch"] == 1)
    wait_until(lambda: run.stepper.manifest.counters.tables["a(k)"].cleaned == 1 and not run.stepper.manifest.owed)
    run.stop()
    assert (7, 7) in rows_of(engine.results("pair"))


def test_choices_that_do_not_exist_are_refused(spark, tmp_path):
    replay = input_of(tmp_path / "source", steps=1)
    with pytest.raises(RegistrationError, match="overload must be one of off, defer, not 'drop'"):
        replay.engine(spark, tmp_path / "state", QUERIES, overload="drop")
    with pytest.raises(RegistrationError, match="overload_options: there is no selector 'best'"):
        replay.engine(spark, tmp_path / "state", QUERIES, overload="defer", overload_options={"selector": "best"})
