"""What to merge: a pure choice from the manifest's lines. Kernels merge, the runtime runs it.

Runs of one step are level 0. When a table has gathered enough of them, they are merged together with level-1 runs of
similar size, so that a table never has more than a dozen or so runs and each row is rewritten only a few times. Rows out of
reach are dropped on the way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.state.run import RunEntry

FAN_IN = 8  # runs of one size class before they are merged


@dataclass(frozen=True)
class Merge:
    """Merge these runs of a table into one run per task, of the given level."""

    table: str
    runs: tuple[str, ...]
    level: int


def choose_merge(table: str, runs: Sequence[RunEntry], tasks: int, budget_rows: int) -> Merge | None:
    """The next merge for a table, or None: the lowest level with FAN_IN steps of runs, oldest first, within the budget."""
    by_level: dict[int, list[RunEntry]] = {}
    for run in runs:
        by_level.setdefault(run.level, []).append(run)
    for level in sorted(by_level):
        group = sorted(by_level[level], key=lambda r: (r.step, r.name))
        if len(group) < FAN_IN * tasks:
            continue
        chosen: list[str] = []
        rows = 0
        for run in group:
            if len(chosen) >= 2 * tasks and rows + run.rows > budget_rows:
                break
            chosen.append(run.name)
            rows += run.rows
        return Merge(table, tuple(chosen), level + 1)
    return None
