"""Leases by a clock of the test: who gets one, who loses it and when, and who notices what."""

import time
from dataclasses import dataclass, field
from random import Random

import pytest

from penstock.errors import StateError
from penstock.storage.faulty import Died
from penstock.storage.lease import RENEWALS, LeaseLostError, Times, acquire, epochs, holder
from penstock.storage.memory import MemoryStore
from penstock.storage.object import ObjectStore
from penstock.storage.objects import Objects
from tests.storage.faulty_objects import FaultyObjects

SECONDS = 30.0


@dataclass
class Clock:
    """A clock that goes on while somebody sleeps, when `asleep` is called with the seconds."""

    now: float = 1000.0
    asleep: list = field(default_factory=list)

    def sleep(self, seconds):
        self.now += seconds
        for each in self.asleep:
            each(seconds)

    @property
    def times(self):
        return Times(SECONDS, lambda: self.now, self.sleep)


def take(store, clock):
    return acquire(store, "owner", "s3://b/app", clock.times)


def test_the_first_owner_has_epoch_one_and_the_next_one_after_a_release_the_following():
    store, clock = MemoryStore(), Clock()
    for epoch in (1, 2, 3):
        lease = take(store, clock)
        assert lease.epoch == epoch
        lease.check()
        lease.release(forget=False)
    assert clock.now == 1000
    assert epochs(store, "owner") == [3]


def test_a_lease_that_is_not_renewed_is_taken_over_after_its_time_and_not_before():
    store, clock = MemoryStore(), Clock()
    first = take(store, clock)
    second = take(store, clock)
    assert SECONDS <= clock.now - 1000 <= SECONDS + 2
    assert second.epoch == 2
    second.check()
    with pytest.raises(LeaseLostError, match=r"lost the lease on s3://b/app to process \d+, .* after 30 seconds"):
        first.check()


def test_an_owner_that_renews_is_left_alone_and_named():
    store, clock = MemoryStore(), Clock()
    first = take(store, clock)
    clock.asleep.append(lambda _: clock.now - first._renewed >= SECONDS / RENEWALS and first.renew())
    with pytest.raises(StateError, match=r"s3://b/app is in use by process \d+; stop it first"):
        take(store, clock)
    assert clock.now - 1000 <= 2 * SECONDS / RENEWALS
    first.check()


def test_within_one_process_the_second_is_refused_at_once():
    store, clock = MemoryStore(), Clock()
    first = take(store, clock)
    first.keep()
    with pytest.raises(StateError, match="in use"):
        take(store, clock)
    assert clock.now == 1000
    first.leave()


def test_an_owner_asks_only_when_its_last_renewal_is_too_long_ago():
    store, clock = MemoryStore(), Clock()
    lease, asked = take(store, clock), []
    store.names = lambda folder, names=store.names: asked.append(folder) or names(folder)
    clock.now += SECONDS - 1
    lease.check()
    assert not asked
    clock.now += 1
    lease.check()  # nobody has taken over, so it goes on
    assert asked == ["owner"]
    lease.check()
    assert asked == ["owner"]


def test_of_two_that_wait_for_the_same_lease_the_slower_sees_the_faster_one():
    store, clock = MemoryStore(), Clock()
    take(store, clock)
    put, faster = store.put_if_absent, []

    def just_behind(name, data):
        if not faster:
            faster.append(None)
            faster[0] = take(store, clock)
            clock.asleep.append(lambda _: faster[0].renew())
        return put(name, data)

    store.put_if_absent = just_behind
    with pytest.raises(StateError, match="in use"):
        take(store, clock)
    assert epochs(store, "owner") == [faster[0].epoch] == [2]


def test_a_number_that_was_given_and_deleted_is_no_lease():
    """One that was about to put its number sleeps while others come and go."""
    store, clock = MemoryStore(), Clock()
    put = store.put_if_absent
    slept = []

    def late(name, data):
        if not slept:
            slept.append(name)
            for _ in range(3):
                take(store, clock).release(forget=False)
        return put(name, data)

    store.put_if_absent = late
    lease = take(store, clock)
    assert slept == ["owner/000000000001.json"]
    assert lease.epoch == 4
    assert epochs(store, "owner") == [4]


def test_a_forgotten_lease_leaves_nothing():
    store, clock = MemoryStore(), Clock()
    take(store, clock).release(forget=True)
    assert store.names("owner") == []
    assert take(store, clock).epoch == 1


