"""EXPLAIN of derived streams."""

from __future__ import annotations

from collections.abc import Collection

from penstock.model.time import format_length
from penstock.planner.network import Network


def explain_derived(network: Network, names: Collection[str]) -> list[str]:
    """A line for each derived stream of these names."""
    called = {query.id: query.name for query in network.queries}
    lines = []
    for derived in network.derived_streams:
        if derived.name not in names:
            continue
        what = f"the join below {called[derived.query]}" if derived.joined else f"query {called[derived.query]}"
        text = f"derived stream {derived.name}: results of {what}, event time {derived.stream.event_time}"
        if derived.ticks is not None:
            slide = derived.ticks.slide
            every = format_length(slide, integer=derived.stream.integer_time)
            text += f", each counts at every tick ({every}) at which its rows are in their windows"
        lines.append(text)
    return lines
