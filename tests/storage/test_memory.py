import pickle

import pytest

from penstock.errors import StateError
from penstock.storage.memory import MemoryStore


def test_another_program_cannot_read_it_and_is_told_why():
    with pytest.raises(StateError, match=r"memory:/results/a lies in memory.*use a state directory on disk"):
        MemoryStore().path("results/a")
    with pytest.raises(TypeError, match="cannot be sent to another process"):
        pickle.dumps(MemoryStore())


def test_ages_are_those_of_its_clock():
    now = 100.0
    store = MemoryStore(clock=lambda: now)
    store.write("runs/a", b"x")
    store.write("runs/b", b"x")
    now = 700.0
    store.touch("runs/b")
    assert (store.age("runs/a"), store.age("runs/b")) == (600.0, 0.0)


def test_all_that_is_there_can_be_looked_at():
    store = MemoryStore()
    store.write("runs/a", b"x")
    store.make("checkpoint")
    store.written_elsewhere("checkpoint/offsets/0", b"y")
    store.write("id", b"z")
    assert store.files() == {"id": b"z", "checkpoint/offsets/0": b"y", "runs/a": b"x"}
