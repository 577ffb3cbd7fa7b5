import pytest

from penstock.errors import SqlError
from penstock.sql.dialect import generate, parse_select, tokenize
from penstock.sql.position import Text


def canonical(text):
    source = Text(text)
    return generate(parse_select(source, tokenize(source)))


def test_functions_are_kept_as_they_are_written():
    text = "SELECT DATEDIFF(a, b), NVL(a, b), DATE_ADD(a, 1), LOG(2, a), SPLIT(a, ',') FROM t"
    assert canonical(text) == text


def test_brackets_after_an_expression_are_still_an_index():
    text = "SELECT a.x[0] FROM a JOIN b ON a.x[1] = b.y[2]"
    assert canonical(text) == text


@pytest.mark.parametrize(
    ("written", "meant"),
    [("'it''s'", r"'it\'s'"), ("'say \"\" x'", "'say \"\" x'"), (r"'\\'", r"'\\'"), ("r'\\d'", r"'\\d'")],
)
def test_strings_mean_what_they_mean_in_spark(written, meant):
    assert canonical(f"SELECT {written} FROM a") == f"SELECT {meant} FROM a"


@pytest.mark.parametrize(("text", "column"), [("SELECT 'a -- b", 8), ("SELECT /* x", 8), ("SELECT 'it\\'s', `b", 17)])
def test_what_is_not_closed_is_shown_where_it_opens(text, column):
    with pytest.raises(SqlError) as caught:
        tokenize(Text(text))
    assert caught.value.column == column
