"""How a whole view is computed: in this process or on Spark, and there by which shape, from statistics of its sources.

All costs are seconds: what a row has cost here, what Spark's joins cost by calibration, corrected by the last
computations. Nothing is counted here; missing counts are estimated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import exp, inf, log, prod

from penstock.model import Compare, Expression, Literal, Ref
from penstock.model.view import Source, View
from penstock.planner.views.relations import COMPARED, Counted, Relations, equal_places, relations_of, width_of
from penstock.planner.views.shape_choice import Choice, choose, explain_choice
from penstock.planner.views.shape_cost import Costs

HERE = 2.5e-7  # seconds per row that is read or made here, until measured
_COPIES = 4  # memory for joining here, as a multiple of the bytes of all rows


@dataclass(frozen=True)
class Estimate:
    """A source's own estimates: its rows, and the number of different values of some columns."""

    rows: float
    distinct: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Machine:
    """Costs and capacities: on Spark with these cores and bytes for tables, and seconds per row in this process.

    `room` are the bytes of memory of this process's machine.
    """

    costs: Costs = field(default_factory=Costs)
    cores: int = 2
    memory: float = inf
    here: float = HERE
    room: float = inf
    calibrated: bool = False


@dataclass(frozen=True)
class First:
    """The computation of a whole view: the possible shapes on Spark, and the seconds it should take here."""

    choice: Choice
    relations: Relations
    machine: Machine
    here: float
    counted: bool

    @property
    def spark(self) -> float:
        """Seconds on Spark."""
        return self.choice.seconds[self.choice.shape.kind]

    @property
    def on_spark(self) -> bool:
        """Whether Spark is faster, or the only one with enough memory."""
        return self.spark < self.here

    def explain(self, names: Sequence[str]) -> str:
        """Where it runs, and the shape on Spark as a tree, with the origin of the figures."""
        here = f"{self.here:.2f} s" if self.here < inf else "not enough memory"
        rests = [
            "rows counted" if self.counted else "rows estimated",
            "costs measured here" if self.machine.calibrated else "costs assumed",
            f"{self.machine.cores} cores",
        ]
        if self.machine.memory < inf:
            rests.append(f"{self.machine.memory / 2**20:,.0f} MB for tables")
        place = "on Spark" if self.on_spark else "here"
        lines = [f"{place}: here {here}, on Spark {self.spark:.2f} s ({', '.join(rests)})"]
        return "\n".join([*lines, explain_choice(self.choice, self.relations, names)])


def first(view: View, counted: Sequence[Counted], machine: Machine, *, really: bool = True) -> First:
    """Every way to compute a view of at least two nodes, priced. `really`: its relations were counted."""
    relations = relations_of(view, counted)
    choice = choose(relations, machine.costs, machine.cores, machine.memory)
    held = _COPIES * sum(rows * width for rows, width in zip(relations.rows, relations.widths, strict=True))
    here = machine.here * handled(relations.rows, relations.size(relations.all)) if held <= machine.room else inf
    return First(choice, relations, machine, here, really)


def handled(rows: Sequence[float], results: float) -> float:
    """The rows by which a computation here is measured: those it reads and those it makes."""
    return sum(rows) + results


def keyed(estimate: Estimate, source: Source) -> Estimate:
    """The estimate with the source's key: a key of one column has as many values as there are rows."""
    return Estimate(
        estimate.rows, {**estimate.distinct, **dict.fromkeys(source.key if len(source.key) == 1 else (), estimate.rows)}
    )


def estimated(view: View, sources: Mapping[str, Source], known: Mapping[str, Estimate]) -> list[Counted]:
    """The expected counts of a view's nodes, from the estimates of their sources."""
    counted = []
    places = equal_places(view)
    for number, node in enumerate(view.nodes):
        source, estimate = sources[node.source], known[node.source]
        rows = estimate.rows * prod(_share(e, estimate) for e in view.local(number))
        joined = [column for own, column in places if own == number]
        different = {c: min(rows, estimate.distinct.get(c, estimate.rows)) for c in joined}
        types = [found.type for c in view.columns(number) if (found := source.column(c)) is not None]
        counted.append(Counted(rows, width_of(types), different))
    return counted


def _share(condition: Expression, estimate: Estimate) -> float:
    """The share of rows that satisfy a filter."""
    match condition.term:
        case Compare("=", Ref(_, column), Literal()) | Compare("=", Literal(), Ref(_, column)):
            return 1 / max(1.0, estimate.distinct.get(column, 1 / COMPARED))
        case _:
            return COMPARED


def corrected(costs: Costs, runs: Sequence[tuple[float, float]]) -> Costs:
    """Costs scaled by measured over estimated times of the last computations; `runs`: (estimated, measured) seconds."""
    ratios = [log(measured / foretold) for foretold, measured in runs if foretold > 0 and measured > 0]
    if not ratios:
        return costs
    factor = exp(sum(ratios) / len(ratios))
    per_second = ("read", "partition", "send", "build", "probe", "setup", "deplete", "byte", "job", "hop", "write")
    return replace(costs, **{name: factor * getattr(costs, name) for name in per_second})
