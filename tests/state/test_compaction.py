"""Five hundred steps of one table, with the kernels that merge, but few rows: how many runs there are, and how often a row moves."""

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernels.merge import fresh_runs, lay_out, merge_runs
from penstock.model.time import FOREVER, NEVER, SECOND
from penstock.state.compaction import (
    FAN_IN,
    FEW,
    INTERVALS,
    MOST_INTERVALS,
    choose_merge,
    choose_settling,
    interval_of,
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
            added += [(task, 0, life, piece) for life, piece in fresh_runs(self.table, fresh)]
            mine = [self.rows[name][1] for name in (merge.runs if merge else ()) if self.rows[name][0] == task]
            merged = merge_runs(self.table, mine, progress)
            if merged is not None:
                self.rewritten += len(merged)
                added += [(task, merge.level, life, r) for life, r in lay_out(self.table, merged, merge.life)]
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


def room(table):
    """Runs that a table may have: fresh ones, and for each link those of its intervals, two in those that are open."""
    return table.tasks * (FAN_IN + len(table.lives) * (INTERVALS + MOST_INTERVALS))


LIVES = [(20 * SECOND,), (FOREVER,), (1, 10 * SECOND, 300 * SECOND), (20 * SECOND, FOREVER)]


@pytest.mark.parametrize("lives", LIVES, ids=str)
@pytest.mark.parametrize("delay", [0, 20 * SECOND])
def test_a_table_has_a_bounded_number_of_runs_and_rewrites_a_row_a_few_times(lives, delay):
    table = run(1, lives, delay=delay)
    assert table.most <= room(table)
    assert table.rewritten <= 3 * table.stored


@pytest.mark.parametrize("lives", LIVES, ids=str)
def test_runs_stay_few_also_if_one_step_has_more_rows_than_the_budget(lives):
    table = run(2, lives, budget=1)
    assert table.most <= room(table)
    assert table.rewritten <= 4 * table.stored


@pytest.mark.parametrize("life", [1, SECOND])
def test_rows_that_wait_for_a_silent_stream_do_not_pile_up_in_small_runs(life):
    table = run(1, (life,), stalled=True)
    assert sum(len(rows) for _, rows in table.rows.values()) == table.stored
    classes = {r.life for r in table.runs.values() if r.level > 0}
    assert table.most <= FAN_IN + len(classes) * (FAN_IN + MOST_INTERVALS)
    assert len(classes) <= 10


def test_rows_that_may_come_very_late_do_not_pile_up_in_small_runs():
    assert run(1, (SECOND,), delay=100 * SECOND).most <= 3 * (FAN_IN + MOST_INTERVALS)


def test_when_all_is_silent_merging_comes_to_an_end():
    table = run(2, (3 * SECOND, 60 * SECOND), steps=100)
    for _ in range(200):
        merge = choose_merge("a(k)", list(table.runs.values()), 2, PLENTY, 10**12)
        if merge is None:
            break
        table.rewritten = 0
        live = [table.rows[name] for name in merge.runs]
        for name in merge.runs:
            del table.runs[name], table.rows[name]
        for task in range(2):
            merged = merge_runs(table.table, [rows for t, rows in live if t == task], {})
            for n, (life, rows) in enumerate(lay_out(table.table, merged, merge.life) if merged else ()):
                table._keep(f"runs/{100 + _}-{task}-{n}.arrow", 100, task, merge.level, life, rows)
    assert merge is None
    groups = [(r.life, interval_of(r.min_time, r.life)) for r in table.runs.values() if r.level > 0]
    assert max(groups.count(g) for g in groups) <= 2


# ----------------------------------------------------------------------------------------------- the choice itself


def fresh(count, rows=10):
    return [entry_of(f"runs/{n}-a.arrow", step=n, rows=rows) for n in range(count)]


def test_fresh_runs_are_merged_once_there_are_enough_for_each_task():
    assert choose_merge("a(k)", fresh(FAN_IN - 1), 1, PLENTY, 0) is None
    merge = choose_merge("a(k)", fresh(FAN_IN), 1, PLENTY, 0)
    assert (merge.table, merge.level) == ("a(k)", 1)
    assert merge.runs == tuple(f"runs/{n}-a.arrow" for n in range(FAN_IN))
    assert choose_merge("a(k)", fresh(FAN_IN), 2, PLENTY, 0) is None


def test_the_oldest_runs_go_first_within_the_budget():
    merge = choose_merge("a(k)", fresh(FAN_IN)[::-1], 1, 55, 0)
    assert merge.runs == tuple(f"runs/{n}-a.arrow" for n in range(5))


def test_an_interval_is_merged_once_more_when_it_is_closed():
    runs = [entry_of(f"runs/{n}-a.arrow", level=1, life=128, min_time=17, max_time=19) for n in range(2)]
    assert choose_merge("a(k)", runs, 1, PLENTY, 23) is None
    merge = choose_merge("a(k)", runs, 1, PLENTY, 24)
    assert (merge.runs, merge.level, merge.life) == (("runs/0-a.arrow", "runs/1-a.arrow"), 2, 128)


@given(st.integers(-(2**61), 2**61), st.integers(0, 2**60))
def test_a_wider_link_joins_two_intervals_to_one(time, life):
    assert interval_of(time, wider(life)) == interval_of(time, life) // 2


@given(st.integers(1, 2**60))
def test_a_wider_link_is_longer(life):
    assert wider(life) > life


def test_runs_from_before_a_query_was_dropped_are_written_anew_when_there_is_nothing_else_to_do():
    old = [entry_of(f"runs/{n}-a.arrow", level=1, life=80, min_time=12, max_time=12, version=3) for n in range(1)]
    new = [entry_of("runs/1-b.arrow", level=1, life=80, min_time=70, max_time=75, version=4)]
    assert choose_merge("a(k)", old + new, 1, PLENTY, 0, stale=3) is None
    merge = choose_merge("a(k)", old + new, 1, PLENTY, 0, stale=4)
    assert (merge.runs, merge.level, merge.life) == (("runs/0-a.arrow",), 1, 80)
    assert choose_merge("a(k)", [*fresh(FAN_IN), *old], 1, PLENTY, 0, stale=4).runs == tuple(
        r.name for r in fresh(FAN_IN)
    )


def test_a_large_run_is_written_anew_when_half_of_it_is_out_of_reach():
    facts = {"level": 2, "life": 80, "min_time": 100, "max_time": 110, "until": (("b", 190), ("c", 150))}
    large, small = entry_of("runs/0-a.arrow", rows=5000, **facts), entry_of("runs/1-a.arrow", rows=5, **facts)
    for reached in ({"b": 184, "c": 150}, {"b": 186, "c": 140}, {"b": 186}, {}):
        assert choose_merge("a(k)", [large, small], 2, PLENTY, 0, reached=reached) is None
    merge = choose_merge("a(k)", [large, small], 2, PLENTY, 0, reached={"b": 185, "c": 150})
    assert (merge.runs, merge.level, merge.life) == (("runs/0-a.arrow",), 2, 80)


def test_where_windows_count_rows_older_runs_are_merged_along_with_fresh_ones():
    old = [entry_of(name=f"old{n}", level=1, life=FOREVER) for n in range(3)]
    fresh = [entry_of(name=f"new{n}", level=0, life=FOREVER) for n in range(FAN_IN)]
    merge = choose_merge("t", [*old, *fresh], 1, PLENTY, NEVER, counted=True)
    assert set(merge.runs) == {run.name for run in [*old, *fresh]}
    assert choose_merge("t", [*old, *fresh[1:]], 1, PLENTY, NEVER, counted=True) is None
    assert set(choose_merge("t", [*old, *fresh], 1, PLENTY, NEVER).runs) == {run.name for run in fresh}


@pytest.mark.parametrize("apart", [True, False])
def test_runs_of_an_aggregate_are_written_anew_at_once_when_groups_have_ended_and_they_are_few(apart):
    runs = fresh(3)
    names = tuple(sorted(run.name for run in runs))

    def chosen(given, *, ended):
        merge = choose_settling("t", given, 1, PLENTY, 0, 0, apart=apart, ended=ended)
        return None if merge is None else tuple(sorted(merge.runs))

    assert chosen(runs, ended=True) == names
    assert chosen(runs, ended=False) is None
    assert chosen([], ended=True) is None
    assert chosen(fresh(3, rows=FEW), ended=True) is None
