"""Where a whole view is computed: figures that sources give become relations, and the cheaper place wins."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model import Column
from penstock.model.view import Source
from penstock.planner.views.initial_load import Estimate, Machine, corrected, estimated, first, handled
from penstock.planner.views.relations import relations_of
from penstock.planner.views.shape_cost import Costs, spark_time
from penstock.sql import parse_view

COLUMNS = (Column("a", "bigint"), Column("b", "int"), Column("s", "string"))
SOURCES = {name: Source(name, COLUMNS, "parquet") for name in ("r", "s", "t", "u")}
CHAIN = "SELECT r.s AS x, u.s AS y FROM r, s, t, u WHERE r.a = s.b AND s.a = t.b AND t.a = u.b"


def chain(where="", rows=1_000_000.0, **distinct):
    view = parse_view(CHAIN + where, SOURCES, name="v")
    known = dict.fromkeys(SOURCES, Estimate(rows, distinct))
    return view, estimated(view, SOURCES, known)


def test_what_nobody_has_counted_is_estimated():
    _, counted = chain(rows=900.0, a=300.0)
    assert [c.rows for c in counted] == [900.0] * 4
    assert counted[0].distinct == {"a": 300.0}
    assert counted[1].distinct == {"a": 300.0, "b": 900.0}  # of b nothing is known
    assert [c.width for c in counted] == [8 + 24, 8 + 4, 8 + 4, 4 + 24]


def test_filters_keep_a_share_and_never_more_values_than_rows():
    _, counted = chain(" AND r.a = 7 AND s.b > 3", rows=900.0, a=300.0)
    assert counted[0].rows == pytest.approx(3.0)
    assert counted[0].distinct["a"] == pytest.approx(3.0)
    assert counted[1].rows == pytest.approx(300.0)


def test_many_cores_are_faster_than_this_process_and_few_are_not():
    view, counted = chain()
    assert not first(view, counted, Machine(cores=2)).on_spark
    assert first(view, counted, Machine(cores=200)).on_spark


def test_what_does_not_fit_here_is_given_to_spark():
    view, counted = chain()
    found = first(view, counted, Machine(cores=2, room=10 * 2**20))
    assert found.here == inf
    assert found.on_spark
    assert "here not enough memory" in found.explain(["r", "s", "t", "u"])


def test_tables_that_do_not_fit_on_spark_are_cut():
    view, counted = chain()
    whole, cut = (first(view, counted, Machine(memory=memory)) for memory in (inf, 40 * 2**20))
    assert not any(s.stored for s in whole.choice.shape.segments)
    assert any(s.stored for s in cut.choice.shape.segments)
    assert "40 MB for tables" in cut.explain(["r", "s", "t", "u"])


def test_the_picture_says_what_it_rests_on():
    view, counted = chain()
    text = first(view, counted, Machine(calibrated=True), really=False).explain(["r", "s", "t", "u"])
    assert text.startswith("here: here 1.25 s, on Spark ")
    assert "(rows estimated, costs measured here, 2 cores)" in text
    assert "probe" in text
    assert "estimated: " in text


@given(
    foretold=st.floats(0.1, 100), ratios=st.lists(st.floats(0.25, 4), min_size=1, max_size=4), cores=st.integers(1, 16)
)
def test_costs_follow_what_computations_took(foretold, ratios, cores):
    """Whatever shape: it is priced by the same factor higher, so the choice between shapes stays."""
    costs = corrected(Costs(), [(foretold, foretold * ratios[0])] * len(ratios))
    view, counted = chain()
    relations = relations_of(view, counted)
    before = first(view, counted, Machine(cores=cores))
    for shape in before.choice.best.values():
        wanted = ratios[0] * spark_time(relations, shape, Costs(), cores)
        assert spark_time(relations, shape, costs, cores) == pytest.approx(wanted)
    assert corrected(Costs(), []) == Costs()


def test_rows_that_are_read_and_made_are_handled():
    assert handled([3.0, 4.0], 5.0) == 12.0
