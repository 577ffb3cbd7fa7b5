"""Scenarios have the promised parts, and are reproducible from a seed."""

from statistics import median

from penstock.testing.generate import FAULTS, scenario
from penstock.testing.queries import KINDS, OVER, SLOW
from penstock.testing.scenario import Add, Batch, Drop, Restart, SinkFails, Wait

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


def test_scenarios_have_every_kind_of_query_sink_and_clock():
    known = [scenario(seed) for seed in SEEDS]
    queries = [query for story in known for query in story.queries]
    streams = [stream for story in known for stream in story.streams]
    assert {query.kind for query in queries} == {*KINDS, OVER}
    assert {fault.kind for story in known for fault in story.faults} == {*FAULTS}
    assert {query.kind for query in queries if query.flush is not None} == {SLOW}
    assert all(any(own) for own in ([q.folder for q in queries], [q.sink for q in queries]))
    assert any(stream.idle for stream in streams)
    assert any(stream.heartbeat for stream in streams)
    assert all(any(isinstance(event, Wait) and event.seconds for event in story.events) for story in known)


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
