"""Random connected join graphs with sizes, for Hypothesis, and small graphs that are known by name."""

from __future__ import annotations

from hypothesis import strategies as st

from penstock.planner.views.relations import Relations, Tie


@st.composite
def relations(draw, least=2, most=9, cyclic=True):
    """A random tree, with more edges if it may be cyclic; random key classes and sizes, a few ties without a key."""
    count = draw(st.integers(least, most))
    pairs = {(draw(st.integers(0, n - 1)), n) for n in range(1, count)}
    if cyclic and count > 2:
        further = draw(st.lists(st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)), max_size=3))
        pairs |= {(min(p), max(p)) for p in further if p[0] != p[1]}
    rows = draw(st.lists(st.integers(1, 100_000), min_size=count, max_size=count))
    widths = draw(st.lists(st.integers(8, 80), min_size=count, max_size=count))
    ties = []
    for left, right in sorted(pairs):
        ratio = draw(st.sampled_from([0.1, 1.0, 1.0, 3.0]))
        selectivity = min(1.0, ratio / max(rows[left], rows[right]))
        ties.append(Tie(left, right, selectivity, frozenset(draw(st.sets(st.integers(0, 3), max_size=2)))))
    return Relations(tuple(map(float, rows)), tuple(ties), tuple(map(float, widths)))


def tied(rows, edges, selectivity=None, classes=None):
    """A graph from pairs; every tie has a key class of its own unless `classes` names one."""
    ties = tuple(
        Tie(a, b, selectivity or 1 / max(rows[a], rows[b]), frozenset((n if classes is None else classes[n],)))
        for n, (a, b) in enumerate(edges)
    )
    return Relations(tuple(map(float, rows)), ties)


# Ten relations whose drawing is lost; this graph agrees with all that the text of Liu 2005, 3.2, says of it.
TEN_EDGES = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 6), (6, 7), (7, 8), (7, 9)]
