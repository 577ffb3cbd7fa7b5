"""Paths through a view's join graph that visit every node once, and contraction if there is none.

A path element is a node, or a group of nodes contracted to one (Liu 2005, 10.3.2), itself a path.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from penstock.planner.orders.graph import JoinGraph


@dataclass(frozen=True)
class Group:
    """Nodes that act as one: a path of elements, maintained before anything outside is requested for them."""

    path: tuple[Element, ...]

    def __str__(self) -> str:
        return "(" + "-".join(f"R{e + 1}" if isinstance(e, int) else str(e) for e in self.path) + ")"


Element = int | Group
Path = tuple[int, ...]

EXPANSIONS = 4_000  # prefixes of paths that one search expands: a clique of 12 has half a billion
_PATIENCE = 8  # expansions per node, after which the search continues from the next start


def nodes_of(element: Element) -> tuple[int, ...]:
    """The nodes of an element in the order of its path."""
    if isinstance(element, int):
        return (element,)
    return tuple(node for inner in element.path for node in nodes_of(inner))


def spread_paths(graph: JoinGraph, most: int, expansions: int = EXPANSIONS) -> list[Path]:
    """Paths that visit every node once: all of them if they are few, else up to `most` that differ early.

    Every start, and after each prefix every continuation, gets a turn before any gets a second. The search ends after
    `expansions` prefixes, whether paths were found or not.
    """
    near = _near(graph, list(range(graph.count)))
    if graph.count > 2 and sum(nodes.bit_count() == 1 for nodes in near) > 2:
        return []  # a path has two ends
    found: list[Path] = []
    everywhere = (1 << graph.count) - 1
    turns = deque(_grown(near, (start,), everywhere & ~(1 << start)) for start in range(graph.count))
    while turns and len(found) < most and expansions > 0:
        search = turns.popleft()
        for _ in range(min(expansions, _PATIENCE * graph.count)):
            path = next(search, ())
            if path == ():
                break  # no more paths from this start
            if path is not None:
                found.append(path)
                turns.append(search)
                break
            expansions -= 1
        else:
            turns.append(search)
    return found


def _grown(near: list[int], path: Path, free: int) -> Iterator[Path | None]:
    """Whole paths with this prefix, continuations in turns; None for every prefix that is expanded."""
    if not free:
        yield path
        return
    yield None
    ways = iter(_ways(near, path[-1], free))
    turns: deque[Iterator[Path | None]] = deque()
    while (node := next(ways, None)) is not None or turns:
        search = turns.popleft() if node is None else _grown(near, (*path, node), free & ~(1 << node))
        for found in search:
            yield found
            if found is not None:
                turns.append(search)
                break


def _ways(near: list[int], last: int, free: int) -> list[int]:
    """Where a path can continue, first to nodes that soon become unreachable. Sets of nodes are bits here."""
    ways, left = [], near[last] & free
    while left:
        low = left & -left
        node = low.bit_length() - 1
        ways.append(((near[node] & free).bit_count(), node))
        left ^= low
    return [node for _, node in sorted(ways)]


def contraction(graph: JoinGraph, expansions: int = EXPANSIONS) -> Group:
    """A path through everything, with sub-paths contracted to groups where the graph has no such path.

    The longest path is contracted first, as far as the bounded search finds it; ties go to the lowest start. Each
    contraction makes the graph smaller, so a connected graph ends as one group.
    """
    if not graph.connected():
        raise ValueError("a view's join graph must be connected")
    elements: list[Element] = list(range(graph.count))
    while True:
        path = _longest(graph, elements, expansions)
        if len(path) == len(elements):
            return Group(tuple(path))
        elements = [Group(tuple(path)), *(e for e in elements if e not in path)]


def _longest(graph: JoinGraph, elements: list[Element], expansions: int) -> list[Element]:
    near, everywhere = _near(graph, elements), (1 << len(elements)) - 1
    best: Path = ()
    for start in range(len(elements)):
        growing: list[tuple[Path, int]] = [((start,), everywhere & ~(1 << start))]
        for _ in range(max(len(elements), expansions // len(elements))):
            if not growing or len(best) == len(elements):
                break
            path, free = growing.pop()
            best = path if len(path) > len(best) else best
            growing += [((*path, node), free & ~(1 << node)) for node in reversed(_ways(near, path[-1], free))]
    return [elements[k] for k in best]


def _near(graph: JoinGraph, elements: list[Element]) -> list[int]:
    """For each element the places of its neighbours, as bits."""
    inside = [frozenset(nodes_of(e)) for e in elements]
    around = [graph.neighbours(nodes) for nodes in inside]
    return [sum(1 << b for b, nodes in enumerate(inside) if b != a and near & nodes) for a, near in enumerate(around)]
