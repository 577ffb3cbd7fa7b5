"""Sources that report their changes: the deletion of an absent row is detected, whatever the view shows of it."""

from __future__ import annotations

from collections import Counter
from random import Random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import StepError
from penstock.model import Column
from penstock.model.view import Source
from penstock.planner.views.initial_load import Estimate
from penstock.planner.views.strategies import STRATEGIES
from penstock.reference.view import answer, canonical
from penstock.sql import parse_view
from penstock.storage.local import LocalStore
from penstock.views.sources.change_audit import coded
from penstock.views.store import ViewStore
from penstock.views.view import Parts, ViewHandle
from tests.effort import examples

from .memory import MemorySource

SOURCES = {
    "told": Source("told", (Column("cust", "int"), Column("name", "string")), "postgres", changes="table",
     change_table="log"),
    "orders": Source("orders", (Column("k", "bigint"), Column("cust", "int")), "postgres", changes="trigger"),
}  # fmt: skip
NAMES = "SELECT name FROM told"
TOTALS = "SELECT o.cust, count(*) AS n, sum(o.k) AS total FROM orders o, told t WHERE o.cust = t.cust GROUP BY o.cust"
SOME = "SELECT t.name, o.k FROM orders o, told t WHERE o.cust = t.cust AND t.cust > 7"


class Told(MemorySource):
    """A source in memory that a view can be kept of; its log may lie."""

    def mark(self, position):
        return str(position)

    def resume(self, mark):
        return int(mark)

    def settle(self, position):
        pass

    def estimate(self, columns):
        rows = sum(self.content.values())
        return Estimate(rows, dict.fromkeys(columns, rows))

    def lie(self, row):
        self.log.append((row, -1))


def opened(folder, sql, told=(), orders=(), strategy="auto", readers=None):
    readers = readers or {"told": Told(SOURCES["told"], told), "orders": Told(SOURCES["orders"], orders)}
    view = parse_view(sql, SOURCES, name="v")
    used = {node.source: readers[node.source] for node in view.nodes}
    return ViewHandle(Parts(view, used, LocalStore(str(folder), durable=False), "views/v"), strategy=strategy), readers


def rows(view):
    return sorted((tuple(row.values()) for row in view.to_arrow().to_pylist()), key=repr)


@pytest.mark.parametrize("strategy", ["auto", "recompute"])
def test_a_deletion_of_a_row_that_looks_like_another_one_is_reported(tmp_path, strategy):
    view, readers = opened(tmp_path, NAMES, [(7, "Ann"), (7, "Bob")], strategy=strategy)
    view.refresh()
    readers["told"].lie((9, "Ann"))
    with pytest.raises(
        StepError, match=r"'told': log tells of the deletion of \{'cust': 9, 'name': 'Ann'\}.*not there"
    ):
        view.refresh()
    assert rows(view) == [("Ann",), ("Bob",)]
    view.refresh(full=True)
    assert rows(view) == [("Ann",), ("Bob",)]
    readers["told"].change((7, "Ann"), -1)
    view.refresh()
    assert rows(view) == [("Bob",)]


@pytest.mark.parametrize("strategy", ["auto", "batch", "conditional", "recompute"])
def test_groups_do_not_shrink_by_a_row_that_was_not_there(tmp_path, strategy):
    told, orders = [(7, "Ann"), (7, "Bob")], [(1, 7), (2, 7)]
    view, readers = opened(tmp_path, TOTALS, told, orders, strategy)
    view.refresh()
    assert rows(view) == [(7, 4, 6)]
    readers["told"].lie((7, "Nobody"))
    with pytest.raises(StepError, match=r"Nobody.*not there"):
        view.refresh()
    assert rows(view) == [(7, 4, 6)]


def test_rows_that_the_view_leaves_out_are_counted_too(tmp_path):
    view, readers = opened(tmp_path, SOME, [(7, "Ann"), (8, "Bob")], [(1, 8)])
    view.refresh()
    readers["told"].change((7, "Ann"), -1)
    readers["told"].change((7, "Cid"), 1)
    view.refresh()
    readers["told"].lie((7, "Dora"))
    with pytest.raises(StepError, match=r"Dora.*not there"):
        view.refresh()


def test_a_row_is_deleted_as_often_as_it_is_there_and_after_a_restart_too(tmp_path):
    view, readers = opened(tmp_path, NAMES, [(7, "Ann")] * 3 + [(8, "Ann")])
    view.refresh()
    readers["told"].change((7, "Ann"), -1)
    view.refresh()
    view.close()
    again, _ = opened(tmp_path, NAMES, readers=readers)
    readers["told"].change((7, "Ann"), -1)
    readers["told"].change((7, "Ann"), -1)
    again.refresh()
    assert rows(again) == [("Ann",)]
    readers["told"].lie((7, "Ann"))
    with pytest.raises(StepError, match="not there"):
        again.refresh()


