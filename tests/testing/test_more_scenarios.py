"""The other half of the scenarios, see `test_scenarios`."""

import pytest

from penstock.testing.__main__ import tried
from tests.testing.test_scenarios import AT_ONCE, HALF

pytestmark = pytest.mark.filterwarnings("ignore:.*RANGE ALL")


@pytest.mark.parametrize("first", range(HALF, 2 * HALF, AT_ONCE))
def test_every_answer_is_the_references_and_all_invariants_hold(first):
    _, wrong = tried(range(first, first + AT_ONCE))
    assert not wrong
