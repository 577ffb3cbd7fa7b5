"""How the rows of a step come to its tasks: the bounds for that choice, and EXPLAIN of the last step's rows."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

MOST_TASKS = 4  # with more of them, an exchange is cheaper than all rows at every task
# With at most so many rows in a step, sending all to every task costs less than a stage of mappers before the tasks.
FEW_ROWS = 1 << 14


@dataclass(frozen=True)
class Way:
    """The rows of each stream in the last step, and the streams that come in `pieces`; None before the first rows."""

    tasks: int
    rows: Mapping[str, int] | None = None
    pieces: Collection[str] = ()


def explain_way(way: Way) -> list[str]:
    """Lines of EXPLAIN: which way the rows of the last step would go now, with their number and the bound."""
    if way.rows is None:
        return []
    lines = []
    own = {name: count for name, count in way.rows.items() if name in way.pieces}
    if own:
        reads = f"all read by {_each(way.tasks)}" if way.tasks <= MOST_TASKS else "which mappers read, a share each"
        lines.append(f"  pieces, {reads} (up to {MOST_TASKS} tasks read all): {_rows(own)}")
    others = {name: count for name, count in way.rows.items() if name not in way.pieces}
    if others:
        count = sum(others.values())
        if way.tasks == 1:
            text = "  by Spark to one task"
        elif way.tasks > MOST_TASKS:
            text = f"  by Spark to mappers (more than {MOST_TASKS} tasks)"
        else:
            to = "every task" if count <= FEW_ROWS else "mappers"
            text = f"  by Spark to {to} ({count:,} rows; up to {FEW_ROWS:,} go to every task)"
        lines.append(f"{text}: {_rows(others)}")
    return [f"rows of the last step, {sum(way.rows.values()):,}:", *lines]


def _each(tasks: int) -> str:
    return "the one task" if tasks == 1 else f"each of {tasks} tasks"


def _rows(rows: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in sorted(rows.items()))
