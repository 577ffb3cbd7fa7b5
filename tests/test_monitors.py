"""The monitors find what they are there to find, and find nothing in the joins of random workloads."""

import pytest
from hypothesis import given, settings

from penstock.model.time import FOREVER, NEVER
from penstock.reference import admit, combinations, output_progress, reachable, result_time
from tests.effort import examples
from tests.monitors import check_accounts, check_bounded, check_ordered, check_progress
from tests.workloads import workload


def test_a_grammatical_output_passes():
    check_progress([([3, 9], NEVER), ([], 5), ([5, 7], 5), ([6], FOREVER)])


@pytest.mark.parametrize("steps", [[([], 5), ([4], 5)], [([], 5), ([], 4)]])
def test_a_result_behind_progress_and_progress_that_falls_are_found(steps):
    with pytest.raises(AssertionError):
        check_progress(steps)


def test_results_of_the_step_that_moves_progress_come_before_it():
    check_progress([([1], 7), ([7], 7)])


@pytest.mark.parametrize("steps", [[([3, 2], 9)], [([3], 4), ([2], 9)], [([3], 3)]])
def test_disorder_and_early_release_are_found(steps):
    with pytest.raises(AssertionError):
        check_ordered(steps)


def test_a_row_that_nobody_judged_is_found():
    check_accounts({"rows": 7, "accepted": 3, "late": 2, "bad": 1, "punctuations": 1})
    with pytest.raises(AssertionError):
        check_accounts({"rows": 7, "accepted": 3, "late": 2, "bad": 1})


def test_state_beyond_its_bound_and_state_after_the_end_are_found():
    check_bounded([1, 2, 0], lambda _: 2, ended=True)
    for held, ended in (([3], False), ([1], True)):
        with pytest.raises(AssertionError):
            check_bounded(held, lambda _: 2, ended=ended)


@settings(max_examples=examples(25), deadline=None)
@given(workload(late=True))
def test_joins_state_sound_progress_and_can_be_put_in_order(work):
    judged = {name: admit(stream, work.arrivals(name)) for name, stream in work.streams.items()}
    for name, steps in judged.items():
        for batch, step in zip(work.arrivals(name), steps, strict=True):
            counts = {kind: len(getattr(step, kind)) for kind in ("accepted", "late", "bad", "punctuations")}
            check_accounts({"rows": len(batch), **counts})
    for query in work.parsed:
        rows = {name: [] for name in work.streams}
        plain, released, known = [], [], 0
        waiting = []
        for number in range(len(work.batches)):
            for name, steps in judged.items():
                rows[name] += steps[number].accepted
            times = sorted(result_time(query, work.streams, c) for c in combinations(query, work.streams, rows))
            # A result is found in the step of its last row, so the new ones are those that were not there before.
            fresh = list(times)
            for time in [t for step, _ in plain for t in step]:
                fresh.remove(time)
            progress = {name: steps[number].progress for name, steps in judged.items()}
            stated = output_progress(query, work.streams, progress)
            plain.append((fresh, stated))
            waiting = sorted([*waiting, *fresh])
            released.append(([t for t in waiting if t < stated], stated))
            waiting = [t for t in waiting if t >= stated]
            known = len(times)
        check_progress(plain)
        check_ordered(released)
        assert known == sum(len(step) for step, _ in released) + len(waiting)
        ended = reachable([query], work.streams, rows, dict.fromkeys(work.streams, FOREVER))
        check_bounded([sum(map(len, ended.values()))], lambda _: 0, ended=True)
