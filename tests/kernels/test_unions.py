"""Filters and joins over unions: the combinations of their streams together equal the reference and DuckDB."""

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from penstock.model import Column, Stream
from penstock.planner.reached import output_progress
from penstock.planner.unions import reunited
from penstock.reference import output_progress as reference_progress
from penstock.reference import results
from tests.driven import driven, without_spark
from tests.effort import examples
from tests.kernels.test_join import ways
from tests.oracle import bag, duckdb_results
from tests.unions import United, united_workload


@settings(max_examples=examples(75), deadline=None)
@given(united_workload().map(without_spark), ways, st.sampled_from(("state_slice", "pull_up", "isolated")))
def test_combinations_give_the_answer_of_the_whole_query(work, way, strategy):
    found = driven(work, strategy=strategy, **way)
    for number, query in enumerate(work.written):
        expected = bag(results(query, work.streams, work.accepted))
        assert bag(found.answer(number)) == expected, query.sql
        event(f"{'filter' if len(query.roles) == 1 else 'join'}: {'some' if expected else 'none'}")


@settings(max_examples=examples(60), deadline=None)
@given(united_workload().map(without_spark), ways)
def test_combinations_give_the_answer_of_duckdb(work, way):
    found = driven(work, **way)
    for number, query in enumerate(work.written):
        assert bag(found.answer(number)) == bag(duckdb_results(query, work.streams, work.accepted)), query.sql


@settings(max_examples=examples(60), deadline=None)
@given(united_workload(late=True).map(without_spark), ways)
def test_late_and_bad_rows_of_any_stream_take_part_in_nothing(work, way):
    found = driven(work, **way)
    for number, query in enumerate(work.written):
        assert bag(found.answer(number)) == bag(results(query, work.streams, work.accepted)), query.sql


@settings(max_examples=examples(60), deadline=None)
@given(united_workload(), st.data())
def test_output_progress_is_the_least_over_all_combinations(work, data):
    progress = {name: data.draw(st.integers(-50, 50), name) for name in work.streams}
    for query, combined in zip(work.written, work.combinations, strict=True):
        whole = output_progress(reunited(query, work.streams), progress)
        assert whole == reference_progress(query, work.streams, progress)
        assert whole == min(output_progress(one, progress) for one in combined)


STREAMS = {n: Stream(n, (Column("at", "bigint"), Column("k", "bigint")), "at", delay=1000) for n in "abc"}
ROWS = {"a": [(1, 7), (2, 8)], "b": [(3, 7)], "c": [(4, 7), (4, 8)]}


def answer(query, streams=STREAMS):
    batch = {n: [{"at": at, "k": k} for at, k in rows] for n, rows in ROWS.items()}
    work = United(streams, (query,), (batch,))
    found = driven(work).answer(0)
    assert bag(found) == bag(results(work.written[0], streams, batch))
    return sorted(found)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("(SELECT * FROM a WHERE k > 0 UNION ALL SELECT * FROM a WHERE k = 7)", [(1, 7), (1, 7), (2, 8)]),
        ("(a UNION ALL a UNION ALL b)", [(1, 7), (1, 7), (2, 8), (2, 8), (3, 7)]),
        ("(SELECT at, k FROM a WHERE k = 8 UNION ALL SELECT at, 0L FROM b)", [(2, 8), (3, 0)]),
        ("(a UNION ALL (SELECT at, k FROM b WHERE k IS NULL UNION ALL c))", [(1, 7), (2, 8), (4, 7), (4, 8)]),
    ],
)
def test_a_row_that_passes_several_filters_counts_as_often(source, expected):
    assert answer(f"SELECT x.at, x.k FROM {source} AS x WHERE x.at < 9") == expected


def test_a_union_joined_with_itself_is_every_pair_of_its_rows():
    union = "(a UNION ALL b) [RANGE 9]"
    found = answer(f"SELECT x.at, y.at FROM {union} x, {union} y WHERE x.k = y.k")
    assert found == [(1, 1), (1, 3), (2, 2), (3, 1), (3, 3)]


def test_streams_may_spell_their_columns_in_another_case():
    streams = {**STREAMS, "b": Stream("b", (Column("AT", "bigint"), Column("K", "bigint")), "AT", delay=1000)}
    work = United(
        streams,
        ("SELECT x.at, x.k FROM (a UNION ALL b) [RANGE 9] x, c [RANGE 9] WHERE x.k = c.k",),
        ({"a": [{"at": 1, "k": 7}], "b": [{"AT": 3, "K": 7}], "c": [{"at": 4, "k": 7}]},),
    )
    assert sorted(driven(work).answer(0)) == [(1, 7), (3, 7)]
