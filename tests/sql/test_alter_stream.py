"""ALTER STREAM .. SET: what the statement says, and the declaration that it leaves."""

from dataclasses import replace

import pytest

from penstock.errors import RegistrationError, SqlError
from penstock.model import Column, Reader, Stream
from penstock.sql import AlterStream, altered, parse_script
from penstock.sql.alter_stream import alike_but_for_changes

TIMED = Stream(
    "s", (Column("ts", "timestamp"), Column("n", "bigint")), "ts", 5_000_000, sequence="n",
    source=Reader("parquet", (("maxFilesPerTrigger", "8"), ("path", "old"))),
)  # fmt: skip
COUNTED = replace(TIMED, columns=(Column("ts", "int"), Column("n", "bigint")), sequence=None, source=None)


def one(text):
    (statement,) = parse_script(text)
    return statement


@pytest.mark.parametrize(
    ("words", "statement"),
    [
        ("DELAY INTERVAL 10 SECONDS", AlterStream("s", 10_000_000)),
        ("DELAY INTERVAL '1' MINUTE", AlterStream("s", 60_000_000)),
        ("DELAY 1 MINUTE 30 SECONDS", AlterStream("s", 90_000_000)),
        ("DELAY 2", AlterStream("s", 2, "number")),
        ("DELAY 0", AlterStream("s", 0, "number")),
        ("DELAY 100 ROWS", AlterStream("s", 100, "rows")),
        ("OPTIONS (path 'new')", AlterStream("s", path="new")),
        ("OPTIONS (PATH = 'new')", AlterStream("s", path="new")),
    ],
)
def test_a_stream_gets_another_delay_or_path(words, statement):
    assert one(f"ALTER STREAM s SET {words}") == statement


@pytest.mark.parametrize(
    ("words", "column", "fragment"),
    [
        ("RETAIN 2", 16, "Expected ADVANCE TO, SET DELAY or SET OPTIONS"),
        ("SET DELAY", 25, "Expected a delay"),
        ("SET DELAY 0 ROWS", 26, "whole number above zero"),
        ("SET DELAY - INTERVAL 1 SECOND", 28, "Expected a length"),
        ("SET DELAY INTERVAL -1 SECOND", 26, "must not be negative"),
        ("SET DELAY 1 MONTH", 28, "no fixed length"),
        ("SET DELAY 1.5", 26, "needs a unit"),
        ("SET OPTIONS (maxFilesPerTrigger '1')", 28, "Option maxFilesPerTrigger cannot be changed"),
        ("SET OPTIONS (path 'a', x 'b')", 28, "Option x cannot be changed"),
        ("SET OPTIONS ()", 28, "No option is given"),
        ("SET OPTIONS (path 'a') x", 39, "Unexpected"),
    ],
)
def test_what_cannot_be_said_of_a_stream(words, column, fragment):
    with pytest.raises(SqlError) as caught:
        one(f"ALTER STREAM s {words}")
    assert fragment in caught.value.message
    assert caught.value.column == column


def test_a_change_leaves_everything_else_as_it_was():
    assert altered(TIMED, AlterStream("s", 7)) == replace(TIMED, delay=7)
    assert altered(TIMED, AlterStream("s", 7, "rows")) == replace(TIMED, delay=None, delay_rows=7)
    assert altered(replace(TIMED, delay=None, delay_rows=7), AlterStream("s", 9)) == replace(TIMED, delay=9)
    moved = altered(TIMED, AlterStream("s", path="new"))
    assert moved == replace(TIMED, source=Reader("parquet", (("maxFilesPerTrigger", "8"), ("path", "new"))))
    assert altered(COUNTED, AlterStream("s", 7, "number")) == replace(COUNTED, delay=7)


@pytest.mark.parametrize(
    ("stream", "change", "cause"),
    [
        (TIMED, AlterStream("s", 7, "number"), "is a time; write for example SET DELAY INTERVAL 10 SECONDS"),
        (COUNTED, AlterStream("s", 7), "is an integer, so that its delay has no unit; write for example SET DELAY 2"),
        (COUNTED, AlterStream("s", 7, "rows"), "no SEQUENCE BY"),
        (COUNTED, AlterStream("s", path="new"), "not read from a path that it declares"),
    ],
)
def test_a_change_that_does_not_suit_the_stream_is_refused(stream, change, cause):
    with pytest.raises(RegistrationError, match=cause):
        altered(stream, change)


def test_only_delay_and_path_can_change():
    assert alike_but_for_changes(TIMED, altered(TIMED, AlterStream("s", 7, "rows")))
    assert alike_but_for_changes(TIMED, altered(TIMED, AlterStream("s", path="new")))
    assert not alike_but_for_changes(TIMED, replace(TIMED, late="drop"))
    assert not alike_but_for_changes(TIMED, replace(TIMED, columns=COUNTED.columns))
    assert not alike_but_for_changes(TIMED, replace(TIMED, source=Reader("json", (("path", "old"),))))
