"""What refreshes of one process leave to later ones: what they learned, and who joins very many rows."""

from __future__ import annotations

import pytest

from penstock.planner.views.initial_load import Machine
from penstock.views.refresh import whole
from penstock.views.refresh.maintain import compute
from penstock.views.refresh.spark import Computed, compute_on_spark
from penstock.views.sources.source import Answer

from .test_told import TOTALS, opened, rows


def counting(view, compute, here=1.0):
    """Give what is to be computed to `compute`, since a row costs so many seconds here; how often that was done."""
    calls = []

    def on_spark(wanted, scanned, machine):
        del machine
        calls.append({name: table.num_rows for name, table in scanned.items()})
        return compute(wanted, scanned)

    view.whole.on_spark, view.whole.machine = on_spark, lambda: Machine(here=here)
    return calls


@pytest.mark.spark
def test_a_recompute_of_very_many_rows_is_made_by_spark(tmp_path, spark, monkeypatch):
    monkeypatch.setattr(whole, "SPARK_ROWS", 5)
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
    monkeypatch.setattr(whole, "SPARK_ROWS", 1 if computed != "spark" else 10**9)
    view, readers = opened(tmp_path, TOTALS, [(7, "Ann")], [(1, 7), (2, 7)], "recompute")
    view.whole.computed = computed
    calls = counting(view, lambda wanted, scanned: Computed(local(view, scanned), "shape", (), 1.0))
    view.refresh()
    readers["orders"].change((3, 7), 1)
    view.refresh()
    assert len(calls) == made
    assert rows(view) == [(7, 3, 6)]


def local(view, scanned):
    """The joined rows of a view, without Spark."""
    readers = view.parts.readers
    held = {name: whole._Scanned(readers[name].source, Answer(found, 0)) for name, found in scanned.items()}
    return compute(view.view, held).rows


def test_few_rows_and_those_that_cost_less_here_are_not_given_to_spark(tmp_path, monkeypatch):
    view, readers = opened(tmp_path, TOTALS, [(7, "Ann")], [(1, 7), (2, 7)], "recompute")
    calls = counting(view, None)
    view.refresh()
    monkeypatch.setattr(whole, "SPARK_ROWS", 1)
    calls = counting(view, None, here=1e-9)
    readers["orders"].change((3, 7), 1)
    view.refresh()
    assert calls == []


def test_another_process_begins_with_what_this_one_has_learned(tmp_path):
    told, orders = [(k, "Ann") for k in range(50)], [(k, k % 50) for k in range(200)]
    view, readers = opened(tmp_path, TOTALS, told, orders, "batch")
    view.refresh()
    for turn in range(60):  # more than there are facts kept of
        for k in range(6):
            readers["told"].change((k, f"n{turn}"), 1)
        view.refresh()
    view.close()
    again, _ = opened(tmp_path, TOTALS, strategy="batch", readers=readers)
    known, other = view._chooser.statistics, again._prepared((6, 6)).statistics
    assert other.rows == known.rows == (200.0, 50.0)
    assert other.fanout[0, 1] == pytest.approx(known.fanout[0, 1], rel=0.5)
    assert set(other.samples) == set(known.samples) != set()
    assert other.recompute == known.recompute


def test_a_full_refresh_counts_anew_what_was_known_from_before(tmp_path):
    view, readers = opened(tmp_path, TOTALS, [(7, "Ann")], [(1, 7)], "batch")
    view.refresh()
    for turn in range(2):
        readers["orders"].change((20 + turn, 7), 1)
        view.refresh()
    assert view.store.newest.learned.rows == (1.0, 1.0)
    view.close()
    again, _ = opened(tmp_path, TOTALS, readers=readers)
    again.refresh(full=True)
    readers["orders"].change((9, 7), 1)
    again.refresh()
    assert again.store.newest.learned.rows == (3.0, 1.0)
