"""Three ways to the greatest value of windows of rows, and the experiments that are made of the lab's operators."""

from argparse import Namespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import disorder
from lab.disorder.rows import buffered, by_window, paned

WAYS = (by_window, buffered, paned)


@given(st.lists(st.integers(-5, 5), max_size=30), st.integers(1, 8), st.integers(1, 8))
def test_all_ways_give_the_greatest_of_each_window(values, length, slide):
    ends = range(slide, len(values) + 1, slide)
    wanted = {end // slide - 1: max(values[max(0, end - length) : end]) for end in ends}
    for way in WAYS:
        found, counts = way(values, length, slide)
        assert found == wanted, way
        assert counts.probes >= len(wanted)


LONG = {"X5", "X8"}  # each takes some seconds


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.long) if n in LONG else n for n in disorder.EXPERIMENTS]
)
def test_every_experiment_has_equal_answers_and_its_shape(name):
    experiment = disorder.EXPERIMENTS[name]
    cells = experiment.run()
    assert all(cell["equal"] for cell in cells.values())
    assert experiment.shape(cells), cells


def test_the_list_names_every_experiment_once():
    named = [number for name in disorder.EXPERIMENTS for number in name.split(", ")]
    assert sorted(named, key=lambda name: int(name[1:])) == [f"X{n}" for n in range(1, 13)]


def test_a_report_says_which_shapes_were_found(monkeypatch):
    small = {"X10": disorder.EXPERIMENTS["X10"]}
    monkeypatch.setattr(disorder, "EXPERIMENTS", small)
    report = disorder.measure(Namespace(all=False))
    assert report.equal
    assert "| X10 | 8-9 | simulated | the same: no gain | yes |" in disorder.describe(report)
