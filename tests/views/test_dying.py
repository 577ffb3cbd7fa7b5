"""kill -9 in the middle of a refresh: the whole old view or the whole new one is there, and it can be repeated."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from .dying import opened
from .test_parquet import write

ROOT = Path(__file__).parents[2]


def refreshed(folder, last):
    """The exit code and output of a process that refreshes the views of this folder and dies at that change."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    command = [sys.executable, "-m", "tests.views.dying", str(last)]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode, done.stdout.splitlines()


def rows(catalog):
    return {name: Counter(tuple(r.values()) for r in v.to_arrow().to_pylist()) for name, v in catalog.views.items()}


BEFORE = {
    "totals": {("x", 2, "q", 2): 1, ("y", 1, "r", 2): 1},
    "pairs": {("x", "p"): 1, ("x", "q"): 1, ("y", "r"): 1},
}
AFTER = {
    "totals": {("x", 1, "p", 1): 1, ("z", 1, "s", 3): 1},
    "pairs": {("x", "p"): 1, ("z", "s"): 1},
}


@pytest.fixture
def scene(tmp_path, monkeypatch):
    """Views of a first version, and sources that have changed since."""
    folder = tmp_path / "scene"
    for name in ("a", "b"):
        (folder / name).mkdir(parents=True)
    write(folder / "a/0.parquet", [(1, "x"), (2, "y")])
    write(folder / "b/0.parquet", [(1, "p"), (2, "r")])
    write(folder / "b/1.parquet", [(1, "q")])
    monkeypatch.chdir(folder)
    catalog = opened()
    for view in catalog.views.values():
        view.refresh()
    assert rows(catalog) == BEFORE
    catalog.close()
    write(folder / "a/0.parquet", [(1, "x"), (3, "z")])
    (folder / "b/1.parquet").unlink()
    write(folder / "b/2.parquet", [(3, "s")])
    return folder


def check(scene, folder, last, monkeypatch):
    """Die at a change, and go on from what is left; False if the process came to its end."""
    shutil.copytree(scene, folder)
    code, _ = refreshed(folder, last)
    if code == 0:
        return False
    monkeypatch.chdir(folder)
    catalog = opened()
    found = rows(catalog)
    for name, view in catalog.views.items():
        version = view.store.newest.number
        assert found[name] == (BEFORE if version == 1 else AFTER)[name], (last, name)
        view.refresh()
        assert view.store.newest.number == 2, "the refresh that was begun is the second version, made once"
    assert rows(catalog) == AFTER, last
    write(folder / "b/3.parquet", [(1, "t")])
    for view in catalog.views.values():
        view.refresh()
        named = {f.name for files in view.store.newest.bags.values() for f in files}
        there = {f"{view.store.slices.folder}/{n}" for n in view.store.store.names(view.store.slices.folder)}
        assert {n for n in there if n.endswith(".arrow")} == named, "nothing is left of the process that died"
    assert rows(catalog)["pairs"] == {("x", "p"): 1, ("x", "t"): 1, ("z", "s"): 1}
    catalog.close()
    return True


def test_a_process_that_dies_before_the_manifest_leaves_the_old_view(scene, tmp_path, monkeypatch):
    shutil.copytree(scene, tmp_path / "whole")
    code, changes = refreshed(tmp_path / "whole", 0)
    assert code == 0
    manifest = next(k for k, change in enumerate(changes, 1) if "views/totals/00000002.json" in change)
    assert check(scene, tmp_path / "dead", manifest, monkeypatch)


@pytest.mark.long
def test_so_it_is_at_every_change_that_a_refresh_makes_to_its_state(scene, tmp_path, monkeypatch):
    last = 1
    while check(scene, tmp_path / str(last), last, monkeypatch):
        last += 1
    assert last > 10, "sources, slices and manifests of two views"
