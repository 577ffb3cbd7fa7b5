"""What several tests share: names of positions, a worked example, and random joins."""

from itertools import combinations

from hypothesis import strategies as st

from penstock.planner.orders.graph import JoinGraph
from penstock.planner.orders.sizes import Sizes

A, B, C, D = range(4)


def named(letters):
    return frozenset("ABCDEF".index(letter) for letter in letters)


# Start A with 10 new rows; rows held and composites such that A:BCD is the best order.
HELD = (0, 200, 50, 400)
COMPOSITES = {"A": 10, "AB": 40, "AC": 60, "AD": 90, "ABC": 30, "ABD": 20, "ACD": 80, "ABCD": 1}
CLIQUE = JoinGraph(4, classes=[range(4)])


def example(**changes):
    """The worked example, with some composites changed."""
    table = {named(letters): rows for letters, rows in {**COMPOSITES, **changes}.items()}
    return Sizes(A, HELD, table.__getitem__)


@st.composite
def graphs(draw, least=2, most=6):
    """Joins of any shape, also with parts that have nothing in common."""
    count = draw(st.integers(least, most))
    pairs = list(combinations(range(count), 2))
    members = st.sets(st.integers(0, count - 1), min_size=2)
    return JoinGraph(count, draw(st.lists(members, max_size=2)), draw(st.lists(st.sampled_from(pairs), max_size=count)))


whole = st.integers(0, 1000)


@st.composite
def tables(draw, graph, rows=whole):
    """The sizes of one start: any number for each set, whole, so that sums are exact."""
    start = draw(st.integers(0, graph.count - 1))
    held = tuple(draw(rows) for _ in range(graph.count))
    others = sorted(graph.all - {start})
    sets = [frozenset((start, *some)) for k in range(graph.count) for some in combinations(others, k)]
    table = {members: draw(rows) for members in sets}
    return Sizes(start, held, table.__getitem__)
