"""Files as a source: whatever happens to them, each version is the one before plus its changes."""

from __future__ import annotations

import os
from collections import Counter
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import ChangesLostError, RegistrationError, StepError
from penstock.model import Column, Compare, Expression, Literal, Ref
from penstock.model.view import Source
from penstock.storage.local import LocalStore
from penstock.views.rows import slices
from penstock.views.rows.bag import COUNT
from penstock.views.sources import parquet, versions
from penstock.views.sources.parquet import ParquetFeed, columns_of
from penstock.views.sources.snapshot import SnapshotReader, counted

COLUMNS = (Column("k", "bigint"), Column("v", "string"))


def reader(folder, state, columns=COLUMNS, key=()) -> SnapshotReader:
    source = Source("s", columns, "parquet", (("path", str(folder)),), key)
    return SnapshotReader(source, LocalStore(str(state), durable=False), "sources/s", ParquetFeed(source))


def write(path, rows) -> None:
    """A file that appears whole, with a time of change of its own."""
    table = pa.table(
        {"k": pa.array([k for k, _ in rows], pa.int64()), "v": pa.array([v for _, v in rows], pa.string())}
    )
    stamp = path.stat().st_mtime_ns + 1_000_000 if path.exists() else None
    pq.write_table(table, path.with_suffix(".tmp"))
    if stamp is not None:
        os.utime(path.with_suffix(".tmp"), ns=(stamp, stamp))
    path.with_suffix(".tmp").rename(path)


def bag(rows: pa.Table) -> Counter:
    found: Counter = Counter()
    for row in rows.to_pylist():
        found[tuple(v for n, v in row.items() if n != COUNT)] += row[COUNT]
    return Counter({row: count for row, count in found.items() if count})


ROWS = st.lists(st.tuples(st.one_of(st.none(), st.integers(-2, 3)), st.sampled_from(["a", "b", "", None])), max_size=6)
ACTIONS = st.lists(st.tuples(st.integers(0, 3), st.one_of(st.none(), ROWS), st.booleans()), max_size=12)


@given(actions=ACTIONS, most=st.sampled_from([2, 3, 12]), few=st.sampled_from([0, 5, 1000]))
def test_every_version_is_the_one_before_plus_its_changes(tmp_path_factory, actions, most, few):
    """Files come, go and are rewritten; the reader is reopened in between; slices are merged early or late."""
    root = tmp_path_factory.mktemp("case")
    folder, files = root / "files", {}
    folder.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slices, "FEW", most)
        patch.setattr(versions, "FEW_ROWS", few)
        source = reader(folder, root / "state")
        seen = [(source.position(), Counter())]
        for number, rows, reopened in actions:
            path = folder / f"{number}.parquet"
            if rows is not None:
                write(path, rows)
                files[number] = rows
            elif files.pop(number, None) is not None:
                path.unlink()
            if reopened:
                source = reader(folder, root / "state")
            position = source.position()
            expected = Counter(row for found in files.values() for row in found)
            seen.append((position, expected))
            whole = source.scan(["k", "v"], [])
            assert (whole.position, bag(whole.rows)) == (position, expected)
            keys = pa.table({"k": pa.array([1, 3, 77], pa.int64())})
            found = source.lookup(["k", "v"], keys, [])
            hits = found.rows.filter(pc.is_in(found.rows.column("k"), keys.column("k")))
            assert bag(hits) == {row: n for row, n in expected.items() if row[0] in (1, 3)}
        for start, before in seen:
            for end, after in seen:
                if start <= end:
                    assert source.changes(start, end)[1] == end
                    change = bag(source.changes(start, end)[0])
                    assert {r: n for r in {*before, *change} if (n := before[r] + change[r])} == after


def test_requests_of_one_refresh_see_the_same_rows_while_files_come(tmp_path):
    folder = tmp_path / "files"
    folder.mkdir()
    write(folder / "a.parquet", [(1, "a")])
    source = reader(folder, tmp_path / "state")
    position = source.position()
    write(folder / "b.parquet", [(1, "b")])
    found = source.lookup(["v"], pa.table({"k": pa.array([1])}), [])
    assert (found.position, bag(found.rows)) == (position, {("a",): 1})
    assert bag(source.scan(["v"], []).rows) == {("a",): 1, ("b",): 1}  # who asks for everything gets what is there
    assert bag(source.changes(position)[0]) == {(1, "b"): 1}


