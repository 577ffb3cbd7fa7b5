"""Cursors of sinks: each group of queries of a sink has its own, which continues when a query replaces another."""

import threading
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.errors import PenstockError
from penstock.model import Sink
from penstock.results import delivery
from penstock.results.delivery import Delivery, SinkQuery
from penstock.results.layout import OWN
from penstock.results.open_sink import open_sink
from penstock.state.manifest import Manifest
from penstock.state.result_files import ResultFile, ResultFiles
from penstock.storage.local import LocalStore


def manifest(**steps):
    """Results of queries by step, as `s4=(1, 2)`."""
    files = {
        name: ResultFile(name, "j", int(name[1:]), 1, 1, 1, 0, 0, tuple((query, 1) for query in queries), "join")
        for name, queries in steps.items()
    }
    return Manifest(step=max(int(name[1:]) for name in steps), results=ResultFiles(files.values()))


class Rows:
    """One row for each query asked for; some cannot be read."""

    def __init__(self, *broken):
        self.broken = set(broken)

    def __call__(self, queries, part):
        if self.broken & set(queries):
            raise OSError("no such place")
        return iter([pa.table({"query": list(queries), "step": [part.until] * len(queries)})])


def group_sinks(queries, cursors, step, rows=None, store=None):
    opened = partial(open_sink, tables=rows or Rows(), store=store, owner="")
    return delivery.group_sinks(queries, cursors, step, opened)


def delivered(sinks, found):
    return Delivery(lambda _query, known: known.step, sinks).deliver(found)


def steps(cursors):
    return [cursor.step for cursor in cursors.values()]


def test_queries_of_another_schema_do_not_move_the_cursor_of_those_that_fail(tmp_path):
    queries = [
        SinkQuery(1, "one", str(tmp_path), ("a", "bigint")),
        SinkQuery(2, "two", str(tmp_path), ("b", "string")),
    ]
    found = manifest(s5=(1, 2), s9=(1, 2))
    cursors = delivered(group_sinks(queries, {}, 4, Rows(1)), found)
    assert sorted(steps(cursors)) == [4, 9]
    again = group_sinks(queries, cursors, 9)
    assert {sink.queries[0][1]: sink.delivered for sink in again} == {"one": 4, "two": 9}
    assert set(steps(delivered(again, found))) == {9}
    assert sorted(path.name for path in tmp_path.glob("*.parquet")) == [
        f"part-0000000{step}-{query}.parquet" for step in (5, 9) for query in (1, 2)
    ]


def test_what_a_query_found_before_another_took_its_place_is_delivered(tmp_path):
    schema = ("a", "bigint")
    first = group_sinks([SinkQuery(1, "q", str(tmp_path), schema)], {}, 0, Rows(1))
    cursors = delivered(first, manifest(s3=(1,)))
    altered = group_sinks([SinkQuery(2, "q", str(tmp_path), schema, line=(1, 2))], cursors, 3)
    delivered(altered, manifest(s3=(1,), s4=(2,)))
    rows = [pq.read_table(path).to_pylist()[0] for path in sorted(tmp_path.glob("*.parquet"))]
    assert rows == [{"query": 1, "step": 3}, {"query": 2, "step": 4}]


def test_a_sink_without_new_rows_has_nothing_to_remember(tmp_path):
    sinks = group_sinks([SinkQuery(1, "q", str(tmp_path), ("a",))], {}, -1)
    found = manifest(s3=(1,))
    cursors = delivered(sinks, found)
    assert steps(cursors) == [3]
    later = replace(found, step=50)
    assert delivered(sinks, later) == cursors  # or every tick would commit that it committed
    assert sinks[0].delivered == 50
    assert not Delivery(lambda *_: 0, sinks).owes(found.results["s3"])


def test_what_a_failing_sink_is_owed_stays(tmp_path):
    sinks = group_sinks([SinkQuery(1, "q", str(tmp_path), ("a",))], {}, -1, Rows(1))
    found = manifest(s3=(1,), s4=(2,))
    delivered(sinks, found)
    made = Delivery(lambda *_: 0, sinks)
    assert [made.owes(found.results[name]) for name in ("s3", "s4")] == [True, False]


def own_files(root, **steps):
    """A store with files of one query alone, as `s4=(1, 1)`: two of query 1 from step 4."""
    store, files = LocalStore(str(root)), {}
    for step, queries in steps.items():
        for number, query in enumerate(queries):
            name = f"results/{step[1:]}-{number}.parquet"
            table = pa.table({"query": [query], "number": [number]})
            with store.create(name) as file:
                pq.write_table(table, file)
            files[name] = ResultFile(
                name, "j", int(step[1:]), 1, 1, store.size(name), 0, 0, ((query, 1),), OWN
            )  # fmt: skip
    return store, Manifest(step=max(int(step[1:]) for step in steps), results=ResultFiles(files.values()))


def test_a_folder_gets_the_files_of_a_query_as_they_are_and_once(tmp_path):
    out, schema = tmp_path / "out", ("a", "bigint")
    store, found = own_files(tmp_path / "state", s3=(1, 1, 2), s4=(2,))
    queries = [SinkQuery(1, "one", str(out), schema), SinkQuery(2, "two", str(out), schema)]
    sinks = group_sinks(queries, {}, -1, store=store)
    assert set(steps(delivered(sinks, found))) == {4}
    names = [f"part-00000003-{query}-{number}.parquet" for query, number in ((1, 0), (1, 1), (2, 0))]
    assert sorted(p.name for p in out.glob("*.parquet")) == [*names, "part-00000004-2-0.parquet"]
    assert all((out / own).samefile(file) for own, file in zip(names, sorted(store_files(store)), strict=False))
    before = {p.name: p.stat().st_ino for p in out.iterdir()}
    # The cursor was lost, and some of the names with it: they come back, and nothing else does.
    (out / names[1]).unlink()
    delivered(
        group_sinks(queries, {}, -1, store=store), replace(found, results=ResultFiles(reversed(found.results.values())))
    )
    assert {p.name: p.stat().st_ino for p in out.iterdir()} == before


