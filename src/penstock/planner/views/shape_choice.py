"""The shape for the first computation of a view, by estimated time on Spark, and its picture in EXPLAIN."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf

from penstock.planner.views.bushy import (
    by_cost,
    by_key,
    by_output,
    cheapest_bushy,
    pieced_bushy,
    segmented_bushy,
    size_by_heuristic,
    table_bytes,
)
from penstock.planner.views.relations import Relations
from penstock.planner.views.shape_cost import Costs, spark_time
from penstock.planner.views.shapes import (
    LEFT_DEEP,
    PREFERENCES,
    RIGHT_DEEP,
    SEGMENTED_BUSHY,
    SEGMENTED_RIGHT_DEEP,
    ZIGZAG,
    Shape,
    exchanges,
    left_deep,
    right_deep,
    segmented_right_deep,
    zigzag,
)

RUNNABLE = (RIGHT_DEEP, SEGMENTED_RIGHT_DEEP, SEGMENTED_BUSHY)
NODES = 4  # relations from which a bushy tree has at least two groups of two


@dataclass(frozen=True)
class Choice:
    """The chosen shape, and the best shape of every kind with its estimated seconds."""

    shape: Shape
    best: Mapping[str, Shape]
    seconds: Mapping[str, float]


def choose(relations: Relations, costs: Costs, cores: int, memory: float = inf) -> Choice:
    """The fastest shape whose tables fit in `memory` bytes. Left-deep and zigzag are estimated for comparison, not run.

    A right-deep tree that does not fit is excluded; the pieces of segmented ones always fit if single tables do.
    """

    def price(shape: Shape) -> float:
        return spark_time(relations, shape, costs, cores)

    segmented = [segmented_right_deep(relations, memory, prefer) for prefer in PREFERENCES.values()]
    candidates: dict[str, list[Shape]] = {
        LEFT_DEEP: [left_deep(relations)],
        ZIGZAG: [zigzag(relations, memory)],
        RIGHT_DEEP: [s for s in [right_deep(relations)] if table_bytes(s, relations) <= memory],
        SEGMENTED_RIGHT_DEEP: segmented,
    }
    if relations.count >= NODES:
        judges = (by_cost(costs, cores), by_output, by_key)
        bushy = [cheapest_bushy(relations, judge, cores, price) for judge in judges]
        most = size_by_heuristic(relations)
        bushy += [segmented_bushy(relations, most, judge, cores) for judge in judges]
        fitting = [shape for shape in bushy if table_bytes(shape, relations) <= memory]
        pieced = [pieced_bushy(relations, memory, most, judge, cores) for judge in judges]
        candidates[SEGMENTED_BUSHY] = fitting or pieced
    best = {kind: min(shapes, key=price) for kind, shapes in candidates.items() if shapes}
    seconds = {kind: price(shape) for kind, shape in best.items()}
    chosen = min((kind for kind in RUNNABLE if kind in best), key=lambda kind: seconds[kind])
    return Choice(best[chosen], best, seconds)


# -- the picture ------------------------------------------------------------------------------------------------------


def explain_choice(choice: Choice, relations: Relations, names: Sequence[str]) -> str:
    """The chosen shape as a tree, and the estimates of the others."""
    lines = [choice.shape.kind.replace("_", " ")]
    times = sorted(choice.seconds.items(), key=lambda pair: pair[1])
    lines.append("  estimated: " + ", ".join(f"{kind.replace('_', ' ')} {time:.2f} s" for kind, time in times))
    return "\n".join([*lines, *(f"  {line}" for line in draw(choice.shape, relations, names))])


def draw(shape: Shape, relations: Relations, names: Sequence[str]) -> list[str]:
    """One line per input, probes first; inputs of a segment follow it, indented."""
    return _segment(shape, len(shape.segments) - 1, relations, names)


def _segment(shape: Shape, number: int, relations: Relations, names: Sequence[str]) -> list[str]:
    segment = shape.segments[number]
    facts = [f"wave {segment.wave + 1}", f"{_rows(relations.size(shape.reached(segment)[-1]))} out"]
    if segment.cores:
        facts.append(f"{segment.cores} core" + "s" * (segment.cores > 1))
    hops = exchanges(relations, shape, segment)
    if hops:
        facts.append(f"{hops} exchange" + "s" * (hops > 1))
    if segment.stored:
        facts.append("written out")
    lines = [f"segment {number + 1} ({', '.join(facts)})"]
    for place, given in enumerate(segment.inputs):
        word = "build" if place else "probe"
        last = place == len(segment.builds)
        if given < shape.count:
            below = [f"{names[given]} ({_rows(relations.rows[given])})"]
        else:
            below = _segment(shape, given - shape.count, relations, names)
        lines.append(f"{'└─' if last else '├─'} {word} {below[0]}")
        lines += [f"{'  ' if last else '│ '} {line}" for line in below[1:]]
    return lines


def _rows(number: float) -> str:
    return f"{round(number):,} rows"