def test_rows_that_stay_when_a_file_is_written_anew_are_no_change(tmp_path):
    folder = tmp_path / "files"
    folder.mkdir()
    write(folder / "a.parquet", [(k, "same") for k in range(100)])
    source = reader(folder, tmp_path / "state")
    start = source.position()
    write(folder / "a.parquet", [(k, "same" if k else "new") for k in range(100)])
    changes, _ = source.changes(start)
    assert changes.num_rows == 2
    assert bag(changes) == {(0, "same"): -1, (0, "new"): 1}


def test_filters_use_columns_that_are_not_asked_for(tmp_path):
    folder = tmp_path / "files"
    folder.mkdir()
    write(folder / "a.parquet", [(1, "a"), (2, "b")])
    above = Expression((Ref(3, "k"),), Compare(">", Ref(3, "k"), Literal(1, "bigint")), total=True)
    found = reader(folder, tmp_path / "state").scan(["v"], [above])
    assert found.rows.to_pylist() == [{"v": "b", COUNT: 1}]


def test_changes_that_nobody_needs_are_given_up(tmp_path):
    folder = tmp_path / "files"
    folder.mkdir()
    source = reader(folder, tmp_path / "state")
    for number in range(40):
        write(folder / f"{number}.parquet", [(number, "x")])
        source.settle(source.position() - 1)
    assert len(list((tmp_path / "state/sources/s").glob("*.json"))) == 1
    assert len(list((tmp_path / "state/sources/s/slices").glob("*.arrow*"))) <= 2 * slices.FEW + 2
    assert source.scan(["k"], []).rows.num_rows == 40
    with pytest.raises(ChangesLostError, match=r"version 2 of .* is no longer kept"):
        source.changes(1)


@given(
    actions=st.lists(st.one_of(st.tuples(st.integers(0, 2), ROWS), st.just("begin"), st.just("end")), max_size=20),
    most=st.sampled_from([2, 3]),
    few=st.sampled_from([0, 5, 1000]),
)
def test_a_version_can_be_read_to_its_end_whatever_comes_meanwhile(tmp_path_factory, actions, most, few):
    """Readers that began at different versions, while files are merged and deltas dropped."""
    root = tmp_path_factory.mktemp("case")
    folder, files = root / "files", {}
    folder.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slices, "FEW", most)
        patch.setattr(versions, "FEW_ROWS", few)
        source = reader(folder, root / "state")
        held, begun = source._versions, []
        source.position()
        for action in actions:
            if action == "begin":
                reading = held.reading()
                begun.append((reading, reading.__enter__(), Counter(row for found in files.values() for row in found)))
            elif action == "end" and begun:
                begun.pop(0)[0].__exit__(None, None, None)
            elif action != "end":
                write(folder / f"{action[0]}.parquet", action[1])
                files[action[0]] = action[1]
                source.settle(source.position())
            held.slices._tables.clear()  # as if nothing had been read before
            for _, version, expected in begun:
                assert bag(held.rows(["k", "v"], version)) == expected
        for reading, _, _ in begun:
            reading.__exit__(None, None, None)
        named = {f.name for f in (*held.newest.content, *(f for _, f in held.newest.deltas))}
        assert {f"sources/s/slices/{p.name}" for p in (root / "state/sources/s/slices").glob("*.arrow")} == named


VALUES = {
    "tinyint": [1, None, -1],
    "bigint": [2**62, None, -(2**62)],
    "float": [0.5, None, -0.0],
    "double": [float("nan"), None, -0.0],
    "boolean": [True, None, False],
    "string": ["", None, "ä€"],
    "date": [date(1969, 12, 31), None, date(2024, 2, 29)],
    "timestamp": [datetime(2024, 1, 1, tzinfo=UTC), None, datetime(1900, 1, 1, tzinfo=UTC)],
    "timestamp_ntz": [datetime(2024, 1, 1), None, datetime(1900, 1, 1)],  # noqa: DTZ001
    "decimal(10,2)": [Decimal("1.25"), None, Decimal("-99999999.99")],
}


@pytest.mark.parametrize("kind", VALUES)
def test_keys_of_every_type_find_their_rows_and_only_they_matter(tmp_path, kind):
    columns = (Column("x", kind), Column("y", "int"))
    folder = tmp_path / "files"
    folder.mkdir()
    from penstock.columns.types import arrow_type

    values = pa.array(VALUES[kind], arrow_type(kind))
    pq.write_table(pa.table({"x": values, "y": pa.array([0, 1, 2], pa.int32())}), folder / "a.parquet")
    assert columns_of(str(folder)) == columns
    source = reader(folder, tmp_path / "state", columns)
    for names in (["x"], ["x", "y"]):
        for row in (0, 2):
            keys = pa.table({"x": values.slice(row, 1), "y": pa.array([row], pa.int32())}).select(names)
            assert source.lookup(["y"], keys, []).rows.to_pylist() == [{"y": row, COUNT: 1}]


