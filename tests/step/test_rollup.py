"""Mappers that make partials by (a) from those by (a, b): state, counts and answers of tasks are the same without.

Rows come from several mappers, in several batches each, and are combined in any number of pieces.
"""

from itertools import combinations
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from penstock.model import Landmark, Session, Sliding
from penstock.planner.folding import is_foldable
from penstock.planner.rollup import Rollup, is_cut_alike, rollup_of
from penstock.step import folding, rollup
from tests.aggregates import Case
from tests.effort import examples
from tests.step.test_folding import PHASES, apart, assert_same, batch, network_of, run

NOT_A_NUMBER = float("nan")
ROW = st.fixed_dictionaries({
    "t": st.none() | st.integers(-10, 30), "k": st.sampled_from(("a", "b", None)), "g": st.sampled_from((0, 1, None)),
    "v": st.sampled_from((0, 1, 2, None)), "x": st.sampled_from((0.0, -0.0, 0.25, -2.5, NOT_A_NUMBER, None)),
})  # fmt: skip
CALLS = (
    "count(*)", "count(v)", "sum(v)", "avg(v)", "min(v)", "max(k)", "sum(x)", "max(x)", "stddev(v)", "variance(x)",
    "first(v)", "last(x)", "first(v, true)", "last(k) IGNORE NULLS", "any_value(v)",
)  # fmt: skip
WHERE = (None, "v > 0", "k = 'a' OR v IS NULL", "v % 2 = 1", "g <> 0")
SLIDES = st.sampled_from((1, 2, 4))


@st.composite
def windows(draw):
    slide = draw(SLIDES)
    return draw(
        st.sampled_from(
            (
                Sliding(slide, slide, None),
                Sliding(3 * slide, slide, None),
                Landmark(slide, None),
                Session(slide),
            )
        )
    )


@st.composite
def nested(draw, *, known=False):
    """Queries by some columns, and by fewer, mostly with the same functions and rows, `known` to the reference."""
    predicates = [one for one in WHERE if not known or "%" not in (one or "")]
    columns = draw(st.permutations(("k", "g", "x", "v")))[: draw(st.integers(1, 3))]
    calls = draw(st.lists(st.sampled_from(CALLS), min_size=1, max_size=4, unique=True))
    where = draw(st.lists(st.sampled_from(predicates), min_size=1, max_size=2, unique=True))
    often = draw(windows())
    fine = [Case(often, tuple(columns), tuple(calls), one) for one in where]
    parts = [part for size in range(len(columns)) for part in combinations(columns, size)]
    asked = st.builds(
        Case, st.one_of(st.just(often), windows()), st.sampled_from(parts),
        st.lists(st.sampled_from(calls), min_size=1, unique=True).map(tuple), st.sampled_from(where),
    )  # fmt: skip
    return [*fine, *draw(st.lists(asked, min_size=1, max_size=3))]


def pairs(network, cuts=None, choose=lambda offered: offered[0]):
    """For each aggregate one that it can be rolled up from."""
    found = {}
    for coarse in filter(is_foldable, network.aggregates):
        for fine in filter(is_foldable, network.aggregates):
            rule = rollup_of(network, coarse, fine)
            if isinstance(rule, Rollup) and is_cut_alike(rule, coarse, fine, cuts or {}):
                found.setdefault(coarse.index, []).append(fine.index)
    return {index: choose(offered) for index, offered in found.items()}


@settings(max_examples=examples(80), deadline=None, phases=PHASES, suppress_health_check=[HealthCheck.too_slow])
@given(
    nested(),
    st.lists(st.lists(st.lists(ROW, max_size=12), max_size=3), min_size=1, max_size=3),
    st.lists(ROW, max_size=6),
    st.integers(1, 4),
    st.data(),
)
def test_partials_of_partials_are_those_of_rows(tmp_path_factory, queries, dealt, itself, tasks, data):
    own_sets = data.draw(st.booleans(), label="a pane set for each query")
    network = network_of([case.sql for case in queries], apart if own_sets else None)
    mappers = [[batch(rows) for rows in parts] for parts in dealt]
    cut = data.draw(st.integers(-5, 30))
    cuts = {n + 1: cut for n in range(len(queries)) if data.draw(st.booleans())}
    early = {n + 1: 0 for n, case in enumerate(queries) if isinstance(case.window, Sliding | Landmark)}
    at_once, most = data.draw(st.sampled_from((1, 6, 1 << 18))), data.draw(st.sampled_from((0, 600, 1 << 25)))
    root = tmp_path_factory.mktemp("rollup")
    rest = {"itself": [batch(itself)] if itself else [], "cuts": cuts, "early": early}
    wanted, _, _ = run(root / "rows", network, mappers, tasks, folded=False, **rest)
    with patch.multiple(folding, AT_ONCE=at_once, MOST_BYTES=most):
        chosen = pairs(network, choose=lambda offered: data.draw(st.sampled_from(offered)))
        found, counts, _ = run(root / "up", network, mappers, tasks, folded=True, rolled=chosen, **rest)
    assert_same(found, wanted)
    rules = {
        index: rollup_of(network, network.aggregates[index], network.aggregates[other])
        for index, other in chosen.items()
    }
    made = [
        i for i, rule in rules.items()
        if is_cut_alike(rule, network.aggregates[i], network.aggregates[chosen[i]], cuts)
    ]  # fmt: skip
    for aggregate in filter(is_foldable, network.aggregates):
        own = counts.table(aggregate.name)
        assert own.folded == own.exchanged
        assert own.aggregated == own.folded + own.shipped
        assert bool(own.rolled) == bool(own.folded and aggregate.index in made)
    event(f"{len(made)} of {len(network.aggregates)} are rolled up, {len(cuts)} cuts")


