"""All modes by name: when and how the probe orders of a running join are changed.

`static` plans once, `random` not at all; `oracle` and `worst` plan at every check, for the least and the greatest cost;
`pop` and `card` are those of Wang 2013; `adaptive` is the default of the engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from penstock.planner.orders.adaptive import Adaptive
from penstock.planner.orders.cost import CostModel, EngineCost
from penstock.planner.orders.decision import Parameters
from penstock.planner.orders.fixed import Oracle, Random, Static, Worst
from penstock.planner.orders.graph import JoinGraph
from penstock.planner.orders.mode import Mode, ModeState
from penstock.planner.orders.ranged import Card, Pop
from penstock.planner.orders.statistics import Statistics

MODES: dict[str, type[Mode]] = {mode.name: mode for mode in (Static, Random, Oracle, Worst, Pop, Card, Adaptive)}


def make_mode(
    name: str,
    graph: JoinGraph,
    query: str,
    parameters: Parameters | None = None,
    *,
    model: CostModel | None = None,
    limits: Sequence[float] | None = None,
    statistics: Statistics | None = None,
    state: ModeState | None = None,
) -> Mode:
    """A mode with its first orders, or as stored.

    `query` names the join in all decisions and random draws; `limits` has the rows of each window of rows, and `inf`
    for others; `statistics` is what is known when the query is registered, `state` that of a mode before.
    """
    if name not in MODES:
        raise ValueError(f"no mode is called {name!r}; there are {', '.join(MODES)}")
    mode = MODES[name](
        graph,
        query,
        parameters or Parameters(),
        model or EngineCost(graph),
        (inf,) * graph.count if limits is None else tuple(limits),
    )
    if state is None:
        mode.begin(statistics or Statistics.none(graph.count))
    else:
        mode.restore(state)
    return mode
