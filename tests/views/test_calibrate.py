"""Costs from measured probes: planted ones are found again, and a small measurement gives figures that can be used."""

from dataclasses import astuple
from math import isfinite

import pytest

from penstock.planner.views.shape_cost import Costs
from penstock.views.refresh.calibrate import HOPS, NARROW, WIDE, calibrate, costs_of

PLANTED = Costs(
    read=1e-7,
    partition=2e-7,
    send=2e-7,
    build=3e-7,
    probe=1.5e-7,
    byte=5e-9,
    job=0.05,
    hop=0.03,
    write=6e-7,
    small=2.0**20,
)


def times(costs, rows, cores):
    """What the probes would take if the costs were true."""

    def after(work):
        return costs.job + work * rows / cores

    narrow, wide = (costs.partition + costs.send + costs.byte * 8 * columns for columns in (NARROW, WIDE))
    both = 1.1 * (costs.read + narrow)
    return {
        "job": costs.job,
        "hops": costs.job + HOPS * costs.hop,
        "read": after(costs.read),
        "read wide": after(3 * costs.read),
        "send": after(costs.read + narrow),
        "send wide": after(3 * costs.read + wide),
        "probe": after(both + costs.probe + 0.1 * costs.build),
        "build": after(both + costs.build + 0.1 * costs.probe),
        "write": after(costs.read + costs.write),
    }


@pytest.mark.parametrize("cores", [1, 4])
def test_planted_costs_are_found(cores):
    found = costs_of(times(PLANTED, 100_000, cores), 100_000, cores)
    assert astuple(found) == pytest.approx(astuple(PLANTED))


def test_noise_never_makes_a_cost_negative():
    found = costs_of(dict.fromkeys(times(PLANTED, 1, 1), 0.1), 1000, 2)
    assert min(astuple(found)) >= 0
    assert found.build > 0


@pytest.mark.long
@pytest.mark.spark
def test_a_small_measurement_gives_costs(spark, tmp_path):
    found = calibrate(spark, tmp_path, rows=2000, repetitions=1)
    assert all(isfinite(value) and value >= 0 for value in astuple(found))
    assert found.job > 0
