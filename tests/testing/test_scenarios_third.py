"""The third part of the scenarios, see `test_scenarios`."""

import pytest

from tests.testing.scenarios import none_is_wrong, parts

pytestmark = pytest.mark.filterwarnings("ignore:.*RANGE ALL")


@parts("third")
def test_every_answer_is_the_references_and_all_invariants_hold(first):
    none_is_wrong(first)