def test_zero_finds_minus_zero(tmp_path):
    folder = tmp_path / "files"
    folder.mkdir()
    pq.write_table(pa.table({"x": [-0.0, 1.0]}), folder / "a.parquet")
    source = reader(folder, tmp_path / "state", (Column("x", "double"),))
    assert source.lookup(["x"], pa.table({"x": [0.0]}), []).rows.num_rows == 1


def test_files_may_be_replaced_or_go_while_they_are_looked_at(tmp_path, monkeypatch):
    """What happens between the listing and the reading of a file is seen now or at the next look, and is no error."""
    folder, read = tmp_path / "files", pq.ParquetFile
    folder.mkdir()
    for name in "abc":
        write(folder / f"{name}.parquet", [(1, name)])
    source = reader(folder, tmp_path / "state")
    source.position()
    happens = {
        "a": lambda: write(folder / "a.parquet", [(2, "again")]),
        "b": (folder / "b.parquet").unlink,
        "new": (folder / "new.parquet").unlink,
    }

    def disturbed(path, **options):
        happens.pop(path.rpartition("/")[2].removesuffix(".parquet"), lambda: None)()
        return read(path, **options)

    for name in ("a", "b", "new"):
        write(folder / f"{name}.parquet", [(7, "seen by nobody")])
    monkeypatch.setattr(pq, "ParquetFile", disturbed)
    assert bag(source.scan(["k", "v"], []).rows) == {(2, "again"): 1, (1, "c"): 1}
    assert not happens
    monkeypatch.setattr(
        pq, "ParquetFile", lambda path, **options: write(folder / "a.parquet", []) or read(path, **options)
    )
    write(folder / "a.parquet", [(3, "x")])
    with pytest.raises(StepError, match="written while it was read"):
        source.position()


def test_a_file_that_took_the_place_of_another_of_its_size_and_time_is_read(tmp_path):
    folder = tmp_path / "files"
    folder.mkdir()
    write(folder / "a.parquet", [(1, "a")])
    source = reader(folder, tmp_path / "state")
    assert bag(source.scan(["k", "v"], []).rows) == {(1, "a"): 1}
    before = (folder / "a.parquet").stat()
    write(tmp_path / "b.parquet", [(2, "b")])
    os.utime(tmp_path / "b.parquet", ns=(before.st_mtime_ns, before.st_mtime_ns))
    (tmp_path / "b.parquet").rename(folder / "a.parquet")
    after = (folder / "a.parquet").stat()
    assert (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns)
    assert bag(source.scan(["k", "v"], []).rows) == {(2, "b"): 1}


def test_a_source_that_is_distrusted_reads_also_what_seems_not_to_have_changed(tmp_path, monkeypatch):
    write(tmp_path / "a.parquet", [(1, "a")])
    write(tmp_path / "b.parquet", [(7, "b")])
    monkeypatch.setattr(parquet, "_stamp", lambda name: [0])
    source = reader(tmp_path, tmp_path / "../state")
    source.position()
    write(tmp_path / "a.parquet", [(2, "a")])
    assert bag(source.scan(["k"], []).rows) == {(1,): 1, (7,): 1}
    source.distrust()
    assert bag(source.scan(["k"], []).rows) == {(2,): 1, (7,): 1}
    assert bag(source.changes(1, 2)[0]) == {(1, "a"): -1, (2, "a"): 1}


def test_stamps_of_an_earlier_format_are_read_anew_and_nothing_is_lost(tmp_path):
    folder = tmp_path / "files"
    folder.mkdir()
    for name in "ab":
        write(folder / f"{name}.parquet", [(1, name)])
    source = reader(folder, tmp_path / "state")
    source.position()
    newest = source._versions.newest
    old = {n: [*newest.state["stamps"][n][:2], number] for n, number in newest.state["files"].items()}
    write(folder / "c.parquet", [(3, "c")])
    source._versions.append(
        counted(pa.table({"k": [9], "v": ["x"], "_file": pa.array([9], pa.int32())})), {"files": old, "next": 2}
    )
    again = reader(folder, tmp_path / "state")
    assert bag(again.scan(["k", "v"], []).rows) == {(1, "a"): 1, (1, "b"): 1, (3, "c"): 1, (9, "x"): 1}
    assert set(again._versions.newest.state["files"].values()) == {0, 1, 2}


