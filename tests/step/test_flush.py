"""Capped results, step by step: few in each, none too late, progress waits for them, and each comes once."""

import pytest

from penstock.model import Column, Stream
from penstock.results.released import released
from penstock.storage.memory import MemoryStore
from penstock.testing.engine import Engine, tuples
from penstock.testing.source import HandedOver
from tests.oracle import bag

STREAM = Stream("a", tuple(Column(name, "bigint") for name in ("ts", "k", "v")), "ts", 0)
SQL = "SELECT k, count(*) AS n, sum(v) AS s, window_end FROM a [RANGE 8 SLIDE 4] GROUP BY k"
ROWS, BEHIND, GROUPS = 7, 2, 12


@pytest.mark.parametrize("sql", [SQL, SQL.replace("RANGE 8", "RANGE ALL")])
def test_few_results_in_a_step_none_too_late_and_all_in_the_end(sql):
    store, source = MemoryStore(), HandedOver()
    due, out = {}, {}  # by step; a step may be delivered again behind a restart

    def begun(tasks):
        engine = Engine(store, source=source, tasks=tasks)
        engine.stream(STREAM)
        engine.query(sql, name="all", into=lambda table, step: due.update({step: tuples(table)}))
        into = lambda table, step: out.update({step: tuples(table)})  # noqa: E731
        engine.query(sql, name="few", flush=(ROWS, BEHIND), into=into)
        engine.start()
        return engine

    for tasks, numbers in ((2, range(4)), (3, range(4, 9))):
        engine = begun(tasks)
        first = engine.manifest.step + 1
        for number in numbers:
            # The last steps bring one group only, so that what was held back comes out.
            groups = GROUPS if number < 3 else 1
            engine.take(a=[{"ts": 4 * number + n % 4, "k": n % groups, "v": n} for n in range(max(4, groups))])
        engine.stop()
        rows = ([(*row, step) for step, own in steps.items() for row in own] for steps in (due, out))
        answered = check(engine, *rows, first)
        assert answered or tasks == 2 or sql != SQL  # of a landmark all groups have results for ever
    engine = begun(1)
    engine.stop(final=True)
    delivered = bag(row for rows in out.values() for row in rows)
    assert bag(engine.results("few")) == bag(engine.results("all")) == delivered
    assert not engine.manifest.runs


def check(engine, due, out, begun):
    """Whether nothing is owed; what is, is not too old, and output progress has not passed it."""
    assert out
    assert bag(row[:-1] for row in out) <= bag(row[:-1] for row in due)
    closed_in = {row[3]: row[4] for row in due}  # end of a window -> the step that could close it
    for row in out:
        latest = closed_in.get(row[3] + 4 * BEHIND)
        assert closed_in[row[3]] <= row[4] <= (latest if latest is not None else row[4])
    for step in {row[4] for row in out} - {begun}:  # with other tasks than before the first step may give more
        forced = [row for row in out if row[4] == step and closed_in.get(row[3] + 4 * BEHIND) == step]
        assert len([row for row in out if row[4] == step]) <= ROWS + len(forced)
    record, manifest = engine.catalog.record("few"), engine.manifest
    until = released(engine.catalog, record, manifest)
    owed = bag(row[:-1] for row in due) - bag(row[:-1] for row in out)
    assert all(row[3] >= until for row in owed)
    assert until <= released(engine.catalog, engine.catalog.record("all"), manifest)
    return not owed
