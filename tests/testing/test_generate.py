"""Scenarios have the promised parts, and are reproducible from a seed."""

from statistics import median

from penstock.testing.generate import scenario
from penstock.testing.scenario import Add, Batch, Drop, Restart, SinkFails

SEEDS = range(300)


def test_a_seed_repeats_its_scenario():
    assert [repr(scenario(seed)) for seed in range(20)] == [repr(scenario(seed)) for seed in range(20)]
    assert len({repr(scenario(seed)) for seed in range(20)}) == 20


def test_each_has_six_steps_three_kinds_of_queries_and_a_restart():
    known = [scenario(seed) for seed in SEEDS]
    for story in known:
        assert sum(isinstance(event, Batch) for event in story.events) >= 6
        assert len({query.kind for query in story.queries}) >= 3
        assert any(isinstance(event, Restart) for event in story.events)
    assert median(story.rows for story in known) >= 200


def test_events_speak_of_queries_that_are_there():
    for seed in SEEDS:
        live = set()
        for event in scenario(seed).events:
            match event:
                case Add(name, replace=replaced):
                    assert replaced == (name in live)
                    live.add(name)
                case Drop(name):
                    live.remove(name)
                case SinkFails(name):
                    assert name in live


def test_the_text_of_a_scenario_has_its_statements_and_rows():
    story = scenario(0)
    text = str(story)
    assert all(query.sql in text for query in story.queries)
    assert text.count("{'at':") == story.rows
