"""Partials from mappers instead of rows, through Spark: the same answers and counts, whatever is sent or retried."""

from collections import Counter
from random import Random
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model.time import SECOND
from penstock.planner.folding import is_foldable
from penstock.spark import job
from penstock.step import compose, loop
from penstock.step.report import Report
from penstock.step.run_mapper import run_mapper
from tests.effort import examples
from tests.kernels.aggregate.scenes import Product
from tests.spark.replay import Replay, drain, rows_of, stream
from tests.spark.test_aggregates import BATCHES, GENERAL_PLANS, PHASES, QUERIES, check

pytestmark = pytest.mark.spark

COLUMNS = "ts timestamp, k bigint, s string, v bigint"
QUERIES_OF_BOTH = {
    "few": "SELECT k, count(*) AS n, sum(v) AS t, avg(v) AS m, window_end FROM a [RANGE 4 SECONDS SLIDE 2 SECONDS] "
    "GROUP BY k",
    "filtered": "SELECT k, max(s) AS m, last(v) AS l, window_end FROM a [TUMBLING 3 SECONDS] WHERE v % 3 <> 1 "
    "GROUP BY k",
    "having": "SELECT k, count(DISTINCT v) AS n, window_end FROM a [TUMBLING 4 SECONDS] GROUP BY k HAVING count(*) > 5",
    "top": "SELECT s, sum(v) AS t, window_end FROM a [TUMBLING 2 SECONDS] GROUP BY s ORDER BY t DESC, s LIMIT 2",
    "since": "SELECT k, count(*) AS n, window_end "
    "FROM a [RANGE 2 SECONDS SLIDE 5 SECONDS ORIGIN TIMESTAMP '1970-01-01 00:00:04'] GROUP BY k",
    "own": "SELECT k, product(v) AS p, window_end FROM a [SESSION 1 SECOND] GROUP BY k",
    "list": "SELECT k, collect_list(v) AS l, window_end FROM a [TUMBLING 2 SECONDS] GROUP BY k",
    "both": "SELECT s, sum(v) AS t, window_end FROM (a UNION ALL b) [RANGE 4 SECONDS SLIDE 2 SECONDS] GROUP BY s",
    "raises": "SELECT sum(10 / v) AS t, window_end FROM a [TUMBLING 2 SECONDS]",
    "pairs": "SELECT a.v, b.v AS w FROM a [RANGE 1 SECOND], b [RANGE 1 SECOND] WHERE a.v = b.v",
    "above": "SELECT n, count(*) AS groups FROM few [TUMBLING 4 SECONDS] GROUP BY n",
}  # fmt: skip


def sending(which):
    """Mappers send partials of these aggregates (all that can be), as `which` says by step."""

    def folded(network, _):
        sending.step += 1
        return frozenset(a.index for a in network.aggregates if is_foldable(a) and which(sending.step, a.index))

    sending.step = 0
    return patch.object(compose, "folded_in", folded)


@settings(max_examples=examples(3), deadline=None, phases=PHASES)
@given(
    QUERIES,
    BATCHES,
    st.integers(0, 8),
    st.integers(2, 3),
    st.sets(st.integers(0, 4)),
    GENERAL_PLANS,
    st.integers(0, 99),
)
def test_results_are_the_references_whatever_is_sent(
    spark, tmp_path_factory, queries, batches, delay, tasks, cuts, plans, seed
):
    chance = Random(seed)
    with patch.object(job, "FEW_ROWS", -1), sending(lambda *_: seed % 3 > 0 or chance.random() < 0.5):
        root = tmp_path_factory.mktemp("run")
        check(spark, root, queries, batches, delay=delay, tasks=tasks, cuts=cuts, plain=False, plans=plans)


def rows_at(step, count=60):
    """Rows of three seconds, two without a time, and some late ones (but in the first step)."""

    def one(n):
        at = None if n < 2 else (step - 2) * 3 * SECOND + n if n < 5 else step * 3 * SECOND + n * 3 * SECOND // count
        return {"ts": at, "k": n % 3 or None, "s": f"s{n % 5}", "v": n % 7 + step}

    return [one(n) for n in range(count)]


def answers(spark, root, which, tasks=2, restart=False):
    """Everything reported of a run: answers, and the counts that must not depend on what is sent."""
    replay = Replay(root / "source", stream("a", COLUMNS), stream("b", COLUMNS))
    replay.plain = False
    with patch.object(job, "FEW_ROWS", -1), sending(which), patch.object(loop, "QUIET_SECONDS", 1e9):
        for step in range(4):
            replay.add(a=rows_at(step), b=rows_at(step, 20))
            if (restart and step == 1) or step == 3:
                engine = replay.engine(spark, root / "state", tasks=tasks)
                engine.aggregate("product", Product())
                for name, sql in QUERIES_OF_BOTH.items():
                    engine.query(sql, name=name)
                drain(engine, final=step == 3)
    found = {name: Counter(map(repr, rows_of(engine.results(name)))) for name in QUERIES_OF_BOTH}
    assert all(found.values())
    counters = engine.manifest().counters
    came = {"shipped", "keys", "folded", "partials", "exchanged", "mappers", "bytes_written", "sampled"}
    tables = {
        name: {k: n for k, n in msgspec.structs.asdict(own).items() if k not in came}
        for name, own in counters.tables.items()
    }
    found["counts"] = counters.streams, tables, counters.queries
    sent = {k: sum(getattr(own, k) for own in counters.tables.values()) for k in ("folded", "partials", "exchanged")}
    return found, sent


