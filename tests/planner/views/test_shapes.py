"""Shapes of the first computation: their common properties, the examples of Liu 2005, and the formulas by hand."""

from collections import Counter
from dataclasses import replace
from itertools import permutations, product
from math import ceil, inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.maintenance import building_work, bushy_time, cluster_price, joins_all
from penstock.planner.views.bushy import (
    allocate,
    around,
    by_cost,
    by_key,
    by_output,
    cheapest_bushy,
    fewest_steps,
    groups,
    pieced_bushy,
    probe_steps,
    segmented_bushy,
    size_by_heuristic,
    table_bytes,
)
from penstock.planner.views.relations import Relations, Tie
from penstock.planner.views.shape_choice import RUNNABLE, choose, draw, explain_choice
from penstock.planner.views.shape_cost import Costs, probing_work, rows_of, segment_time, spark_time
from penstock.planner.views.shapes import (
    PREFERENCES,
    Segment,
    Shape,
    exchanges,
    left_deep,
    ordered,
    right_deep,
    segmented_right_deep,
    zigzag,
)
from tests.planner.views.joins import TEN_EDGES, relations, tied

COSTS = Costs()
JUDGES = [by_cost(COSTS, 4), by_key, by_output]


def all_shapes(join, memory=inf, cores=4):
    yield right_deep(join)
    yield left_deep(join)
    yield zigzag(join, memory)
    for prefer in PREFERENCES.values():
        yield segmented_right_deep(join, memory, prefer)
    for judge in JUDGES:
        for most in (2, 3):
            for final in ("fewest_steps", "largest"):
                yield segmented_bushy(join, most, judge, cores, final)
            yield pieced_bushy(join, memory, most, judge, cores)


def memory_of(join):
    """Sizes of memory from nothing to all of it."""
    return st.sampled_from(
        [0.0, *(share * sum(map(join.memory, [(n,) for n in join.all])) for share in (0.2, 0.5, 1.0))]
    )


# -- all shapes -------------------------------------------------------------------------------------------------------


@given(st.data(), relations(least=1))
def test_no_shape_loses_a_relation_or_makes_a_product(data, join):
    for shape in all_shapes(join, data.draw(memory_of(join)), data.draw(st.integers(1, 8))):
        assert shape.members[-1] == join.all
        assert joins_all(shape, join), shape


@given(st.data(), relations(most=6))
def test_all_shapes_give_the_same_bag(data, join):
    tables, columns = small_tables(data, join)
    expected = nested_loops(join, tables)
    for shape in all_shapes(join, data.draw(memory_of(join))):
        assert run(shape, join, tables, columns) == expected, shape


def small_tables(data, join):
    """Rows of each relation as tuples of one value per tie, and which value belongs to which tie."""
    columns = [
        [n for n, tie in enumerate(join.ties) if member in (tie.left, tie.right)] for member in range(join.count)
    ]
    value = st.integers(0, 1)
    tables = [data.draw(st.lists(st.tuples(*(value for _ in own)), min_size=1, max_size=4)) for own in columns]
    return [
        [dict(zip(own, row, strict=True)) for row in rows] for own, rows in zip(columns, tables, strict=True)
    ], columns


def nested_loops(join, tables):
    found = Counter()
    for chosen in product(*(range(len(rows)) for rows in tables)):
        rows = [table[n] for table, n in zip(tables, chosen, strict=True)]
        found[chosen] += all(rows[tie.left][n] == rows[tie.right][n] for n, tie in enumerate(join.ties))
    return +found


def run(shape, join, tables, columns):
    """Execute the segments literally: hash tables of the builds by their ties, and rows of the probe through them."""
    inputs = [[{member: n} for n in range(len(rows))] for member, rows in enumerate(tables)]

    def key(row, ties, side):
        return tuple(tables[m][row[m]][n] for n in ties for m in (join.ties[n].left, join.ties[n].right) if m in side)

    for segment in shape.segments:
        flowing = inputs[segment.probe]
        for bound, build in zip(shape.reached(segment), segment.builds, strict=False):
            own = shape.members[build]
            ties = [
                n
                for n, t in enumerate(join.ties)
                if len({t.left, t.right} & bound) == len({t.left, t.right} & own) == 1
            ]
            table = {}
            for row in inputs[build]:
                table.setdefault(key(row, ties, own), []).append(row)
            flowing = [row | other for row in flowing for other in table.get(key(row, ties, bound), [])]
        inputs.append(flowing)
    return Counter(tuple(row[m] for m in range(join.count)) for row in inputs[-1])


