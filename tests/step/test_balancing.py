"""The work of tasks by bucket, and the map of buckets that follows from it."""

from dataclasses import replace

import numpy as np
import pytest

from penstock.columns.hash import hash_bigint
from penstock.state.balance.decision import Parameters
from penstock.state.bucket_counters import BucketCounters, together
from penstock.state.buckets import BucketMap, Split, bucket_of
from penstock.state.manifest import Balance, Entry, Manifest
from penstock.step.balancing import FEW, Balancer, map_of
from penstock.step.events import Batch, TakeOver
from penstock.step.phases import fold
from penstock.step.plan import plan_step
from penstock.step.report import Report
from tests.step.scene import state_of, step, work

JOIN = "SELECT a.v, b.v AS w FROM a [RANGE 50], b [RANGE 50] WHERE a.k = b.k"
SELF = "SELECT x.v, y.v AS w FROM a [RANGE 50] x, a [RANGE 50] y WHERE x.k = y.k"
ROWS = [(stream, n, n % 9 if n % 3 else 4, n) for n in range(60) for stream in "ab"]
HOT = int(bucket_of(hash_bigint(np.array([4])))[0])


def with_map(state, of):
    return replace(state, manifest=replace(state.manifest, balance=Balance(of.starts, of.splits, 0.0)))


def test_the_work_of_all_buckets_is_that_of_all_tables():
    state, _ = step(state_of(JOIN), Batch(0, "x"), ROWS[:60])
    plan = plan_step(state, Batch(1, "y"), 2.0)
    reports = work(state, plan, ROWS[60:])
    found = together(counted for report in reports for counted in report.buckets)
    tables = [own for report in reports for own in report.counters.tables.values()]
    for bucketed, name in (("probed", "probed"), ("candidates", "candidates"), ("compared", "compared")):
        assert sum(getattr(found, bucketed)) == sum(getattr(own, name) for own in tables) > 0
    assert sum(found.rows) == sum(own.stored for own in tables) == 60
    assert sum(found.results) == sum(report.counters.query(1).results for report in reports)
    assert sum(found.written) == pytest.approx(sum(own.bytes_written for own in tables), abs=256)
    keys = np.array([row[2] for row in ROWS[60:]])
    wanted = np.bincount(bucket_of(hash_bigint(keys)), minlength=256)
    assert found.of("rows").tolist() == wanted.tolist()
    assert int(np.argmax(found.of("compared"))) == HOT


def test_stored_bytes_are_counted_from_time_to_time():
    state, _ = step(state_of(JOIN), Batch(0, "x"), ROWS[:60])
    state = replace(state, manifest=replace(state.manifest, step=15))
    reports = work(state, plan_step(state, Batch(1, "y"), 2.0), ROWS[60:])
    found = together(counted for report in reports for counted in report.buckets)
    assert sum(found.stored) == pytest.approx(sum(run.bytes for run in state.manifest.runs.values()), abs=256)


@pytest.mark.parametrize("join", [JOIN, SELF])
def test_a_split_bucket_is_probed_by_all_its_tasks_and_stored_by_one(join):
    """The same results as without, each once; and no task has all probes of the hot key."""
    plain = with_map(state_of(join, tasks=3), BucketMap.even(3))
    split = with_map(state_of(join, tasks=3), BucketMap((0, 80, 90), splits=(Split(HOT, (0, 1, 2)),)))
    answers, probes = [], []
    for state in (plain, split):
        counts = []
        for number, rows in enumerate((ROWS[:60], ROWS[60:])):
            plan = plan_step(state, Batch(number, str(number)), 1.0)
            reports = work(state, plan, rows)
            record, _ = fold(state, plan, reports, 1.0, 1.0)
            state = replace(state, manifest=state.manifest.apply(record))  # noqa: PLW2901
            counts.append(record.counters.query(1).results)
        answers.append(counts)
        told = [together(report.buckets) for report in reports]
        probes.append([int(own.of("probed")[HOT]) for own in told])
        stored = [int(own.of("rows")[HOT]) for own in told]
        assert sum(own > 0 for own in stored) == 1
    assert answers[0] == answers[1]
    assert sum(own > 0 for own in probes[0]) == 1
    assert sum(own > 0 for own in probes[1]) == 3
    assert sum(probes[0]) == sum(probes[1])


