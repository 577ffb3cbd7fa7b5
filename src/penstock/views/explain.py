"""EXPLAIN of a view: its join graph, and how it is computed whole. Plans of refreshes explain themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.model.view import View
from penstock.planner.views.initial_load import First


def explain_graph(view: View) -> list[str]:
    """The nodes and edges."""
    names = [node.alias for node in view.nodes]
    lines = [f"view {view.name} over {', '.join(f'{n.alias} ({n.source})' for n in view.nodes)}"]
    for edge in view.edges:
        left, right = names[edge.left], names[edge.right]
        equal = [f"{left}.{a} = {right}.{b}" for a, b in edge.equal]
        others = [e.sql(lambda ref: f"{names[ref.role]}.{ref.column}") for e in edge.others]
        lines.append(f"  {left} - {right}: {' AND '.join([*equal, *others])}")
    return lines


def explain_whole(view: View, facts: Sequence[Mapping[str, Any]], found: First | None) -> list[str]:
    """How Spark last computed the view, or else how it would be computed; None if its sources do not have estimates."""
    made = [fact for fact in facts if fact.get("shape")]
    if made:
        took = f"{made[-1]['seconds']:.2f} s, estimated {made[-1]['estimated']:.2f} s"
        return [f"computed by Spark in {took}:", *(f"  {line}" for line in made[-1]["shape"].splitlines())]
    if len(view.nodes) == 1:
        return []
    text = "a source that was never looked at does not say how many rows it has"
    text = text if found is None else found.explain([node.alias for node in view.nodes])
    return ["computed whole:", *(f"  {line}" for line in text.splitlines())]
