"""The same stories with state in an object store: owners have leases, and each begins with a step of its own."""

import pytest

from penstock.testing.__main__ import all_tried, tried

COUNT = 36

pytestmark = pytest.mark.filterwarnings("ignore:.*RANGE ALL")
pytest.importorskip("obstore", reason="pip install 'penstock[object]'")


@pytest.mark.parametrize("first", range(0, COUNT, 12))
def test_every_answer_is_the_references_and_all_invariants_hold(first):
    _, wrong = tried(range(first, first + 12), "objects")
    assert not wrong


@pytest.mark.long
def test_of_many_scenarios_none_is_wrong():
    _, wrong = all_tried(range(1000), jobs=2, store="objects")
    assert not wrong
