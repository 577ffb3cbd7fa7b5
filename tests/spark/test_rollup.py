"""Partials that mappers make from other partials, through Spark: the same answers and counts, chosen when it pays."""

from collections import Counter
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model.time import SECOND
from penstock.planner.folding import is_foldable
from penstock.spark import job
from penstock.step import compose, loop
from tests.effort import examples
from tests.spark.replay import Replay, drain, rows_of, stream
from tests.spark.test_aggregates import BATCHES, PHASES, check
from tests.step.test_rollup import nested, pairs

pytestmark = pytest.mark.spark

COLUMNS = "ts timestamp, k bigint, s string, v bigint"
QUERIES = {
    "fine": "SELECT k, s, count(*) AS n, sum(v) AS t, max(v) AS m, last(v) AS l, sum(v % 4) AS r, window_end "
    "FROM a [RANGE 6 SECONDS SLIDE 2 SECONDS] GROUP BY k, s",
    "by_k": "SELECT k, sum(v) AS t, last(v) AS l, sum(v % 4) AS r, window_end FROM a [TUMBLING 4 SECONDS] GROUP BY k",
    "by_s": "SELECT s, max(v) AS m, window_end FROM a [RANGE 12 SECONDS SLIDE 4 SECONDS] GROUP BY s "
    "HAVING count(*) > 2",
    "all": "SELECT count(*) AS n, window_end FROM a [RANGE ALL SLIDE 4 SECONDS]",
    "parity": "SELECT v % 2 AS p, count(*) AS n, window_end FROM a [TUMBLING 4 SECONDS] GROUP BY v % 2",
    "parities": "SELECT k, v % 2 AS p, count(*) AS n, window_end FROM a [TUMBLING 4 SECONDS] GROUP BY k, v % 2",
    "other": "SELECT v, count(*) AS n, window_end FROM a [TUMBLING 3 SECONDS] WHERE v > 3 GROUP BY v",
}  # fmt: skip


def rolling():
    """Mappers make partials of all aggregates that they can, and of other partials wherever that can be."""

    def folded(network, _):
        return frozenset(a.index for a in network.aggregates if is_foldable(a))

    return patch.multiple(compose, folded_in=folded, rolled_in=lambda network, _: pairs(network))


@settings(max_examples=examples(3), deadline=None, phases=PHASES)
@given(nested(known=True), BATCHES, st.integers(0, 8), st.integers(1, 3), st.sets(st.integers(0, 4)))
def test_results_are_the_references(spark, tmp_path_factory, queries, batches, delay, tasks, cuts):
    with patch.object(job, "FEW_ROWS", -1), rolling():
        check(spark, tmp_path_factory.mktemp("run"), queries, batches, delay=delay, tasks=tasks, cuts=cuts, plain=False)


def rows_at(step, count=600):
    times = [step * 8 * SECOND + n * 8 * SECOND // count for n in range(count)]
    return [
        {"ts": t, "k": n % 3 or None, "s": f"s{n % 5}" if n % 5 else None, "v": n % 7 + step}
        for n, t in enumerate(times)
    ]


def counted(engine, kind):
    names = {a.name: a.members[0].name for a in engine.network().aggregates}
    counters = engine.manifest().counters
    return {names[name]: getattr(counters.table(name), kind) for name in names}


def replayed(spark, root, rows=rows_at, steps=3):
    """The engine after each step, a new one each time."""
    replay = Replay(root / "source", stream("a", COLUMNS))
    replay.plain = False
    for step in range(steps):
        replay.add(a=rows(step))
        engine = replay.engine(spark, root / "state", QUERIES)
        drain(engine, final=step == steps - 1)
        yield engine


def answers(engine):
    return {name: Counter(map(repr, rows_of(engine.results(name)))) for name in QUERIES}


def test_answers_and_counts_are_those_without(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(job, "FEW_ROWS", -1)
    monkeypatch.setattr(loop, "QUIET_SECONDS", 1e9)
    *_, plain = replayed(spark, tmp_path / "plain")
    with rolling():
        *_, rolled = replayed(spark, tmp_path / "rolled")
    wanted = answers(plain)
    assert all(wanted.values())
    assert answers(rolled) == wanted
    for kind in ("exchanged", "aggregated", "unwanted", "stored"):
        assert counted(rolled, kind) == counted(plain, kind), kind
    assert counted(rolled, "folded") == counted(rolled, "exchanged")
    found = counted(rolled, "rolled")
    assert {name for name, count in found.items() if count} == {"by_k", "by_s", "all", "parity"}


def test_partials_are_rolled_up_once_steps_have_shown_that_it_pays(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(job, "FEW_ROWS", -1)
    steps = replayed(spark, tmp_path, lambda step: rows_at(step, 6_000))
    engine = next(steps)
    assert not any(counted(engine, "rolled").values())
    (fine,) = (a.name for a in engine.network().aggregates if a.members[0].name == "fine")
    assert f"rolled up from {fine} in mappers" in engine.explain("by_k")
    assert "rolled up" not in engine.explain("other")
    assert "rolled up" not in engine.explain("fine")
    found = [d for d in engine.decisions() if d["mode"] == "folding" and d["before"] == ["partials of rows"]]
    assert len(found) == 4
    chosen = Counter(after for d in found for after in d["after"])
    assert chosen[f"partials of those of {fine!r}"] == 2, "the others are made of fewer partials still"
    *_, engine = steps
    assert {name for name, count in counted(engine, "rolled").items() if count} == {"by_k", "by_s", "all", "parity"}
    totals = Counter()
    for k, t, *_ in rows_of(engine.results("by_k")):
        totals[k] += t
    wanted = Counter()
    for row in (row for step in range(3) for row in rows_at(step, 6_000)):
        wanted[row["k"]] += row["v"]
    assert totals == wanted
