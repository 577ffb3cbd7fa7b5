"""Parcels hold rows of many tables once, in bounded pieces, and come out as they went in."""

import numpy as np
import pyarrow as pa

from penstock.columns import parcels
from penstock.columns.hash import hash_columns
from penstock.columns.parcels import PROBING, SEEN, STORED, pack, unite, unpack


def test_a_row_of_many_tables_has_room_for_marks_in_all_of_them():
    owners = np.tile(np.arange(3, dtype=np.int32), (100, 1))
    owners[70] = [2, -1, -1]
    places = parcels.place(owners, [n % 2 == 1 for n in range(100)], 3)
    for task, (index, masks) in enumerate(places):
        rows = parcels.Rows("a", {"_ts": pa.array(index)}, masks)
        assert index.tolist() == [0, 1, 2]
        for mark in (STORED, PROBING):
            assert [rows.marked(n, mark).tolist() for n in (0, 69, 99)] == [[task]] * 3
            assert rows.marked(70, mark).tolist() == ([0] if task == 2 else [])
        assert [rows.marked(n, SEEN).tolist() for n in (98, 99)] == [[], [0, 1, 2]]


def test_a_row_of_a_split_bucket_is_stored_by_one_task_probes_in_one_and_is_seen_by_those_with_turns():
    owners = np.array([[0, 0, 2, -1], [1, 1, 1, 1]], dtype=np.int32)
    probers = np.array([[2, 0, 1, -1], [1, 0, 1, 1]], dtype=np.int32)
    splits = np.array([[0, 0, -1, -1], [-1, -1, -1, -1]], dtype=np.int32)
    members = np.array([[True, False, True]])
    turns = parcels.Turns(probers, splits, members)
    for everywhere in (False, True):
        found = parcels.place(owners, [False, everywhere], 3, turns)
        rows = [parcels.Rows("a", {"_ts": pa.array(index)}, masks) for index, masks in found]

        def marked(table, mark, rows=rows):
            return [own.columns["_ts"].take(own.marked(table, mark)).to_pylist() for own in rows]

        assert marked(0, STORED) == [[0, 1], [], [2]]
        assert marked(0, PROBING) == [[1], [2], [0]]
        assert marked(0, SEEN) == [[], [], [0, 1]]  # the owner has them anyway
        assert marked(1, STORED) == [[], [0, 1, 2, 3], []]
        assert marked(1, PROBING) == [[1], [0, 2, 3], []]
        assert marked(1, SEEN) == [[0, 1, 2, 3] if everywhere else []] * 3


def test_parcels_are_bounded_in_size(monkeypatch):
    monkeypatch.setattr(parcels, "MOST_BYTES", 4096)
    texts = pa.array(["x" * (n % 200) for n in range(500)])
    rows = parcels.Rows("a", {"_ts": pa.array(range(500)), "s": texts}, np.ones((500, 1), dtype=np.uint64))
    bodies = list(pack(rows))
    assert len(bodies) > 10
    assert all(body.size < 2 * 4096 for body in bodies)
    whole = unite(unpack(body) for body in bodies)["a"]
    assert whole.columns["s"].to_pylist() == texts.to_pylist()
    assert whole.columns["_ts"].to_pylist() == list(range(500))


def test_texts_that_no_table_of_a_row_needs_stay_behind():
    owners = np.array([[0, 0, -1], [-1, 0, 0]], dtype=np.int32)
    ((index, masks),) = parcels.place(owners, [False, False], 1)
    columns = {
        "_ts": pa.array([1, 2, 3]),
        "s": pa.array(["x", "y", "z"]),
        "n": pa.array([4, 5, 6]),
        "t": pa.array(["u", "v", "w"]),
    }
    found = parcels.gathered(columns, {"s": [1], "n": [1], "t": [0, 1]}, index, masks)
    assert {name: column.to_pylist() for name, column in found.items()} == {
        "_ts": [1, 2, 3], "s": [None, "y", "z"], "n": [4, 5, 6], "t": ["u", "v", "w"]
    }  # fmt: skip
    ((index, masks),) = parcels.place(owners[:1], [False], 1)
    assert parcels.gathered(columns, {"s": [1]}, index, masks).keys() == {"_ts", "n", "t"}


def test_columns_that_one_parcel_lacks_are_null_where_it_is_united_with_others():
    one = parcels.Rows("a", {"_ts": pa.array([1]), "s": pa.array(["x"])}, np.ones((1, 1), dtype=np.uint64))
    other = parcels.Rows("a", {"_ts": pa.array([2])}, np.full((1, 1), 1 << SEEN, dtype=np.uint64))
    third = parcels.Rows("b", {"_ts": pa.array([3])}, np.ones((1, 1), dtype=np.uint64))
    found = unite([one, other, third])
    assert found["a"].columns["s"].to_pylist() == ["x", None]
    assert (found["a"].marked(0, STORED).tolist(), found["a"].marked(0, SEEN).tolist()) == ([0], [1])
    assert found["b"] is third


def test_a_parcel_may_begin_at_any_byte():
    rows = parcels.Rows("a", {"_ts": pa.array(range(9)), "s": pa.array(["x"] * 9)}, np.ones((9, 1), dtype=np.uint64))
    (body,) = pack(rows)
    for start in range(8):
        found = unpack(pa.py_buffer(b"." * start + body.to_pybytes()).slice(start))
        assert (
            hash_columns(list(found.columns.values()), 9).tolist()
            == hash_columns(list(rows.columns.values()), 9).tolist()
        )
        assert found.marked(0, STORED).tolist() == list(range(9))
