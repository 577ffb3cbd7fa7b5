from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import StateError
from penstock.planner.counters import Counters, QueryCounters, StreamCounters
from penstock.planner.reached import Closing
from penstock.state.cursors import Shown, SinkCursor
from penstock.state.manifest import BEFORE, NOW, SNAPSHOT_EVERY, Entry, Forgotten, Manifest, ManifestLog, Progress
from penstock.state.result_files import ResultFile
from penstock.state.side_files import SideFile
from penstock.state.suspension import Suspension
from penstock.storage.local import LocalStore
from penstock.storage.memory import MemoryStore
from penstock.storage.seal import FORMAT, seal, unseal
from tests.effort import examples
from tests.state.runs import entry_of


def entry(step, **facts):
    """A step that adds one run, one result file and one side file, and counts."""
    known = {
        "step": step,
        "batch": step,
        "last_batch": step,
        "identity": f"id{step}",
        "version": 3,
        "clock": 1.5 * step,
        "progress": {"a": Progress(step * 10, step * 10 + 5), "b": Progress(-(2**62), -(2**62), "idle")},
        "counters": Counters(
            streams={"a": StreamCounters(rows=2, late=step % 2)}, queries={step % 2: QueryCounters(results=1)}
        ),
        "runs_added": (entry_of(f"runs/{step}-x.arrow", step=step),),
        "results": (ResultFile(f"results/{step}-y.parquet", "a x b", step, 3, 4, 99, 0, 9, ((1, 2), (2, 4))),),
        "sides": (SideFile(f"sides/{step}-z.parquet", "a", "late", step, 1, 50),),
        "cursors": {"sink": SinkCursor(step - 1)},
    }
    return Entry(**(known | facts))


def random_entry(step, draw):
    """A step with all that may be in one."""
    old = [f"runs/{s}-x.arrow" for s in range(step)]
    results = [f"results/{s}-y.parquet" for s in range(step)]
    sides = [f"sides/{s}-z.parquet" for s in range(step)]
    tick = draw(st.booleans())
    return entry(
        step,
        batch=None if tick else step,
        runs_removed=tuple(draw(st.lists(st.sampled_from(old), unique=True))) if old else (),
        results_removed=tuple(draw(st.lists(st.sampled_from(results), unique=True))) if results else (),
        forgotten=draw(st.sampled_from((Forgotten(), Forgotten((0,), (1,)), Forgotten(cursors=("sink",), shown=(1,))))),
        suspended=draw(
            st.dictionaries(
                st.sampled_from((1, 2)), st.builds(Suspension, st.text(max_size=3), st.booleans()), max_size=1
            )
        ),
        shown=draw(st.dictionaries(st.sampled_from((1, 2)), st.builds(Shown, st.just(step), st.integers(0, 9)))),
        sides_removed=tuple(draw(st.lists(st.sampled_from(sides), unique=True))) if sides else (),
        runs_added=() if tick else (_run(step, draw),),
        sides=() if tick else entry(step).sides,
        closed=((Closing("a"), step), (Closing("b", 3), step)),
        progress={
            "a": Progress(
                step,
                step + 5,
                closed=(("x", 7),),
                grown=draw(st.sampled_from((None, (), (("y", 3),), (("x", 9), ("z", 4))))),
            ),
            "b": Progress(-(2**62), -(2**62), "idle"),
        },
        ended=draw(st.sampled_from(("", BEFORE, NOW))),
        closed_groups={"a": tuple(draw(st.lists(st.tuples(st.text(max_size=2), st.integers(-5, 5)), max_size=2)))},
    )


def _run(step, draw):
    times = sorted(draw(st.lists(st.integers(-(2**61), 2**61), min_size=1, max_size=4)))
    return entry_of(
        f"runs/{step}-x.arrow", step=step, rows=len(times), min_time=times[0], max_time=times[-1],
        quantiles=tuple(times[1:-1])
    )  # fmt: skip


@pytest.fixture
def log(tmp_path):
    return ManifestLog(LocalStore(str(tmp_path / "state"), durable=False))


def replay(entries):
    manifest = Manifest()
    for one in entries:
        manifest = manifest.apply(one)
    return manifest


def test_nothing_committed_is_an_empty_manifest(log):
    assert log.load() == Manifest()


def test_applying_an_entry_adds_and_removes_files_and_sums_counters():
    manifest = replay(
        [entry(0), entry(1, runs_removed=("runs/0-x.arrow",)), entry(2, cursors={"other": SinkCursor(2)})]
    )
    assert list(manifest.runs) == ["runs/1-x.arrow", "runs/2-x.arrow"]
    assert len(manifest.results) == len(manifest.sides) == 3
    assert manifest.counters == Counters(
        streams={"a": StreamCounters(rows=6, late=1)},
        queries={0: QueryCounters(results=2), 1: QueryCounters(results=1)},
    )
    assert manifest.progress_values() == {"a": 20, "b": -(2**62)}
    assert manifest.cursors == {"sink": SinkCursor(0), "other": SinkCursor(2)}
    assert (manifest.step, manifest.last_batch, manifest.identity, manifest.clock) == (2, 2, "id2", 3.0)
    assert [r.name for r in manifest.runs_of("a(k)")] == list(manifest.runs)
    assert manifest.runs_of("b(k)") == []
    assert manifest.results["results/1-y.parquet"].count(2) == 4
    assert manifest.results["results/1-y.parquet"].count(7) == 0


