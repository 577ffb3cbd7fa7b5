"""What only a store of objects does: unclear puts, large files in pieces, copies on disk, races of processes."""

import pickle
import subprocess
import sys
import threading
from random import Random

import pytest

from penstock.errors import PenstockError, StateError
from penstock.storage.cache import Cache
from penstock.storage.object import ObjectStore
from penstock.storage.objects import PIECE, Objects, ObjectStoreError, is_url
from tests.storage.faulty_objects import FaultyObjects
from tests.storage.s3_server import s3_store, server

memory = pytest.importorskip("obstore.store", reason="pip install 'penstock[object]'").MemoryStore


def faulty(seed=0, **faults):
    return ObjectStore(FaultyObjects(memory(), Random(seed), **faults))


def test_a_put_whose_answer_is_lost_has_succeeded():
    store = faulty()
    store.objects.lost = 1
    assert store.put_if_absent("log/1", b"one")
    assert not store.put_if_absent("log/1", b"one")
    store.objects.lost = 1
    store.write("runs/a", b"x")
    with pytest.raises(FileExistsError):
        store.write("runs/a", b"x")
    store.objects.lost = 1
    assert not store.put_if_absent("log/1", b"two")
    assert store.read("log/1") == b"one"


def test_a_put_that_was_repeated_below_and_found_itself_has_succeeded():
    objects = FaultyObjects(memory())
    store, plain = ObjectStore(objects), objects.create

    def repeated(name, data, writer):
        plain(name, data, writer)  # its answer is lost, and the client tries again
        plain(name, data, writer)

    objects.create = repeated
    assert store.put_if_absent("log/1", b"one")
    assert not store.put_if_absent("log/1", b"one")


def test_a_put_that_fails_and_was_not_made_is_tried_again_and_then_refused():
    objects = FaultyObjects(memory())
    store, tried = ObjectStore(objects), []

    def failing(name, data, writer):
        tried.append(writer)
        if len(tried) < 3:
            raise ObjectStoreError("no answer")
        Objects.create(objects, name, data, writer)

    objects.create = failing
    assert store.put_if_absent("log/1", b"one")
    assert len(set(tried)) == 1  # who has put it is known however often it is tried

    def always(name, data, writer):
        raise ObjectStoreError("no answer")

    objects.create = always
    with pytest.raises(ObjectStoreError, match="no answer"):
        store.put_if_absent("log/2", b"two")
    assert not store.exists("log/2")


@pytest.mark.parametrize("seed", range(30))
def test_whatever_fails_a_name_is_put_once_and_the_winner_knows(seed):
    """Writers over one store whose requests fail and whose answers are lost: no two are told that they have put it."""
    client, random = memory(), Random(seed)
    stores = [
        ObjectStore(FaultyObjects(client, Random(seed * 10 + n), fails=0.1, unclear=0.4)) for n in range(3)
    ]  # fmt: skip
    for number in range(20):
        told = {}
        for n in random.sample(range(3), 3):
            try:
                told[n] = stores[n].put_if_absent(f"log/{number}", str(n).encode())
            except StateError:
                told[n] = None  # not known
        won = [n for n, done in told.items() if done]
        plain = ObjectStore(Objects("memory:", client=client))
        if plain.exists(f"log/{number}"):
            owner = int(plain.read(f"log/{number}"))
            assert won in ([], [owner])
            assert told[owner] is not False
        else:
            assert not won
            assert set(told.values()) == {None}


