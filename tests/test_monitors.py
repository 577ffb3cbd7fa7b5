"""The monitors find what they are there to find."""

import pytest

from penstock.model.time import FOREVER, NEVER
from tests.monitors import check_accounts, check_bounded, check_ordered, check_progress


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
