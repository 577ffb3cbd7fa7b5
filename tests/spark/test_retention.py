"""When the upkeep of results is due, and what is left of queries that came and went."""

from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import RegistrationError
from penstock.results.retention import FIRST_UPKEEP, UPKEEP_EVERY, following_upkeep
from penstock.state.orphans import collect_versions
from penstock.step import stepper as step
from tests.spark.replay import Replay, drain, rows_of, stream


@given(st.integers(-1, 10_000))
def test_the_next_round_of_upkeep_comes_within_a_period_and_restarts_do_not_put_it_off(step):
    upkeep = following_upkeep(step)
    assert step < upkeep <= step + UPKEEP_EVERY
    assert upkeep % UPKEEP_EVERY == FIRST_UPKEEP % UPKEEP_EVERY
    assert all(following_upkeep(between) == upkeep for between in range(step, upkeep))
    assert following_upkeep(upkeep) == upkeep + UPKEEP_EVERY


def test_the_first_round_comes_after_a_few_steps():
    assert following_upkeep(-1) == FIRST_UPKEEP


@pytest.mark.spark
def test_queries_that_came_and_went_leave_nothing_behind(spark, tmp_path):
    replay = Replay(tmp_path / "in", stream("a", "ts bigint, k bigint"))

    def at(*times):
        for time in times:
            replay.add(a=[{"ts": time, "k": time}])
        drain(engine)

    def soon(store, manifest):
        return collect_versions(store, manifest, grace=0)

    upkeep = patch.multiple("penstock.results.retention", UPKEEP_EVERY=1, FIRST_UPKEEP=0)
    with upkeep, patch.object(step, "collect_versions", soon):
        got = []
        engine = replay.engine(spark, tmp_path / "state")
        engine.query(
            "SELECT k FROM a", name="stays", retain=3, into=lambda table, _: got.extend(table["k"].to_pylist())
        )
        engine.query("SELECT k + 1 AS k FROM a", name="goes", retain=3, into=lambda *_: None)
        at(1, 2)
        engine.query(
            "SELECT k FROM a WHERE k > 0",
            name="stays",
            retain=3,
            into=lambda table, _: got.extend(table["k"].to_pylist()),
            replace=True,
        )
        engine.drop("goes")
        at(3)
        assert [q.name for q in engine.catalog.registry.queries] == ["stays", "goes", "stays"]
        assert rows_of(engine.results("goes")) == [(2,), (3,)]
        at(20, 21)
        engine.query("SELECT 1 AS one FROM a", name="another")  # a change forgets what upkeep has found to be over
        at(22)
        manifest, registry = engine.manifest(), engine.catalog.registry
        assert [q.name for q in registry.queries] == ["stays", "another"]
        assert set(manifest.counters.queries) == {q.id for q in registry.queries}
        assert [name.split(" #")[0] for name in manifest.cursors] == ["callable:stays"]
        assert engine._query_stats("stays")["results"] == 6
        assert got == [1, 2, 3, 20, 21, 22]
        assert sorted(rows_of(engine.results("stays"))) == [(20,), (21,), (22,)]
        with pytest.raises(RegistrationError, match="no query 'goes'"):
            engine.results("goes")
        used = {f.version for f in manifest.results.values()} | {registry.version}
        names = [path.name for path in Path(engine.store.path("registry")).iterdir()]
        assert sorted(names) == [f"{version:08d}.json" for version in sorted(used)]
