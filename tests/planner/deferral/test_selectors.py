"""The orders in which buckets are put off, and how many of them."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.planner.deferral.global_penalty import penalties
from penstock.planner.deferral.loads import DECAY, Load, learn
from penstock.planner.deferral.selectors import SELECTORS, chosen

# The productivity by results is 2, 1/2, 1, idle, 1; by pairs 2, 3, 1, idle, 1; the last one makes 20 intermediate rows.
LOADS = (
    Load(size=100, work=50, made=200, inter=0, output=200, active=9),
    Load(size=100, work=80, made=300, inter=5, output=50, active=4),
    Load(size=100, work=10, made=100, inter=2, output=100, active=7),
    Load(active=2),
    Load(size=100, work=60, made=100, inter=20, output=100, active=8),
)

amounts = st.floats(0, 1000, allow_nan=False)
loads = st.lists(st.builds(Load, amounts, amounts, amounts, amounts, amounts, st.integers(0, 9)), max_size=12)


def order(name, seed=0):
    return SELECTORS[name](LOADS, seed)


def test_each_selector_has_its_order():
    assert order("least_productive") == [1, 2, 4, 0, 3]
    assert order("most_productive") == [0, 2, 4, 1, 3]
    assert order("local") == [2, 4, 0, 1, 3]
    assert order("global_penalty") == [4, 1, 2, 0, 3]
    assert order("activity") == [3, 1, 2, 4, 0]
    assert order("random", 1) == order("random", 1) != order("random", 2)


@given(loads, st.integers(0, 3))
def test_each_order_has_every_bucket_once(known, seed):
    for select in SELECTORS.values():
        assert sorted(select(known, seed)) == list(range(len(known)))


def test_the_penalty_of_a_look_up_is_what_is_made_behind_it_before_results():
    """Liu 2005, figure 7.9: one row becomes two, three, four, and two results."""
    assert penalties((1, 2, 3, 4)) == (9, 7, 4, 0)


@given(loads, st.floats(0.01, 1), st.frozensets(st.integers(0, 11)), st.sampled_from(sorted(SELECTORS)))
def test_the_chosen_have_their_share_of_the_work_with_less_than_one_bucket_too_much(known, share, already, name):
    places = SELECTORS[name](known, 0)
    found = chosen(places, known, share, already)
    assert not found & already
    left = sum(known[b].work for b in range(len(known)) if b not in already)
    taken = [known[b].work for b in places if b in found]
    assert sum(taken) >= share * left * (1 - 1e-9)
    assert not taken or sum(taken[:-1]) < share * left


def test_what_is_put_off_keeps_what_was_known_of_it():
    seen = [Load(size=10, work=5, output=1)] * 5
    after = learn(LOADS, 20, seen, frozenset({1}))
    assert after[1].output == LOADS[1].output
    assert after[1].active == 20
    assert after[0].output == DECAY * 200 + 1
    assert after[3].active == 20
    assert learn((), 3, [Load(size=1.0)])[0] == Load(size=1.0, active=3)