@given(relations(least=3, most=6))
def test_a_short_order_has_the_fewest_rows_in_between(join):
    for probe in join.all:
        order = ordered(join, probe, join.all - {probe})
        legal = [
            p
            for p in permutations(sorted(join.all - {probe}))
            if joins_all(Shape("", join.count, (Segment(probe, p),)), join)
        ]

        def flowing(order, probe=probe):
            return sum(join.size((probe, *order[: n + 1])) for n in range(len(order)))

        assert flowing(order) == pytest.approx(min(map(flowing, legal)))


def test_long_orders_are_greedy():
    join = tied([1000 + n for n in range(20)], [(n, n + 1) for n in range(19)])
    order = ordered(join, 10, join.all - {10})
    assert sorted((10, *order)) == list(range(20))
    assert joins_all(Shape("", 20, (Segment(10, order),)), join)


# -- groups -----------------------------------------------------------------------------------------------------------


@given(relations(), st.integers(2, 5), st.sampled_from(JUDGES))
def test_groups_are_connected_parts_and_the_largest_free_relation_probes(join, most, judge):
    found = groups(join, most, judge)
    assert sorted(m for _, members in found for m in members) == sorted(join.all)
    free = join.all
    for probe, members in found:
        assert join.connected(members)
        assert 1 <= len(members) <= most
        if len(members) > 1:
            assert join.rows[probe] == max(join.rows[m] for m in free)
        free -= members
    at_end = frozenset(
        p for p, members in found[max((n + 1 for n, g in enumerate(found) if len(g[1]) > 1), default=0) :]
    )
    assert all(len(part) == 1 for part in join.components(at_end))
    assert len(found) >= ceil(join.count / most)


def test_ten_relations_fall_into_the_groups_of_the_thesis():
    rows = [40, 90, 10, 10, 10, 40, 10, 100, 10, 10]
    join = tied(rows, TEN_EDGES, selectivity=0.02)
    found = groups(join, 4, by_output)
    assert [(p, sorted(m)) for p, m in found] == [(7, [6, 7, 8, 9]), (1, [1, 2, 3, 4]), (0, [0]), (5, [5])]
    by_time = groups(join, 4, by_cost(COSTS, 4))
    assert [(p, sorted(m)) for p, m in by_time] == [(7, [6, 7, 8, 9]), (1, [1, 2, 3, 4]), (0, [0]), (5, [5])]
    *own, last = segmented_bushy(join, 4, by_output, 4).segments
    assert [s.probe for s in own] == [7, 1]
    assert sorted(last.inputs) == [0, 5, 10, 11]


def test_candidates_are_all_connected_sets_around_the_probe():
    join = tied([5] * 10, TEN_EDGES)
    found = around(join, 7, join.all, 4, by_output)
    expected = {frozenset(s) for s in product(range(10), repeat=4) if len(set(s)) == 4 and 7 in s and join.connected(s)}
    assert set(found) == expected


@given(relations(least=4), st.integers(1, 8))
def test_the_size_of_groups_by_cost_is_the_best_size(join, cores):
    price = cluster_price(join, COSTS, cores)
    chosen = cheapest_bushy(join, by_output, cores, price)
    for most in range(2, max(2, ceil(join.count / 2)) + 1):
        assert price(chosen) <= price(segmented_bushy(join, most, by_output, cores))


def test_the_size_of_groups_by_heuristic_counts_the_relations_far_above_the_average():
    edges = [(n, n + 1) for n in range(11)]
    assert size_by_heuristic(tied([10] * 12, edges)) == 6  # none: two groups
    assert size_by_heuristic(tied([10] * 9 + [100] * 3, edges)) == 4
    assert size_by_heuristic(tied([1, 1, 1], edges[:2])) == 2


