"""Thousands of random stories, by engine and model alike: `python -m penstock.testing` runs any of them, and more.

Queries of every kind come and go, rows are late, streams idle, engines die at any point, stores and sinks fail, parts
of steps are retried.
"""

import pytest

from penstock.testing.__main__ import empty, table, tried
from tests.effort import ALL

COUNT = 10_000 if ALL else 200
AT_ONCE = 50

pytestmark = pytest.mark.filterwarnings("ignore:.*RANGE ALL")


@pytest.mark.parametrize("first", range(0, COUNT, AT_ONCE))
def test_every_answer_is_the_references_and_all_invariants_hold(first):
    _, wrong = tried(range(first, first + AT_ONCE))
    assert not wrong


def test_the_table_names_what_was_tried_and_what_never_was():
    cells, _ = tried(range(3))
    (kind, fault, strategy), count = cells.most_common(1)[0]
    assert count > 0
    assert (kind, fault, strategy) not in empty(cells)
    assert any(line.startswith(kind) for line in table(cells))