@pytest.mark.parametrize("size", [0, 1, PIECE, PIECE + 1, 3 * PIECE])
def test_a_file_of_any_size_comes_back(tmp_path, size):
    data = bytes(range(256)) * (size // 256 + 1)
    store = ObjectStore(Objects("memory:", client=memory()), Cache(str(tmp_path)))
    with store.create("results/x") as file:
        file.write(data[: size // 2])
        file.write(data[size // 2 : size])
    assert store.size("results/x") == size
    assert store.map("results/x").to_pybytes() == data[:size]
    again = ObjectStore(store.objects, Cache(str(tmp_path / "other")))
    assert again.map("results/x").to_pybytes() == data[:size]
    with pytest.raises(FileExistsError), store.create("results/x") as file:
        file.write(data[:size])


def test_a_file_is_fetched_once_and_the_writer_need_not_fetch_it(tmp_path):
    objects = FaultyObjects(memory())
    mine, other = (ObjectStore(objects, Cache(str(tmp_path / name))) for name in ("mine", "other"))
    mine.write("runs/a", b"abc")
    for store, gets in ((mine, 0), (mine, 0), (other, 1), (other, 1)):
        assert store.map("runs/a").to_pybytes() == b"abc"
        assert objects.requests.get("get", 0) == gets
    mine.delete("runs/a")
    with pytest.raises(FileNotFoundError):
        mine.map("runs/a")


def test_mapped_bytes_are_put_as_they_are(tmp_path):
    store = ObjectStore(Objects("memory:", client=memory()), Cache(str(tmp_path)))
    store.write("runs/a", b"abc")
    assert store.put_if_absent("runs/b", store.map("runs/a"))
    store.replace("runs/c", store.map("runs/b"))
    assert store.read("runs/b") == store.read("runs/c") == b"abc"


def test_what_fails_while_it_is_fetched_leaves_no_part(tmp_path):
    store = ObjectStore(Objects("memory:", client=memory()), Cache(str(tmp_path)))
    ObjectStore(store.objects).write("runs/a", b"abc")

    def half(file):
        file.write(b"a")
        raise ObjectStoreError("cut")

    with pytest.raises(ObjectStoreError):
        store.cache.map("runs/a", half)
    assert list(tmp_path.iterdir()) == []
    assert store.map("runs/a").to_pybytes() == b"abc"


def test_errors_name_the_object_and_the_remedy_and_no_secret():
    config = {"endpoint": "http://127.0.0.1:9", "access_key_id": "AKIA", "secret_access_key": "hush", "region": "x"}
    store = ObjectStore(Objects("s3://bucket/app", config))
    assert "hush" not in repr(store)
    assert "AKIA" not in repr(store)
    with pytest.raises(StateError, match=r"s3://bucket/app/runs/a lies in an object store"):
        store.path("runs/a")
    with pytest.raises(StateError, match=r"^s3://bucket/app cannot be opened: .*nonsense"):
        Objects("s3://bucket/app", {"nonsense": "1"})
    assert pickle.loads(pickle.dumps(store)).root == "s3://bucket/app"
    with pytest.raises(TypeError, match="cannot be sent to another process"):
        pickle.dumps(Objects("memory:", client=memory()))


def test_without_the_package_the_remedy_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(PenstockError, match=r"pip install 'penstock\[object\]'"):
        Objects("s3://bucket/app")


@pytest.mark.parametrize(
    ("place", "is_one"),
    [("s3://b/x", True), ("S3A://b", True), ("gs://b/x", True), ("abfss://c@a.dfs.core.windows.net/x", True),
     ("az://c/x", True), ("s3:/b", False), ("s3://", False), ("/x/s3://b", False), ("file:///x", False),
     ("hdfs://n/x", False), ("x", False)],
)  # fmt: skip
def test_places_in_object_stores_are_known_by_their_scheme(place, is_one):
    assert is_url(place) == is_one


# -- a real server ------------------------------------------------------------------------------------------------

PUT = """
import sys
from penstock.storage.object import ObjectStore
from penstock.storage.objects import Objects
store = ObjectStore(Objects(sys.argv[1]))
print("ready", flush=True)
for line in sys.stdin:
    print(int(store.put_if_absent(line.strip(), sys.argv[2].encode())), flush=True)
"""


def test_of_many_processes_that_put_one_name_exactly_one_wins(tmp_path, monkeypatch):
    for name, value in server().environment.items():
        monkeypatch.setenv(name, value)
    store, racers = s3_store(tmp_path), []
    try:
        racers += [
            subprocess.Popen(
                [sys.executable, "-c", PUT, store.root, str(n)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                bufsize=1,
            )
            for n in range(4)
        ]
        assert {racer.stdout.readline() for racer in racers} == {"ready\n"}
        for number in range(40):
            name = f"log/{number}"
            threads = [threading.Thread(target=racer.stdin.write, args=(f"{name}\n",)) for racer in racers]
            for thread in threads:
                thread.start()
            told = [int(racer.stdout.readline()) for racer in racers]
            assert sum(told) == 1
            assert store.read(name) == str(told.index(1)).encode()
    finally:
        for racer in racers:
            racer.kill()
            racer.communicate()


def test_threads_with_large_records_race_on_a_real_server(tmp_path):
    store = s3_store(tmp_path)
    for number in range(10):
        told = [None] * 16

        def put(n, number=number, told=told):
            told[n] = store.put_if_absent(f"log/{number}", bytes([n]) * 200_000)

        threads = [threading.Thread(target=put, args=(n,)) for n in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(told) == 1
        assert store.read(f"log/{number}") == bytes([told.index(True)]) * 200_000


def test_another_process_opens_the_store_by_its_own_credentials(tmp_path, monkeypatch):
    for name, value in server().environment.items():
        monkeypatch.setenv(name, value)
    store = ObjectStore(Objects(s3_store(tmp_path).root), Cache(str(tmp_path)))
    sent = pickle.dumps(store)
    assert server().environment["AWS_SECRET_ACCESS_KEY"].encode() not in sent
    pickle.loads(sent).write("runs/a", b"x")
    assert store.read("runs/a") == b"x"


def test_wrong_credentials_are_refused_with_the_remedy(tmp_path):
    url = s3_store(tmp_path).root
    store = ObjectStore(Objects(url, {**server().config, "secret_access_key": "wrong"}))
    with pytest.raises(StateError, match=r"runs/a cannot be used: .*; give this program credentials") as refused:
        store.read("runs/a")
    assert "wrong" not in str(refused.value)
