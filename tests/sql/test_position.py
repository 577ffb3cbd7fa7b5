from hypothesis import given
from hypothesis import strategies as st

from penstock.sql.position import Position, Text


@given(st.text("ab\n", max_size=20), st.text("xy\n", min_size=1, max_size=20), st.data())
def test_a_place_in_a_part_is_the_same_place_in_the_whole(before, part, data):
    whole = Text(before + part)
    cut = Text(part, whole.text, whole.position(len(before)))
    offset = data.draw(st.integers(0, len(part)))
    assert cut.position(offset) == whole.position(len(before) + offset)


def test_lines_and_columns_count_from_one():
    assert Text("a\nbc").position(0) == Position(1, 1)
    assert Text("a\nbc").position(3) == Position(2, 2)