def test_only_one_layer_depends_on_others():
    join = tied([40, 90, 10, 10, 10, 40, 10, 100, 10, 10], TEN_EDGES, selectivity=0.02)
    *own, last = segmented_bushy(join, 4, by_output, 4).segments
    assert all(i < join.count for segment in own for i in segment.inputs)
    assert [s.wave for s in own] == [0, 0]
    assert last.wave == 1
    assert sum(s.cores for s in own) == 4
    in_turn = segmented_bushy(join, 4, by_output, 1).segments
    assert [s.wave for s in in_turn] == [0, 1, 2]


@given(st.integers(1, 40), st.lists(st.integers(0, 1000), min_size=1, max_size=8))
def test_cores_are_all_given_and_everyone_has_one(cores, builds):
    given_out = allocate(cores, builds)
    if cores < len(builds):
        assert given_out is None
        return
    assert sum(given_out) == cores
    assert min(given_out) >= 1
    for a, b in product(range(len(builds) - 1), repeat=2):
        if builds[a] > builds[b]:
            assert given_out[a] >= given_out[b]


def test_cores_by_hand():
    assert allocate(10, [300, 500, 200]) == (3, 5, 2)
    assert allocate(4, [1, 1000, 1]) == (1, 2, 1)
    assert allocate(3, [0, 0, 0]) == (1, 1, 1)


def test_the_last_probe_is_the_group_with_the_fewest_steps():
    assert [probe_steps([4, 3, 1], n) for n in (0, 1)] == [5, 4]
    join = tied([90, 10, 10, 10, 80, 10, 10, 5], [(n, n + 1) for n in range(7)])
    parts = [frozenset((0, 1, 2, 3)), frozenset((4, 5, 6)), frozenset((7,))]
    assert fewest_steps(join, parts) == 1


@pytest.mark.parametrize("most", [1, 0, -3])
def test_groups_of_one_are_refused(most):
    with pytest.raises(ValueError, match="at least two relations"):
        groups(tied([1, 2], [(0, 1)]), most, by_output)


# -- memory -----------------------------------------------------------------------------------------------------------


@given(st.data(), relations())
def test_tables_of_a_piece_fit_unless_it_has_only_one(data, join):
    memory = data.draw(memory_of(join))
    for shape in (zigzag(join, memory), *(segmented_right_deep(join, memory, p) for p in PREFERENCES.values())):
        for segment in shape.segments:
            taken = sum(join.memory(shape.members[b]) for b in segment.builds)
            assert taken <= memory or len(segment.builds) == 1
    for judge in JUDGES:
        shape = pieced_bushy(join, memory, 3, judge, 4)
        pieces, current = [], []
        for segment in shape.segments:
            current.append(segment)
            if segment.stored or segment is shape.segments[-1]:
                pieces.append(current)
                current = []
        for piece in pieces:
            builds = [b for segment in piece for b in segment.builds]
            taken = sum(join.memory(shape.members[b]) for b in builds)
            assert taken <= memory * (1 + 1e-9) or len(builds) == 1, shape


def test_with_enough_memory_there_is_one_piece():
    join = tied([40, 90, 10, 10, 10, 40, 10, 100, 10, 10], TEN_EDGES)
    assert len(segmented_right_deep(join, inf).segments) == 1
    assert zigzag(join, inf).segments == right_deep(join).segments


def test_a_piece_may_be_a_table_of_a_later_one():
    join = tied([100, 60, 50, 1000], [(0, 1), (1, 2), (2, 3)], selectivity=0.001)
    shape = segmented_right_deep(join, 60.0)
    assert any(b >= join.count for segment in shape.segments for b in segment.builds)
    assert zigzag(join, 60.0).segments[-1].probe >= join.count


