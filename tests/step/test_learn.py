"""What a step stores of its lessons: statistics of probe orders if they are new, so that a restart has them."""

from types import SimpleNamespace

from penstock.planner.counters import TICK
from penstock.state.manifest import Entry, Manifest
from penstock.step.learn import REMEMBERED, steered
from tests.state.runs import entry_of


class Steering:
    routes, states, network, tasks = "routes", {"join": "statistics"}, None, 1

    def __init__(self, joins=1):
        self.modes, self.seen = range(joins), None

    def observe(self, step, totals, old, new):
        self.seen = ([run.name for run in old], [run.name for run in new])
        return []


def test_statistics_are_stored_when_they_have_changed():
    entry = Entry(step=3, counters=TICK)
    assert steered(Steering(), Manifest(), entry)[:2] == ({"join": "statistics"}, ())
    assert steered(Steering(), Manifest(orders={"join": "statistics"}), entry)[0] == {}
    assert steered(Steering(), Manifest(orders={"join": "older"}), entry)[0] == {"join": "statistics"}


def test_those_of_many_joins_are_stored_every_few_steps():
    stored = [bool(steered(Steering(2 * REMEMBERED), Manifest(), Entry(step=n, counters=TICK))[0]) for n in range(7)]
    assert stored == [True, False, False, True, False, False, True]


def test_what_was_there_and_what_came_are_told_apart_and_merged_runs_are_neither():
    steering, old = Steering(), entry_of("old", table="t")
    new = SimpleNamespace(name="new", level=0), SimpleNamespace(name="merged", level=1)
    steered(steering, Manifest(runs={"old": old}), Entry(step=1, counters=TICK, runs_added=new))
    assert steering.seen == (["old"], ["new"])
