"""What every store promises: one suite for all stores. What only one of them does is tested in the file of its name."""

import tempfile
from contextlib import ExitStack
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from penstock.errors import StateError
from penstock.storage.cache import Cache
from penstock.storage.faulty import FaultyStore
from penstock.storage.local import LocalStore
from penstock.storage.memory import MemoryStore
from penstock.storage.object import ObjectStore
from penstock.storage.objects import Objects
from penstock.storage.store import file_name, refuse_beside_owner
from tests.storage.s3_server import s3_store


def objects(root, *, cached=False):
    """A store over the object store of the package, in memory."""
    client = pytest.importorskip("obstore.store", reason="pip install 'penstock[object]'").MemoryStore()
    return ObjectStore(Objects("memory:", client=client), Cache(root) if cached else None)


STORES = {
    "local": LocalStore,
    "unsynced": lambda root: LocalStore(root, durable=False),
    "memory": lambda root: MemoryStore(),
    "faulty": lambda root: FaultyStore(MemoryStore(), Random(1)),
    "faulty local": lambda root: FaultyStore(LocalStore(root, durable=False), Random(1)),
    "objects": objects,
    "cached objects": lambda root: objects(root, cached=True),
    "faulty objects": lambda root: FaultyStore(objects(root), Random(1)),
    "s3": s3_store,
}
WITH_FOLDERS = [kind for kind in STORES if "objects" not in kind and kind != "s3"]


@pytest.fixture(params=STORES)
def store(tmp_path, request):
    return STORES[request.param](str(tmp_path / "state"))


def test_put_if_absent_refuses_the_second_and_leaves_the_first(store):
    assert store.put_if_absent("log/1.json", b"one")
    assert not store.put_if_absent("log/1.json", b"two")
    assert store.read("log/1.json") == b"one"
    assert store.names("log") == ["1.json"]


def test_a_file_is_written_once(store):
    store.write("runs/a", b"one")
    with pytest.raises(FileExistsError):
        store.write("runs/a", b"two")
    with pytest.raises(FileExistsError), store.create("runs/a"):
        pass
    assert store.read("runs/a") == b"one"


def test_bytes_come_back_read_or_mapped(store):
    with store.create("results/x") as file:
        file.write(b"ab")
        file.write(b"cd")
    assert store.read("results/x") == store.map("results/x").to_pybytes() == b"abcd"
    assert store.size("results/x") == 4
    store.write("results/none", pa.py_buffer(b""))
    assert store.read("results/none") == store.map("results/none").to_pybytes() == b""
    store.sync(["results/x", "results/.", "nowhere/."])


def test_parquet_is_written_in_pieces_and_read_from_the_mapped_bytes(store):
    rows = pa.table({"x": list(range(1000))})
    name = file_name("results", 3, "parquet")
    with store.create(name) as file, pq.ParquetWriter(file, rows.schema, write_page_checksum=True) as writer:
        writer.write_table(rows.slice(0, 400))
        writer.write_table(rows.slice(400))
    assert pq.read_table(pa.BufferReader(store.map(name)), page_checksum_verification=True).equals(rows)


def test_a_file_whose_writing_fails_is_not_there(store):
    def pieces():
        yield b"ab"
        raise ValueError("half")

    with pytest.raises(ValueError, match="half"), store.create("results/x") as file:
        file.writelines(pieces())
    assert not store.exists("results/x")
    store.write("results/x", b"whole")


def test_a_missing_file_is_an_error_to_read_but_not_to_delete(store):
    for look in (store.read, store.map, store.size, store.age):
        with pytest.raises(FileNotFoundError):
            look("runs/none")
    store.delete("runs/none")
    store.touch("runs/none")
    store.delete_folder("runs")
    assert store.names("runs") == []
    assert store.sizes("runs") == {}
    assert not store.exists("runs/none")


@pytest.mark.parametrize("kind", WITH_FOLDERS)
def test_a_folder_that_was_made_is_there_for_other_programs(kind, tmp_path):
    store = STORES[kind](str(tmp_path / "state"))
    store.make("views/v")
    assert store.names("views") == ["v"]
    assert not store.exists("views/v")


def test_a_folder_is_no_file_and_goes_with_all_in_it(store):
    store.make("views/v")
    store.write("views/v/slices/a", b"1")
    assert store.names("views") == ["v"]
    assert not store.exists("views/v")
    store.write("views/w/a", b"2")
    store.delete_folder("views/v")
    assert store.names("views") == ["w"]
    assert store.read("views/w/a") == b"2"
    assert not store.put_if_absent("views/w/a", b"3")
    assert store.put_if_absent("views/v/slices/a", b"3")


