"""Each damage to files of a state directory is reported with its file and the remedy, and other changes are ignored.

The directory is written without Spark, and read as by a start and by a reader.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.catalog.requests import RequestLog
from penstock.cli.main import main
from penstock.errors import PenstockError, StateError
from penstock.model import Column, Stream
from penstock.spark.offset_log import OffsetLog
from penstock.spark.spark_log import check_log
from penstock.state.manifest import Entry, ManifestLog, Progress
from penstock.state.registry import QueryRecord, Registry, RegistryLog, StreamRecord
from penstock.state.result_files import ResultFile
from penstock.state.run import decode_run
from penstock.state.side_files import SideFile
from penstock.step import commit
from penstock.storage import parquet
from penstock.storage.faults import told_plainly
from penstock.storage.identity import read_id
from penstock.storage.local import LocalStore
from penstock.storage.seal import seal
from tests.state.runs import encoded, rows_of

STREAM = Stream("a", (Column("ts", "bigint"), Column("k", "bigint")), "ts", 0)
STEPS = 4


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A directory after four batches."""
    root = tmp_path_factory.mktemp("prepared")
    store = LocalStore(str(root), durable=False)
    RegistryLog(store).append(
        Registry(1, 2, queries=(QueryRecord(1, "q", "SELECT k FROM a"),)).with_stream(StreamRecord(STREAM))
    )
    read_id(store)
    log = ManifestLog(store)
    for step in range(STEPS):
        data, run = encoded(rows_of([1, 2]), f"runs/{step}-a.arrow")
        store.write(run.name, data)
        names = {kind: f"{kind}/{step}-a.parquet" for kind in ("results", "sides")}
        for name in names.values():
            with store.create(name) as file:
                pq.write_table(pa.table({"k": list(range(50)), "_bits0": [1] * 50}), file, write_page_checksum=True)
        entry = Entry(
            step=step, batch=step, last_batch=step, identity=f"id{step}", version=1, clock=0.5,
            progress={"a": Progress(step, step)}, runs_added=(run,),
            results=(ResultFile(names["results"], "a", step, 1, 50, store.size(names["results"]), 0, 9, ((1, 50),)),),
            sides=(SideFile(names["sides"], "a", "late", step, 50, store.size(names["sides"])),),
        )  # fmt: skip
        log.append(entry)
        if step == 1:
            log.snapshot(log.load())
        spark_batch(root / "checkpoint", step)
    (root / "checkpoint" / "metadata").write_text(json.dumps({"id": "x"}))
    return root


def spark_batch(log, batch):
    """Spark's own log of a batch with one file source, and one of another kind."""
    texts = {
        f"offsets/{batch}": f'v2\n{{"batchTimestampMs":1,"conf":{{}}}}\na_g0:{{"logOffset":{batch}}}\nrate_g0:{batch}',
        f"commits/{batch}": 'v1\n{"nextBatchWatermarkMs":0}',
        f"sources/a_g0/{batch}": f'v1\n{{"path":"file:///x/{batch}","timestamp":1,"batchId":{batch}}}',
    }
    for name, text in texts.items():
        (log / name).parent.mkdir(parents=True, exist_ok=True)
        (log / name).write_text(text)


@pytest.fixture
def state(prepared, tmp_path):
    return Path(shutil.copytree(prepared, tmp_path / "state"))


def look(state):
    """Read all that a start and a reader read."""
    store = LocalStore(str(state), durable=False)
    with told_plainly(), store.owner_lock():
        registry, manifest = RegistryLog(store).load(), ManifestLog(store).load()
        OffsetLog(store).check_start(manifest)
        check_log(store)
        RegistryLog(store).load(manifest.version)
        commit.check_runs(store, manifest)
        read_id(store)
        for run in manifest.runs.values():
            decode_run(store.map(run.name), run, store.path(run.name))
        for file in (*manifest.results.values(), *manifest.sides):
            assert parquet.columns(store, parquet.checked(store, file)) == ["k", "_bits0"]
            assert len(parquet.read(store, parquet.checked(store, file))) == 50
        RequestLog(store).waiting()
        assert [q.name for q in registry.queries] == ["q"]
        assert manifest.step == STEPS - 1


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path):
    path.write_bytes(b"")


def flip(path, at=0.5):
    data = bytearray(path.read_bytes())
    data[int(len(data) * at)] ^= 0xFF
    path.write_bytes(data)


def flip_first(path):
    flip(path, 0.05)


def folder(path):
    path.unlink(missing_ok=True)
    path.mkdir()


def file(path):
    shutil.rmtree(path)
    path.write_text("in the way")


def gone(path):
    path.unlink()


LOST = "restore it from a backup, or remove the state directory and replay the sources"
LOG = "Restore manifest/ and checkpoint/ from the same backup"
DAMAGES = [
    *(
        (kind, name, LOST)
        for name in ("manifest/000000000003.json", "manifest/snapshot-000000000001.json", "registry/00000001.json")
        for kind in (cut, empty, flip)
    ),
    *(
        (kind, name, LOST)
        for name in ("runs/3-a.arrow", "results/3-a.parquet", "sides/3-a.parquet")
        for kind in (cut, empty, flip, flip_first, gone)
    ),
    *(
        (folder, name, "move the folder away")
        for name in ("manifest/000000000003.json", "registry/00000001.json", "id", "owner.lock")
    ),
    *(
        (file, name, "move the file away")
        for name in ("manifest", "registry", "checkpoint/offsets", "checkpoint/commits", "checkpoint", "requests")
    ),
    *((file, name, LOST) for name in ("runs", "results", "sides")),
    *(
        (kind, name, LOG)
        for name in ("checkpoint/offsets/3", "checkpoint/offsets/2", "checkpoint/metadata", "checkpoint/sources/a_g0/1")
        for kind in (cut, empty, gone)
    ),
    (cut, "checkpoint/commits/3", LOG),
    (empty, "checkpoint/commits/3", LOG),
    *((kind, "id", LOST) for kind in (cut, empty, flip)),
    (gone, "manifest/000000000002.json", LOST),
]


