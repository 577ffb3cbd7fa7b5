import pytest

from penstock.sql import parse_script
from penstock.sql.types import decimals_widen, family


@pytest.mark.parametrize(
    ("written", "simple"),
    [
        ("INT", "int"), ("integer", "int"), ("LONG", "bigint"), ("BIGINT", "bigint"), ("BYTE", "tinyint"),
        ("SHORT", "smallint"), ("REAL", "float"), ("STRING", "string"), ("DOUBLE", "double"), ("BOOLEAN", "boolean"),
        ("TIMESTAMP", "timestamp"), ("TIMESTAMP_LTZ", "timestamp"), ("TIMESTAMP_NTZ", "timestamp_ntz"),
        ("DATE", "date"), ("BINARY", "binary"), ("DECIMAL(10,2)", "decimal(10,2)"), ("DECIMAL", "decimal(10,0)"),
        ("NUMERIC(5)", "decimal(5,0)"), ("VARCHAR(10)", "varchar(10)"), ("ARRAY<ARRAY<INT>>", "array<array<int>>"),
        ("MAP<STRING, ARRAY<LONG>>", "map<string,array<bigint>>"),
        ("STRUCT<a: INT, b: STRUCT<c: DECIMAL(3, 1)>>", "struct<a:int,b:struct<c:decimal(3,1)>>"),
        ("STRUCT<a INT>", "struct<a:int>"), ("STRING COLLATE UTF8_LCASE", "string collate UTF8_LCASE"),
    ],
)  # fmt: skip
def test_types_are_written_as_spark_names_them(written, simple):
    (statement,) = parse_script(f"CREATE STREAM s (c {written}, t INT, WATERMARK FOR t AS t) USING rate")
    assert statement.stream.columns[0].type == simple


def test_families_compare_without_loss():
    assert family("tinyint") == family("bigint") == "integer"
    assert family("string collate UTF8_LCASE") != family("string")
    assert decimals_widen("decimal(10,2)", "int")
    assert not decimals_widen("decimal(38,0)", "decimal(10,9)")