@settings(max_examples=examples(40))
@given(st.data())
def test_what_is_loaded_is_what_was_applied_with_any_snapshots(tmp_path_factory, data):
    log = ManifestLog(LocalStore(str(tmp_path_factory.mktemp("log")), durable=False))
    manifest = Manifest()
    for step in range(data.draw(st.integers(1, 8))):
        one = random_entry(step, data.draw)
        log.append(one)
        manifest = manifest.apply(one)
        if data.draw(st.booleans()):
            log.snapshot(manifest)
        assert log.load() == manifest


def test_groups_that_were_closed_are_those_of_the_last_step_that_says_so_and_go_with_their_stream():
    one, two = (('{"k":1}', 25),), (('{"k":2}', 27),)
    known = {"a": Progress(20, 25, closed=one), "b": Progress(20, 25, closed=two)}
    first = replay([entry(0, progress=known)])
    assert not first.closed_groups
    then = first.apply(entry(1, progress={**first.progress, "a": Progress(21, 25, grown=two)}, ended=BEFORE))
    assert then.closed_groups == {"a": one, "b": two}
    assert then.progress["a"].closed == (*one, *two)
    assert then.apply(entry(2, progress=then.progress)).closed_groups == then.closed_groups
    assert then.apply(entry(2, progress=then.progress, ended=NOW)).closed_groups == {"a": (*one, *two), "b": two}
    other = {"b": ()}  # of a stream whose groups changed while the step ran
    assert then.apply(entry(2, progress=then.progress, ended=NOW, closed_groups=other)).closed_groups == {
        "a": (*one, *two)
    }
    assert then.apply(entry(2, progress={"a": Progress(26, 27, grown=())})).progress["a"].closed == two
    assert set(then.apply(entry(2, progress={"a": then.progress["a"]})).closed_groups) == {"a"}


def test_snapshots_let_go_of_old_entries_but_the_last_two_stay(log):
    manifest = Manifest()
    for step in range(9):
        log.append(entry(step))
        manifest = manifest.apply(entry(step))
        if step in (2, 5, 7):
            log.snapshot(manifest)
    names = log.store.names("manifest")
    assert [n for n in names if n.startswith("snapshot")] == [
        "snapshot-000000000005.json",
        "snapshot-000000000007.json",
    ]
    assert [n for n in names if n[0].isdigit()] == [f"{step:012d}.json" for step in (6, 7, 8)]
    assert log.load() == manifest


def test_a_step_is_committed_once(log):
    log.append(entry(0))
    with pytest.raises(StateError, match="step 0 was already committed by another engine"):
        log.append(entry(0, identity="other"))
    assert log.load().identity == "id0"


@pytest.mark.parametrize("snapshot", [False, True])
@pytest.mark.parametrize("damage", [lambda b: b[:-10], lambda b: b.replace(b'"step":1', b'"step":7'), lambda b: b""])
def test_a_damaged_file_is_found_and_named(log, damage, snapshot):
    for step in range(2):
        log.append(entry(step))
    if snapshot:
        log.snapshot(replay([entry(0), entry(1)]))
    name = "manifest/snapshot-000000000001.json" if snapshot else "manifest/000000000001.json"
    path = Path(log.store.path(name))
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(StateError, match=f"{path.name} is damaged"):
        log.load()


@pytest.mark.parametrize("missing", [0, 1])
def test_a_gap_in_the_log_is_found_and_named(log, missing):
    for step in range(3):
        log.append(entry(step))
    log.store.delete(f"manifest/{missing:012d}.json")
    with pytest.raises(
        StateError, match=f"manifest of step {missing} is missing.*although step {missing + 1} is there"
    ):
        log.load()


def test_an_unfinished_write_is_not_an_entry(log):
    log.append(entry(0))
    log.store.write("manifest/000000000001.json.0a1b.tmp", b"half")
    assert log.load() == replay([entry(0)])


def test_a_newer_format_is_refused(log):
    import json
    import zlib

    body = json.dumps({"format": 99})
    log.store.write("manifest/000000000000.json", f"{zlib.crc32(body.encode()):08x} {body}\n".encode())
    with pytest.raises(StateError, match="another version of Penstock"):
        log.load()