def store_files(store):
    return [Path(store.path(f"results/{name}")) for name in store.names("results")]


@pytest.mark.parametrize("links", [0, 1, 2])
def test_a_crash_between_two_links_is_made_good_by_the_next_delivery(tmp_path, monkeypatch, links):
    class Killed(BaseException):
        pass

    left = [links]

    def kill(_point, _step):
        if left[0] == 0:
            raise Killed
        left[0] -= 1

    store, found = own_files(tmp_path / "state", s3=(1, 1, 1))
    queries = [SinkQuery(1, "one", str(tmp_path / "out"), ("a",))]
    with monkeypatch.context() as patch:
        patch.setattr("penstock.results.folder.kill_point", kill)
        sinks = group_sinks(queries, {}, -1, store=store)
        assert steps(delivered(sinks, found)) == [-1], "what failed is not remembered as delivered"
        assert len(list((tmp_path / "out").glob("*.parquet"))) == links + 1
    assert steps(delivered(group_sinks(queries, {}, -1, store=store), found)) == [3]
    table = pq.read_table(tmp_path / "out")
    assert sorted(table.column("number").to_pylist()) == [0, 1, 2]


def test_a_query_with_other_files_in_a_step_is_read_and_others_are_linked(tmp_path):
    store, found = own_files(tmp_path / "state", s3=(1, 2))
    mixed = ResultFiles([*found.results.values(), *manifest(s3=(1,)).results.values()])
    queries = [SinkQuery(query, f"q{query}", str(tmp_path / "out"), ("a",)) for query in (1, 2)]
    delivered(group_sinks(queries, {}, -1, store=store), replace(found, results=mixed))
    names = sorted(p.name for p in (tmp_path / "out").glob("*.parquet"))
    assert names == ["part-00000003-1.parquet", "part-00000003-2-0.parquet"]


def test_a_file_that_is_missing_fails_the_sink_and_not_the_run(tmp_path):
    store, found = own_files(tmp_path / "state", s3=(1,))
    store.delete(next(iter(found.results)))
    sinks = group_sinks([SinkQuery(1, "q", str(tmp_path / "out"), ("a",))], {}, -1, store=store)
    assert steps(delivered(sinks, found)) == [-1]
    assert "FileNotFoundError" in sinks[0].error


def test_what_a_sink_said_is_told_in_one_line_and_what_only_spark_writes_to_is_refused_without_it(tmp_path):
    sinks = group_sinks([SinkQuery(1, "q", str(tmp_path), ("a",))], {}, -1, Rows(1))
    delivered(sinks, manifest(s3=(1,)))
    assert sinks[0].error == "OSError: no such place"
    with pytest.raises(PenstockError, match=r"sink jdbc .* is written by Spark, and there is none"):
        group_sinks([SinkQuery(1, "q", Sink("jdbc"), ("a",))], {}, -1)


def test_ordered_rows_of_both_come_together(tmp_path):
    got = []
    query = SinkQuery(2, "q", lambda table, _: got.append(table.column("query").to_pylist()), ("a",), True, (1, 2))
    delivered(group_sinks([query], {}, 0), manifest(s3=(1,), s4=(2,)))
    assert got == [[1, 2]]


def failing(error):
    def sink(_table, _step):
        raise error

    return group_sinks([SinkQuery(1, "q", sink, ("a",))], {}, -1)


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()], ids=lambda e: type(e).__name__)
def test_whatever_a_sink_raises_in_a_thread_of_the_engine_is_its_own_failure(error):
    sinks = failing(error)
    cursors = []
    thread = threading.Thread(target=lambda: cursors.append(delivered(sinks, manifest(s3=(1,)))))
    thread.start()
    thread.join()
    assert steps(cursors[0]) == [-1]
    assert sinks[0].error.startswith(type(error).__name__)


def test_in_the_main_thread_ctrl_c_stops_the_program_and_sys_exit_does_not():
    with pytest.raises(KeyboardInterrupt):
        delivered(failing(KeyboardInterrupt()), manifest(s3=(1,)))
    sinks = failing(SystemExit(1))
    delivered(sinks, manifest(s3=(1,)))
    assert sinks[0].error == "SystemExit: 1"


class Counted(list):
    """Counts the files that are looked at."""

    looked = 0

    def __getitem__(self, place):
        found = super().__getitem__(place)
        self.looked += len(found) if isinstance(place, slice) else 1
        return found


def test_a_delivery_looks_at_the_files_of_new_steps_alone():
    got = []
    queries = [
        SinkQuery(1, "one", lambda _table, step: got.append((1, step)), ("a",)),
        SinkQuery(2, "two", lambda _table, step: got.append((2, step)), ("a",)),
    ]
    before = manifest(**{f"s{step}": (1, 2, 3) for step in range(500)})
    before.results._files.all = counted = Counted(before.results._files.all)
    later = ResultFile("s500", "j", 500, 1, 1, 1, 0, 0, ((2, 1),))
    sinks = group_sinks(queries, {}, 499)
    delivered(sinks, replace(before, step=500, results=before.results.changed([later])))
    assert got == [(2, 500)]
    assert counted.looked == 1