def test_what_is_whole_is_read(state):
    look(state)


@pytest.mark.parametrize(("damage", "name", "remedy"), DAMAGES, ids=lambda value: getattr(value, "__name__", value))
def test_a_damage_is_named_with_its_file_and_the_remedy(state, damage, name, remedy):
    if name == "requests":
        (state / name).mkdir()
    damage(state / name)
    with pytest.raises(StateError) as caught:
        look(state)
    text = str(caught.value)
    assert str(state / name) in text or (str(state) in text and Path(name).stem.lstrip("0") in text)
    assert remedy in text
    assert "\n" not in text


@pytest.mark.parametrize(
    "name",
    [
        "manifest/snapshot-abc.json", "manifest/7-copy.json", "manifest/000000000009 (copy).json", "manifest/notes.txt",
        "manifest/9.json.tmp",
        "registry/notes.json", "registry/1 copy.json", "runs/x", "results/readme", "sides/.DS_Store",
        "requests/readme.txt",
        "checkpoint/offsets/.3.crc", "checkpoint/commits/notes", "checkpoint/commits/\u0663", ".nfs0001",
        "manifest/folder/x.json",
    ],
)  # fmt: skip
def test_what_somebody_else_has_put_there_is_passed_over(state, name):
    (state / name).parent.mkdir(exist_ok=True)
    (state / name).write_text("what is this")
    look(state)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("manifest/000000000003.json", "manifest/000000000004.json"),
        ("manifest/snapshot-000000000001.json", "manifest/snapshot-000000000005.json"),
        ("registry/00000001.json", "registry/00000002.json"),
    ],
)
def test_a_copy_is_not_taken_for_another_one(state, one, other):
    shutil.copy(state / one, state / other)
    with pytest.raises(StateError, match=rf"{other} is not what its name says .*{LOST}"):
        look(state)


@pytest.mark.parametrize(
    "body", [{"step": 4}, {"step": 4, "progress": 3}, {"step": 4, "new": 1, "progress": {}, "sides": []}]
)
def test_an_entry_of_another_version_is_refused(state, body):
    (state / "manifest" / "000000000004.json").write_bytes(seal(body))
    with pytest.raises(
        StateError,
        match=r"000000000004.json says what this version of Penstock does not know .*use the version that wrote it",
    ):
        look(state)


def test_a_log_that_was_written_together_needs_none_before_it(state):
    sources = state / "checkpoint/sources/a_g0"
    (sources / "2").rename(sources / "2.compact")
    for old in ("0", "1"):
        (sources / old).unlink()
    look(state)
    cut(sources / "2.compact")
    with pytest.raises(
        StateError, match=rf"sources/a_g0/2.compact, of Spark's own log, is cut short or damaged.*{LOG}"
    ):
        look(state)


@pytest.mark.parametrize(
    ("damage", "name"),
    [(flip, "registry/00000001.json"), (file, "registry"), (folder, "registry/00000001.json")],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_the_command_line_says_one_line(state, capsys, damage, name):
    damage(state / name)
    assert main(["query", "list", "--state", str(state)]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"{state}: error: ")
    assert name in said
    assert said.count("\n") == 1


def test_half_a_file_is_not_left_behind(tmp_path, monkeypatch):
    """On a full disk it would occupy space that is needed."""
    store = LocalStore(str(tmp_path), durable=True)

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with (
        pytest.raises(
            StateError, match=rf"{tmp_path}/manifest/1.json\S* cannot be used: no space left on device; make room"
        ),
        told_plainly(),
    ):
        store.put_if_absent("manifest/1.json", b"x")
    assert store.names("manifest") == []


MOUNTED = """
import subprocess, sys
from penstock.errors import PenstockError
from penstock.storage.faults import told_plainly
from penstock.storage.local import LocalStore
store = LocalStore(sys.argv[1])
try:
    with told_plainly(), store.owner_lock():
        if sys.argv[2] == "full":
            store.write("runs/1", b"x" * 4_000_000)
        print("nothing was refused")
except PenstockError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("kind", "options", "said"),
    [("full", "size=1m", "runs/1 cannot be used: no space left on device; make room"),
     ("ro", "ro", "cannot be used: read-only file system; let the state directory be writable")],
)  # fmt: skip
def test_a_disk_that_is_full_or_read_only_is_told_as_that(tmp_path, kind, options, said):
    """In its own mount namespace, so that nothing is left of it."""
    script = f'mount -t tmpfs -o {options} none "{tmp_path}" && exec "$@"'
    command = ["unshare", "-m", "sh", "-c", script, "sh", sys.executable, "-c", MOUNTED, str(tmp_path), kind]
    if (
        shutil.which("unshare") is None
        or subprocess.run([*command[:4], "mount -t tmpfs none /mnt"], capture_output=True, check=False).returncode
    ):
        pytest.skip("nothing can be mounted here")
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert said in done.stdout


def test_a_state_directory_that_is_a_file(tmp_path):
    (tmp_path / "state").write_text("in the way")
    store = LocalStore(str(tmp_path / "state"))
    for opening in (RegistryLog(store).load, ManifestLog(store).load, lambda: store.owner_lock().__enter__()):
        with (
            pytest.raises(PenstockError, match=rf"{tmp_path}/state\S* cannot be used: .*move the file away"),
            told_plainly(),
        ):
            opening()