def test_preferences_differ_where_work_and_memory_do():
    join = Relations((100.0, 30.0, 20.0), (Tie(0, 1, 0.01), Tie(0, 2, 0.03)), (1.0, 1.0, 1.0))
    work, balance = (segmented_right_deep(join, inf, p).segments[0].builds for p in PREFERENCES.values())
    assert work == (1, 2)  # leaves 30 rows, against 60
    assert balance == (1, 2)  # 30 * 30 < 60 * 20
    wide = Relations(join.rows, join.ties, (1.0, 9.0, 1.0))
    assert segmented_right_deep(wide, inf, PREFERENCES["minimized_work"]).segments[0].builds == (1, 2)
    assert segmented_right_deep(wide, inf, PREFERENCES["balanced_consideration"]).segments[0].builds == (2, 1)


# -- costs ------------------------------------------------------------------------------------------------------------

PLAIN = Costs(1, 2, 3, 4, 5, setup=7, deplete=11, contention=0.5, job=0, hop=0, write=0, small=0)


def test_the_formulas_of_one_segment_by_hand():
    join = tied([100, 10, 20, 30], [(0, 1), (1, 2), (2, 3)], selectivity=0.1)
    shape = Shape("", 4, (Segment(0, (1, 2, 3)),))
    rows = rows_of(join, shape, shape.segments[0])
    assert rows.inner == (pytest.approx(100), pytest.approx(200))
    assert building_work(rows, PLAIN) == 10 * 60
    assert probing_work(rows, PLAIN, 4) == pytest.approx(11 * 100 + 0.75 * 3 * 300 + 5 * 300)
    assert probing_work(rows, PLAIN, 4, redirected=False) == pytest.approx(11 * 100 + 5 * 300)
    expected = 10 * 2.5 / 4 * 30 + 7 + (1100 + 675 + 1500) / 4 + 11
    assert segment_time(rows, PLAIN, 4) == pytest.approx(expected)
    assert bushy_time(join, shape, PLAIN, 4) == pytest.approx(expected)


def test_the_formulas_of_a_bushy_tree_by_hand():
    # groups {0, 1} and {2, 3}, and relation 4 in the last segment; every join keeps as many rows as selectivity 0.1
    # says
    join = tied([100, 10, 50, 20, 8], [(0, 1), (1, 2), (2, 3), (3, 4)], selectivity=0.1)
    first, second = Segment(0, (1,), 0, 2), Segment(2, (3,), 0, 1)
    last = Segment(5, (6, 4), 1, 1)
    shape = Shape("", 5, (first, second, last))
    one = 10 * 1.5 / 2 * 10 + 7 + 1100 / 2 + 11  # f(2) = 1.5; no inner rows in a group of two
    one += (2 + 3 + 4) * 100 / 2 + 10 * 100  # handed on: 100 rows, and built on one core
    two = 10 * 20 + 7 + 550 + 11 + 9 * 100 + 10 * 100
    inner = 100 * 100 * 0.1
    assert bushy_time(join, shape, PLAIN, 4) == pytest.approx(max(one, two, 10 * 8) + 5 * inner)


def test_rows_are_sent_on_only_where_the_key_changes():
    chain = tied([100, 10, 10], [(0, 1), (1, 2)], classes=[0, 1])
    one_key = tied([100, 10, 10], [(0, 1), (1, 2)], classes=[0, 0])
    shape = right_deep(chain)
    assert exchanges(chain, shape, shape.segments[0]) == 1
    assert exchanges(one_key, shape, shape.segments[0]) == 0
    loose = Relations(chain.rows, (chain.ties[0], Tie(1, 2, 0.1)))
    assert exchanges(loose, shape, shape.segments[0]) == 0
    assert spark_time(one_key, shape, PLAIN, 2) < spark_time(chain, shape, PLAIN, 2)


def test_seconds_on_spark_by_hand():
    join = tied([100, 10, 20], [(0, 1), (1, 2)], selectivity=0.1)
    costs = Costs(1, 2, 3, 4, 5, job=50, hop=13, byte=0.5, small=0)
    shape = Shape("", 3, (Segment(0, (1, 2)),))
    reading = 130
    sending = 5 * (100 + 10 + 100 + 20) + 0.5 * (100 + 10 + 100 * 2 + 20)
    working = 4 * 30 + 5 * (100 + 100)
    assert spark_time(join, shape, costs, 2) == pytest.approx((reading + sending + working) / 2 + 4 * 13 + 50)
    copying = 2 * (5.5 + 4) * (10 + 20) + 5 * (100 + 100)
    assert spark_time(join, shape, replace(costs, small=20), 2) == pytest.approx((reading + copying) / 2 + 50)


