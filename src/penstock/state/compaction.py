"""What to merge: a pure choice from the manifest's lines. Kernels merge, the step runs it.

Runs of one step are level 0. Once a table has enough of them they are merged, and the rows are laid out by *link* of
the table's chain (rows that live about equally long) and time interval, so that expiry drops whole files
(decision 0001). Runs of one link and interval are merged again when there are many of them, and once more when no
further row of that interval can come. Rows that stay longer than their windows (the other stream lags, or may come very
late) move on to wider intervals, so that their runs stay few. Independently, runs are rewritten once too many rows of
the table have expired; and last the runs from before a query was dropped, to remove rows that only that query needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.model.time import FOREVER
from penstock.planner.reached import Reached
from penstock.state.run import RunEntry

FAN_IN = 8  # runs per task before they are merged
INTERVALS = 16  # intervals per link: rows stay too long by at most one of them
MOST_INTERVALS = 2 * INTERVALS  # of one link; rows over more of them stay longer than their link says
FEW = (
    200_000  # rows of a table that are written anew at once when groups or keys have ended; of more, at the next merge
)

# Expired rows are removed when they are more than `MOST_GONE` of the others, until they are `LEAST_GONE`; but not if
# there are only a few, and only from runs with many of them. So a table has at most 5 % too much, if steps are short
# beside the lives.
MOST_GONE, LEAST_GONE = 0.02, 0.01
HANDFUL, GOOD_PART = 500, 0.2


@dataclass(frozen=True)
class Merge:
    """Merge these runs of a table; the rows come out as runs of the given level, one per link, interval and task.

    `life` is the least end of link for them: rows that were moved to a longer one stay there. They are `cold` or not.
    """

    table: str
    runs: tuple[str, ...]
    level: int
    life: int = 0
    cold: bool = False


def interval_of(time: int, life: int) -> int:
    """The number of the interval of a link that contains a time; the link is named by its end."""
    return 0 if life >= FOREVER else time // interval_length(life)


def interval_length(life: int) -> int:
    return max(1, life // INTERVALS)


def wider(life: int) -> int:
    """The link with intervals of twice the length."""
    return 2 * INTERVALS * interval_length(life)


def choose_merges(
    table: str,
    runs: Sequence[RunEntry],
    tasks: int,
    budget_rows: int,
    progress: int,
    stale: int,
    reached: Reached,
    *,
    counted: bool = False,
    ended: bool = False,
) -> list[Merge]:
    """What a step merges of a table. `progress` is that of the table's own stream, `reached` that of all streams.

    When keys have `ended` for a stream that the table is joined with, all runs are rewritten, to expire their rows.
    """
    if ended and not counted and sum(run.rows for run in runs) <= FEW:
        return _anew(table, runs)
    trims = [] if counted else choose_trims(table, runs, budget_rows, reached)
    taken = {name for trim in trims for name in trim.runs}
    rest = [run for run in runs if run.name not in taken]
    merge = choose_merge(table, rest, tasks, budget_rows, progress, stale, counted=counted)
    return [*trims, *([merge] if merge else [])]


def choose_trims(table: str, runs: Sequence[RunEntry], budget_rows: int, reached: Reached) -> list[Merge]:
    """Rewrite runs to remove expired rows: first those with most of them."""
    gone = {run.name: run.gone(reached) for run in runs}
    total = sum(gone.values())
    in_reach = sum(run.rows for run in runs) - total
    if total <= max(HANDFUL, MOST_GONE * in_reach):
        return []
    chosen = []
    for run in sorted(runs, key=lambda r: (-gone[r.name], r.name)):
        if total <= LEAST_GONE * in_reach or budget_rows <= 0:
            break
        if gone[run.name] >= GOOD_PART * run.rows:
            chosen.append(run)
            total -= gone[run.name]
            budget_rows -= run.rows
    return _anew(table, chosen)


def _anew(table: str, runs: Sequence[RunEntry]) -> list[Merge]:
    """Rewrite these runs, each link by itself."""
    by_link: dict[int, list[RunEntry]] = {}
    for run in runs:
        by_link.setdefault(run.life if run.level else 0, []).append(run)
    return [
        Merge(table, tuple(r.name for r in alike), max(1, *(r.level for r in alike)), life)
        for life, alike in sorted(by_link.items())
    ]


def choose_merge(
    table: str,
    runs: Sequence[RunEntry],
    tasks: int,
    budget_rows: int,
    progress: int,
    stale: int = 0,
    *,
    counted: bool = False,
) -> Merge | None:
    """The next merge that keeps the runs of a table few, or None.

    Runs of a registry version below `stale` may have rows that only dropped queries needed. Where windows count rows
    (`counted`), the life of a row depends on later rows: older runs are merged with fresh ones, to expire what has left
    the windows.
    """
    fresh = sorted((r for r in runs if r.level == 0), key=lambda r: (r.step, r.name))
    if len(fresh) >= FAN_IN * tasks:
        older = sorted((r for r in runs if r.level > 0), key=lambda r: (r.step, r.name)) if counted else []
        return Merge(table, _within([*fresh, *older], tasks, budget_rows), 1)
    groups: dict[tuple[int, int], list[RunEntry]] = {}
    for run in runs:
        if run.level > 0:
            groups.setdefault((run.life, interval_of(run.min_time, run.life)), []).append(run)
    for life in sorted({life for life, _ in groups}):
        if life >= FOREVER:
            # No interval ever closes: merge runs of one level, so that a row is rewritten only log(n) times.
            for level in sorted({r.level for r in groups[life, 0]}):
                peers = [r for r in groups[life, 0] if r.level == level]
                if len(peers) >= FAN_IN * tasks:
                    return Merge(table, _within(peers, tasks, budget_rows), level + 1)
            continue
        due: list[RunEntry] = []
        for interval in sorted(interval for of, interval in groups if of == life):
            group = groups[life, interval]
            closed = interval_of(progress, life) > interval
            if len(group) >= FAN_IN * tasks or (closed and len(group) > tasks):
                due += group
        if due:
            return Merge(table, _within(due, tasks, budget_rows), max(r.level for r in due) + 1, life)
    return _widen(table, groups, tasks, budget_rows) or _renew(table, runs, tasks, budget_rows, stale)


def choose_settling(
    table: str,
    runs: Sequence[RunEntry],
    tasks: int,
    budget_rows: int,
    progress: int,
    stale: int,
    *,
    apart: bool,
    ended: bool = False,
) -> Merge | None:
    """The next merge of partials. If their time alone does not decide whether they expire (not `apart`), of all runs.

    So too when groups have `ended`, to expire their state.
    """
    whole = Merge(table, tuple(r.name for r in sorted(runs, key=lambda r: (r.step, r.name))), 1)
    if ended and runs and sum(r.rows for r in runs) <= FEW:
        return whole
    if apart:
        return choose_merge(table, runs, tasks, budget_rows, progress, stale)
    fresh = [r for r in runs if r.level == 0]
    return whole if len(fresh) >= FAN_IN * tasks else None


def _widen(table: str, groups: Mapping[tuple[int, int], list[RunEntry]], tasks: int, budget_rows: int) -> Merge | None:
    """Move the oldest half of a link with too many intervals into intervals of twice the length."""
    for life in sorted({life for life, _ in groups if life < FOREVER}):
        intervals = sorted(interval for of, interval in groups if of == life)
        if len(intervals) > MOST_INTERVALS:
            oldest = [run for interval in intervals[: len(intervals) // 2] for run in groups[life, interval]]
            level = max(r.level for r in oldest) + 1
            return Merge(table, _within(oldest, tasks, budget_rows), level, wider(life))
    return None


def _renew(table: str, runs: Sequence[RunEntry], tasks: int, budget_rows: int, stale: int) -> Merge | None:
    """Rewrite old runs, those of one link and interval at a time."""
    old = sorted((r for r in runs if r.version < stale), key=lambda r: (r.level, r.life, r.min_time, r.name))
    if not old:
        return None
    alike = [r for r in old if (r.level > 0, r.life) == (old[0].level > 0, old[0].life)]
    level = max(r.level for r in alike)
    return Merge(table, _within(alike, tasks, budget_rows), max(level, 1), alike[0].life if level else 0)


def _within(runs: Sequence[RunEntry], tasks: int, budget_rows: int) -> tuple[str, ...]:
    """As many runs as the budget allows, but enough to reduce them: a merge makes one per task, link and interval."""
    chosen: list[str] = []
    rows = 0
    for run in runs:
        if len(chosen) >= FAN_IN // 2 * tasks and rows + run.rows > budget_rows:
            break
        chosen.append(run.name)
        rows += run.rows
    return tuple(chosen)