def test_side_files_have_the_clock_of_their_step_and_leave_when_they_are_removed(log):
    entries = [entry(0), entry(1), entry(2, sides_removed=("sides/0-z.parquet",))]
    for one in entries:
        log.append(one)
    log.snapshot(replay(entries))
    for path in Path(log.store.path("manifest")).glob("0*.json"):
        path.unlink()
    assert [(s.name, s.at) for s in log.load().sides] == [("sides/1-z.parquet", 1.5), ("sides/2-z.parquet", 3.0)]


def test_a_body_of_an_older_format_is_migrated_where_that_is_little_work_and_else_refused(log, monkeypatch):
    name = "manifest/000000000000.json"
    log.append(entry(0))
    body = unseal(log.store.read(name), name)
    body["id"] = body.pop("identity")
    log.store.delete(name)
    monkeypatch.setattr("penstock.storage.seal.FORMAT", FORMAT - 1)
    log.store.write(name, seal(body))
    monkeypatch.undo()
    with pytest.raises(StateError, match=r"another version of Penstock.*use that one, or another state directory"):
        log.load()
    renamed = {FORMAT - 1: lambda body: {("identity" if k == "id" else k): v for k, v in body.items()}}
    monkeypatch.setattr("penstock.storage.seal.MIGRATIONS", renamed)
    assert log.load() == replay([entry(0)])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda body: body.pop("decisions"), "decisions"),
        (lambda body: body["progress"]["a"].pop("stairs"), "progress"),
        (lambda body: body["progress"]["a"].update(more=1), "progress"),
        (lambda body: body["runs_added"][0].update(size=1), "runs_added"),
        (lambda body: body["results"][0].pop("rows"), "rows"),
        (lambda body: body["counters"]["streams"]["a"].update(lost=1), "lost"),
        (lambda body: body.update(version="3"), "version"),
        (lambda body: body.update(news={}), "news"),
    ],
)
@pytest.mark.parametrize("snapshot", [False, True])
def test_what_is_missing_unknown_or_of_another_type_is_refused_with_its_place(log, change, said, snapshot):
    log.append(entry(0))
    name = "manifest/000000000000.json"
    if snapshot:
        log.snapshot(replay([entry(0)]))
        log.store.delete(name)
        name = "manifest/snapshot-000000000000.json"
    body = unseal(log.store.read(name), name)
    change(body)
    log.store.delete(name)
    log.store.write(name, seal(body))
    with pytest.raises(StateError, match=rf"{name} says what this version of Penstock does not know .*{said}.*restore"):
        log.load()


def large(files):
    """The state behind a step with so many files of results and of late rows."""
    results = [ResultFile(f"results/{n}-y.parquet", "a x b", 0, 3, 4, 99, 0, 9, ((1, 4),)) for n in range(files)]
    sides = [SideFile(f"sides/{n}-z.parquet", "a", "late", 0, 1, 50) for n in range(files)]
    return entry(0, results=tuple(results), sides=tuple(sides))


def test_what_steps_write_and_copy_does_not_grow_with_the_files_that_are_there(log):
    written = {}
    for files in (10, 10_000):
        own = ManifestLog(MemoryStore())
        own.append(large(files))
        manifest = Manifest().apply(large(files))
        own.snapshot(manifest)
        before, sizes = manifest, []
        for step in range(1, 2 * SNAPSHOT_EVERY + 1):
            one = entry(step, runs_added=())
            own.append(one)
            sizes.append(own.store.size(f"manifest/{step:012d}.json"))
            manifest = manifest.apply(one)
            own.snapshot_if_due(manifest)
            snapshots = [n for n in own.store.names("manifest") if n == f"snapshot-{step:012d}.json"]
            sizes += [own.store.size(f"manifest/{name}") for name in snapshots]
        assert manifest.results._files is before.results._files
        assert manifest.sides._all is before.sides._all
        assert manifest.runs is before.runs
        assert len(manifest.results) == len(manifest.sides) == files + 2 * SNAPSHOT_EVERY
        assert len(before.results) == len(before.sides) == files
        assert ManifestLog(own.store).load() == manifest
        written[files] = sum(sizes)
    assert written[10_000] <= 1.1 * written[10]


def test_a_snapshot_is_written_once_the_log_has_grown_by_as_much_also_behind_a_restart(log):
    log.append(large(500))
    manifest = Manifest().apply(large(500))
    log.snapshot(manifest)
    step = 0
    while (at := log.snapshots.numbers()) == [0]:
        step += 1
        log = ManifestLog(log.store)
        assert log.load() == manifest
        log.append(entry(step))
        manifest = manifest.apply(entry(step))
        log.snapshot_if_due(manifest)
    sizes = [log.store.size(log.steps.name(n)) for n in range(1, step + 1)]
    assert at == [0, step]
    assert step % SNAPSHOT_EVERY == SNAPSHOT_EVERY - 1
    assert sum(sizes) >= log.store.size(log.snapshots.name(0)) > sum(sizes[:-SNAPSHOT_EVERY])