def test_partials_or_rows_with_a_restart_between_and_other_tasks_give_the_same(spark, tmp_path):
    rows, sent = answers(spark, tmp_path / "rows", lambda *_: False)
    assert sent["exchanged"] > 0 == sent["folded"]
    partials, sent = answers(spark, tmp_path / "partials", lambda *_: True)
    assert partials == rows
    assert 0 < sent["partials"] < sent["folded"] == sent["exchanged"]
    mixed, sent = answers(spark, tmp_path / "mixed", lambda step, index: (step + index) % 2 == 0, restart=True)
    assert 0 < sent["folded"] < sent["exchanged"]
    assert {n: mixed[n] for n in QUERIES_OF_BOTH} == {n: rows[n] for n in QUERIES_OF_BOTH}
    more, _ = answers(spark, tmp_path / "more", lambda *_: True, tasks=3)
    assert {n: more[n] for n in QUERIES_OF_BOTH} == {n: rows[n] for n in QUERIES_OF_BOTH}


def test_a_mapper_that_fails_after_it_has_sent_partials_is_counted_once(spark, tmp_path, monkeypatch):
    calm, sent = answers(spark, tmp_path / "calm", lambda *_: True)
    marker = tmp_path / "fail"
    marker.touch()

    def failing_once(*given):
        sent = list(run_mapper(*given))
        account = Report.decode(sent[-1].column("_body")[0].as_py())
        if any(counts.partials for counts in account.counters.tables.values()) and marker.exists():
            marker.unlink()
            raise RuntimeError("this mapper fails after it has sent its partials")
        return iter(sent)

    monkeypatch.setattr(job, "run_mapper", failing_once)
    failing = answers(spark, tmp_path / "failing", lambda *_: True)
    assert not marker.exists()
    assert failing == (calm, sent)


def test_mappers_send_partials_once_steps_have_shown_that_it_pays_also_after_a_restart(spark, tmp_path, monkeypatch):
    monkeypatch.setattr(job, "FEW_ROWS", -1)
    replay = Replay(tmp_path / "source", stream("a", COLUMNS))
    replay.plain = False
    queries = {name: QUERIES_OF_BOTH[name] for name in ("few",)}
    queries["many"] = "SELECT v, count(*) AS n, window_end FROM a [TUMBLING 2 SECONDS] GROUP BY v"

    def rows(step, count):
        times = [step * 8 * SECOND + n * 8 * SECOND // count for n in range(count)]
        return [{"ts": t, "k": n % 10, "s": "s", "v": step * count + n} for n, t in enumerate(times)]

    def counted(engine, name):
        (aggregate,) = (a for a in engine.network().aggregates if a.members[0].name == name)
        own = engine.manifest().counters.table(aggregate.name)
        return [getattr(own, kind) for kind in ("exchanged", "folded", "partials")]

    for step, count in enumerate((2_000, 2_000, 4_000)):
        replay.add(a=rows(step, count))
        engine = replay.engine(spark, tmp_path / "state", queries)
        drain(engine, final=step == 2)
        if step == 0:
            assert counted(engine, "few") == [2_000, 0, 0]
            assert "partials are sent to tasks by mappers" in engine.explain("few")
            assert " rows per partial estimated" in engine.explain("few")
    exchanged, folded, partials = counted(engine, "few")
    assert (exchanged, folded) == (8_000, 6_000)
    # 10 groups, four panes a step, and as many mappers as there are cores.
    assert 2 * 40 <= partials <= 2 * 40 * spark.sparkContext.defaultParallelism
    assert counted(engine, "many") == [8_000, 0, 0]
    (decision,) = (d for d in engine.decisions() if d["mode"] == "folding")
    assert (decision["before"], decision["after"]) == (["rows"], ["partials"])
    assert decision["new_cost"] < decision["old_cost"]
    assert "rows of a mapper" in decision["reason"]
    assert "rows per partial measured" in engine.explain("few")
    assert "rows are sent to tasks by mappers, 1.0 rows per partial estimated" in engine.explain("many")
    totals = {}
    for k, n, *_ in rows_of(engine.results("few")):
        totals[k] = totals.get(k, 0) + n
    assert totals == dict.fromkeys(range(10), 2 * 800)
