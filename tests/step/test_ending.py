"""When a run has nothing left to do."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from penstock.model.time import FOREVER, NEVER
from penstock.state.manifest import Manifest, Progress
from penstock.step import derived, ending
from penstock.step.events import Batch
from tests.step.scene import state_of, step
from tests.step.test_plan import JOIN, ROWS

WAITS = pytest.mark.parametrize(("waits", "held"), [(False, False), (True, False), (False, True), (True, True)])


def network(*names):
    return SimpleNamespace(derived_streams=[SimpleNamespace(name=name) for name in names])


def say(monkeypatch, waits, held, moved=()):
    monkeypatch.setattr(derived, "waiting", lambda *_: waits)
    monkeypatch.setattr(derived, "moved", lambda *_: dict(moved))
    monkeypatch.setattr(ending, "held_back", lambda *_: held)


@WAITS
def test_all_is_out_if_derived_streams_are_over_and_nothing_waits_or_is_held_back(monkeypatch, waits, held):
    say(monkeypatch, waits, held)
    over = Manifest(progress={"d": Progress(FOREVER, 5), "e": Progress(FOREVER, 5)})
    assert ending.is_out(network("d", "e"), over, None) == (not (waits or held))
    assert not ending.is_out(network("d", "e"), Manifest(progress={"d": Progress(FOREVER, 5)}), None)


@WAITS
def test_only_rows_have_an_effect_if_nothing_waits_is_held_back_or_moves(monkeypatch, waits, held):
    manifest = Manifest(progress={"d": Progress(7, 5)})
    say(monkeypatch, waits, held, manifest.progress)
    assert ending.is_quiescent(network("d"), manifest, None) == (not (waits or held))
    say(monkeypatch, waits, held, {"d": Progress(8, 5)})
    assert not ending.is_quiescent(network("d"), manifest, None)


def test_a_stream_that_has_ended_keeps_its_newest_time():
    state, _ = step(state_of(JOIN), Batch(0, "x"), ROWS)
    assert ending.ended(state.manifest, "a") == Progress(FOREVER, 3, ending.ENDED)
    assert ending.ended(Manifest(), "a").newest == NEVER
    assert not ending.is_ending(state.manifest)
    begun = replace(state.manifest, progress={**state.manifest.progress, "a": ending.ended(state.manifest, "a")})
    assert ending.is_ending(begun)
    assert not ending.is_ending(replace(begun, final=True))


def test_each_level_of_derived_streams_may_take_three_ticks():
    assert [ending.most_ticks(network(*names)) for names in ("", "d", "de")] == [0, 5, 8]