def test_rows_that_are_taken_over_are_not_shared():
    state, _ = step(state_of(JOIN), Batch(0, "x"), ROWS[:60])
    state = with_map(state, BucketMap((0, 9), splits=(Split(HOT, (0, 1)),)))
    assert plan_step(state, Batch(1, "y"), 2.0).task.buckets == BucketMap((0, 9), splits=(Split(HOT, (0, 1)),))
    assert plan_step(state, TakeOver(frozenset({1})), 2.0).task.buckets == BucketMap((0, 9))


def test_a_step_has_the_map_of_the_manifest_if_it_is_for_as_many_tasks():
    known = replace(Manifest(), balance=Balance((0, 3, 200), (Split(7, (1,)),), 5.0))
    assert map_of(known, 3, 256, balanced=True) == BucketMap((0, 3, 200), 256, (Split(7, (1,)),))
    assert map_of(known, 3, 256, balanced=False) == BucketMap.even(3)
    assert map_of(known, 2, 256, balanced=True) == BucketMap.even(2)
    assert map_of(known, 3, 128, balanced=True) == BucketMap.even(3, 128)
    assert map_of(Manifest(), 3, 256, balanced=True) == BucketMap.even(3)


def counted(*rows):
    told = BucketCounters(rows=tuple(rows), probed=tuple(100 * n for n in rows))
    return [Report(0, buckets=[told], phases={"probe": 2.0}), Report(1, phases={"probe": 1.0})]


SKEWED = [100_000, 100_000, *[10] * 14]
EAGER = Parameters(tau_m=10.0, least=1e-6)


def learned(balancer, steps, rows=SKEWED, start=0.0):
    """The manifest after so many steps, and the decisions."""
    manifest, found = replace(Manifest(), balance=None), []
    for number in range(steps):
        of = map_of(manifest, 2, 16, balanced=True)
        entry = Entry(step=number, clock=start + number)
        entry = balancer.learn(manifest, entry, of, counted(*rows))
        found += entry.decisions
        manifest = manifest.apply(entry)
    return manifest, found


def test_a_map_is_chosen_once_costs_are_known_and_is_part_of_the_record():
    balancer = Balancer(known=EAGER)
    assert learned(Balancer(known=EAGER), FEW - 1)[1] == []
    manifest, (decision,) = learned(balancer, FEW + 5)
    assert manifest.balance.starts == (0, 1)
    shown = decision.shown()
    assert (shown["mode"], shown["query"], shown["action"]) == ("balance", "weighted", "changed")
    assert (shown["step"], shown["before"], shown["after"]) == (FEW - 1, [0, 8], [0, 1])
    assert shown["old_cost"] > 1.9
    assert shown["new_cost"] < 1.1
    assert manifest.balance.at == FEW - 1


def test_without_a_policy_nothing_moves_and_costs_are_shown_still():
    balancer = Balancer(policy="off", known=EAGER)
    assert learned(balancer, FEW + 5) == (replace(Manifest(), step=FEW + 4, clock=float(FEW + 4)), [])
    assert balancer.status(BucketMap.even(2, 16))["hottest"][0]["bucket"] == 0


def test_a_refused_change_is_told_once():
    balancer = Balancer(known=replace(EAGER, split=False))
    _, found = learned(balancer, FEW + 5, [100_000, *[10] * 15])
    assert [d.decision.action for d in found] == ["refused"]


def test_the_status_shows_the_skew_and_the_hottest_buckets():
    balancer = Balancer(policy="off", known=EAGER)
    learned(balancer, FEW)
    found = balancer.status(BucketMap.even(2, 16))
    assert found["skew"] == pytest.approx(2.0 / 1.5, abs=1e-3)
    assert found["skew_by_costs"] == pytest.approx(2.0, abs=0.01)
    assert [hot["bucket"] for hot in found["hottest"][:2]] == [0, 1]
    assert found["hottest"][0]["share"] == pytest.approx(0.5, abs=0.01)
    assert found["hottest"][0]["seconds"] == pytest.approx(1.5, abs=0.03)
    shown = Balancer(known=EAGER)
    assert shown.explained(BucketMap.even(2, 16)) == ["buckets: weighted, nothing measured yet"]
    learned(shown, FEW)
    split = BucketMap((0, 8), 16, (Split(3, (0, 1)),))
    assert shown.explained(split)[0].startswith("buckets: weighted, the task with most work has 2.00 of the mean")
    assert shown.explained(split)[1] == "  bucket 3 is split over tasks 0, 1"
    assert shown.explained(BucketMap.even(1, 16)) == []
