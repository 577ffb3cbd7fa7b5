"""Random stories, by engine and model alike: `python -m penstock.testing` runs any of them, and more.

Queries of every kind come and go, rows are late, streams idle, engines die at any point, stores and sinks fail, parts
of steps are retried. `test_scenarios_first` and the files after it run a part each; here are what they report, and the
long run.
"""

import pytest

from penstock.testing.__main__ import all_tried, empty, table, tried
from penstock.testing.generate import scenario
from penstock.testing.queries import EARLY
from penstock.testing.runner import Story

MANY = 10_000

pytestmark = pytest.mark.filterwarnings("ignore:.*RANGE ALL")


def test_the_table_names_what_was_tried_and_what_never_was():
    cells, _ = tried(range(6))
    (kind, fault, strategy), count = cells.most_common(1)[0]
    assert count > 0
    assert (kind, fault, strategy) not in empty(cells)
    assert any(line.startswith(kind) for line in table(cells))


def test_windows_are_shown_early_and_folders_are_linked():
    """Else nothing would have been checked of them."""
    seeds = range(300)
    early = next(seed for seed in seeds if any(query.kind == EARLY for query in scenario(seed).queries))
    linked = next(seed for seed in seeds if any(fault.kind == "after_link" for fault in scenario(seed).faults))
    story = Story(scenario(early))
    story.tell()
    assert story.early
    cells, wrong = tried([linked])
    assert not wrong
    assert any(fault == "after_link" for _, fault, _ in cells)


@pytest.mark.long
def test_of_many_scenarios_none_is_wrong_and_nothing_was_never_tried():
    """Every kind of query meets every fault under every strategy."""
    cells, wrong = all_tried(range(MANY), jobs=2)
    assert not wrong
    assert not empty(cells)
