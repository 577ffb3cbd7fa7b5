import os
import time
from pathlib import Path

import pytest

from penstock.state.manifest import Manifest
from penstock.state.orphans import GRACE_SECONDS, collect_orphans, collect_versions
from penstock.state.result_files import ResultFile, ResultFiles
from penstock.state.side_files import SideFile
from penstock.storage.local import LocalStore
from tests.state.runs import entry_of

NAMED = ["runs/3-a.arrow", "results/2-b.parquet", "sides/1-c.parquet"]
MANIFEST = Manifest(
    step=5,
    runs={NAMED[0]: entry_of(NAMED[0])},
    results=ResultFiles([ResultFile(NAMED[1], "j", 2, 0, 1, 1, 0, 0, ())]),
    sides=(SideFile(NAMED[2], "a", "late", 1, 1, 1),),
)
ORPHANS = ["runs/3-z.arrow", "runs/5-z.arrow", "results/0-z.parquet", "sides/5-z.parquet"]
UNCOMMITTED = ["runs/6-z.arrow", "results/10-z.parquet", "sides/6-z.parquet"]
FOREIGN = ["runs/readme.txt", "manifest/000000000001.json", "checkpoint/3-x"]


@pytest.fixture
def store(tmp_path):
    store = LocalStore(str(tmp_path), durable=False)
    for name in (*NAMED, *ORPHANS, *UNCOMMITTED, *FOREIGN):
        store.write(name, b"x")
    return store


def left(store):
    return {n for n in (*NAMED, *ORPHANS, *UNCOMMITTED, *FOREIGN) if Path(store.path(n)).exists()}


def test_only_files_of_committed_steps_that_nobody_names_go(store):
    assert sorted(collect_orphans(store, MANIFEST, grace=0)) == sorted(ORPHANS)
    assert left(store) == {*NAMED, *UNCOMMITTED, *FOREIGN}


def test_a_young_file_stays_until_the_grace_time_is_over(store):
    assert collect_orphans(store, MANIFEST) == []
    old = time.time() - GRACE_SECONDS - 1
    os.utime(store.path(ORPHANS[1]), (old, old))
    assert collect_orphans(store, MANIFEST) == [ORPHANS[1]]
    assert left(store) == {*NAMED, *ORPHANS, *UNCOMMITTED, *FOREIGN} - {ORPHANS[1]}


def test_before_the_first_commit_every_file_may_still_be_committed(store):
    assert collect_orphans(store, Manifest(), grace=0) == []


def test_versions_of_the_registry_stay_while_a_result_file_is_read_by_them(store):
    for version in (1, 2, 3, 4, 5):
        store.write(f"registry/{version:08d}.json", b"x")
    manifest = Manifest(version=4, results=ResultFiles([ResultFile("r", "j", 2, 2, 1, 1, 0, 0, ())]))
    assert collect_versions(store, manifest) == []
    names = [f"registry/{version:08d}.json" for version in (1, 2, 3, 4, 5)]
    old = time.time() - GRACE_SECONDS - 1
    for name in names:
        os.utime(store.path(name), (old, old))
    assert collect_versions(store, manifest) == [names[0], names[2]]
    # Who still has a manifest that needs one finds it for the grace time.
    assert collect_versions(store, Manifest(version=5)) == []
    assert collect_versions(store, Manifest(version=5), grace=0) == [names[1], names[3]]
    assert store.names("registry") == ["00000005.json"]
