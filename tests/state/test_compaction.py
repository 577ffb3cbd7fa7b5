"""Five hundred steps of one table, with the kernels that merge, but few rows: how many runs there are, and how often a row moves."""

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernels.merge import longest_life, merge_runs, split_by_life
from penstock.model.time import FOREVER, NEVER, SECOND
from penstock.state.compaction import (
    FAN_IN,
    INTERVALS,
    MOST_INTERVALS,
    choose_merge,
    interval_length,
    interval_of,
    life_class,
    wider,
)
from penstock.state.run import Rows, RunEntry, expiry
from tests.kernels.tables import entry, state_table
from tests.state.runs import entry_of

PLENTY = 10**9


@dataclass
class Simulated:
    """A state table whose rows have one of these lives; row n belongs to task n modulo their number."""

    tasks: int
    lives: tuple[int, ...]
    budget: int = PLENTY
    runs: dict[str, RunEntry] = field(default_factory=dict)
    rows: dict[str, tuple[int, Rows]] = field(default_factory=dict)
    most: int = 0
    stored: int = 0
    rewritten: int = 0

    def __post_init__(self):
        self.entries = [entry(n + 1, [("b", life)]) for n, life in enumerate(self.lives)]
        self.table = state_table(self.entries)

    def step(self, number, times, own, other):
        """Purge, merge and store as a step does; progress is that of the own and of the other stream."""
        progress = {"b": other}
        gone = {name for name, run in self.runs.items() if run.expired(progress)}
        live = [run for name, run in self.runs.items() if name not in gone]
        merge = choose_merge("a(k)", live, self.tasks, self.budget, own)
        added = []
        for task in range(self.tasks):
            fresh = self._rows(times[task :: self.tasks])
            added.append((task, 0, longest_life(self.table, fresh), fresh))
            mine = [self.rows[name][1] for name in (merge.runs if merge else ()) if self.rows[name][0] == task]
            merged = merge_runs(self.table, mine, progress)
            if merged is not None:
                self.rewritten += len(merged)
                added += [(task, merge.level, life, r) for life, r in split_by_life(self.table, merged, merge.life)]
        for name in gone | set(merge.runs if merge else ()):
            del self.runs[name], self.rows[name]
        for n, (task, level, life, rows) in enumerate(added):
            self._keep(f"runs/{number}-{n}.arrow", number, task, level, life, rows)
        self.stored += len(times) * len(self.lives)
        self.most = max(self.most, len(self.runs))

    def _rows(self, times):
        time = np.repeat(np.array(times, dtype=np.int64), len(self.lives))
        bits = np.tile(np.arange(len(self.lives), dtype=np.int32), len(times))
        order = np.argsort(time, kind="stable")
        return Rows(np.zeros_like(time), time[order], bits[order], tuple((e.id,) for e in self.entries), {})

    def _keep(self, name, step, task, level, life, rows):
        lives = {e.id: e.lives for e in self.entries}
        self.rows[name] = (task, rows)
        self.runs[name] = entry_of(
            name,
            step=step,
            level=level,
            rows=len(rows),
            min_time=int(rows.time.min()),
            max_time=int(rows.time.max()),
            life=life,
            until=tuple(expiry(rows, lives, FOREVER).items()),
        )


def run(tasks, lives, *, delay=0, stalled=False, budget=PLENTY, steps=500):
    """One step a second, with eight rows of each life and task over the last second, in disorder up to the delay."""
    table = Simulated(tasks, lives, budget)
    for number in range(steps):
        now = number * SECOND
        times = [now - n * SECOND // 8 - (n % 3) * delay // 3 for n in range(8) for _ in range(tasks)]
        progress = now - SECOND - delay
        table.step(number, times, progress, NEVER if stalled else progress)
    return table


@pytest.mark.parametrize("tasks", [1, 3])
@pytest.mark.parametrize("delay", [0, 20 * SECOND])
@pytest.mark.parametrize("lives", [(20 * SECOND,), (3 * SECOND, 60 * SECOND), (1, 10 * SECOND, 300 * SECOND)])
def test_a_table_has_a_bounded_number_of_runs(tasks, lives, delay):
    table = run(tasks, lives, delay=delay)
    print(tasks, len(lives), delay, table.most, len(table.runs), table.rewritten / table.stored)


@pytest.mark.parametrize("x", [(1,(FOREVER,),{}),(1,(SECOND,),{"stalled":True}),(1,(1,),{"stalled":True}),(3,(1,),{"stalled":True}),(1,(SECOND,),{"delay":100*SECOND}),(1,(20*SECOND,),{"budget":50}),(1,(1,),{"stalled":True,"budget":50}),(2,(FOREVER,),{"budget":50}),(2,(20*SECOND,FOREVER),{"budget":50})])
def test_x(x):
    t,l,k=x
    table = run(t,l,**k)
    print(t,l,k, table.most, len(table.runs), table.rewritten / table.stored)
