"""Folders as sinks: whose they are."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.errors import StateError
from penstock.storage.listed_folder import OWNER, ListedFolder, claim
from penstock.storage.listed_objects import ListedObjects
from penstock.storage.memory import MemoryStore
from penstock.storage.object import ObjectFiles
from penstock.storage.objects import Objects


def test_a_folder_with_results_of_another_state_directory_is_left_alone(tmp_path):
    claim(str(tmp_path / "new" / "folder"), "one")
    claim(str(tmp_path / "new" / "folder"), "one")
    with pytest.raises(StateError, match="another state directory"):
        claim(str(tmp_path / "new" / "folder"), "two")


class Place:
    """A folder, or a place in an object store, and what is in it for those who list it."""

    def __init__(self, kind, folder):
        self.folder = folder
        if kind == "objects":
            store = pytest.importorskip("obstore.store", reason="pip install 'penstock[object]'")
            self.files = ObjectFiles(Objects("memory:", client=store.MemoryStore()))
            self.listed = ListedObjects(self.files)
        else:
            self.listed = ListedFolder(str(folder))

    def there(self):
        if isinstance(self.listed, ListedFolder):
            return {p.name: p.read_bytes() for p in self.folder.iterdir()}
        return {name: self.files.read(name) for name in self.files.names("")}


@pytest.fixture(params=["folder", "objects"])
def place(request, tmp_path):
    return Place(request.param, tmp_path / "out")


def test_a_place_belongs_to_one_state_directory(place):
    place.listed.claim("one")
    place.listed.claim("one")
    with pytest.raises(StateError, match="another state directory"):
        place.listed.claim("two")
    assert place.there() == {OWNER: b"one"}


def test_a_file_that_is_given_again_is_the_first_one_and_no_part_is_ever_seen(place):
    state = MemoryStore()
    state.write("results/a", b"rows")
    state.write("results/b", b"other")
    place.listed.claim("one")
    place.listed.give(state, "results/a", "part-1")
    place.listed.give(state, "results/b", "part-1")
    place.listed.settle()
    assert place.there() == {OWNER: b"one", "part-1": b"rows"}


def test_tables_that_are_published_again_are_written_once(place):
    rows = pa.table({"x": [1, 2, 3]})
    place.listed.claim("one")
    place.listed.publish("part-1.parquet", iter([rows.slice(0, 2), rows.slice(2)]))
    before = place.there()
    place.listed.publish("part-1.parquet", iter([rows.slice(0, 1)]))
    assert place.there() == before
    assert pq.read_table(pa.BufferReader(before["part-1.parquet"])).equals(rows)

    def broken():
        yield rows
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        place.listed.publish("part-2.parquet", broken())
    assert place.there() == before


def test_of_two_engines_that_publish_one_name_the_first_wins(tmp_path):
    place = Place("objects", tmp_path)
    plain = place.files.objects.create

    def late(name, data, writer):
        place.files.objects.create = plain
        place.listed.publish("part-1.parquet", iter([pa.table({"x": [1]})]))
        plain(name, data, writer)

    place.files.objects.create = late
    place.listed.publish("part-1.parquet", iter([pa.table({"x": [1]})]))
    assert list(place.there()) == ["part-1.parquet"]
