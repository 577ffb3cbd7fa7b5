"""A recompute is made as the first computation was: here, or by Spark if there are very many rows."""

from __future__ import annotations

import pytest

from penstock.views import view as views
from penstock.views.spark import compute_on_spark

from .test_told import TOTALS, opened, rows


def counting(view, compute):
    """Give what is to be computed to `compute`; how often that was done."""
    calls = []

    def on_spark(wanted, scanned):
        calls.append({name: table.num_rows for name, table in scanned.items()})
        return compute(wanted, scanned)

    view.parts.on_spark = on_spark
    return calls


@pytest.mark.spark
def test_a_recompute_of_very_many_rows_is_made_by_spark(tmp_path, spark, monkeypatch):
    monkeypatch.setattr(views, "SPARK_ROWS", 5)
    told, orders = [(7, "Ann"), (7, "Bob")], [(1, 7), (2, 7), (3, 8)]
    view, readers = opened(tmp_path, TOTALS, told, orders, "recompute")
    calls = counting(view, lambda wanted, scanned: compute_on_spark(spark, wanted, scanned, tmp_path / "scratch"))
    assert "shape" not in view.refresh()
    readers["orders"].change((4, 7), 1)
    readers["told"].change((8, "Cid"), 1)
    assert "shape" not in view.refresh()  # five rows were known of when the plan was made
    assert calls == []
    readers["orders"].change((1, 7), -1)
    facts = view.refresh()
    assert (facts["strategy"], facts["scanned"]) == ("recompute", [3, 3])
    assert calls == [{"orders": 3, "told": 3}]
    assert rows(view) == [(7, 4, 12), (8, 1, 3)]
    assert facts["shape"] in view.explain().replace("\n  ", "\n")


@pytest.mark.parametrize(("computed", "made"), [("auto", 2), ("local", 0), ("spark", 2)])
def test_who_recomputes_is_who_was_asked_to(tmp_path, monkeypatch, computed, made):
    monkeypatch.setattr(views, "SPARK_ROWS", 1 if computed != "spark" else 10**9)
    view, readers = opened(tmp_path, TOTALS, [(7, "Ann")], [(1, 7), (2, 7)], "recompute")
    view.computed = computed
    calls = counting(view, lambda wanted, scanned: (local(view, scanned), "shape"))
    view.refresh()
    readers["orders"].change((3, 7), 1)
    view.refresh()
    assert len(calls) == made
    assert rows(view) == [(7, 3, 6)]


def local(view, scanned):
    """The joined rows of a view, without Spark."""
    readers = view.parts.readers
    held = {name: views._Scanned(readers[name].source, views.Answer(found, 0)) for name, found in scanned.items()}
    return views.compute(view.view, held).rows
