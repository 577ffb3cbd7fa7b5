"""Which state is cold: compressed, since few results come of its bytes (Liu and Rundensteiner's state spill, exact).

The unit is the rows of a table in a class of *age*, by powers of two: its productivity is the matches that it had per
byte in the last steps. As long as all state fits into the budget all is hot. Else the least productive classes are
cold, as many as must be; a class changes back only if it would with a smaller budget too (decision 0041).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from penstock.model.time import FOREVER, NEVER
from penstock.planner.counters import Counters
from penstock.state.compaction import Merge, interval_of
from penstock.state.run import RunEntry

Age = tuple[str, int]  # a table, and the class of an age
EASE = 0.7  # of the budget: what is cold becomes hot again if it fits into so much
EVERY = 8  # steps between two choices
COMPRESSED = 2  # how many times smaller a cold run is, as long as no hot one of its table tells


@dataclass(frozen=True)
class Tiers:
    """What is cold now; and the matches by age up to the last choice, at step `chosen`."""

    cold: frozenset[Age] = frozenset()
    matches: Mapping[Age, int] = field(default_factory=dict)
    chosen: int = -1

    def is_due(self, step: int) -> bool:
        """Whether it is time to choose again."""
        return self.chosen < 0 or step >= self.chosen + EVERY

    def is_cold(self, run: RunEntry, progress: int) -> bool:
        return run.level > 0 and (run.table, age_of(run, progress)) in self.cold


ALL_HOT = Tiers()


def age_class(age: int) -> int:
    return abs(age).bit_length()


def age_of(run: RunEntry, progress: int) -> int:
    """The class of the age of a run's middle. What never expires has no interval, and is as old as it is wide."""
    return age_class(max(0, progress - (run.min_time + run.max_time) // 2)) if progress > NEVER else 0


def choose(
    tiers: Tiers, runs: Mapping[str, Sequence[RunEntry]], reached: Mapping[str, int], counters: Counters,
    step: int, budget: int,
) -> Tiers:  # fmt: skip
    """The tiers after a step. `runs` and `reached` are those of the tables that may have cold runs."""
    matches = {(name, age): count for name in runs for age, count in counters.table(name).ages.items()}
    sizes: dict[Age, int] = {}
    for name, own in runs.items():
        hot = [run for run in own if not run.cold]
        rows = sum(run.rows for run in hot)
        each = sum(run.bytes for run in hot) / rows if rows else None
        for run in own:
            size = run.bytes if not run.cold else COMPRESSED * run.bytes if each is None else int(each * run.rows)
            age = name, age_of(run, reached[name])
            sizes[age] = sizes.get(age, 0) + size
    recent = {age: matches.get(age, 0) - tiers.matches.get(age, 0) for age in sizes}
    order = sorted(sizes, key=lambda age: (recent[age] / sizes[age], -age[1], age))
    must, may = _least(order, sizes, budget), _least(order, sizes, int(EASE * budget))
    return Tiers(frozenset(must | (may & tiers.cold)), matches, step)


def _least(order: Sequence[Age], sizes: Mapping[Age, int], budget: int) -> set[Age]:
    """The first of them, so that the rest fit into the budget."""
    total, found = sum(sizes.values()), set[Age]()
    for age in order:
        if total <= budget:
            break
        total -= sizes[age]
        found.add(age)
    return found


def choose_changes(
    table: str, runs: Sequence[RunEntry], tiers: Tiers, progress: int, budget_rows: int, busy: Collection[str]
) -> list[Merge]:
    """Merges that only change the tier of runs, those of one link and interval at a time; `busy` runs are left."""
    alike: dict[tuple[int, int, bool], list[RunEntry]] = {}
    for run in runs:
        closed = run.life >= FOREVER or interval_of(progress, run.life) > interval_of(run.max_time, run.life)
        wanted = tiers.is_cold(run, progress)
        if run.level > 0 and run.name not in busy and run.cold != wanted and (closed or not wanted):
            alike.setdefault((run.life, interval_of(run.min_time, run.life), wanted), []).append(run)
    found = list[Merge]()
    for (life, _, wanted), group in sorted(alike.items(), key=lambda item: item[0]):
        rows = sum(run.rows for run in group)
        if found and rows > budget_rows:
            break
        budget_rows -= rows
        found.append(Merge(table, tuple(r.name for r in group), max(r.level for r in group), life, wanted))
    return found
