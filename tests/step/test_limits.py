"""Limits of memory and tiers of state change no answer: a property over joins of two and three streams, and sums."""

import random
from collections import Counter
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model import Column, Stream
from penstock.model.memory import Limits
from penstock.state.tiers import Tiers
from penstock.testing.engine import Engine
from tests.effort import examples

COLUMNS = (Column("at", "bigint"), Column("k", "bigint"), Column("n", "bigint"), Column("s", "string"))
STREAMS = [Stream(name, COLUMNS, "at", 3) for name in "abc"]
QUERIES = {
    "pair": "SELECT a.n AS x, b.n AS y, b.s AS s FROM a [RANGE 60], b [RANGE 40] WHERE a.k = b.k AND a.s <> b.s",
    "three": "SELECT a.n AS x, b.s AS y, c.n AS z FROM a [RANGE 50], b [RANGE 50], c [RANGE 20] "
    "WHERE a.k = b.k AND b.n = c.k",
    "sums": "SELECT k, window_end, sum(n) AS s, max(s) AS m FROM a [RANGE 20 SLIDE 10] GROUP BY k",
    "between": "SELECT a.n AS x, b.n AS y FROM a [RANGE 8], b [RANGE 8] WHERE a.n < b.n AND a.k <> b.k",
}
SEEN = Counter()


def steps_of(chance, count):
    found, now = [], 0
    for _ in range(count):
        rows = {name: [] for name in "abc"}
        for name, own in rows.items():
            for _ in range(chance.choice((0, 2, 6, 20))):
                wide = "w" * chance.choice((0, 5, 5, 400))
                at, key, number = now + chance.randrange(8), chance.randrange(9), chance.randrange(12)
                own.append({"at": at, "k": key, "n": number, "s": f"{name}{number}{wide}"})
        found.append(rows)
        now += chance.randrange(6)
    return found


def answers(steps, tasks, limits, cold, chance):
    def tiers(*_):
        ages = ((name, age) for name in tables for age in range(64))
        return Tiers(frozenset(age for age in ages if chance.random() < cold))

    with (
        patch("penstock.state.compaction.FAN_IN", 1),
        patch("penstock.kernels.walk.LEAST_PAIRS", 16),
        patch("penstock.kernels.streamed.COLD_BLOCK", 200),
        patch("penstock.step.stepper.choose_tiers", tiers),
    ):
        engine = Engine(tasks=tasks, limits=limits)
        for stream in STREAMS:
            engine.stream(stream)
        for name, sql in QUERIES.items():
            engine.query(sql, name=name)
        tables = [f"{name}({key})" for name in "abc" for key in ("k", "n")]
        engine.start()
        for rows in steps:
            engine.take(**rows)
            SEEN["cold runs"] += sum(run.cold for run in engine.manifest.runs.values())
            SEEN["runs of blocks"] += sum(run.blocks > 1 for run in engine.manifest.runs.values())
        engine.stop(final=True)
        counters = engine.manifest.counters
        SEEN["pieces"] += counters.engine.pieces
        for table in counters.tables.values():
            SEEN["read"] += table.blocks
            SEEN["skipped"] += table.skipped
        return {name: Counter(engine.results(name)) for name in QUERIES}


@settings(max_examples=examples(12))
@given(
    st.integers(0, 10**6),
    st.integers(1, 3),
    st.sampled_from((2000, 12000)),
    st.sampled_from((0.0, 0.5, 1.0)),
)
def test_answers_are_those_without_limits(seed, tasks, share, cold):
    chance = random.Random(seed)
    steps = steps_of(chance, 10)
    assert answers(steps, tasks, Limits.of(share, 0), cold, chance) == answers(steps, tasks, None, 0.0, chance)


def test_all_of_it_was_tried():
    chance = random.Random(5)
    steps = steps_of(chance, 16)
    SEEN.clear()
    assert answers(steps, 2, Limits.of(3000, 0), 0.7, chance) == answers(steps, 2, None, 0.0, chance)
    assert all(SEEN[what] > 10 for what in ("cold runs", "runs of blocks", "pieces", "read", "skipped")), SEEN
