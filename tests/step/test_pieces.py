"""Files as pieces: what is read of them, what is left to Spark, and how they are shared out."""

from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model import Column, Stream
from penstock.planner.build import build_network
from penstock.planner.derived import Ticks
from penstock.planner.network import StandingQuery
from penstock.sql import parse_query
from penstock.step import files
from penstock.step.files import FilePiece, row_groups
from penstock.step.pieces import Unreadable, shared_out
from penstock.step.selection import Selection
from penstock.step.taken import ticks_of

TYPES = {"ts": pa.int64(), "v": pa.int64(), "s": pa.string(), "unused": pa.string()}
STREAM = Stream(
    "a", (Column("ts", "bigint"), Column("v", "bigint"), Column("s", "string"), Column("unused", "string")), "ts", 0
)


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        (pa.array([1], pa.decimal128(5, 0)), "decimal"),
        (pa.array(["1"]), "string"),
        (pa.array([1], pa.uint32()), "uint32"),
    ],
)
def test_other_types_are_named(tmp_path, column, reason):
    pq.write_table(pa.table({"v": column}), tmp_path / "f.parquet")
    with pytest.raises(Unreadable, match=reason):
        list(row_groups(str(tmp_path / "f.parquet"), ["v"], TYPES))


def test_names_in_other_case_old_calendars_and_broken_files_are_left_to_spark(tmp_path):
    path = str(tmp_path / "f.parquet")
    for table in (
        pa.table({"V": [1]}),
        pa.table({"v": [1]}).replace_schema_metadata({"org.apache.spark.legacyDateTime": ""}),
        pa.table({"v": pa.array([Decimal(1)])}),
    ):
        pq.write_table(table, path)
        with pytest.raises(Unreadable):
            list(row_groups(path, ["v"], TYPES))
    Path(path).write_bytes(b"PAR1 no more")
    with pytest.raises(Unreadable, match=r"f\.parquet"):
        list(row_groups(path, ["v"], TYPES))
    piece = FilePiece("a", path, Selection.whole(TYPES))
    assert piece.split() == [piece]  # its reader reports what is wrong


def write(path, rows, group):
    columns = {"ts": range(rows), "v": range(rows), "s": [f"s{n}" for n in range(rows)], "unused": ["u" * 30] * rows}
    pq.write_table(pa.table(columns, pa.schema(TYPES)), path, row_group_size=group)
    return str(path)


def network():
    query = parse_query("SELECT v FROM a WHERE s = 's3'", {"a": STREAM})
    return build_network([StandingQuery(1, "q", query)], {"a": STREAM})


def test_only_columns_that_are_needed_are_read_and_whole_rows_where_they_are_asked_for(tmp_path):
    piece = FilePiece("a", write(tmp_path / "f.parquet", 10, 4), Selection.whole(TYPES))
    found = list(piece.read(network(), {"a": TYPES}))
    assert [columns.keys() for columns, _ in found] == [{"_ts", "ts", "v", "s"}] * 3
    assert [n for columns, _ in found for n in columns["v"].to_pylist()] == list(range(10))
    _, text = found[1]
    assert text(np.array([2])).to_pylist() == ['{"ts":6,"v":6,"s":"s6","unused":"' + "u" * 30 + '"}']


@given(
    rows=st.lists(st.integers(1, 40), max_size=4),
    group=st.integers(1, 15),
    shares=st.integers(1, 5),
    fair=st.integers(1, 3000),
)
def test_shares_hold_every_row_once_and_are_of_about_the_same_size(tmp_path_factory, rows, group, shares, fair):
    folder = tmp_path_factory.mktemp("files")
    pieces = [
        FilePiece("a", write(folder / f"{n}.parquet", count, group), Selection.whole(TYPES))
        for n, count in enumerate(rows)
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "FAIR_BYTES", fair)
        shared = shared_out(pieces, shares)
    assert len(shared) == shares
    planned, read = network(), []
    for piece in (piece for own in shared for piece in own):
        for columns, _ in piece.read(planned, {"a": TYPES}):
            read += [(piece.path, n) for n in columns["v"].to_pylist()]
    assert sorted(read) == sorted(
        (piece.path, n) for piece, count in zip(pieces, rows, strict=True) for n in range(count)
    )
    sizes = [sum(piece.bytes for piece in own) for own in shared]
    largest = max((piece.bytes for own in shared for piece in own), default=0)
    assert max(sizes) - min(sizes) <= largest


MOMENTS = st.integers(-30, 30)


@given(
    st.lists(st.tuples(MOMENTS, MOMENTS), max_size=8),
    st.integers(1, 7),
    st.none() | MOMENTS,
    st.tuples(st.integers(1, 20), st.none() | st.integers(1, 20)).flatmap(st.permutations),
)
def test_rows_count_at_the_ticks_that_the_plan_says(rows, slide, origin, lengths):
    ticks = Ticks(slide, origin, tuple(zip("pq", lengths, strict=True)))
    found = ticks_of(ticks, [pa.array([row[side] for row in rows], pa.int64()) for side in (0, 1)])
    expected = [(n, of[0] - 1, of[-1] - 1) for n, row in enumerate(rows) if (of := ticks.of(row))]
    assert list(zip(*(column.to_pylist() for column in found), strict=True)) == expected
