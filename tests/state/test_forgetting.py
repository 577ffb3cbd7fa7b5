"""Queries that came and went leave nothing behind once their results have expired."""

from dataclasses import replace

from penstock.planner.counters import Counters, QueryCounters, StreamCounters
from penstock.state.cursors import Shown, SinkCursor
from penstock.state.forgetting import ended_queries, forgotten, handed_on, without_ended
from penstock.state.manifest import Entry, Forgotten, Manifest
from penstock.state.registry import QueryRecord, Reading, Registry
from penstock.state.result_files import ResultFile, ResultFiles
from penstock.state.suspension import Suspension


def query(number, name="q", **facts):
    return QueryRecord(number, name, "SELECT 1 FROM a", **{"retain": 5, **facts})


def registry(*queries):
    return Registry(1, 9, queries=queries)


def holding(*numbers, **facts):
    """A manifest with a result file of each of these queries."""
    files = ResultFiles(ResultFile(f"r{n}", "j", 0, 1, 1, 1, 0, 0, ((n, 1),)) for n in numbers)
    return Manifest(results=files, **facts)


def test_a_dropped_query_ends_when_its_last_results_are_given_up():
    known = registry(query(1, dropped=True), query(2))
    assert ended_queries(known, holding(1, 2)) == frozenset()
    assert ended_queries(known, holding(2)) == {1}
    assert without_ended(known, holding(2)).queries == (query(2),)


def test_a_dropped_query_that_keeps_its_results_for_ever_stays_also_without_any():
    assert ended_queries(registry(query(1, dropped=True, retain=None)), Manifest()) == frozenset()


def test_what_is_still_referred_to_stays():
    shared = registry(query(1, dropped=True), query(2, share=1))
    read = registry(query(1, dropped=True), query(2, reads=(Reading("q", 1, ()),)))
    part = registry(query(1, dropped=True), query(2, "_q", united=1, owner="q", dropped=True))
    assert ended_queries(shared, Manifest()) == ended_queries(read, Manifest()) == frozenset()
    assert ended_queries(part, holding(2)) == frozenset()
    assert ended_queries(part, holding(1)) == {2}
    assert ended_queries(part, Manifest()) == {1, 2}


def test_of_queries_that_continue_each_other_none_ends_before_an_older_one():
    known = registry(query(1, dropped=True), query(2, replaces=1, dropped=True), query(3, replaces=2))
    assert ended_queries(known, holding(1)) == frozenset()
    assert ended_queries(known, holding(2)) == {1}
    assert ended_queries(known, Manifest()) == {1, 2}


def test_a_replaced_query_without_results_ends_however_long_it_would_keep_them():
    assert ended_queries(
        registry(query(1, retain=None, dropped=True), query(2, retain=None, replaces=1)), Manifest()
    ) == {1}


def test_counts_go_to_the_query_that_goes_on_and_only_then_is_the_old_one_forgotten():
    known = registry(
        query(1, dropped=True), query(2, "_q", united=1, owner="q", dropped=True), query(3, replaces=1, dropped=True),
        query(4, replaces=3)
    )  # fmt: skip
    counts = {n: QueryCounters(10**n, n) for n in (1, 2, 3, 4)}
    before = Manifest(counters=Counters(queries=counts))
    assert without_ended(known, before) == known
    entry = Entry(step=0, version=1, counters=handed_on(known, before), forgotten=forgotten(known, before, (), ()))
    after = before.apply(entry)
    assert after.counters == Counters(queries={4: QueryCounters(11110, 10)})
    assert [q.id for q in without_ended(known, after).queries] == [4]
    assert handed_on(known, after) == Counters()
    assert forgotten(without_ended(known, after), after, (), ()) == Forgotten()


def test_counts_of_a_dropped_query_stay_as_long_as_it_is_known():
    known = registry(query(1, dropped=True), query(2))
    counts = Counters(queries={1: QueryCounters(3), 2: QueryCounters(4)}, streams={"a": StreamCounters(rows=9)})
    manifest = Manifest(counters=counts)
    assert forgotten(known, manifest, (), ()) == Forgotten()
    assert forgotten(without_ended(known, manifest), manifest, (), ()) == Forgotten(counters=(1,))


def test_cursors_of_sinks_that_are_gone_and_suspensions_of_unknown_queries_go():
    cursors, why = {"path:x #1": SinkCursor(3), "path:y #1": SinkCursor(4)}, Suspension("why")
    manifest = Manifest(cursors=cursors, suspended={1: why, 7: why}, shown={1: Shown(3), 2: Shown(4)})
    lost = forgotten(registry(query(1)), manifest, {"path:y #1"}, {2})
    assert lost == Forgotten(suspended=(7,), cursors=("path:x #1",), shown=(1,))
    after = manifest.apply(Entry(step=0, version=1, forgotten=lost))
    assert (after.cursors, after.suspended) == ({"path:y #1": SinkCursor(4)}, {1: why})
    assert after.shown == {2: Shown(4)}


def test_what_a_step_says_of_a_name_that_is_forgotten_goes_with_it():
    manifest = Manifest(cursors={"a": SinkCursor(1)})
    entry = Entry(step=0, version=1, cursors={"b": SinkCursor(2)}, forgotten=Forgotten(cursors=("a",)))
    assert manifest.apply(entry).cursors == {"b": SinkCursor(2)}
    assert manifest.apply(replace(entry, cursors={"a": SinkCursor(2)})).cursors == {}
