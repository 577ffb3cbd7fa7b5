import fcntl
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from penstock.errors import StateError
from penstock.state.store import LocalStore


@pytest.fixture(params=[True, False], ids=["durable", "fast"])
def store(tmp_path, request):
    return LocalStore(str(tmp_path / "state"), durable=request.param)


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
    assert Path(store.path("results/x")).read_bytes() == b"abcd"
    store.sync(["results/x", "results/.", "nowhere/."])


def test_a_missing_file_is_an_error_to_read_but_not_to_delete(store):
    with pytest.raises(FileNotFoundError):
        store.read("runs/none")
    with pytest.raises(FileNotFoundError):
        store.size("runs/none")
    store.delete("runs/none")
    assert store.names("runs") == []


def test_a_second_owner_in_this_process_is_refused_until_the_first_is_gone(store):
    with store.owner_lock():
        with pytest.raises(StateError, match=r"in use by process \d+; stop it first"), store.owner_lock():
            pass
        with pytest.raises(StateError), LocalStore(store.root).owner_lock():
            pass
    with store.owner_lock():
        pass


OWNER = """
import sys
from penstock.errors import StateError
from penstock.state.store import LocalStore

try:
    with LocalStore(sys.argv[1]).owner_lock():
        print("owner", flush=True)
        sys.stdin.read()
except StateError as error:
    print(error, flush=True)
"""


def test_a_second_owner_in_another_process_is_refused(store):
    with store.owner_lock():
        done = subprocess.run(
            [sys.executable, "-c", OWNER, store.root], capture_output=True, text=True, timeout=60, check=True, input=""
        )
        assert "is in use by process" in done.stdout
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, store.root], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout.readline() == "owner\n"
        with pytest.raises(StateError, match=f"in use by process {other.pid}"), store.owner_lock():
            pass
        other.kill()
    with store.owner_lock():  # an owner that dies leaves no lock behind
        pass


def test_who_looks_for_an_owner_keeps_nobody_out(store):
    """A look shares the lock for an instant: an engine that starts just then waits for it."""
    with store.owner_lock():
        owner = f"process {os.getpid()}"
        assert store.owner() == owner
        with pytest.raises(StateError, match=rf"in use by {owner}.*'penstock query add'.*results can be read"):
            store.refuse_beside_owner()
    with Path(store.path("owner.lock")).open() as look:
        fcntl.flock(look, fcntl.LOCK_SH)
        over = threading.Timer(0.1, fcntl.flock, (look, fcntl.LOCK_UN))
        over.start()
        with store.owner_lock():
            assert not over.is_alive() or over.finished.is_set()
        over.join()
    assert store.owner() is None
    store.refuse_beside_owner()


def test_folders_that_name_files_are_made_durable(tmp_path, monkeypatch):
    store = LocalStore(str(tmp_path))
    store.write("runs/1-a.arrow", b"x")
    opened = []
    plain = os.open
    monkeypatch.setattr(os, "open", lambda path, *given: opened.append(str(path)) or plain(path, *given))
    store.sync(["runs/.", "runs/1-a.arrow"])
    assert set(opened) == {str(tmp_path / "runs"), str(tmp_path / "runs" / "1-a.arrow")}


def test_a_file_that_is_given_up_counts_as_young(tmp_path):
    store = LocalStore(str(tmp_path))
    store.write("results/1-a.parquet", b"x")
    path = tmp_path / "results" / "1-a.parquet"
    os.utime(path, (0, 0))
    store.touch("results/1-a.parquet")
    assert path.stat().st_mtime > 0
    store.touch("results/gone.parquet")
