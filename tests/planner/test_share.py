import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model import Column, Stream
from penstock.model.time import FOREVER
from penstock.planner.build import build_network
from penstock.planner.counters import Counters, TableCounters
from penstock.planner.network import StandingQuery
from penstock.planner.share import SURPLUS, choose_chains, compare_strategies, facts
from penstock.sql import parse_query
from tests.state.runs import entry_of

COLUMNS = (Column("at", "bigint"), Column("k", "bigint"), Column("v", "bigint"))
STREAMS = {name: Stream(name, COLUMNS, "at", delay=0) for name in "ab"}


def network(*lives):
    sql = "SELECT a.v FROM a [RANGE {}] AS a, b [RANGE 5] AS b WHERE a.k = b.k AND a.v > {}"
    texts = [sql.format("ALL" if life >= FOREVER else life, n) for n, life in enumerate(lives)]
    return build_network([StandingQuery(n, f"q{n}", parse_query(t, STREAMS)) for n, t in enumerate(texts, 1)], STREAMS)


def table(**counts):
    return Counters(tables={"a(k)": TableCounters(**counts)})


def counted(by_life):
    return table(sampled=2 * sum(by_life.values()), lives=by_life)


lives = st.lists(st.integers(1, 1000), min_size=1, max_size=12, unique=True)


@given(lives, st.data(), st.sampled_from(("auto", "mem_opt", "cpu_opt")))
def test_a_chain_holds_every_row_until_the_end_of_its_life_and_auto_hardly_longer(lives, data, mode):
    plan = network(*lives)
    counts = {life: data.draw(st.integers(0, 50), label=f"rows of life {life}") for life in lives}
    runs = [entry_of("1", table="a(k)", rows=sum(counts.values()), min_time=0, max_time=100)]
    chain = choose_chains(plan, mode, counted(counts), runs).tables[0].chain
    assert chain[-1] == max(lives)
    assert set(chain) <= set(lives)
    assert list(chain) == sorted(chain)
    found = facts(plan.tables[0], counted(counts), runs)
    fewest = found.held(sorted(lives))
    if mode == "mem_opt":
        assert chain == tuple(sorted(lives))
    if mode == "auto":
        assert found.held(chain) <= (1 + SURPLUS) * fewest * (1 + 1e-9)
    assert found.held(chain) >= fewest * (1 - 1e-9)


def test_rows_by_life_come_from_what_was_counted_and_their_rate_from_fresh_runs():
    plan = network(10, 100)
    runs = [
        entry_of("1", table="a(k)", rows=40, min_time=0, max_time=20),
        entry_of("2", table="a(k)", level=1, rows=999, min_time=0, max_time=1),
        entry_of("3", table="b(k)", rows=999, min_time=0, max_time=1),
    ]
    found = facts(plan.tables[0], table(sampled=80, lives={10: 10, 100: 30}, roles={16: 40}), runs)
    assert found.lives == {10: pytest.approx(0.5), 100: pytest.approx(1.5)}
    assert found.roles[16] == pytest.approx(2.0)
    assert found.arriving == pytest.approx(4.0)


def test_without_counts_every_life_has_the_same_share():
    found = facts(network(10, 100).tables[0], Counters(), [])
    assert found.lives[10] == found.lives[100]


def test_rows_that_live_for_ever_have_a_link_of_their_own_and_no_estimate():
    plan = choose_chains(network(10, FOREVER), "cpu_opt", Counters(), [])
    assert plan.tables[0].chain == (10, FOREVER)
    assert compare_strategies(plan, Counters(), [])["state_slice"] > 0


def test_the_cheapest_chain_merges_links_that_hold_little():
    chain = choose_chains(network(*range(1, 40)), "cpu_opt", Counters(), []).tables[0].chain
    assert chain == (39,)


@given(lives)
def test_no_strategy_holds_fewer_rows_than_cells_and_isolated_holds_the_most_of_shared_rows(lives):
    plan = network(*lives)
    rows = dict.fromkeys(lives, 10)
    runs = [entry_of("1", table="a(k)", rows=10 * len(lives), min_time=0, max_time=100)]
    counts = counted(rows)
    counts.add(table(roles={e.id: 10 * len(lives) for e in plan.tables[0].entries}))
    held = compare_strategies(plan, counts, runs)
    assert held["push_down"] <= held["state_slice"] * (1 + 1e-9)
    assert held["state_slice"] <= held["pull_up"] * (1 + 1e-9)


def test_rows_counted_for_dropped_queries_are_taken_for_rows_of_the_queries_that_are_left():
    counts = table(sampled=80, lives={10: 10, 100: 30}, roles={16: 40, 32: 30})
    runs = [entry_of("1", table="a(k)", rows=40, min_time=0, max_time=20)]
    short = network(10).tables[0]  # the query with a life of 100 is gone: what it wanted, the other wanted too
    found = facts(short, counts, runs)
    assert found.lives == {10: pytest.approx(2.0)}
    assert found.roles == {16: pytest.approx(2.0)}
    assert found.held((10,)) == pytest.approx(20)
    held = compare_strategies(network(10), counts, runs)
    b = compare_strategies(network(10), Counters(), [])["state_slice"] - facts(short, Counters(), []).held((10,))
    assert held == {
        "state_slice": pytest.approx(20 + b), "push_down": pytest.approx(20 + b),
        "pull_up": pytest.approx(40 + b), "isolated": pytest.approx(20 + b),
    }  # fmt: skip


def test_rows_that_no_query_left_wants_are_not_held_and_do_not_change_the_rate_at_which_rows_arrive():
    plan = network(100)
    # Query 9 wanted every row for 10, the one that is left an eighth of them; the fresh run is of the time since.
    counts = table(sampled=80, lives={10: 70, 100: 10}, roles={144: 80, 16: 10})
    found = facts(plan.tables[0], counts, [entry_of("1", table="a(k)", rows=10, min_time=0, max_time=20)])
    assert (found.lives, found.arriving) == ({100: pytest.approx(0.5)}, pytest.approx(4.0))
    # And the other way round: of the rows of life 100 an eighth is wanted for 10.
    counts = table(sampled=80, lives={100: 80}, roles={144: 80, 16: 10})
    found = facts(network(10).tables[0], counts, [entry_of("1", table="a(k)", rows=10, min_time=0, max_time=20)])
    assert (found.lives, found.arriving) == ({10: pytest.approx(0.5)}, pytest.approx(4.0))


@given(lives, lives, st.data())
def test_whatever_queries_were_dropped_every_strategy_that_shares_holds_the_wanted_rows_of_the_runs(old, left, data):
    plan = network(*left)
    rows = {life: data.draw(st.integers(1, 50), label=f"rows of life {life}") for life in old}
    runs = [entry_of("1", table="a(k)", rows=1000, min_time=0, max_time=100)]
    found = facts(plan.tables[0], counted(rows), runs)
    assert found.lives.keys() == set(left)
    if any(life >= min(left) for life in old):
        assert sum(found.lives.values()) == pytest.approx(10)
    held = compare_strategies(plan, counted(rows), runs)
    assert 0 < held["push_down"] <= held["state_slice"] * (1 + 1e-9)
