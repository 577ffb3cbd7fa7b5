"""The model judges rows as the reference does, however they come."""

from collections import Counter
from dataclasses import replace

import pytest

from penstock.reference import admit, results
from penstock.testing.generate import scenario
from penstock.testing.model import Judged, bag, joined, parsed, same
from penstock.testing.queries import OVER
from penstock.testing.scenario import Batch


@pytest.mark.parametrize("seed", range(30))
def test_rows_are_judged_as_by_the_reference(seed):
    story = scenario(seed)
    batches = [event.rows for event in story.events if isinstance(event, Batch)]
    for stream in story.streams:
        judged = Judged(stream)
        for rows in batches:
            judged.take(rows.get(stream.name, ()))
        steps = admit(stream, [rows.get(stream.name, ()) for rows in batches])
        assert judged.accepted == [step.accepted for step in steps]
        assert judged.progress == steps[-1].progress
        told = {
            kind: sum(len(getattr(step, kind)) for step in steps)
            for kind in ("accepted", "late", "bad", "punctuations")
        }
        assert judged.counts == Counter({**told, "rows": sum(told.values())})


def test_progress_follows_what_is_told_and_never_falls():
    stream = next(s for seed in range(9) for s in scenario(seed).streams if s.delay is not None)
    judged, row = Judged(stream), {c.name: None for c in stream.columns}
    judged.take([{**row, "at": 100}])
    before = judged.progress
    assert before == 100 - stream.delay
    judged.move([before + 7])
    judged.move([before])
    assert judged.progress == before + 7


def test_progress_follows_the_clock_no_further_than_allowed_or_the_other_streams_if_times_lag():
    stream = replace(next(s for seed in range(9) for s in scenario(seed).streams if s.delay is not None), idle=5)
    judged = Judged(replace(stream, idle_skew=50))
    judged.take([{**{c.name: None for c in stream.columns}, "at": 100}])
    before = judged.progress
    assert not judged.follow(before - 1, 120, [])
    assert not judged.follow(116, 120, [1000])
    assert judged.follow(115, 120, [1000])
    assert judged.progress == 115
    assert judged.follow(1000, 200, [1000, 2000])
    assert not judged.follow(1001, 200, [1000, 2000])


def test_bags_differ_in_what_is_more_than_the_last_digits():
    one, other = bag([(1.0, "a"), (0.1 + 0.2, "b")]), bag([(1.0, "a"), (0.30000001, "b")])
    assert bag([(float("nan"), -0.0)]) == bag([(float("nan"), 0.0)])
    assert not same(one - other, other - one)
    assert same(bag([(0.1 + 0.2,)]), bag([(0.3,)]))


@pytest.mark.parametrize("seed", range(12))
def test_joins_that_are_looked_at_by_key_and_time_are_the_references(seed):
    story = scenario(seed)
    streams = {stream.name: stream for stream in story.streams}
    rows = {name: [] for name in streams}
    for event in story.events:
        if isinstance(event, Batch):
            for name, own in event.rows.items():
                rows[name] += [
                    row for row in own[:15] if isinstance(row["at"], int) and row["at"] < 10**9 and row["p"] is None
                ]
    for query in story.queries:
        if query.kind != OVER:
            asked = parsed(query.sql, story.streams)
            if asked.aggregation is None:
                assert bag(row for row, _ in joined(asked, streams, rows)) == bag(results(asked, streams, rows)), (
                    query.sql
                )