def test_a_file_that_is_given_up_counts_as_young(store):
    store.write("results/1-a.parquet", b"x")
    first = store.age("results/1-a.parquet")
    assert 0 <= first < 60
    store.touch("results/1-a.parquet")
    assert 0 <= store.age("results/1-a.parquet") < 60


def test_one_owner_at_a_time_for_each_folder(store):
    with store.owner_lock():
        with (
            pytest.raises(StateError, match=rf"{store.root} is in use by process \d+; stop it first"),
            store.owner_lock(),
        ):
            pass
        with store.owner_lock("views/v"):
            owner = store.owner("views/v")
            with pytest.raises(StateError, match=rf"views/v is in use by {owner};"), store.owner_lock("views/v"):
                pass
        assert store.owner("views/v") is None
        assert store.owner() == owner
        with pytest.raises(StateError, match=rf"in use by {owner}.*'penstock query add'.*results can be read"):
            refuse_beside_owner(store)
    assert store.owner() is None
    refuse_beside_owner(store)
    with store.owner_lock():
        pass


def test_an_owner_that_fails_lets_go(store):
    with pytest.raises(ValueError, match="no"), store.owner_lock():
        raise ValueError("no")
    assert store.owner() is None


def test_who_deletes_a_folder_that_he_holds_lets_others_hold_it_next(store):
    with store.owner_lock("views/v"):
        store.delete_folder("views/v")
    with store.owner_lock("views/v"):
        assert store.owner("views/v") is not None


FOLDERS, BASES = ("a", "a/b", "c"), ("x", "y", "z")
names = st.builds("{}/{}".format, st.sampled_from(FOLDERS), st.sampled_from(BASES))
contents = st.binary(max_size=20)


class AnyStore(RuleBasedStateMachine):
    """A store against a dictionary, under any sequence of operations."""

    make = staticmethod(STORES["memory"])

    def __init__(self):
        super().__init__()
        self.stack = ExitStack()
        self.store = self.make(self.stack.enter_context(tempfile.TemporaryDirectory()) + "/state")
        self.model = {}

    def teardown(self):
        self.stack.close()

    @rule(name=names, data=contents)
    def write(self, name, data):
        if name in self.model:
            with pytest.raises(FileExistsError):
                self.store.write(name, data)
        else:
            self.store.write(name, data)
            self.model[name] = data

    @rule(name=names, pieces=st.lists(contents, max_size=3))
    def create(self, name, pieces):
        if name not in self.model:
            with self.store.create(name) as file:
                for piece in pieces:
                    file.write(piece)
            self.model[name] = b"".join(pieces)

    @rule(name=names, data=contents)
    def put(self, name, data):
        assert self.store.put_if_absent(name, data) == (name not in self.model)
        self.model.setdefault(name, data)

    @rule(name=names, data=contents)
    def replace(self, name, data):
        self.store.replace(name, data)
        self.model[name] = data

    @rule(name=names)
    def delete(self, name):
        self.store.delete(name)
        self.model.pop(name, None)

    @rule(folder=st.sampled_from(FOLDERS))
    def delete_folder(self, folder):
        self.store.delete_folder(folder)
        self.model = {n: d for n, d in self.model.items() if not n.startswith(f"{folder}/")}

    @rule(wanted=st.lists(names, max_size=3))
    def sync(self, wanted):
        self.store.sync([*wanted, "a/."])

    @invariant()
    def all_is_there(self):
        for folder in FOLDERS:
            mine = {n.rpartition("/")[2] for n in self.model if n.rpartition("/")[0] == folder}
            assert {n for n in self.store.names(folder) if self.store.exists(f"{folder}/{n}")} == mine
            assert self.store.sizes(folder) == {n: len(self.model[f"{folder}/{n}"]) for n in mine}
        for name, data in self.model.items():
            assert self.store.read(name) == self.store.map(name).to_pybytes() == data
            assert self.store.size(name) == len(data)


def machine(kind):
    case = type(f"{kind}Store", (AnyStore,), {"make": staticmethod(STORES[kind])}).TestCase
    case.settings = settings(
        max_examples=100 if kind in ("memory", "faulty") else 15, stateful_step_count=25, deadline=None
    )
    return case


TestUnsynced, TestMemory, TestFaulty, TestFaultyLocal = map(machine, ("unsynced", "memory", "faulty", "faulty local"))
TestObjects, TestCachedObjects, TestFaultyObjects = map(machine, ("objects", "cached objects", "faulty objects"))