TEXTS = (
    "SELECT k, g, count(*), sum(v), last(x) FROM s [RANGE 4 SLIDE 2] GROUP BY k, g",
    "SELECT g, sum(v), last(x) FROM s [TUMBLING 4] GROUP BY g",
    "SELECT count(*) FROM s [RANGE ALL SLIDE 4]",
)


@pytest.mark.parametrize("ups", [{}, {1: 0}, {1: 0, 2: 1}])
def test_rows_are_sorted_once_for_those_that_are_rolled_up(tmp_path, ups):
    network = network_of(TEXTS)
    assert pairs(network) == {1: 0, 2: 0}
    rows = [{"t": n % 20, "k": "ab"[n % 2], "g": n % 10, "v": n, "x": n / 2} for n in range(1_000)]
    seen, rolled = [], []

    def kept(plan, table, *others):
        seen.append(len(table))
        return folding_keeps(plan, table, *others)

    def merged(plan, tables):
        rolled.append(sum(map(len, tables)))
        return merges(plan, tables)

    folding_keeps, merges = folding.keep_rows, rollup.merged_anew
    with patch.object(folding, "keep_rows", kept), patch.object(rollup, "merged_anew", merged):
        found, counts, _ = run(tmp_path / "found", network, [[batch(rows)]], 2, folded=True, rolled=ups)
    assert seen == [1_000] * (3 - len(ups))
    assert len(rolled) == len(ups)
    assert sum(rolled) == sum(counts.table(a.name).rolled for a in network.aggregates)
    assert all(counts.table(a.name).folded == 1_000 for a in network.aggregates)
    wanted, _, _ = run(tmp_path / "wanted", network, [[batch(rows)]], 2, folded=False)
    assert_same(found, wanted)


def test_nothing_is_rolled_up_across_a_cut_or_of_rows_that_are_sent(tmp_path):
    network = network_of(TEXTS[:2])
    rows = [{"t": n % 20, "k": "ab"[n % 2], "g": n // 20 % 3, "v": n, "x": n / 2} for n in range(100)]
    for number, (cuts, alike) in enumerate([({2: 4}, True), ({2: 5}, False), ({1: 5, 2: 5}, True), ({1: 5}, True)]):
        wanted, _, _ = run(tmp_path / f"{number} rows", network, [[batch(rows)]], 2, folded=False, cuts=cuts)
        found, counts, _ = run(
            tmp_path / f"{number} up", network, [[batch(rows)]], 2, folded=True, rolled={1: 0}, cuts=cuts
        )
        assert_same(found, wanted)
        rolled = counts.table(network.aggregates[1].name).rolled
        assert bool(rolled) == alike, cuts
    _, counts, _ = run(tmp_path / "sent", network, [[batch(rows)]], 2, folded=False, rolled={1: 0})
    assert counts.table(network.aggregates[1].name).rolled == 0


def test_zeros_and_what_is_no_number_are_one_group_each(tmp_path):
    texts = [
        "SELECT x, v, count(*) FROM s [TUMBLING 2] GROUP BY x, v",
        "SELECT x, count(*) FROM s [TUMBLING 4] GROUP BY x",
    ]
    network = network_of(texts)
    assert pairs(network) == {1: 0}
    values = (0.0, -0.0, NOT_A_NUMBER, -NOT_A_NUMBER, None)
    rows = [{"t": n % 4, "k": "a", "g": 0, "v": n, "x": values[n % 5]} for n in range(100)]
    mappers = [[batch(rows[:50])], [batch(rows[50:])]]
    wanted, _, _ = run(tmp_path / "rows", network, mappers, 3, folded=False)
    found, counts, _ = run(tmp_path / "up", network, mappers, 3, folded=True, rolled={1: 0})
    assert_same(found, wanted)
    assert counts.table(network.aggregates[1].name).partials == 2 * 3
    assert sum(run[1] for run in found[0][1] if run[0] == network.aggregates[1].name) == 3