def test_a_version_that_knows_nothing_of_what_was_told_learns_it(tmp_path, monkeypatch):
    def forgetful(self, *given, install=ViewStore.install, told=None, **more):
        return install(self, *given, **more)

    monkeypatch.setattr(ViewStore, "install", forgetful)
    view, readers = opened(tmp_path, NAMES, [(7, "Ann"), (8, "Ann")])
    view.refresh()
    monkeypatch.undo()
    readers["told"].change((7, "Ann"), -1)
    view.refresh()
    assert rows(view) == [("Ann",)]
    readers["told"].lie((7, "Ann"))
    with pytest.raises(StepError, match="not there"):
        view.refresh()


def test_sources_whose_changes_are_captured_are_not_kept(tmp_path):
    view, _ = opened(tmp_path, "SELECT k FROM orders", orders=[(1, 7)])
    view.refresh()
    assert set(view.store.newest.bags) == {"rows"}
    other, _ = opened(tmp_path / "other", NAMES, [(7, "Ann")])
    other.refresh()
    assert set(other.store.newest.bags) == {"rows", "told/told"}


def test_a_code_and_a_count_are_kept_of_a_row():
    table = pa.table(
        {"a": ["x", "y", "x"], "b": pa.array([1, 1, 1], pa.int32()), "_count": pa.array([1, 1, 2], pa.int64())}
    )
    found = coded(table)
    assert found.schema.names == ["row", "_count"]
    assert sorted(found.column("_count").to_pylist()) == [1, 3]


@settings(max_examples=examples(25))
@given(
    sql=st.sampled_from([NAMES, TOTALS, SOME]),
    seed=st.integers(0, 2**32),
    strategy=st.sampled_from(("auto", *(s for s in STRATEGIES if s != "adjacent"))),
)
def test_true_changes_are_taken_in_and_false_ones_never(tmp_path_factory, sql, seed, strategy):
    rng = Random(seed)

    def told():
        return rng.randint(7, 9), rng.choice(["Ann", "Bob", None])

    view, readers = opened(tmp_path_factory.mktemp("case"), sql, [told() for _ in range(3)], [(1, 7), (2, 8)], strategy)
    for _ in range(6):
        source = readers["told"]
        source.change(told(), 1)
        present = sorted((row for row, times in source.content.items() if times), key=repr)
        if rng.random() < 0.7:
            source.change(rng.choice(present), -1)
        before = rows(view) if view.store.newest.number else None
        if rng.random() < 0.4:
            row = told()
            for _ in range(source.content[row] + 1):
                source.lie(row)
            if before is not None:
                with pytest.raises(StepError, match="not there"):
                    view.refresh()
                assert rows(view) == before
            view.refresh(full=True)
        else:
            view.refresh()
        expected = answer(view.view, SOURCES, {name: +reader.content for name, reader in readers.items()})
        found = Counter(tuple(map(canonical, row.values())) for row in view.to_arrow().to_pylist())
        assert found == expected


def test_changes_that_a_view_does_not_see_are_passed_over_once_they_are_many(tmp_path):
    """Rows behind a filter, or that go as they came: fetched by each refresh, until its mark moves behind them."""
    view, readers = opened(tmp_path, SOME, [(9, "Ann")], [(1, 9)])
    settled: list = []
    view.parts.settled = lambda: settled.append(view.positions())
    view.refresh()
    seen, before = rows(view), view.status()
    for k in range(1_000):
        readers["told"].change((k % 7, "x"), 1)
    view.refresh()
    assert (view.status()["marks"], len(settled)) == (before["marks"], 1)
    readers["told"].change((7, "x"), 1)
    facts = view.refresh()
    assert facts["changed"] == [0, 0]
    assert settled[1:] == [{"told": 1_002, "orders": 1}]
    assert (rows(view), view.status()["last"]["at"]) == (seen, before["last"]["at"])
    view.close()
    again, _ = opened(tmp_path, SOME, readers=readers)
    assert again.positions() == {"told": 1_002, "orders": 1}
    readers["told"].change((3, "x"), -1)  # it was reported, so it may be deleted
    for k in range(50):
        readers["orders"].change((5, 9), 1)
        readers["orders"].change((5, 9), -1)
        assert again.positions()["orders"] == 1, k
        again.refresh()
    assert again.positions() == {"told": 1_003, "orders": 101}
    readers["orders"].change((2, 9), 1)
    again.refresh()
    assert rows(again) == [("Ann", 1), ("Ann", 2)]
    readers["told"].lie((3, "y"))
    with pytest.raises(StepError, match="not there"):
        again.refresh()
