"""Runs that are written a piece at a time have the same line in the manifest as those that are written at once."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from penstock.kernels.owed import STEP
from penstock.state.run import Rows
from penstock.step.events import Batch
from penstock.step.plan import plan_step
from penstock.step.run_pieces import ends_of
from tests.step.scene import state_of


@pytest.fixture
def scene():
    """A table of a join, a row of it that is out of reach already, and the task of a step."""
    state = state_of("SELECT a.v FROM a [RANGE 5], b [RANGE 5] WHERE a.k = b.k")
    task = plan_step(state, Batch(0, "first"), 1.0).task
    table = next(t for t in state.network.tables if t.stream == "a")
    role = table.entries[0].id
    row = Rows(np.array([7]), np.array([10]), np.array([0], dtype=np.int32), ((role,),), {"v": pa.array([1])})
    return table, row, replace(task, progress={"b": 100})


def test_rows_expire_when_no_later_row_can_join_them(scene):
    table, row, task = scene
    until, _ = ends_of(table, row, task)
    assert until["b"] == 15


def test_rows_that_may_owe_probes_do_not_expire_before_these_are_run(scene):
    """In merges that made runs cold they did, so that clean-ups missed them (scenario 550)."""
    table, row, task = scene
    owing = replace(row, columns={**row.columns, STEP: pa.array([3], pa.int32())})
    until, _ = ends_of(table, owing, task)
    assert until["b"] == 101