# -- the choice -------------------------------------------------------------------------------------------------------


@given(st.data(), relations(least=1), st.integers(1, 8))
def test_the_chosen_shape_is_the_fastest_that_can_run_and_fits(data, join, cores):
    memory = data.draw(memory_of(join))
    choice = choose(join, COSTS, cores, memory)
    runnable = {kind: seconds for kind, seconds in choice.seconds.items() if kind in RUNNABLE}
    assert choice.seconds[choice.shape.kind] == min(runnable.values())
    builds = max(len(segment.builds) for segment in choice.shape.segments)
    assert table_bytes(choice.shape, join) <= memory * (1 + 1e-9) or builds <= 1 or len(choice.shape.segments) > 1
    assert joins_all(choice.shape, join)


def test_wide_rows_make_groups_pay_and_one_key_makes_them_not():
    rows = [200_000] * 8
    chain = [(n, n + 1) for n in range(7)]
    several = tied(rows, chain)
    wide = Relations(several.rows, several.ties, (40.0,) * 8)
    costs = Costs(byte=4e-9)
    assert choose(wide, costs, 2).shape.kind == "segmented_bushy"
    same = tied(rows, chain, classes=[0] * 7)
    assert choose(Relations(same.rows, same.ties, (40.0,) * 8), costs, 2).shape.kind != "segmented_bushy"


def test_the_picture_names_every_relation_once_and_all_estimates():
    join = tied([40, 90, 10, 10, 10, 40, 10, 100, 10, 10], TEN_EDGES)
    names = [f"r{n}" for n in range(10)]
    text = explain_choice(choose(join, COSTS, 2), join, names)
    assert all(text.count(f" {name} (") == 1 for name in names)
    assert "estimated:" in text
    assert "zigzag" in text
    small = tied([40, 10, 30, 10], [(0, 1), (1, 2), (2, 3)])
    assert draw(segmented_bushy(small, 2, by_output, 2), small, "abcd") == [
        "segment 3 (wave 2, 3 rows out)",
        "├─ probe segment 1 (wave 1, 10 rows out, 1 core)",
        "│  ├─ probe a (40 rows)",
        "│  └─ build b (10 rows)",
        "└─ build segment 2 (wave 1, 10 rows out, 1 core)",
        "   ├─ probe c (30 rows)",
        "   └─ build d (10 rows)",
    ]


# -- bad input --------------------------------------------------------------------------------------------------------


def test_what_cannot_be_planned_is_refused():
    with pytest.raises(ValueError, match="no condition joins"):
        Relations((1.0, 2.0, 3.0), (Tie(0, 1, 0.5),))
    with pytest.raises(ValueError, match="no known number of rows"):
        Relations((1.0, None), (Tie(0, 1, 0.5),))
    with pytest.raises(ValueError, match="selectivity"):
        Relations((1.0, 2.0), (Tie(0, 1, 1.5),))
    with pytest.raises(ValueError, match="two different relations"):
        Relations((1.0, 2.0), (Tie(0, 0, 0.5), Tie(0, 1, 0.5)))
    with pytest.raises(ValueError, match="at least one"):
        Relations((), ())
    with pytest.raises(ValueError, match="every relation"):
        Shape("", 3, (Segment(0, (1,)),))
    with pytest.raises(ValueError, match="own wave"):
        Shape("", 3, (Segment(0, (1,)), Segment(3, (2,))))


@given(relations(least=3))
def test_contracting_keeps_sizes_and_widths(join):
    found = groups(join, 2, by_output)
    parts = [members for _, members in found]
    small = join.contracted(parts)
    assert small.size(small.all) == pytest.approx(join.size(join.all))
    assert small.width(small.all) == join.width(join.all)
    assert small.rows == tuple(join.size(part) for part in parts)
    with pytest.raises(ValueError, match="do not divide"):
        join.contracted(parts[1:])
