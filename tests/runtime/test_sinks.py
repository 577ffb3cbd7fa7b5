"""Cursors of sinks: each group of queries that go to a sink together has its own, and goes on where a query took another's place."""

import threading
from dataclasses import replace
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JJavaError

from penstock.errors import StateError
from penstock.model import Sink
from penstock.runtime.results.folder import claim
from penstock.runtime.results.sinks import Deliveries, Recipient, group_sinks
from penstock.state.manifest import Manifest, ResultFile


def manifest(**steps):
    """Results of queries by step, as `s4=(1, 2)`."""
    files = {
        name: ResultFile(name, "j", int(name[1:]), 1, 1, 1, 0, 0, tuple((query, 1) for query in queries), "join")
        for name, queries in steps.items()
    }
    return Manifest(step=max(int(name[1:]) for name in steps), results=files)


class Rows:
    """One row for each query asked for; some cannot be read."""

    def __init__(self, *broken):
        self.broken = set(broken)

    def __call__(self, queries, part, *, as_frame):
        if self.broken & set(queries):
            raise OSError("no such place")
        return iter([pa.table({"query": list(queries), "step": [part.until] * len(queries)})])


def delivered(rows, sinks, found):
    made = Deliveries(rows, lambda _query, known: known.step, sinks)
    return made.deliver(found)


def test_queries_of_another_schema_do_not_move_the_cursor_of_those_that_fail(tmp_path):
    recipients = [
        Recipient(1, "one", str(tmp_path), ("a", "bigint")),
        Recipient(2, "two", str(tmp_path), ("b", "string")),
    ]
    found = manifest(s5=(1, 2), s9=(1, 2))
    cursors = delivered(Rows(1), group_sinks(recipients, {}, 4), found)
    assert sorted(cursors.values()) == [4, 9]
    again = group_sinks(recipients, cursors, 9)
    assert {sink.queries[0][1]: sink.delivered for sink in again} == {"one": 4, "two": 9}
    assert set(delivered(Rows(), again, found).values()) == {9}
    assert sorted(path.name for path in tmp_path.glob("*.parquet")) == [
        f"part-0000000{step}-{query}.parquet" for step in (5, 9) for query in (1, 2)
    ]


def test_what_a_query_found_before_another_took_its_place_is_delivered(tmp_path):
    schema = ("a", "bigint")
    first = group_sinks([Recipient(1, "q", str(tmp_path), schema)], {}, 0)
    cursors = delivered(Rows(1), first, manifest(s3=(1,)))
    altered = group_sinks([Recipient(2, "q", str(tmp_path), schema, line=(1, 2))], cursors, 3)
    delivered(Rows(), altered, manifest(s3=(1,), s4=(2,)))
    rows = [pq.read_table(path).to_pylist()[0] for path in sorted(tmp_path.glob("*.parquet"))]
    assert rows == [{"query": 1, "step": 3}, {"query": 2, "step": 4}]


def test_a_sink_without_new_rows_has_nothing_to_remember(tmp_path):
    sinks = group_sinks([Recipient(1, "q", str(tmp_path), ("a",))], {}, -1)
    found = manifest(s3=(1,))
    cursors = delivered(Rows(), sinks, found)
    assert list(cursors.values()) == [3]
    later = replace(found, step=50)
    assert delivered(Rows(), sinks, later) == cursors  # or every tick would commit that it committed
    assert sinks[0].delivered == 50
    assert not Deliveries(Rows(), lambda *_: 0, sinks).owes(found.results["s3"])


def test_what_a_failing_sink_is_owed_stays(tmp_path):
    sinks = group_sinks([Recipient(1, "q", str(tmp_path), ("a",))], {}, -1)
    found = manifest(s3=(1,), s4=(2,))
    delivered(Rows(1), sinks, found)
    made = Deliveries(Rows(), lambda *_: 0, sinks)
    assert [made.owes(found.results[name]) for name in ("s3", "s4")] == [True, False]


def test_a_sink_of_spark_says_what_went_wrong_in_java(tmp_path):
    java = SimpleNamespace(_target_id="o401", _gateway_client=None, getMessage=lambda: "No suitable driver\n at x")

    def fail(_queries, _part, *, as_frame):
        raise Py4JJavaError("An error occurred while calling o401.save.", java)

    sinks = group_sinks([Recipient(1, "q", Sink("jdbc"), ("a",))], {}, -1)
    delivered(fail, sinks, manifest(s3=(1,)))
    assert sinks[0].error == "No suitable driver"
    sinks = group_sinks([Recipient(1, "q", str(tmp_path), ("a",))], {}, -1)
    delivered(Rows(1), sinks, manifest(s3=(1,)))
    assert sinks[0].error == "OSError: no such place"


def test_a_folder_with_results_of_another_state_directory_is_left_alone(tmp_path):
    claim(str(tmp_path / "new" / "folder"), "one")
    claim(str(tmp_path / "new" / "folder"), "one")
    with pytest.raises(StateError, match="another state directory"):
        claim(str(tmp_path / "new" / "folder"), "two")


def test_ordered_rows_of_both_come_together(tmp_path):
    got = []
    recipient = Recipient(2, "q", lambda table, _: got.append(table.column("query").to_pylist()), ("a",), True, (1, 2))
    delivered(Rows(), group_sinks([recipient], {}, 0), manifest(s3=(1,), s4=(2,)))
    assert got == [[1, 2]]


def failing(error):
    def sink(_table, _step):
        raise error

    return group_sinks([Recipient(1, "q", sink, ("a",))], {}, -1)


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit()], ids=lambda e: type(e).__name__)
def test_whatever_a_sink_raises_in_a_thread_of_the_engine_is_its_own_failure(error):
    sinks = failing(error)
    cursors = []
    thread = threading.Thread(target=lambda: cursors.append(delivered(Rows(), sinks, manifest(s3=(1,)))))
    thread.start()
    thread.join()
    assert list(cursors[0].values()) == [-1]
    assert sinks[0].error.startswith(type(error).__name__)


def test_in_the_main_thread_ctrl_c_stops_the_program_and_sys_exit_does_not():
    with pytest.raises(KeyboardInterrupt):
        delivered(Rows(), failing(KeyboardInterrupt()), manifest(s3=(1,)))
    sinks = failing(SystemExit(1))
    delivered(Rows(), sinks, manifest(s3=(1,)))
    assert sinks[0].error == "SystemExit: 1"
