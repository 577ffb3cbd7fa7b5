"""Paths through a view's join graph that visit every node once, and contraction where there is none.

A path element is a node, or a group of nodes that was contracted to one (Liu 2005, 10.3.2): itself a path.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from penstock.planner.orders.graph import JoinGraph


@dataclass(frozen=True)
class Group:
    """Nodes that act as one: a path of elements, maintained before anything outside is asked for them."""

    path: tuple[Element, ...]

    def __str__(self) -> str:
        return "(" + "-".join(f"R{e + 1}" if isinstance(e, int) else str(e) for e in self.path) + ")"


Element = int | Group


def nodes_of(element: Element) -> tuple[int, ...]:
    """The nodes of an element in the order of its path."""
    if isinstance(element, int):
        return (element,)
    return tuple(node for inner in element.path for node in nodes_of(inner))


def hamiltonian_paths(graph: JoinGraph) -> Iterator[tuple[int, ...]]:
    """All paths that visit every node once, both directions of each, lower nodes first."""
    growing: list[tuple[int, ...]] = [(node,) for node in reversed(range(graph.count))]
    while growing:
        path = growing.pop()
        if len(path) == graph.count:
            yield path
            continue
        near = graph.neighbours(frozenset(path[-1:])) - frozenset(path)
        growing += [(*path, node) for node in sorted(near, reverse=True)]


def contraction(graph: JoinGraph) -> Group:
    """A path through everything, with sub-paths contracted to groups where the graph itself has no such path.

    The longest path is contracted first; of equal ones that with the lowest nodes. Each contraction makes the graph
    smaller, so it ends with one group for any connected graph.
    """
    if not graph.connected():
        raise ValueError("a view's join graph must be connected")
    elements: list[Element] = list(range(graph.count))
    while True:
        path = _longest(graph, elements)
        if len(path) == len(elements):
            return Group(tuple(path))
        elements = [Group(tuple(path)), *(e for e in elements if e not in path)]


def _longest(graph: JoinGraph, elements: list[Element]) -> list[Element]:
    inside = [frozenset(nodes_of(e)) for e in elements]
    near = [
        [b for b in range(len(elements)) if b != a and graph.neighbours(inside[a]) & inside[b]]
        for a in range(len(elements))
    ]
    best: list[int] = []
    growing = [[a] for a in reversed(range(len(elements)))]
    while growing:
        path = growing.pop()
        if len(path) > len(best):
            best = path
            if len(best) == len(elements):
                break
        growing += [[*path, b] for b in reversed(near[path[-1]]) if b not in path]
    return [elements[k] for k in best]
