"""The unified delta: joining all members at once is joining each alone, and padding meets no predicate."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model import Column, Compare, Edge, Item, Node, Ref, View
from penstock.views.rows.bag import COUNT
from penstock.views.rows.delta import ABSENT, Delta, Joins, split, unify
from penstock.views.rows.types import schema_of

from .memory import expression, ref

COLUMNS = (Column("a", "bigint"), Column("b", "bigint"))
NODES = 4
LESS = expression(Compare("<=", Ref(0, "b"), Ref(3, "b")), Ref(0, "b"), Ref(3, "b"))
# A chain with a chord that compares: members that do not hold the first node must not meet it.
EDGES = (
    Edge(0, 1, (("b", "a"),)),
    Edge(1, 2, (("b", "a"),)),
    Edge(2, 3, (("b", "a"),)),
    Edge(0, 3, (), (LESS,)),
    Edge(1, 3, (("a", "b"),)),
)
VIEW = View(
    "v",
    "",
    tuple(Node(f"t{k}", "s") for k in range(NODES)),
    EDGES,
    (),
    tuple(Item(None, ref(k, "b")) for k in range(NODES)),
)


def joins(draw):
    made = Joins(VIEW, [schema_of("s", COLUMNS)] * NODES)
    for rows in made.rows:
        values = draw(
            st.lists(
                st.tuples(st.integers(0, 2), st.integers(0, 2), st.sampled_from([1, 2, -1])), min_size=1, max_size=6
            )
        )
        a, b, count = zip(*values, strict=True)
        rows.append(pa.table([pa.array(a), pa.array(b), pa.array(count)], ["a", "b", COUNT]))
    return made


@st.composite
def members(draw):
    """Members that hold nodes up to the third, from different beginnings, with any rows."""
    made = joins(draw)
    found = {}
    for tag in sorted(draw(st.sets(st.integers(0, 2), min_size=1))):
        size = draw(st.integers(0, 5))
        held = {
            node: np.array(
                draw(st.lists(st.integers(0, len(made.rows[node].count) - 1), min_size=size, max_size=size)), np.int64
            )
            for node in range(tag, 3)
        }
        found[tag] = Delta(np.full(size, tag, np.int64), np.ones(size, np.int64), held)
    return made, found


def content(delta):
    nodes = sorted(delta.held)
    rows = zip(*(delta.held[v].tolist() for v in nodes), delta.count.tolist(), strict=True)
    return Counter(rows)


@given(members())
def test_splitting_undoes_unifying(made):
    _, found = made
    unified = unify(list(found.values()))
    for tag, member in split(unified, found).items():
        assert set(member.held) == set(found[tag].held)
        assert content(member) == content(found[tag])
    for node, index in unified.held.items():
        holders = {tag for tag, member in found.items() if node in member.held}
        assert set(unified.tag[index == ABSENT].tolist()).isdisjoint(holders)
        assert holders.issuperset(unified.tag[index != ABSENT].tolist())


@settings(deadline=None)
@given(members())
def test_joining_all_at_once_is_joining_each_alone(made):
    join, found = made
    rows = np.arange(len(join.rows[3].count))
    together = split(join.join(unify(list(found.values())), 3, rows, (2,)), found, 3)
    for tag, member in found.items():
        alone = join.join(member, 3, rows, (2,))
        assert set(together[tag].held) == {*member.held, 3}
        assert content(alone) == content(together[tag])
        assert content(alone) == brute(join, member)


def brute(join, member):
    values = [
        list(zip(r.column("a").to_pylist(), r.column("b").to_pylist(), r.count.tolist(), strict=True))
        for r in join.rows
    ]
    found = Counter()
    for row in range(len(member)):
        held = {v: int(index[row]) for v, index in member.held.items()}
        for other, (a, b, count) in enumerate(values[3]):
            keep = values[2][held[2]][1] == a
            keep &= 0 not in held or values[0][held[0]][1] <= b
            keep &= 1 not in held or values[1][held[1]][0] == b
            if keep:
                found[*(held[v] for v in sorted(held)), other, int(member.count[row]) * count] += 1
    return found
