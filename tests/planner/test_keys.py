import pytest

from penstock.model import Expression, Ref
from penstock.planner.keys import common_type, normalized

K = Expression((Ref(0, "k"),), Ref(0, "k"), total=True)


@pytest.mark.parametrize(
    ("types", "common"),
    [
        (["bigint", "bigint"], "bigint"),
        (["int", "tinyint"], "bigint"),
        (["int", "double"], "double"),
        (["float", "float"], "double"),
        (["float", "bigint", "double"], "double"),
        (["string", "string"], "string"),
        (["timestamp", "timestamp"], "timestamp"),
        (["date", "date", "date"], "date"),
        (["boolean", "boolean"], "boolean"),
        (["binary", "binary"], "binary"),
        (["decimal(10,2)", "decimal(10,2)"], "decimal(10,2)"),
        (["decimal(10,2)", "decimal(6,4)"], "decimal(12,4)"),
        (["decimal(4,2)", "int"], "decimal(12,2)"),
        (["decimal(38,0)", "decimal(38,10)"], None),
        (["decimal(10,2)", "double"], None),
        (["string", "bigint"], None),
        (["string", "binary"], None),
        (["string", "decimal(10,2)"], None),
        (["timestamp", "timestamp_ntz"], None),
        (["date", "timestamp"], None),
        (["boolean", "int"], None),
        (["unknown", "int"], None),
        (["array<int>", "array<int>"], None),
    ],
)
def test_the_common_type_of_a_key_loses_no_meaning(types, common):
    assert common_type(types) == common
    assert common_type(types[::-1]) == common


def test_a_column_that_is_in_the_common_type_stays_as_it_is():
    assert normalized(K, "bigint", "bigint") == (Ref(0, "k"),)


def test_another_column_is_cast():
    assert normalized(K, "int", "bigint") == ("CAST(", Ref(0, "k"), " AS BIGINT)")
    assert normalized(K, "int", "decimal(12,2)") == ("CAST(", Ref(0, "k"), " AS DECIMAL(12,2))")


def test_doubles_lose_the_sign_of_zero_also_if_they_are_declared_as_doubles():
    text = "".join(p if isinstance(p, str) else p.column for p in normalized(K, "double", "double"))
    assert text == "(CASE WHEN CAST(k AS DOUBLE) = 0 THEN 0D ELSE CAST(k AS DOUBLE) + 0D END)"
