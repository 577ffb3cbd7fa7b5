"""All queries of NEXMark in one engine give what DuckDB gives."""

import numpy as np
import pyarrow as pa
import pytest

from benchmarks import harness, nexmark
from benchmarks.nexmark import Events
from penstock import Engine

FEW = Events(step=2_500, steps=2, seed=2)
# What Spark computes, a join of three streams, the first of each window, one over a join, and its reader.
SOME = ("q21", "q23", "q5", "q9", "q4")


@pytest.fixture
def inputs(tmp_path, monkeypatch):
    monkeypatch.setattr(harness.tempfile, "gettempdir", lambda: str(tmp_path))
    return FEW.folder()


def times(tables, stream):
    return np.concatenate([t[stream]["date_time"].cast(pa.int64()).to_numpy() for t in tables])


def test_of_fifty_events_one_is_a_person_three_are_auctions_and_the_rest_are_bids():
    tables = Events(step=1_000, steps=4, seed=3).tables(2)
    assert {name: len(table) for name, table in tables.items()} == {"person": 20, "auction": 60, "bid": 920}
    assert tables["person"]["id"].to_pylist() == list(range(1040, 1060))
    assert tables["auction"]["id"].to_pylist() == list(range(1120, 1180))
    known = {"bidder": 1059, "auction": 1179}
    assert all(
        1000 <= min(tables["bid"][c].to_pylist()) <= max(tables["bid"][c].to_pylist()) <= known[c] for c in known
    )


def test_events_are_the_same_for_the_same_seed_and_others_for_another():
    first, same, other = (Events(step=500, steps=2, seed=seed).tables(1) for seed in (1, 1, 2))
    assert first == same
    assert all(first[name] != other[name] for name in nexmark.STREAMS)


def test_rows_are_out_of_order_but_never_further_than_streams_allow():
    dense = Events(step=5_000, steps=2, seconds=20)
    tables = [dense.tables(number) for number in range(dense.steps)]
    for stream in nexmark.STREAMS:
        found = times(tables, stream)
        behind = (np.maximum.accumulate(found) - found).max()
        assert nexmark.SECOND < behind < nexmark.DISORDER
        assert 17 * nexmark.SECOND < np.ptp(found) < 22 * nexmark.SECOND


def test_channels_are_known_ones_or_have_a_number_that_most_addresses_tell():
    bids = FEW.tables(0)["bid"].to_pylist()
    known = [row for row in bids if row["channel"] in nexmark.CHANNELS]
    told = [row for row in bids if "&channel_id=" in row["url"]]
    assert 0.4 < len(known) / len(bids) < 0.6
    assert 0.8 < len(told) / (len(bids) - len(known)) < 0.98
    assert all(row["url"].count("/") == 6 for row in bids)


def test_every_query_has_its_question_for_duckdb():
    asked = nexmark.queries()
    assert len(asked) == 21
    assert sum(one.native for one in asked.values()) == 17
    assert all(one.sql.startswith(f"CREATE QUERY {name} AS") and one.duckdb for name, one in asked.items())


def test_rows_that_differ_are_named_with_their_query(inputs):
    answer, asked = nexmark.Answer(inputs), nexmark.queries()["q7"]
    right = answer.base.sql(asked.duckdb).to_arrow_table()
    assert answer.differences(asked, right) == []
    assert answer.differences(asked, right.slice(1))[0].startswith("q7: missing (")
    twice = pa.concat_tables([right, right.slice(0, 1)])
    assert [line.split(" (")[0] for line in answer.differences(asked, twice)] == ["q7: not expected"]


def equal_answers(spark, folder, inputs, names):
    asked = {name: one for name, one in nexmark.queries().items() if name in names}
    engine, answer = Engine(spark, folder / "state", durable=False), nexmark.Answer(inputs)
    nexmark.register(engine, inputs, asked)
    engine.start(available_now=True, final=True).await_termination()
    assert {line for lines in nexmark.compare(engine, answer, asked).values() for line in lines} == set()
    assert all(answer.rows(one) for one in asked.values())
    counters = engine.manifest().counters
    assert [counters.stream(name).late for name in nexmark.STREAMS] == [0, 0, 0]


@pytest.mark.spark
def test_spark_computes_nothing_for_any_query(spark, tmp_path, inputs):
    engine = Engine(spark, tmp_path / "state", durable=False)
    nexmark.register(engine, inputs, nexmark.queries())
    network = engine.catalog.network()
    assert [d.parts for d in network.derived if d.term is None] == []
    assert [t.name for t in network.tables if t.hashed is None] == []
    assert [m.name for join in network.joins for m in join.members if m.finished_by_spark] == []


@pytest.mark.spark
def test_some_queries_of_each_kind_are_answered_as_by_duckdb(spark, tmp_path, inputs):
    equal_answers(spark, tmp_path, inputs, SOME)


@pytest.mark.spark
@pytest.mark.long
def test_all_queries_are_answered_as_by_duckdb(spark, tmp_path, inputs):
    equal_answers(spark, tmp_path, inputs, nexmark.queries())
