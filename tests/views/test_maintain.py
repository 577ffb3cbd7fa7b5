"""Every strategy keeps a view equal to its definition, whatever the graph, the changes, and the moment they come."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.maintenance import adjacent_requests
from penstock.errors import StepError
from penstock.model import Column, Edge, Item, Node, Source, View
from penstock.planner.views.strategies import adjacent, batch, conditional, greedy, recompute, sweep
from penstock.reference.view import joined
from penstock.views.refresh.maintain import compute, graph_of, maintain
from tests.effort import examples

from .graphs import ROWS, views
from .memory import MemorySource, bag, ref

PLANS = {
    "sweep": sweep,
    "batch": batch,
    "parallel_batch": lambda g: batch(g, parallel=True),
    "adjacent 2": lambda g: adjacent(g, 2),
    "adjacent 3": lambda g: adjacent(g, 3),
    "greedy": greedy,
    "conditional": conditional,
    "parallel_conditional": lambda g: conditional(g, parallel=True),
    "recompute": recompute,
}


def expected(view, readers, positions):
    sources = {name: reader.source for name, reader in readers.items()}
    found = joined(view, sources, {name: reader.at(positions[name]) for name, reader in readers.items()})
    return Counter({row: times for row, times in found.items() if times})


def mutate(rng, reader, rows):
    """Some inserts, deletes and updates, never of a row that is not there."""
    for _ in range(rng.randint(0, 2)):
        present = sorted((row for row, times in reader.content.items() if times), key=repr)
        if present and rng.random() < 0.5:
            reader.change(rng.choice(present), -1)
        if rng.random() < 0.7:
            reader.change(rng.choice(rows), 1)


class Inline(Executor):
    """Makes each request when it is submitted, so that a failure can be repeated."""

    def submit(self, fn, /, *args, **kwargs):
        done = Future()
        done.set_result(fn(*args, **kwargs))
        return done


def check(made, rows, seed, names, pool):
    """Compute, then change and refresh once for each named strategy, while sources move on at every request."""
    view, sources = made
    rng = Random(seed)
    readers = {
        name: MemorySource(source, rng.sample(rows, rng.randint(0, min(4, len(rows)))))
        for name, source in sources.items()
    }
    if rng.random() < 0.7:
        for reader in readers.values():
            reader.move = lambda r: mutate(rng, r, rows)
    done = compute(view, readers, pool)
    held, positions = bag(done.rows), done.positions
    assert held == expected(view, readers, positions)
    graph = graph_of(view)
    for name in names:
        for reader in readers.values():
            mutate(rng, reader, rows)
        plan = PLANS[name](graph)
        done = maintain(view, readers, positions, lambda _, plan=plan: plan, pool)
        change = bag(done.rows)
        assert done.whole or len(change) == done.rows.num_rows, "consolidated"
        held = change if done.whole else Counter({row: held[row] + change[row] for row in {**held, **change}})
        held = Counter({row: times for row, times in held.items() if times})
        positions = done.positions
        assert held == expected(view, readers, positions), name
        if not done.whole:
            assert done.requests == len(done.plan.requests) or done.plan.each_row


@settings(deadline=None, max_examples=examples(50))
@given(views(), st.lists(ROWS, min_size=3, max_size=6), st.integers(0, 2**32), st.permutations(sorted(PLANS)))
def test_a_view_equals_its_definition_after_every_refresh(made, rows, seed, names):
    check(made, rows, seed, names[:4], Inline())


@pytest.mark.long
@settings(deadline=None, max_examples=examples(1000))
@given(views(), st.lists(ROWS, min_size=3, max_size=6), st.integers(0, 2**32), st.permutations(sorted(PLANS)))
def test_so_it_does_in_a_thousand_cases(made, rows, seed, names):
    check(made, rows, seed, names, Inline())


@settings(deadline=None, max_examples=examples(15))
@given(views(5), st.lists(ROWS, min_size=3, max_size=6), st.integers(0, 2**32))
def test_so_it_does_with_requests_in_threads(made, rows, seed):
    with ThreadPoolExecutor(8) as pool:
        check(made, rows, seed, ["parallel_batch", "parallel_conditional", "recompute", "batch"], pool)


def chain_view(n):
    columns = (Column("a", "bigint"), Column("b", "bigint"))
    sources = {f"s{k}": Source(f"s{k}", columns, "dataframe") for k in range(n)}
    nodes = tuple(Node(f"t{k}", f"s{k}") for k in range(n))
    edges = tuple(Edge(k, k + 1, (("b", "a"),)) for k in range(n - 1))
    items = tuple(Item(None, ref(k, "b")) for k in range(n))
    return View("v", "", nodes, edges, (), items), sources


@pytest.mark.parametrize("n", [2, 4, 6])
@pytest.mark.parametrize("name", sorted(set(PLANS) - {"recompute"}))
def test_requests_really_made_are_those_of_the_formulas(n, name):
    view, sources = chain_view(n)
    readers = {s: MemorySource(source, [(k % 9, k % 9) for k in range(18)]) for s, source in sources.items()}
    first = compute(view, readers)
    for reader in readers.values():
        reader.change((3, 3), 1)
        reader.change((4, 4), -1)
        reader.asked.clear()
    done = maintain(view, readers, first.positions, lambda sizes: PLANS[name](graph_of(view)))
    counted = {
        "sweep": 2 * n * (n - 1), "batch": n * (n - 1), "parallel_batch": n * (n - 1),
        "adjacent 2": adjacent_requests(n, 2), "adjacent 3": adjacent_requests(n, 3),
        "conditional": 2 * (n - 1), "parallel_conditional": 2 * (n - 1), "greedy": n,
    }[name]  # fmt: skip
    assert done.requests == counted
    assert sum(len(reader.asked) for reader in readers.values()) == counted
    assert done.physical == counted + n  # the changes of each source are asked for once
    if name not in ("sweep", "greedy"):
        assert {keys for reader in readers.values() for _, keys in reader.asked} == {2}, "only distinct keys travel"


def test_a_path_beside_edges_that_multiply_ships_no_more_keys_than_batch_and_gets_no_more_rows():
    """A triangle and a pendant: a row of the first two sources joins twenty of the third by one edge, few by both."""
    columns = (Column("a", "bigint"), Column("b", "bigint"), Column("c", "bigint"))
    sources = {f"s{k}": Source(f"s{k}", columns, "dataframe") for k in range(4)}
    edges = (
        Edge(0, 1, (("a", "a"),)), Edge(0, 2, (("b", "a"),)), Edge(1, 2, (("b", "b"),)), Edge(2, 3, (("c", "a"),)),
    )  # fmt: skip
    nodes = tuple(Node(f"t{k}", f"s{k}") for k in range(4))
    view = View("v", "", nodes, edges, (), tuple(Item(None, ref(k, "a")) for k in range(4)))
    held = {
        "s0": [(k, k % 20, 0) for k in range(400)], "s1": [(k, k // 20, 0) for k in range(400)],
        "s2": [(k % 20, k // 20, k) for k in range(400)], "s3": [(k, 0, 0) for k in range(400)],
    }  # fmt: skip
    readers = {name: MemorySource(source, held[name]) for name, source in sources.items()}
    first = compute(view, readers)
    for name, changed in (("s0", 40), ("s1", 40), ("s2", 1), ("s3", 1)):
        for row in held[name][:changed]:
            readers[name].change(row, 1)
    graph = graph_of(view)
    orders = {0: (1, 2, 3), 1: (0, 2, 3), 2: (0, 1, 3), 3: (2, 0, 1)}
    grouped = maintain(view, readers, first.positions, lambda _: conditional(graph, (3, 2, 0, 1)))
    batched = maintain(view, readers, first.positions, lambda _: batch(graph, orders))
    assert bag(grouped.rows) == bag(batched.rows)
    assert bag(grouped.rows)
    assert (grouped.requests, batched.requests) == (6, 12)
    for measure in ("keys", "rows"):
        shipped = [sum(getattr(sample, measure) for sample in found.samples) for found in (grouped, batched)]
        assert shipped[0] <= shipped[1], measure


def test_requests_with_changes_at_some_sources_only():
    view, sources = chain_view(6)
    for first_changed, last_changed in [(0, 0), (2, 2), (1, 4), (0, 5), (5, 5)]:
        readers = {s: MemorySource(source, [(1, 1)]) for s, source in sources.items()}
        first = compute(view, readers)
        for k in {first_changed, last_changed}:
            readers[f"s{k}"].change((1, 1), 1)
        done = maintain(view, readers, first.positions, lambda sizes: conditional(graph_of(view), range(6)))
        assert done.requests == 5 + last_changed - first_changed
        changed = len({first_changed, last_changed})
        done = maintain(view, readers, first.positions, lambda sizes: batch(graph_of(view)))
        assert done.requests == 5 * changed


def test_nothing_is_asked_where_nothing_changed_or_nothing_can_match():
    view, sources = chain_view(3)
    readers = {s: MemorySource(source, [(1, 1)]) for s, source in sources.items()}
    first = compute(view, readers)
    done = maintain(view, readers, first.positions, lambda sizes: conditional(graph_of(view)))
    assert (done.requests, done.physical, done.rows.num_rows) == (0, 3, 0)
    readers["s0"].change((7, None), 1)
    done = maintain(view, readers, first.positions, lambda sizes: batch(graph_of(view)))
    assert (done.requests, done.physical, done.rows.num_rows) == (2, 3, 0)


def test_a_source_whose_position_falls_is_refused():
    view, sources = chain_view(2)
    readers = {s: MemorySource(source, [(1, 1)]) for s, source in sources.items()}
    first = compute(view, readers)
    readers["s0"].change((1, 1), 1)
    readers["s1"].changes = lambda after, until=None, ask=readers["s1"].changes: (ask(after, until)[0], 99)
    with pytest.raises(StepError, match="must not fall"):
        maintain(view, readers, first.positions, lambda sizes: batch(graph_of(view)))


def test_changes_that_do_not_fit_the_content_are_reported():
    view, sources = chain_view(2)
    readers = {s: MemorySource(source, [(1, 1)]) for s, source in sources.items()}
    first = compute(view, readers)
    readers["s0"].change((1, 1), 1)
    readers["s1"].log.append(((1, 5), 1))  # captured, but the source never held it
    with pytest.raises(
        StepError, match=r"'s1' do not fit its content: \{'a': 1, 'b': 5\} would have been there -1 times"
    ):
        maintain(view, readers, first.positions, lambda sizes: batch(graph_of(view)))
