import fcntl
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from penstock.errors import StateError
from penstock.storage.local import LocalStore
from penstock.storage.store import refuse_beside_owner


@pytest.fixture(params=[True, False], ids=["durable", "fast"])
def store(tmp_path, request):
    return LocalStore(str(tmp_path / "state"), durable=request.param)


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
from penstock.storage.local import LocalStore

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
            refuse_beside_owner(store)
    with Path(store.path("owner.lock")).open() as look:
        fcntl.flock(look, fcntl.LOCK_SH)
        over = threading.Timer(0.1, fcntl.flock, (look, fcntl.LOCK_UN))
        over.start()
        with store.owner_lock():
            assert not over.is_alive() or over.finished.is_set()
        over.join()
    assert store.owner() is None
    refuse_beside_owner(store)


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


def modes(root):
    return {str(p.relative_to(root)): stat.S_IMODE(p.lstat().st_mode) for p in (root, *root.rglob("*"))}


@pytest.fixture
def umask():
    before = os.umask(0o022)
    yield
    os.umask(before)


def test_state_is_its_owners_alone_from_the_moment_it_is_made(tmp_path, umask, monkeypatch):
    root = tmp_path / "app" / "state"
    store = LocalStore(str(root))
    seen = []
    plain_open, plain_link = os.open, os.link

    def watched(path, flags, *mode, **given):
        found = plain_open(path, flags, *mode, **given)
        seen.append(stat.S_IMODE(os.fstat(found).st_mode))
        return found

    monkeypatch.setattr(os, "open", watched)
    monkeypatch.setattr(
        os, "link", lambda old, new: seen.append(stat.S_IMODE(old.stat().st_mode)) or plain_link(old, new)
    )
    store.write("runs/deep/a", b"x")
    with store.create("results/x") as file:
        file.write(b"x")
    store.put_if_absent("log/1.json", b"one")
    store.make("checkpoint")
    with store.owner_lock():
        pass
    assert modes(root) == {
        ".": 0o700, "runs": 0o700, "runs/deep": 0o700, "runs/deep/a": 0o600, "results": 0o700, "results/x": 0o600,
        "log": 0o700,
        "log/1.json": 0o600, "checkpoint": 0o700, "owner.lock": 0o600,
    }  # fmt: skip
    assert set(seen) <= {0o600, 0o700}
    assert stat.S_IMODE(root.parent.stat().st_mode) == 0o755  # what else is there is none of our business


def test_a_wider_folder_is_used_as_it_is_and_gets_narrow_files(tmp_path, umask):
    (tmp_path / "runs").mkdir()
    LocalStore(str(tmp_path)).write("runs/a", b"x")
    assert modes(tmp_path) == {".": 0o700, "runs": 0o755, "runs/a": 0o600}


def test_what_is_shared_is_made_as_the_umask_says(tmp_path, umask):
    store = LocalStore(str(tmp_path / "out"), shared=True)
    store.write("x/a", b"x")
    assert modes(tmp_path / "out") == {".": 0o755, "x": 0o755, "x/a": 0o644}


def test_who_waits_for_a_folder_that_was_deleted_holds_the_one_that_is_there(store):
    with store.owner_lock("views/v"):
        waiting = Path(store.path("views/v/owner.lock")).open()  # noqa: SIM115
        store.delete_folder("views/v")
    with waiting:
        fcntl.flock(waiting, fcntl.LOCK_EX)  # a process that has it open has a deleted file
        with store.owner_lock("views/v"):
            assert Path(store.path("views/v/owner.lock")).is_file()


def test_a_folder_is_durable_before_a_file_in_it_counts(tmp_path, monkeypatch):
    store = LocalStore(str(tmp_path))
    synced, plain = [], os.fsync
    monkeypatch.setattr(
        os, "fsync", lambda file: synced.append(str(Path(f"/proc/self/fd/{file}").readlink())) or plain(file)
    )
    store.put_if_absent("log/deep/1.json", b"one")
    assert {str(tmp_path), str(tmp_path / "log"), str(tmp_path / "log" / "deep")} <= set(synced)