def test_looking_tells_the_owner_while_its_lease_lasts():
    now = [5000.0]
    store, clock = MemoryStore(clock=lambda: now[0]), Clock()
    assert holder(store, "owner", store.age) is None
    lease = take(store, clock)
    assert str(holder(store, "owner", store.age)).startswith("process ")
    now[0] += SECONDS + 1
    assert holder(store, "owner", store.age) is None
    lease.renew()
    assert holder(store, "owner", store.age) is not None
    lease.release(forget=False)
    assert holder(store, "owner", store.age) is None


@pytest.mark.parametrize("seed", range(60))
def test_whatever_the_schedule_no_two_believe_at_once_that_they_own_it(seed):
    """Engines that renew, sleep, die and take over at random: whose check passes owns it alone."""
    random, store, clock = Random(seed), MemoryStore(), Clock()
    leases, best = [], 0
    for _ in range(60):
        clock.now += random.choice([0, 1, SECONDS / RENEWALS, SECONDS, 3 * SECONDS])
        act = random.random()
        if act < 0.3:
            try:
                new = take(store, clock)
            except StateError:
                continue
            assert new.epoch > best  # epochs never come again
            best = new.epoch
            leases.append(new)
        elif leases and act < 0.6:
            random.choice(leases).renew()
        elif leases and act < 0.65:
            gone = leases.pop(random.randrange(len(leases)))
            gone.release(forget=False)
            continue
        passing = []
        for lease in random.sample(leases, len(leases)):
            try:
                lease.check()
            except LeaseLostError:
                continue
            passing.append(lease.epoch)
        assert passing in ([], [best])


# -- the lease of a store -----------------------------------------------------------------------------------------


def stores(count, clock, **faults):
    client = pytest.importorskip("obstore.store", reason="pip install 'penstock[object]'").MemoryStore()
    return [ObjectStore(FaultyObjects(client, Random(0), **faults), None, clock.times) for _ in range(count)]


def test_without_its_lease_an_engine_changes_nothing():
    clock = Clock()
    first, second = stores(2, clock)
    with first.owner_lock():
        assert first.epoch == 1
        first.write("runs/a", b"x")
        first._leases[""].leave()  # as if it were stopped
        with second.owner_lock():
            assert second.epoch == 2
            for change in (
                lambda: first.put_if_absent("log/1", b"x"), lambda: first.replace("id", b"x"),
                lambda: first.delete("runs/a"), lambda: first.touch("runs/a"), lambda: first.delete_folder("runs"),
                lambda: first.write("runs/b", b"x"),
            ):  # fmt: skip
                with pytest.raises(LeaseLostError):
                    change()
            assert second.read("runs/a") == b"x"
            assert second.names("") == ["owner", "runs"]


def test_a_put_during_which_the_lease_was_lost_is_no_success():
    clock = Clock()
    first, second = stores(2, clock)
    with first.owner_lock():
        first._leases[""].leave()
        plain = first.objects.create

        def slow(name, data, writer):
            with second.owner_lock():
                pass
            plain(name, data, writer)

        first.objects.create = slow
        with pytest.raises(LeaseLostError):
            first.put_if_absent("log/1", b"x")


def test_a_lease_is_released_by_an_error_and_left_by_a_death():
    clock = Clock()
    first, second = stores(2, clock)
    with pytest.raises(ValueError, match="no"), first.owner_lock():
        raise ValueError("no")
    with second.owner_lock():
        assert (clock.now, second.epoch) == (1000, 2)
    with pytest.raises(Died), first.owner_lock():
        raise Died
    with second.owner_lock():
        assert clock.now >= 1000 + SECONDS
        assert second.epoch == 4


def test_a_lease_is_renewed_while_it_is_held():
    client = pytest.importorskip("obstore.store", reason="pip install 'penstock[object]'").MemoryStore()
    first, second = (ObjectStore(Objects("memory:", client=client), None, Times(0.6)) for _ in range(2))
    with first.owner_lock():
        time.sleep(1.5)
        with pytest.raises(StateError, match="in use"), second.owner_lock():
            pass
        assert first._leases[""]._renewals >= 4
        first.put_if_absent("log/1", b"x")
    assert second.owner() is None


def test_what_was_lost_is_said_although_renewals_fail_now_and_then():
    clock = Clock()
    first, _ = stores(2, clock)
    with first.owner_lock():
        lease = first._leases[""]
        plain = lease.records.objects.put
        lease.records.objects.put = lambda *_: (_ for _ in ()).throw(StateError("no answer"))
        clock.now += SECONDS
        with pytest.raises(StateError, match="no answer"):
            first.put_if_absent("log/1", b"x")
        lease.records.objects.put = plain
        assert first.put_if_absent("log/1", b"x")
