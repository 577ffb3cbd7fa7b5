"""Whether two statements say the same: white space matters inside quotes only."""

import pytest

from penstock.sql.words import words


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("SELECT a\n  FROM s", " SELECT a FROM  s ", True),
        ("SELECT a FROM s WHERE t = 'a  b'", "SELECT a FROM s WHERE t = 'a b'", False),
        ("SELECT `a  b` FROM s", "SELECT `a b` FROM s", False),
        ('SELECT "it  is"', 'SELECT "it is"', False),
        (r"SELECT 'it\'s  so',  x", r"SELECT 'it\'s  so', x", True),
        ("SELECT 'it''s  so',  x", "SELECT 'it''s so', x", False),
    ],
)
def test_only_what_is_quoted_keeps_its_spaces(one, other, same):
    assert (words(one) == words(other)) == same
