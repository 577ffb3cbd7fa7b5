"""Random stories, by engine and model alike: `python -m penstock.testing` runs any of them, and more.

Queries of every kind come and go, rows are late, streams idle, engines die at any point, stores and sinks fail, parts
of steps are retried. Half of them are here, the other half in `test_more_scenarios`, so that two workers share them.
"""

import pytest

from penstock.testing.__main__ import all_tried, empty, table, tried

HALF, AT_ONCE = 200, 50
MANY = 10_000

pytestmark = pytest.mark.filterwarnings("ignore:.*RANGE ALL")


@pytest.mark.parametrize("first", range(0, HALF, AT_ONCE))
def test_every_answer_is_the_references_and_all_invariants_hold(first):
    _, wrong = tried(range(first, first + AT_ONCE))
    assert not wrong


def test_the_table_names_what_was_tried_and_what_never_was():
    cells, _ = tried(range(6))
    (kind, fault, strategy), count = cells.most_common(1)[0]
    assert count > 0
    assert (kind, fault, strategy) not in empty(cells)
    assert any(line.startswith(kind) for line in table(cells))


@pytest.mark.long
def test_of_many_scenarios_none_is_wrong_and_nothing_was_never_tried():
    """Every kind of query meets every fault under every strategy."""
    cells, wrong = all_tried(range(MANY), jobs=2)
    assert not wrong
    assert not empty(cells)
