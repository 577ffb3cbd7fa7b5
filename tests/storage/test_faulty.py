from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.storage.faulty import Died, Faults, FaultyStore
from penstock.storage.memory import MemoryStore

SEEDS = range(40)


def faulty(seed=0, **faults):
    return FaultyStore(MemoryStore(), Random(seed), Faults(**faults))


def after_power_cut(act):
    """What may be there after a power cut that follows these operations."""
    found = set()
    for seed in SEEDS:
        store = faulty(seed)
        act(store)
        found.add(tuple(store.restarted(power_cut=True).inner.files().items()))
    return found


def test_a_file_is_lost_with_the_power_until_its_folder_is_synced():
    assert after_power_cut(lambda s: s.write("runs/a", b"x")) == {(), (("runs/a", b"x"),)}
    assert after_power_cut(lambda s: (s.write("runs/a", b"x"), s.sync(["runs/."]))) == {(("runs/a", b"x"),)}
    assert after_power_cut(lambda s: s.put_if_absent("runs/a", b"x")) == {(("runs/a", b"x"),)}


def test_a_deleted_file_may_come_back_with_the_power():
    def act(store):
        store.put_if_absent("runs/a", b"x")
        store.delete("runs/a")

    assert after_power_cut(act) == {(), (("runs/a", b"x"),)}
    assert after_power_cut(lambda s: (act(s), s.sync(["runs/."]))) == {()}


def test_what_another_program_wrote_is_whole_only_when_it_was_synced_by_its_name():
    def act(store):
        store.written_elsewhere("log/1", b"xyz")
        store.sync(["log/."])

    assert after_power_cut(act) == {(("log/1", b"xyz"[:n]),) for n in range(4)}
    assert after_power_cut(lambda s: (act(s), s.sync(["log/1"]))) == {(("log/1", b"xyz"),)}


def test_a_process_that_is_killed_loses_nothing():
    store = faulty()
    store.write("runs/a", b"x")
    store.delete("runs/a")
    store.write("runs/b", b"y")
    assert store.restarted().inner.files() == {"runs/b": b"y"}


def test_a_process_dies_between_any_two_changes_and_can_do_nothing_after():
    def act(store):
        with store.owner_lock():
            store.put_if_absent("log/1", b"one")
            store.write("runs/a", b"abc")
            store.delete("log/1")

    whole, seen = faulty(), set()
    act(whole)
    assert whole.changes == [("put", "log/1"), ("write", "runs/a"), ("delete", "log/1")]
    for dies_at in range(1, 4):
        for seed in SEEDS:
            store = faulty(seed, dies_at=dies_at)
            with pytest.raises(Died):
                act(store)
            with pytest.raises(Died):
                store.read("runs/a")
            with pytest.raises(Died):
                store.write("runs/b", b"")
            following = store.restarted()
            assert following.owner() is None
            with following.owner_lock(), pytest.raises(Died):
                store.write("runs/b", b"")
            seen.add((dies_at, *following.inner.files().items()))
    assert {s for s in seen if s[0] == 1} == {(1,)}
    assert {s for s in seen if s[0] == 2} == {(2, ("log/1", b"one"))} | {
        (2, ("log/1", b"one"), ("runs/a", b"abc"[:n])) for n in range(4)
    }
    assert {s for s in seen if s[0] == 3} == {(3, ("log/1", b"one"), ("runs/a", b"abc"))}


def test_operations_fail_without_having_done_anything():
    store = faulty(fails=1.0)
    for act in (
        lambda: store.write("a", b""),
        lambda: store.read("a"),
        lambda: store.sync(["."]),
        lambda: store.names(""),
    ):
        with pytest.raises(OSError, match="error: 'memory:/"):
            act()
    assert store.inner.files() == {}


def test_a_put_may_be_done_and_yet_fail_and_is_not_durable_then():
    outcomes = set()
    for seed in SEEDS:
        store = faulty(seed, unclear=1.0)
        with pytest.raises(OSError, match="log/1"):
            store.put_if_absent("log/1", b"x")
        assert store.inner.files() == {"log/1": b"x"}
        assert not store.put_if_absent("log/1", b"y")
        outcomes.add(len(store.restarted(power_cut=True).inner.files()))
    assert outcomes == {0, 1}


def test_operations_take_their_time():
    waited = []
    store = FaultyStore(MemoryStore(), Random(0), Faults(slow=0.5), delay=lambda: waited.append(1))
    for number in range(40):
        store.write(str(number), b"")
    assert 5 < len(waited) < 35


@given(st.integers(), st.floats(0, 0.5), st.floats(0, 0.5))
def test_the_seed_says_what_happens(seed, fails, unclear):
    def run():
        store, told = faulty(seed, fails=fails, unclear=unclear), []
        for number in range(20):
            try:
                told.append(store.put_if_absent(f"log/{number % 7}", b"%d" % number))
            except OSError as error:
                told.append(str(error))
        return told, store.restarted(power_cut=True).inner.files()

    assert run() == run()
