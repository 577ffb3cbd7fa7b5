"""When the upkeep of results is due."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.runtime.results.retention import FIRST_UPKEEP, UPKEEP_EVERY, following_upkeep


@given(st.integers(-1, 10_000))
def test_the_next_round_of_upkeep_comes_within_a_period_and_restarts_do_not_put_it_off(step):
    upkeep = following_upkeep(step)
    assert step < upkeep <= step + UPKEEP_EVERY
    assert upkeep % UPKEEP_EVERY == FIRST_UPKEEP % UPKEEP_EVERY
    assert all(following_upkeep(between) == upkeep for between in range(step, upkeep))
    assert following_upkeep(upkeep) == upkeep + UPKEEP_EVERY


def test_the_first_round_comes_after_a_few_steps():
    assert following_upkeep(-1) == FIRST_UPKEEP
