from dataclasses import dataclass

import pyarrow as pa
import pytest

from penstock.errors import StateError
from penstock.storage import parquet
from penstock.storage.local import LocalStore
from penstock.storage.memory import MemoryStore


@dataclass(frozen=True)
class Line:
    name: str
    bytes: int


ROWS = pa.table({"k": [1, 2, None], "s": ["a", None, "c"], "l": [[1], [], None]})


@pytest.fixture(params=["local", "memory"])
def store(tmp_path, request):
    return MemoryStore() if request.param == "memory" else LocalStore(str(tmp_path))


def test_rows_come_back_whole_in_pieces_and_in_part(store):
    size = parquet.write(store, "results/1-a.parquet", ROWS)
    line = Line("results/1-a.parquet", size)
    assert parquet.checked(store, line) == line.name
    assert parquet.read(store, line.name).equals(ROWS)
    assert pa.Table.from_batches(parquet.batches(store, line.name, ["s", "k"])).equals(ROWS.select(["s", "k"]))
    assert parquet.columns(store, line.name) == ["k", "s", "l"]
    assert parquet.metadata(store, line.name).num_rows == 3


def test_a_file_that_is_missing_or_of_another_length_is_named(store):
    for line, why in (
        (Line("results/1-a.parquet", 7), "result file .*1-a.parquet"),
        (Line("sides/2", 7), "file of rows put aside .*/2"),
    ):
        with pytest.raises(StateError, match=f"{why} is missing; restore it"):
            parquet.checked(store, line)
        with pytest.raises(StateError, match=f"{why} is missing; restore it"):
            parquet.read(store, line.name)
        store.write(line.name, b"abc")
        with pytest.raises(StateError, match=f"{why} has 3 bytes instead of 7; restore it"):
            parquet.checked(store, line)
        for read in (parquet.read, parquet.columns, parquet.metadata, lambda *f: list(parquet.batches(*f, ["k"]))):
            with pytest.raises(StateError, match=f"{why} is damaged"):
                read(store, line.name)


def test_only_a_store_with_paths_serves_spark(tmp_path):
    for store in (LocalStore(str(tmp_path)), MemoryStore()):
        line = Line("results/a", parquet.write(store, "results/a", ROWS))
        if isinstance(store, LocalStore):
            assert parquet.paths(store, [line]) == [f"{tmp_path}/results/a"]
        else:
            with pytest.raises(StateError, match="lies in memory"):
                parquet.paths(store, [line])