def test_mistakes_name_the_file(tmp_path):
    with pytest.raises(RegistrationError, match="there is no Parquet file"):
        columns_of(str(tmp_path))
    (tmp_path / "half.parquet").write_bytes(b"PAR1")
    with pytest.raises(StepError, match=r"half\.parquet cannot be read"):
        reader(tmp_path, tmp_path / "state").position()
    pq.write_table(pa.table({"k": [1]}), tmp_path / "half.parquet")
    with pytest.raises(StepError, match=r"half\.parquet cannot be read: it has no column 'v'"):
        reader(tmp_path, tmp_path / "other").position()
    pq.write_table(pa.table({"k": [[1]]}), tmp_path / "half.parquet")
    with pytest.raises(RegistrationError, match="which views do not hold"):
        columns_of(str(tmp_path))


def test_hidden_files_are_not_looked_at(tmp_path):
    write(tmp_path / "a.parquet", [(1, "a")])
    (tmp_path / "_temporary").mkdir()
    write(tmp_path / "_temporary" / "b.parquet", [(2, "b")])
    (tmp_path / "part=1").mkdir()
    write(tmp_path / "part=1" / "c.parquet", [(3, "c")])
    assert bag(reader(tmp_path, tmp_path / "../state").scan(["k"], []).rows) == {(1,): 1, (3,): 1}


def test_folders_behind_links_are_looked_at_and_circles_end(tmp_path):
    for folder in ("files/below", "elsewhere"):
        (tmp_path / folder).mkdir(parents=True)
    write(tmp_path / "files" / "a.parquet", [(1, "a")])
    write(tmp_path / "elsewhere" / "b.parquet", [(2, "b")])
    for link, target in (("there", tmp_path / "elsewhere"), ("below/back", tmp_path / "files"), ("own", "own")):
        (tmp_path / "files" / link).symlink_to(target)
    (tmp_path / "elsewhere" / "back").symlink_to(tmp_path / "files")
    (tmp_path / "linked").symlink_to(tmp_path / "files")
    for folder in ("files", "linked"):
        source = reader(tmp_path / folder, tmp_path / "state" / folder)
        assert bag(source.scan(["k"], []).rows) == {(1,): 1, (2,): 1}
    (tmp_path / "elsewhere" / "b.parquet").unlink()
    assert bag(source.scan(["k"], []).rows) == {(1,): 1}


def test_moments_as_spark_writes_them_are_in_utc_and_reach_the_year_9999(tmp_path):
    """INT96 does not say that it means moments; a file of them has the rows of one that says so."""
    columns = (Column("at", "timestamp"), Column("y", "int"))
    times = [
        datetime(9999, 12, 31, tzinfo=UTC),
        datetime(1500, 1, 1, tzinfo=UTC),
        datetime(2024, 1, 1, 0, 0, 0, 1, UTC),
    ]
    rows = pa.table({"at": pa.array([*times, None], pa.timestamp("us", tz="UTC")), "y": pa.array(range(4), pa.int32())})
    for int96 in (True, False):
        folder = tmp_path / f"{int96}"
        folder.mkdir()
        pq.write_table(rows, folder / "a.parquet", use_deprecated_int96_timestamps=int96)
        assert columns_of(str(folder)) == columns
        found = reader(folder, tmp_path / "state" / folder.name, columns).scan(["at", "y"], []).rows
        assert found.drop_columns(COUNT).equals(rows)


@given(actions=st.lists(st.tuples(st.integers(0, 2), st.lists(st.integers(0, 3), max_size=3)), max_size=6))
def test_two_rows_of_one_key_are_refused_and_nothing_else(tmp_path_factory, actions):
    """The refused look changes nothing, and once the files are right again it is taken."""
    root = tmp_path_factory.mktemp("case")
    folder, files = root / "files", {}
    folder.mkdir()
    source = reader(folder, root / "state", key=("k",))
    held: Counter = Counter()
    for number, keys in actions:
        files[number] = keys
        write(folder / f"{number}.parquet", [(k, f"{number}") for k in keys])
        now = Counter((k, f"{n}") for n, found in files.items() for k in found)
        if max(Counter(k for n in files for k in files[n]).values(), default=0) > 1:
            with pytest.raises(
                StepError, match=r"'s' has \d rows: \{'k': \d\}; correct it, or declare it without KEY \(k\)"
            ):
                source.position()
        else:
            source.position()
            held = now
        with source._versions.reading() as version:
            assert bag(source._versions.rows(["k", "v"], version)) == held


def test_a_key_has_a_value(tmp_path):
    write(tmp_path / "a.parquet", [(1, "a"), (None, "b")])
    with pytest.raises(StepError, match=r"a row without a value in its key: \{'k': None\}"):
        reader(tmp_path, tmp_path / "state", key=("k",)).position()
