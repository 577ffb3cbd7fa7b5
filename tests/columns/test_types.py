import pyarrow as pa
import pytest

from penstock.columns.types import ATOMIC, arrow_type, decimal_digits, source_type, spark_type


@pytest.mark.parametrize("name", [*ATOMIC, "decimal(10,2)", "decimal(38, 0)"])
def test_a_type_of_a_source_is_that_of_streams_and_back(name):
    if name == "binary":
        assert source_type(name) is None
    else:
        assert source_type(name) == arrow_type(name)
        assert spark_type(arrow_type(name)) == name.replace(" ", "")


def test_decimals_arrays_and_what_is_not_known():
    assert decimal_digits("decimal(10, -2)") == (10, -2)
    assert decimal_digits("double") is None
    assert arrow_type("array<decimal(4,1)>") == pa.list_(pa.decimal128(4, 1))
    assert source_type("decimal(39,0)") is source_type("array<string>") is source_type("map<int,int>") is None
    with pytest.raises(
        ValueError, match=r"the type 'map<int,int>' is not supported here; use one of tinyint, .*decimals or arrays"
    ):
        arrow_type("map<int,int>")
