"""What files of scenarios share: they divide the scenarios of `make test`, so that its workers share them evenly."""

import pytest

from penstock.testing.__main__ import tried

FILES = ("first", "second", "third", "fourth")
EACH, AT_ONCE = 250, 50


def parts(file):
    """The first seeds of a file's parts."""
    start = FILES.index(file) * EACH
    return pytest.mark.parametrize("first", range(start, start + EACH, AT_ONCE))


def none_is_wrong(first):
    _, wrong = tried(range(first, first + AT_ONCE))
    assert not wrong
