import os
import subprocess
import sys
import time
from pathlib import Path

from penstock.storage.cache import FOLDER_VARIABLE, LIMIT_VARIABLE, Cache, cache_of


def put(cache, name, data, calls=None):
    def fetch(file):
        if calls is not None:
            calls.append(name)
        file.write(data)

    return cache.map(name, fetch)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def age(cache, name, seconds):
    path = next(p for p in os.scandir(cache.folder) if p.name == name)
    os.utime(path.path, (time.time() - seconds,) * 2)


def test_beyond_the_limit_the_copies_that_were_not_used_for_longest_go(tmp_path):
    cache, calls = Cache(str(tmp_path), limit=25), []
    for n, name in enumerate("abc"):
        put(cache, name, b"0123456789")
        if name != "c":
            age(cache, name, 100 - n)
    assert names(tmp_path) == ["b", "c"]
    age(cache, "c", 50)
    put(cache, "b", b"", calls)  # used again
    put(cache, "d", b"0123456789")
    assert names(tmp_path) == ["b", "d"]
    assert calls == []


def test_a_file_larger_than_the_limit_can_be_read_and_what_is_mapped_stays(tmp_path):
    cache = Cache(str(tmp_path), limit=5)
    first = put(cache, "a", b"0123456789")
    age(cache, "a", 10)
    second = put(cache, "b", b"abcdefghij")
    assert names(tmp_path) == ["b"]
    assert (first.to_pybytes(), second.to_pybytes()) == (b"0123456789", b"abcdefghij")


def test_what_a_process_left_that_died_goes_later(tmp_path):
    (tmp_path / "x.tmp").write_bytes(b"left")
    (tmp_path / "y.tmp").write_bytes(b"being written")
    os.utime(tmp_path / "x.tmp", (0, 0))
    put(Cache(str(tmp_path)), "a", b"1")
    assert names(tmp_path) == ["a", "y.tmp"]


def test_names_with_folders_are_files_of_their_own_for_this_user_alone(tmp_path):
    cache = Cache(str(tmp_path / "new"))
    put(cache, "runs/1-a", b"1")
    put(cache, "results/1-a", b"2")
    assert put(cache, "runs/1-a", b"never").to_pybytes() == b"1"
    assert {p.stat().st_mode & 0o777 for p in os.scandir(cache.folder)} == {0o600}
    assert Path(cache.folder).stat().st_mode & 0o777 == 0o700


def test_its_place_and_limit_are_the_environments(tmp_path, monkeypatch):
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    monkeypatch.setenv(LIMIT_VARIABLE, "1000")
    mine, other = cache_of("s3://b/x"), cache_of("s3://b/y")
    assert mine.folder.startswith(str(tmp_path))
    assert mine.folder != other.folder
    assert mine.limit == 1000


PROCESS = """
import sys
from random import Random
from penstock.storage.cache import Cache
cache, random = Cache(sys.argv[1], limit=2000), Random(int(sys.argv[2]))
for _ in range(600):
    name = f"runs/{random.randrange(40)}"
    data = name.encode() * 30
    found = cache.map(name, lambda file: file.write(data))
    assert found.to_pybytes() == data, name
print("fine")
"""


def test_processes_share_it_while_copies_come_and_go(tmp_path):
    running = [
        subprocess.Popen([sys.executable, "-c", PROCESS, str(tmp_path), str(n)], stdout=subprocess.PIPE)
        for n in range(4)
    ]
    assert [process.communicate()[0] for process in running] == [b"fine\n"] * 4
    assert sum(p.stat().st_size for p in os.scandir(tmp_path)) <= 2000 + 4 * 300
