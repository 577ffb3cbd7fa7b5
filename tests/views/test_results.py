"""Results of a standing query as a source: by steps for the same query, compared whole for another one."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from penstock.errors import RegistrationError, StepError
from penstock.model import Column
from penstock.model.view import Source
from penstock.storage.local import LocalStore
from penstock.views.sources.results import QueryResults, ResultsFeed
from penstock.views.sources.snapshot import SnapshotReader
from tests.views.memory import Frame, bag

KEY = (Column("k", "bigint"),)


class Standing:
    """A query whose results are set by hand: (step, values ..)."""

    def __init__(self, *columns: str) -> None:
        self.rows: list[tuple[int, ...]] = []
        self.read: list[int] = []  # the step from which on
        self.now = QueryResults(
            tuple(Column(c, "bigint") for c in columns), self.results, lambda _: 0, growing=True, lineage=(1,)
        )

    def results(self, *, step: bool = False, since_step: int = -1) -> Frame:
        self.read.append(since_step)
        names = ["_step", *(c.name for c in self.now.columns)]
        kept = [row for row in self.rows if row[0] > since_step]
        table = pa.table({name: pa.array([row[n] for row in kept], pa.int64()) for n, name in enumerate(names)})
        return Frame(table if step else table.drop_columns("_step"))


def reader(query: Standing, root, changes: str = "snapshot") -> SnapshotReader:
    source = Source("s", KEY, "query", (("query", "q"), ("sign", "op")), changes=changes)
    return SnapshotReader(source, LocalStore(str(root), durable=False), "s", ResultsFeed(source, lambda: query.now))


def held(source: SnapshotReader) -> dict:
    return bag(source.scan(["k"], ()).rows)


def test_a_query_that_is_another_one_is_compared_whole(tmp_path):
    query = Standing("k")
    source = reader(query, tmp_path)
    query.rows = [(0, 1), (1, 2)]
    assert held(source) == {(1,): 1, (2,): 1}
    query.rows.append((2, 3))
    assert held(source) == {(1,): 1, (2,): 1, (3,): 1}
    query.now, query.rows = replace(query.now, lineage=(2,)), []
    assert held(source) == {}
    query.rows = [(3, 3), (4, 4)]
    assert held(reader(query, tmp_path)) == {(3,): 1, (4,): 1}
    assert query.read == [-1, 1, -1, -1]


def test_a_query_that_gives_results_up_from_now_on_is_compared_at_every_look(tmp_path):
    query = Standing("k")
    source = reader(query, tmp_path)
    query.rows = [(0, 1), (1, 2)]
    start = source.position()
    query.now, query.rows = replace(query.now, growing=False), [(1, 2), (2, 3)]
    assert bag(source.changes(start)[0]) == {(1,): -1, (3,): 1}
    query.now, query.rows = replace(query.now, growing=True, lineage=(1, 2)), [(2, 3)]
    assert held(source) == {(3,): 1}


def test_all_results_are_read_when_the_source_is_distrusted(tmp_path):
    query = Standing("k")
    source = reader(query, tmp_path)
    query.rows = [(0, 1), (1, 2)]
    source.position()
    query.rows = [(1, 2)]
    assert held(source) == {(1,): 1, (2,): 1}
    source.distrust()
    assert held(source) == {(2,): 1}


def test_changes_of_another_query_add_up_to_all_there_is(tmp_path):
    query = Standing("k", "op")
    source = reader(query, tmp_path, "stream")
    query.rows = [(0, 1, 1), (0, 2, 1), (1, 1, -1)]
    assert held(source) == {(2,): 1}
    query.now, query.rows = replace(query.now, lineage=(2,)), [(2, 3, 1), (2, 4, 1), (3, 4, -1)]
    assert held(source) == {(3,): 1}
    query.now = replace(query.now, growing=False)
    with pytest.raises(RegistrationError, match="its changes would be lost"):
        source.position()


def test_a_query_of_other_columns_is_refused(tmp_path):
    query = Standing("k")
    source = reader(query, tmp_path)
    query.rows = [(0, 1)]
    source.position()
    query.now = replace(query.now, columns=(Column("other", "bigint"),), lineage=(2,))
    with pytest.raises(StepError, match=r"'s': its query has other columns now .*declare the source anew"):
        source.position()
