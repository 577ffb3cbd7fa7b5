"""Joins of any shape through Spark agree with the reference and DuckDB, with changing routes and over restarts."""

from unittest.mock import patch

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from penstock.planner.steering import Steering
from tests.effort import examples
from tests.graphs import runnable_graph
from tests.routes import any_routes
from tests.spark.replay import drain, names, replay_of
from tests.spark.test_engine_properties import assert_exact, together

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:.*RANGE ALL")]

PHASES = [Phase.explicit, Phase.reuse, Phase.generate]
AT_ONCE = 4


def graphs():
    """Several at once, one of them large."""
    return st.tuples(*[runnable_graph(most=3)] * (AT_ONCE - 1), runnable_graph()).map(together)


class Wandering(Steering):
    """Takes other routes at every step."""

    seed = 0

    def refresh(self):
        self.steps = getattr(self, "steps", 0) + 1
        self.routes = any_routes(self.seed)(self.network, self.steps)

    def observe(self, step, totals, old, new):
        decisions = super().observe(step, totals, old, new)
        self.refresh()
        return decisions


def run(spark, root, load, *, tasks, seed, cut=None):
    with patch("penstock.catalog.catalog.Steering", type("Steering", (Wandering,), {"seed": seed})):
        replay = replay_of(load, root / "source", steps=cut)
        if cut is not None:
            drain(replay.engine(spark, root / "state", names(load), tasks=tasks))
            for batch in load.batches[cut:]:
                replay.add(**batch)
        engine = replay.engine(spark, root / "state", names(load), tasks=tasks)
        drain(engine, final=True)
    return engine


@settings(max_examples=examples(2), phases=PHASES)
@given(load=graphs(), tasks=st.integers(1, 3), seed=st.integers(0, 10**6), cut=st.none() | st.integers(1, 2))
def test_any_graph_by_any_route_over_restarts(spark, tmp_path_factory, load, tasks, seed, cut):
    assert_exact(run(spark, tmp_path_factory.mktemp("run"), load, tasks=tasks, seed=seed, cut=cut), load)


@pytest.mark.long
@settings(max_examples=examples(40), phases=PHASES)
@given(load=graphs(), tasks=st.integers(1, 3), seed=st.integers(0, 10**6), cut=st.none() | st.integers(1, 2))
def test_many_graphs_by_any_route_over_restarts(spark, tmp_path_factory, load, tasks, seed, cut):
    assert_exact(run(spark, tmp_path_factory.mktemp("run"), load, tasks=tasks, seed=seed, cut=cut), load)
