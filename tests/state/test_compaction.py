"""Five hundred steps of one table with the merge kernels but few rows: how many runs, how often a row is rewritten."""

from dataclasses import dataclass, field

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernels.merge import fresh_runs, lay_out, merge_runs
from penstock.model.time import FOREVER, NEVER, SECOND
from penstock.state.compaction import (
    FAN_IN,
    FEW,
    HANDFUL,
    INTERVALS,
    LEAST_GONE,
    MOST_GONE,
    MOST_INTERVALS,
    choose_merge,
    choose_merges,
    choose_settling,
    choose_trims,
    interval_of,
    wider,
)
from penstock.state.run import PARTS, Rows, RunEntry, expiry, fading
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
        merges = choose_merges("a(k)", live, self.tasks, self.budget, own, 0, progress)
        merged_names = [name for merge in merges for name in merge.runs]
        assert len(merged_names) == len(set(merged_names))
        added = []
        for task in range(self.tasks):
            fresh = self._rows(times[task :: self.tasks])
            added += [(task, 0, life, piece) for life, piece in fresh_runs(self.table, fresh)]
            for merge in merges:
                mine = [self.rows[name][1] for name in merge.runs if self.rows[name][0] == task]
                merged = merge_runs(self.table, mine, progress)
                if merged is not None:
                    self.rewritten += len(merged)
                    added += [(task, merge.level, life, r) for life, r in lay_out(self.table, merged, merge.life)]
        for name in gone.union(merged_names):
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
            fades=fading(rows, lives, FOREVER),
        )

    def in_reach(self, other):
        """Rows held, and those of them that a row of the other stream can still meet."""
        held = [rows for name, (_, rows) in self.rows.items() if not self.runs[name].expired({"b": other})]
        own = {e.id: life for e, life in zip(self.entries, self.lives, strict=True)}
        lives = [np.array([own[role] for (role,) in rows.patterns])[rows.bits] for rows in held]
        reached = [rows.time + life > other for rows, life in zip(held, lives, strict=True)]
        return sum(map(len, held)), sum(int(rows.sum()) for rows in reached)


def steps_of(tasks, lives, *, delay=0, stalled=False, budget=PLENTY, steps=500, rows=8):
    """One step a second, with so many rows of each life and task over the last second, in disorder up to the delay."""
    table = Simulated(tasks, lives, budget)
    for number in range(steps):
        now = number * SECOND
        times = [now - n * SECOND // rows - (n % 3) * delay // 3 for n in range(rows) for _ in range(tasks)]
        progress = now - SECOND - delay
        table.step(number, times, progress, NEVER if stalled else progress)
        yield table, progress


def run(tasks, lives, **how):
    *_, (table, _) = steps_of(tasks, lives, **how)
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


@pytest.mark.parametrize("lives", [(60,), (30, 60), (4, 12, 16, 35, 60), tuple(range(4, 64, 4))], ids=str)
def test_no_more_than_a_twentieth_is_held_too_long_once_windows_are_full(lives):
    lives = tuple(life * SECOND for life in lives)
    seen = 0
    for number, (table, progress) in enumerate(steps_of(2, lives, steps=100, rows=60 * 10 // len(lives), delay=SECOND)):
        held, in_reach = table.in_reach(progress)
        if number >= 70:
            assert held <= 1.05 * in_reach
            seen += held > in_reach
    assert seen  # else rows would not be held in runs at all
    assert table.rewritten <= 3 * table.stored


def fading_run(name, rows, gone_at, **facts):
    """A run whose parts go at these times, one after the other."""
    fades = tuple(gone_at)
    assert len(fades) == PARTS - 1
    return entry_of(name, rows=rows, until=(("b", fades[-1] + 1), ("c", 5)), fades=fades, **facts)


def test_runs_are_written_anew_when_too_many_of_their_rows_are_out_of_reach():
    mixed = fading_run("runs/0-a.arrow", 8000, [10, 20, 30, 40, 50, 60, 70], level=2, life=80)
    young = fading_run("runs/1-a.arrow", 40_000, [90] * 7, level=1, life=80)
    fresh = fading_run("runs/2-a.arrow", 800, [10] * 7)
    runs = [young, fresh, mixed]

    def trimmed(**reached):
        return [(t.runs, t.level, t.life) for t in choose_trims("a(k)", runs, PLENTY, reached)]

    for reached in ({"b": 9, "c": 9}, {"b": 30, "c": 9}, {"b": 30}, {}):
        assert trimmed(**reached) == []  # as far as the slowest stream has come, all rows are in reach
    # An eighth of the large run is no good part of it, but of the small one all but an eighth is gone.
    assert trimmed(b=10, c=10) == [((fresh.name,), 1, 0)]
    assert trimmed(b=20, c=20) == [((fresh.name,), 1, 0), ((mixed.name,), 2, 80)]
    # Enough is dropped, and no more than that, within the budget.
    most = [fading_run(f"runs/{n}-a.arrow", 10_000, [10] * 2 + [90] * 5, level=1) for n in range(10)]
    reached = {"b": 10, "c": 10}
    gone, in_reach = 25_000, 75_000
    assert sum(run.gone(reached) for run in most) == gone
    (trim,) = choose_trims("a(k)", most, PLENTY, reached)
    assert gone - 2500 * len(trim.runs) <= LEAST_GONE * in_reach < gone - 2500 * (len(trim.runs) - 1)
    (trim,) = choose_trims("a(k)", most, 15_000, reached)
    assert len(trim.runs) == 2
    assert HANDFUL > 8 * 7 / 8
    few = fading_run("runs/0-a.arrow", 8, [10] * 7)
    assert few.gone(reached) > MOST_GONE * few.rows
    assert choose_trims("a(k)", [few], PLENTY, reached) == []


def test_a_run_is_merged_once_in_a_step():
    old = fading_run("runs/old.arrow", 8000, [10] * 7, level=0, life=80)
    runs = [old, *fresh(FAN_IN)]
    trim, merge = choose_merges("a(k)", runs, 1, PLENTY, 0, 0, {"b": 10, "c": 10})
    assert (trim.runs, trim.level) == ((old.name,), 1)
    assert old.name not in merge.runs
    assert choose_merges("a(k)", [old], 1, PLENTY, 0, 0, {"b": 10, "c": 10}, counted=True) == []


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


def test_runs_of_a_join_are_written_anew_link_by_link_when_keys_have_ended_and_they_are_few():
    runs = [*fresh(2), entry_of("runs/far.arrow", level=2, life=80, rows=10)]

    def chosen(rows, **how):
        return choose_merges(
            "a(k)", [msgspec.structs.replace(run, rows=rows) for run in runs], 1, PLENTY, 0, 0, {}, **how
        )

    assert chosen(10) == chosen(FEW, ended=True) == []
    few = chosen(10, ended=True)
    assert [(merge.level, merge.life, len(merge.runs)) for merge in few] == [(1, 0, 2), (2, 80, 1)]
    # Of rows that are counted, how long one stays depends on all others.
    assert chosen(10, ended=True, counted=True) == []
