"""Results of a join as rows of a stream: what its readers may know before progress has passed it."""

from types import SimpleNamespace

import pytest

from penstock.step.derived import _momentary


def aggregate(*, flush=None, paned=False, every=None, windows=(None, None)):
    members = [SimpleNamespace(paned=False, every=None), SimpleNamespace(paned=paned, every=every)]
    plan = SimpleNamespace(queries=[SimpleNamespace(window=window) for window in windows])
    return SimpleNamespace(flush=flush, members=members, plan=plan)


def test_groups_that_are_single_moments_are_complete_before_the_rest():
    assert _momentary(aggregate())


@pytest.mark.parametrize("one", [{"flush": (1, 0)}, {"paned": True}, {"every": 5}, {"windows": (None, "a window")}])
def test_not_if_a_result_comes_slowly_again_or_has_a_window(one):
    assert not _momentary(aggregate(**one))
